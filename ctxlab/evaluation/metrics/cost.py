"""What the requests cost in input tokens when the provider caches their unchanged beginning.

Each request's prefix that is message for message that of the request before is read from the cache, if
it is long enough for the provider and the last request is recent enough; the rest is paid in full, or at
the price of writing it to the cache where the provider asks one. Where a cache serves only up to
breakpoints that a client sets, as Anthropic's does, they stand where agents set them: behind the system
prompt and behind the last two messages. Caching is counted in whole messages and from the last request
only. Where long prompts are dearer, every token of a request is billed by the size of its prompt. Output
is not counted: it is the recording's, the same under every strategy. A model without a known price has
no cost: nan, which is not nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    Watcher,
)
from ctxlab.evaluation.metrics.base import (
    Array,
    Column,
    Score,
)
from ctxlab.tokens.models import CachePolicy
from ctxlab.tokens.prices import Prices

__all__ = ["Cost"]


class Cost:
    """Input cost with prompt caching, the strategy's own model calls included.

    Prices and cache rules are those of the recording's model (``Tape.model``).
    """

    columns = (
        Column("cached", "tokens read from the provider's prompt cache", "tokens"),
        Column("cost_usd", "input cost of the request, the strategy's own calls included", "USD"),
        Column("strategy_usd", "of it, the strategy's own model calls", "USD"),
    )
    scores = (
        Score(
            "cost_usd",
            "input cost of all requests, own calls included",
            "USD",
            "sum",
            "cost_usd",
            better="lower",
        ),
        Score(
            "strategy_usd",
            "of it, the strategy's own calls",
            "USD",
            "sum",
            "strategy_usd",
            better="lower",
        ),
        Score(
            "cached_share",
            "share of tokens read from the cache",
            "share",
            "ratio",
            "cached",
            "tokens",
            better="higher",
        ),
    )
    watchers: ClassVar[Mapping[str, Watcher]] = {}

    def measure(self, tape: Tape, traces: Sequence[Trace]) -> Mapping[str, Array]:
        """See ``columns``."""
        prices, cache = tape.model.prices, tape.model.cache
        tokens = np.array([trace.tokens for trace in traces], dtype=np.float64)
        prefix = _reached(cache, tokens - tape.fixed, traces)
        # Tool definitions stand before the messages, so what is unchanged includes them.
        prefix += tape.fixed - tape.counter.REPLY
        prefix = cache.served(prefix) * _warm(tape, cache)
        plain, read, write = _by_size(prices, tokens)
        write = np.where(tokens >= cache.minimum, write, plain)
        own = np.zeros_like(tokens)
        for row, trace in enumerate(traces):
            for call in trace.context.spent:
                own[row, call.turn] += call.usd
        cost = prefix * read + (tokens - prefix) * write + own
        return {
            "cached": prefix,
            "cost_usd": cost if prices.known else np.full_like(cost, np.nan),
            "strategy_usd": own,
        }


def _by_size(prices: Prices, tokens: Array) -> list[Array]:
    """What a token of input, from the cache and to the cache costs in requests of so many tokens."""
    starts = [tier.start for tier in prices.above]
    tier = np.searchsorted(starts, tokens, side="right") if starts else 0
    names = ("input", "cache_read", "cache_write")
    return [np.array([getattr(rates, name) for rates in prices.tiers])[tier] for name in names]


def _reached(cache: CachePolicy, whole: Array, traces: Sequence[Trace]) -> Array:
    """Tokens of messages that each request finds where the one before left them to be read."""
    unchanged, opening, newest = (
        np.array([getattr(trace, name) for trace in traces], dtype=np.float64)
        for name in ("unchanged", "opening", "newest")
    )
    before = [np.roll(each, 1, axis=1) for each in (opening, whole, newest)]
    found: Array = cache.reached(unchanged, *before)
    return found


def _warm(tape: Tape, cache: CachePolicy) -> npt.NDArray[np.bool_]:
    """Which requests find the one before in the cache; where no time is recorded, it is taken to."""
    messages = tape.recording.messages
    times = [messages[position].time for position in tape.requests]
    stamps = np.array([np.nan if time is None else time for time in times], dtype=np.float64)
    warm = ~(np.diff(stamps, prepend=np.nan) > cache.lifetime)
    warm[:1] = False
    return warm

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

from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score
from ctxlab.tokens.models import CachePolicy
from ctxlab.tokens.prices import Prices

__all__ = ["CostMetric"]


class CostMetric:
    """Input cost with prompt caching, the strategy's own model calls included.

    Prices and cache rules are those of the recording's model (``PreparedRecording.model``).
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
            heading="cost\n$",
        ),
        Score(
            "strategy_usd",
            "of it, the strategy's own calls",
            "USD",
            "sum",
            "strategy_usd",
            better="lower",
            heading="strategy\n$",
            legend="strategy $: the strategy's own model calls, which cost includes",
        ),
        Score(
            "cached_share",
            "share of tokens read from the cache",
            "share",
            "ratio",
            "cached",
            "tokens",
            better="higher",
            heading="cached\n%",
            legend="cached: tokens read from the prompt cache",
        ),
    )
    observers: ClassVar[Mapping[str, RequestObserver]] = {}

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """See ``columns``."""
        prices, cache = prepared.model.prices, prepared.model.cache
        tokens = np.array([trace.tokens for trace in traces], dtype=np.float64)
        prefix = _reachable_prefix_tokens(cache, tokens - prepared.fixed_tokens, traces)
        # Tool definitions stand before the messages, so what is unchanged includes them.
        prefix += prepared.fixed_tokens - prepared.counter.REPLY_TOKENS
        prefix = cache.cached_tokens(prefix) * _is_cache_warm(prepared, cache)
        plain, read, write = _rates_by_prompt_size(prices, tokens)
        write = np.where(tokens >= cache.minimum, write, plain)
        own = np.zeros_like(tokens)
        for row, trace in enumerate(traces):
            for call in trace.context.model_calls:
                own[row, call.request_index] += call.usd
        cost = prefix * read + (tokens - prefix) * write + own
        return {
            "cached": prefix,
            "cost_usd": cost if prices.known else np.full_like(cost, np.nan),
            "strategy_usd": own,
        }


cost = CostMetric()


def _rates_by_prompt_size(prices: Prices, tokens: FloatArray) -> list[FloatArray]:
    """What a token of input, from the cache and to the cache costs in requests of so many tokens."""
    starts = [tier.start for tier in prices.above]
    tier = np.searchsorted(starts, tokens, side="right") if starts else 0
    names = ("input", "cache_read", "cache_write")
    return [np.array([getattr(rates, name) for rates in prices.tiers])[tier] for name in names]


def _reachable_prefix_tokens(
    cache: CachePolicy, whole: FloatArray, traces: Sequence[Trace]
) -> FloatArray:
    """Tokens of messages that each request finds where the one before left them to be read."""
    unchanged, opening, newest = (
        np.array([getattr(trace, name) for trace in traces], dtype=np.float64)
        for name in ("unchanged_prefix_tokens", "system_prompt_tokens", "last_message_tokens")
    )
    before = [np.roll(each, 1, axis=1) for each in (opening, whole, newest)]
    found: FloatArray = cache.readable_prefix(unchanged, *before)
    return found


def _is_cache_warm(prepared: PreparedRecording, cache: CachePolicy) -> npt.NDArray[np.bool_]:
    """Which requests find the one before in the cache; where no time is recorded, it is taken to."""
    messages = prepared.recording.messages
    times = [messages[position].time for position in prepared.request_positions]
    stamps = np.array([np.nan if time is None else time for time in times], dtype=np.float64)
    warm = ~(np.diff(stamps, prepend=np.nan) > cache.lifetime)
    warm[:1] = False
    return warm

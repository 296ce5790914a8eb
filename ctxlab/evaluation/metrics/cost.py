"""Input cost of the requests, at the provider's prices and with prompt caching.

A prompt cache serves the leading messages of a request that are unchanged since the previous
request, if they are long enough for the provider and the previous request is recent enough. All
other tokens cost the input price, or the price of a cache write if the provider charges one. Some
caches, such as Anthropic's, serve prefixes only up to breakpoints that the client sets. ctxlab
assumes the breakpoints that agents usually set: after the system prompt and after the last two
messages.

Only whole messages are cached, and only those of the previous request. If a provider charges more
for long requests, the size of a request determines the price of all its tokens. Output tokens are
not counted, because they are the same under every strategy. If the price of a model is unknown, the
cost is nan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.tokens.models import CachePolicy
from ctxlab.tokens.prices import Prices


class CostMetric(Metric):
    """Input cost with prompt caching, including the strategy's own model calls.

    Prices and cache rules are those of the recording's model (``PreparedRecording.model``).
    """

    columns = (
        Column("cached", "tokens read from the provider's prompt cache", "tokens"),
        Column("cost_usd", "input cost of the request and of the strategy's own calls", "USD"),
        Column("strategy_usd", "cost of the strategy's own model calls", "USD"),
    )
    scores = (
        Score.total(
            "cost_usd", "input cost of all requests and of the strategy's own model calls", "USD"
        ).printed("cost\n$"),
        Score.total("strategy_usd", "cost of the strategy's own model calls", "USD").printed(
            "strategy\n$", "strategy $: cost of the strategy's own model calls (included in cost)"
        ),
        Score.rate(
            "cached_share",
            "share of tokens read from the provider's prompt cache",
            "cached / tokens",
            "higher",
        ).printed("cached\n%", "cached: share of tokens read from the prompt cache"),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        prices, cache = prepared.model.prices, prepared.model.cache
        tokens = np.array([trace.tokens for trace in traces], dtype=np.float64)
        prefix = _reachable_prefix(cache, tokens - prepared.fixed_tokens, traces)
        # Tool definitions precede the messages, so the unchanged prefix includes them.
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
    """Return the prices of input, cache reads and cache writes that apply to each request."""
    starts = [tier.start for tier in prices.above]
    tier = np.searchsorted(starts, tokens, side="right") if starts else 0
    names = ("input", "cache_read", "cache_write")
    return [np.array([getattr(rates, name) for rates in prices.tiers])[tier] for name in names]


def _reachable_prefix(cache: CachePolicy, whole: FloatArray, traces: Sequence[Trace]) -> FloatArray:
    """Return the number of leading tokens of each request that a warm cache can serve.

    ``whole`` contains the total number of tokens of the messages of each request.
    """
    unchanged, opening, newest = (
        np.array([getattr(trace, name) for trace in traces], dtype=np.float64)
        for name in ("unchanged_prefix_tokens", "system_prompt_tokens", "last_message_tokens")
    )
    before = [np.roll(each, 1, axis=1) for each in (opening, whole, newest)]
    found: FloatArray = cache.readable_prefix(unchanged, *before)
    return found


def _is_cache_warm(prepared: PreparedRecording, cache: CachePolicy) -> npt.NDArray[np.bool_]:
    """Check for each request if the previous request is still in the provider's cache.

    If the time of a request is unknown, the cache is assumed to be valid. The first element is
    False.
    """
    messages = prepared.recording.messages
    times = [messages[position].time for position in prepared.request_positions]
    stamps = np.array([np.nan if time is None else time for time in times], dtype=np.float64)
    warm = ~(np.diff(stamps, prepend=np.nan) > cache.lifetime)
    warm[:1] = False
    return warm

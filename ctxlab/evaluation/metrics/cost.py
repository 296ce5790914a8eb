"""Input cost of the requests, at the provider's prices and with prompt caching.

A prompt cache serves the leading messages of a request that are unchanged since the previous
request, if they are long enough for the provider and the cache still contains the previous request
(``ctxlab.tokens.cache_timeline``). All other tokens cost the input price, or the price of a cache
write if the provider charges one. Some caches, such as Anthropic's, serve prefixes only up to
breakpoints that the client sets. ctxlab assumes the breakpoints that agents usually set: after the
system prompt and after the last two messages.

The cost includes the tokens that no log contains, such as the system prompt of a product, if the
bills of the recording reveal them (``CostSettings.fixed``). They precede the messages and are the same
in each request and under every strategy. The cost then also includes the hidden reasoning that the
client sends back with the messages. The metric ``usage`` counts neither.

Only whole messages are cached, and only those of the previous request. If a provider charges more
for long requests, the size of a request determines the price of all its tokens. The cost of output
tokens is a column of its own and not part of the cost, because the replies are the same under every
strategy. If the price of a model is unknown, the cost is nan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from ctxlab.context.history import Form
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.tokens.models import CachePolicy
from ctxlab.tokens.prices import Prices

_RATES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


class CostMetric(Metric):
    """Input cost with prompt caching, including the strategy's own model calls.

    Prices and cache rules are those of the recording's model (``PreparedRecording.model``).
    """

    columns = (
        Column(
            "priced_tokens",
            "input tokens that are paid: the request and the unlogged tokens that its price includes",
            "tokens",
        ),
        Column("cached", "tokens read from the provider's prompt cache", "tokens"),
        Column("cache_write_5m", "tokens written to the cache for its usual lifetime", "tokens"),
        Column("cache_write_1h", "tokens written to the cache for an hour", "tokens"),
        Column(
            "plain_input", "input tokens neither read from the cache nor written to it", "tokens"
        ),
        Column("cold", "1 if the cache no longer contained the previous request", "0 or 1"),
        Column("cost_usd", "input cost of the request and of the strategy's own calls", "USD"),
        Column("strategy_usd", "cost of the strategy's own model calls", "USD"),
        Column(
            "output", "output tokens of the recorded reply, as billed or else counted", "tokens"
        ),
        Column("output_usd", "cost of the output tokens, not included in cost_usd", "USD"),
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
            "share of paid input tokens that are read from the provider's prompt cache",
            "cached / priced_tokens",
            "higher",
        ).printed("cached\n%", "cached: share of paid input tokens read from the prompt cache"),
        Score.rate(
            "cold_rate",
            "share of requests that found the prompt cache expired, under every strategy",
            "cold",
            "",
        ),
        Score.total("cached", "tokens read from the prompt cache", "tokens", better=""),
        Score.total(
            "cache_write_5m", "tokens written to the cache for its usual lifetime", "tokens"
        ),
        Score.total("cache_write_1h", "tokens written to the cache for an hour", "tokens"),
        Score.total(
            "plain_input", "input tokens neither read from the cache nor written to it", "tokens"
        ),
        Score.total("output", "output tokens of the recorded replies", "tokens", better=""),
        Score.total(
            "output_usd", "cost of the output tokens, not included in cost_usd", "USD", better=""
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        prices, cache, timeline = (
            prepared.model.prices,
            prepared.model.cache,
            prepared.cache_timeline,
        )
        unlogged, reasoning = prepared.priced_fixed_tokens, _sum_reasoning(prepared, traces)
        sent = np.array([trace.tokens for trace in traces], dtype=np.float64)
        tokens = sent + unlogged + reasoning
        # Tool definitions precede the messages, so the unchanged prefix includes them.
        head = unlogged + prepared.fixed_tokens - prepared.counter.REPLY_TOKENS
        messages = sent - prepared.fixed_tokens
        prefix = _reachable_prefix(cache, messages, traces)
        # Reasoning is spread over the messages, so the prefix contains its share of it.
        density = np.roll(reasoning / np.maximum(messages, 1), 1, axis=1)
        prefix = head + np.floor(prefix * (1 + density))
        opening = np.array([trace.system_prompt_tokens for trace in traces], dtype=np.float64)
        shared = np.minimum(timeline.shared, head + opening)
        cached = cache.cached_tokens(np.where(timeline.warm, prefix, shared))
        rates = _rates_by_prompt_size(prices, tokens)
        # Most providers charge nothing for writes. Their bills contain plain input instead.
        is_written = (tokens >= cache.minimum) & (rates["cache_write"] > rates["input"])
        rest = tokens - cached
        long = rest * is_written * timeline.long_share
        short = rest * is_written - long
        plain = rest * ~is_written
        own = np.zeros_like(tokens)
        for row, trace in enumerate(traces):
            for call in trace.context.model_calls:
                own[row, call.request_index] += call.usd
        cost = (
            plain * rates["input"]
            + cached * rates["cache_read"]
            + short * rates["cache_write"]
            + long * rates["cache_write_1h"]
        )
        cold = ~timeline.warm & (np.arange(tokens.shape[1]) > 0) & (cache.kind != "none")
        output = np.broadcast_to(_output_tokens(prepared), tokens.shape)
        unknown = 1.0 if prices.known else np.nan
        return {
            "priced_tokens": tokens,
            "cached": cached,
            "cache_write_5m": short,
            "cache_write_1h": long,
            "plain_input": plain,
            "cold": np.broadcast_to(cold, tokens.shape).astype(np.float64),
            "cost_usd": (cost + own) * unknown,
            "strategy_usd": own,
            "output": output,
            "output_usd": output * rates["output"] * unknown,
        }


cost = CostMetric()


def _rates_by_prompt_size(prices: Prices, tokens: FloatArray) -> dict[str, FloatArray]:
    """Return the prices that apply to each request, by name of the price."""
    starts = [tier.start for tier in prices.above]
    tier = np.searchsorted(starts, tokens, side="right") if starts else 0
    return {
        name: np.array([getattr(rates, name) for rates in prices.tiers])[tier] for name in _RATES
    }


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


def _sum_reasoning(prepared: PreparedRecording, traces: Sequence[Trace]) -> FloatArray:
    """Return the tokens of the hidden reasoning that is sent back with the messages of each request.

    Only messages that stand verbatim in the request keep their reasoning.
    """
    replays, order = distinct_replays(traces)
    requests = len(prepared.request_positions)
    known = prepared.priced_reasoning_tokens
    if not known:
        return np.zeros((len(order), requests))
    places, tokens = np.array(list(known)), np.array(list(known.values()), np.float64)
    first = np.searchsorted(prepared.request_positions, places, side="right")
    by_position = np.zeros(len(prepared.history))
    by_position[places] = tokens
    sums = np.zeros((len(replays), requests))
    for row, trace in zip(sums, replays, strict=True):
        last = np.clip(np.array(trace.context.dropped_at)[places], first, requests)
        added = np.bincount(first, tokens, requests + 1) - np.bincount(last, tokens, requests + 1)
        row[:] = added[:requests].cumsum()
        for request, entries in trace.forked_requests.items():
            there = [entry.start for entry in entries if entry.form is Form.VERBATIM]
            row[request] = by_position[there].sum()
    return sums[order]


def _output_tokens(prepared: PreparedRecording) -> FloatArray:
    """Return the output tokens of the reply to each request: as billed, or else counted."""
    entries = [prepared.history.entries[place] for place in prepared.request_positions]
    return np.array(
        [e.message.usage.output if e.message.usage else e.tokens for e in entries], np.float64
    )

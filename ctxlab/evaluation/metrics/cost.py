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

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.tokens.cache_timeline import CacheTimeline, build_cache_timeline
from ctxlab.tokens.prices import Prices

_RATES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


class RequestTokens(NamedTuple):
    """Tokens of requests that determine their price, as arrays of shape ``(traces, requests)``."""

    sent: FloatArray
    "all tokens of the request"
    unchanged: FloatArray
    "tokens of the leading messages that equal those of the previous request"
    opening: FloatArray
    "tokens of the leading system messages"
    newest: FloatArray
    "tokens of the last message"
    reasoning: FloatArray
    "tokens of the hidden reasoning that is sent back with the messages"

    @classmethod
    def of_traces(cls, traces: Sequence[Trace], reasoning: FloatArray) -> RequestTokens:
        """Collect the tokens of the requests of several traces of equal length.

        Parameters
        ----------
        traces : sequence of Trace
            Traces with equally many requests.
        reasoning : numpy.ndarray of shape (traces, requests)
            Tokens of the hidden reasoning, see ``sum_reasoning``.

        Returns
        -------
        RequestTokens
            Arrays of shape ``(traces, requests)``.
        """
        names = ("tokens", "unchanged_prefix_tokens", "system_prompt_tokens", "last_message_tokens")
        sent, unchanged, opening, newest = (
            np.array([getattr(trace, name) for trace in traces], np.float64) for name in names
        )
        return cls(sent, unchanged, opening, newest, reasoning)


class CostMetric(Metric):
    """Input cost with prompt caching, including the strategy's own model calls.

    Prices and cache rules are those of the recording's model (``PreparedRecording.model``).
    """

    columns = (
        Column(
            "priced_tokens",
            "input tokens that are paid: the request and the unlogged tokens that its price includes",
            "tokens",
            integer=True,
        ),
        Column("cached", "tokens read from the provider's prompt cache", "tokens", integer=True),
        Column(
            "cache_write_5m",
            "tokens written to the cache for its usual lifetime",
            "tokens",
            integer=True,
        ),
        Column("cache_write_1h", "tokens written to the cache for an hour", "tokens", integer=True),
        Column(
            "plain_input",
            "input tokens neither read from the cache nor written to it",
            "tokens",
            integer=True,
        ),
        Column(
            "cold",
            "1 if the cache no longer contained the previous request",
            "0 or 1",
            integer=True,
        ),
        Column("cost_usd", "input cost of the request and of the strategy's own calls", "USD"),
        Column("strategy_usd", "cost of the strategy's own model calls", "USD"),
        Column(
            "output",
            "output tokens of the recorded reply, as billed or else counted",
            "tokens",
            integer=True,
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
        timeline, places = prepared.cache_timeline, prepared.request_positions
        ledger, own = _price(prepared, traces, timeline)
        cold = ~timeline.warm & (np.arange(len(places)) > 0) & (prepared.model.cache.kind != "none")
        output = np.broadcast_to(_output_tokens(prepared), own.shape)
        return {
            **{name: ledger[name] for name in _LEDGER},
            "cold": np.broadcast_to(cold, own.shape).astype(np.float64),
            "cost_usd": ledger["input_usd"] + own,
            "strategy_usd": own,
            "output": output,
            "output_usd": output * ledger["output_rate"],
        }


class HourCostMetric(Metric):
    """Input cost if every cache write lasts an hour, whatever ``CostSettings.cache_ttl`` says.

    It is not registered. Pass ``hour_cost`` to ``evaluate``, to get both costs from one replay.
    """

    columns = (Column("cost_usd_1h", "cost_usd if every cache write lasts an hour", "USD"),)
    scores = (Score.total("cost_usd_1h", "cost_usd if every cache write lasts an hour", "USD"),)

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        timeline = build_cache_timeline(
            prepared.recording, prepared.request_positions, prepared.model.cache, "1h"
        )
        ledger, own = _price(prepared, traces, timeline)
        return {"cost_usd_1h": ledger["input_usd"] + own}


def _price(
    prepared: PreparedRecording, traces: Sequence[Trace], timeline: CacheTimeline
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return the ledger of ``price_requests``, and the cost of the strategy's own calls."""
    places, reasoning = prepared.request_positions, prepared.priced_reasoning_tokens
    replays, order = distinct_replays(traces)
    sums = np.array([sum_reasoning(trace, places, reasoning) for trace in replays])
    tokens = RequestTokens.of_traces(traces, sums[order])
    own = np.zeros_like(tokens.sent)
    for row, trace in enumerate(traces):
        for call in trace.context.model_calls:
            own[row, call.request_index] += call.usd
    return price_requests(prepared, tokens, timeline), own


cost = CostMetric()
hour_cost = HourCostMetric()

_LEDGER = ("priced_tokens", "cached", "cache_write_5m", "cache_write_1h", "plain_input")


def price_requests(
    prepared: PreparedRecording, tokens: RequestTokens, timeline: CacheTimeline
) -> dict[str, FloatArray]:
    """Compute what requests read from the prompt cache, what they write to it, and their price.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording with the model, whose prices and cache rules apply, and the unlogged tokens.
    tokens : RequestTokens
        Tokens of the requests.
    timeline : CacheTimeline
        State of the cache at each request.

    Returns
    -------
    dict of str to numpy.ndarray of shape (traces, requests)
        ``priced_tokens``, ``cached``, ``cache_write_5m``, ``cache_write_1h`` and ``plain_input`` as in
        the metric ``cost``; ``input_usd``, the price of the input without calls of the strategy;
        and ``output_rate``, the price of an output token. Prices are nan if they are unknown.
    """
    prices, cache = prepared.model.prices, prepared.model.cache
    unlogged, reasoning = prepared.priced_fixed_tokens, tokens.reasoning
    total = tokens.sent + unlogged + reasoning
    # Tool definitions precede the messages, so the unchanged prefix includes them.
    head = unlogged + prepared.fixed_tokens - prepared.counter.REPLY_TOKENS
    messages = tokens.sent - prepared.fixed_tokens
    before = [np.roll(each, 1, axis=1) for each in (tokens.opening, messages, tokens.newest)]
    prefix = cache.readable_prefix(tokens.unchanged, *before)
    # Reasoning is spread over the messages, so the prefix contains its share of it.
    density = np.roll(reasoning / np.maximum(messages, 1), 1, axis=1)
    prefix = head + np.floor(prefix * (1 + density))
    shared = np.minimum(timeline.shared, head + tokens.opening)
    cached = cache.cached_tokens(np.where(timeline.warm, prefix, shared))
    rates = _rates_by_prompt_size(prices, total)
    # Most providers charge nothing for writes. Their bills contain plain input instead.
    is_written = (total >= cache.minimum) & (rates["cache_write"] > rates["input"])
    rest = total - cached
    long = rest * is_written * timeline.long_share
    short = rest * is_written - long
    plain = rest * ~is_written
    cost = (
        plain * rates["input"]
        + cached * rates["cache_read"]
        + short * rates["cache_write"]
        + long * rates["cache_write_1h"]
    )
    unknown = 1.0 if prices.known else np.nan
    return {
        "priced_tokens": total,
        "cached": cached,
        "cache_write_5m": short,
        "cache_write_1h": long,
        "plain_input": plain,
        "input_usd": cost * unknown,
        "output_rate": np.broadcast_to(rates["output"] * unknown, total.shape),
    }


def split_cost(
    prepared: PreparedRecording, ledger: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """Return the price of each entry of a ledger.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording with the model whose prices apply.
    ledger : mapping of str to numpy.ndarray
        Tokens ``priced_tokens``, ``cached``, ``cache_write_5m``, ``cache_write_1h`` and
        ``plain_input`` of the requests, as in the metric ``cost``.

    Returns
    -------
    dict of str to numpy.ndarray
        USD of the tokens that were read from the cache, written to it, and neither. Their sum is the
        input cost without calls of the strategy. It is nan if the prices are unknown.
    """
    prices = prepared.model.prices
    rates = _rates_by_prompt_size(prices, ledger["priced_tokens"])
    unknown = 1.0 if prices.known else np.nan
    return {
        "cache_read": ledger["cached"] * rates["cache_read"] * unknown,
        "cache_write": (
            ledger["cache_write_5m"] * rates["cache_write"]
            + ledger["cache_write_1h"] * rates["cache_write_1h"]
        )
        * unknown,
        "uncached": ledger["plain_input"] * rates["input"] * unknown,
    }


def sum_reasoning(
    trace: Trace, request_positions: Sequence[int], reasoning: Mapping[int, int]
) -> FloatArray:
    """Sum the hidden reasoning that is sent back with the messages of each request.

    Only messages that stand verbatim in the request keep their reasoning.

    Parameters
    ----------
    trace : Trace
        Requests of one replay.
    request_positions : sequence of int
        Number of messages of the history before each request.
    reasoning : mapping of int to int
        Tokens of the reasoning of messages, by position in the history.

    Returns
    -------
    numpy.ndarray of shape (requests,)
        Tokens of each request.
    """
    requests = len(request_positions)
    if not reasoning:
        return np.zeros(requests)
    places, tokens = np.array(list(reasoning)), np.array(list(reasoning.values()), np.float64)
    first = np.searchsorted(request_positions, places, side="right")
    dropped: npt.NDArray[np.int64] = np.array(trace.context.dropped_at)[places]
    last = np.clip(dropped, first, requests)
    added = np.bincount(first, tokens, requests + 1) - np.bincount(last, tokens, requests + 1)
    sums: FloatArray = added[:requests].cumsum()
    if trace.forked_requests:
        by_position = np.zeros(len(trace.context.history))
        by_position[places] = tokens
        forks = trace.verbatim_in_forks
        stops = np.cumsum([0, *map(len, forks.values())])
        sent = np.fromiter(chain.from_iterable(forks.values()), np.int64, stops[-1])
        # All requests at once, because a call of numpy takes longer than its work for one request.
        before = np.concatenate(([0.0], by_position[sent].cumsum()))[stops]
        sums[list(forks)] = np.diff(before)
    return sums


def _rates_by_prompt_size(prices: Prices, tokens: FloatArray) -> dict[str, FloatArray]:
    """Return the prices that apply to each request, by name of the price."""
    starts = [tier.start for tier in prices.above]
    tier = np.searchsorted(starts, tokens, side="right") if starts else 0
    return {
        name: np.array([getattr(rates, name) for rates in prices.tiers])[tier] for name in _RATES
    }


def _output_tokens(prepared: PreparedRecording) -> FloatArray:
    """Return the output tokens of the reply to each request: as billed, or else counted."""
    entries = [prepared.history.entries[place] for place in prepared.request_positions]
    return np.array(
        [e.message.usage.output if e.message.usage else e.tokens for e in entries], np.float64
    )

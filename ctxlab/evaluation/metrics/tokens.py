"""Number of tokens of each request, overflows, and the strategy's own model calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.evaluation.metrics.strategy_calls import list_generated_texts


class UsageMetric(Metric):
    """Size of each request, compared with the budget, and the strategy's own model calls."""

    columns = (
        Column(
            "tokens",
            "tokens of the request, including its tool definitions",
            "tokens",
            integer=True,
        ),
        Column("messages", "number of messages in the request", "messages", integer=True),
        Column(
            "over", "tokens above the budget (the limit minus the reserve)", "tokens", integer=True
        ),
        Column("overflow", "1 if the request exceeds the budget", "0 or 1", integer=True),
        Column("panicked", "1 if panic truncation shortened the request", "0 or 1", integer=True),
        Column(
            "stuck",
            "1 if the request exceeds the budget after panic truncation",
            "0 or 1",
            integer=True,
        ),
        Column(
            "strategy_tokens", "tokens of the strategy's own model calls", "tokens", integer=True
        ),
        Column("strategy_calls", "number of the strategy's own model calls", "calls", integer=True),
        Column("written", "texts requested from a model, such as summaries", "texts", integer=True),
        Column(
            "fallbacks",
            "requested texts made partly or fully without the model",
            "texts",
            integer=True,
        ),
    )
    scores = (
        Score.mean("tokens_mean", "mean number of tokens per request", "tokens", "tokens").printed(
            "tokens\nmean"
        ),
        Score(
            "tokens_peak",
            "number of tokens of the largest request",
            "tokens",
            "max",
            "tokens",
            better="lower",
        ).printed("tokens\npeak"),
        Score.total("tokens_total", "number of tokens of all requests", "tokens", "tokens"),
        Score.mean(
            "messages_mean",
            "mean number of messages per request",
            "messages",
            "messages",
            better="",
        ),
        Score.rate("overflow_rate", "share of requests that exceed the budget", "overflow").printed(
            "over\n%", "over: share of requests that exceed the budget (limit minus reserve)"
        ),
        Score.rate("panic_rate", "share of requests shortened by panic truncation", "panicked"),
        Score.rate(
            "stuck_rate", "share of requests that exceed the budget after panic truncation", "stuck"
        ),
        Score.total("strategy_tokens", "tokens of the strategy's own model calls", "tokens"),
        Score.total("strategy_calls", "number of the strategy's own model calls", "calls"),
        Score.total("fallbacks", "requested texts made partly or fully without a model", "texts"),
        Score.rate(
            "fallback_rate",
            "share of requested texts made partly or fully without a model",
            "fallbacks / written",
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        tokens = np.array([trace.tokens for trace in traces], dtype=np.float64)
        room = np.array([trace.budget.room for trace in traces])
        over = np.maximum(tokens - room[:, None], 0)
        own = ("panicked", "stuck", "strategy_tokens", "strategy_calls", "written", "fallbacks")
        found = {name: np.zeros_like(tokens) for name in own}
        flags = {"panic": found["panicked"], "stuck": found["stuck"]}
        for row, trace in enumerate(traces):
            for request, event in trace.context.events:
                if event in flags:
                    flags[event][row, request] = 1
            for call in trace.context.model_calls:
                at = row, call.request_index
                found["strategy_tokens"][at] += call.prompt_tokens + call.completion_tokens
                found["strategy_calls"][at] += 1
            for text in list_generated_texts(trace.context):
                found["written"][row, text.request] += 1
                found["fallbacks"][row, text.request] += bool(text.reason)
        return {
            "tokens": tokens,
            "messages": np.array([trace.message_counts for trace in traces], dtype=np.float64),
            "over": over,
            "overflow": (over > 0).astype(np.float64),
            **found,
        }


usage = UsageMetric()

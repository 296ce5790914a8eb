"""Size of the requests, overflows, and the strategy's own model calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.evaluation.metrics.strategy_calls import list_generated_texts


class UsageMetric(Metric):
    """Tokens of each request, compared with the limit minus the reserve."""

    columns = (
        Column("tokens", "tokens of messages, their overhead and tool definitions", "tokens"),
        Column("messages", "messages of the request", "messages"),
        Column("over", "tokens beyond the limit minus the reserve", "tokens"),
        Column("overflow", "1 if the request is too large", "0 or 1"),
        Column("panicked", "1 if panic had to shorten the request to fit", "0 or 1"),
        Column("stuck", "1 if the messages that are never dropped are too large", "0 or 1"),
        Column("strategy_tokens", "tokens of the strategy's own model calls", "tokens"),
        Column("strategy_calls", "the strategy's own model calls", "calls"),
        Column("written", "texts, such as summaries, that a model should write", "texts"),
        Column("fallbacks", "those of them that were written partly or fully without it", "texts"),
    )
    scores = (
        Score.mean("tokens_mean", "mean tokens per request", "tokens", "tokens").printed(
            "tokens\nmean"
        ),
        Score(
            "tokens_peak",
            "tokens of the largest request",
            "tokens",
            "max",
            "tokens",
            better="lower",
        ).printed("tokens\npeak"),
        Score.total("tokens_total", "tokens of all requests", "tokens", "tokens"),
        Score.mean("messages_mean", "mean messages per request", "messages", "messages", better=""),
        Score.rate("overflow_rate", "requests that are too large", "overflow").printed(
            "over\n%", "over: requests larger than the limit minus the reserve"
        ),
        Score.rate("panic_rate", "requests that panic had to shorten", "panicked"),
        Score.rate("stuck_rate", "requests that cannot be made to fit", "stuck"),
        Score.total("strategy_tokens", "tokens of the strategy's own model calls", "tokens"),
        Score.total("strategy_calls", "the strategy's own model calls", "calls"),
        Score.total("fallbacks", "the strategy's texts written without its model", "texts"),
        Score.rate("fallback_rate", "texts written without its model", "fallbacks / written"),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        tokens = np.array([trace.tokens for trace in traces], dtype=np.float64)
        room = np.array([trace.budget.limit - trace.budget.reserve for trace in traces])
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

"""How large the requests are, how often they overflow, and what the strategy spends itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score
from ctxlab.evaluation.metrics.strategy_calls import list_generated_texts

__all__ = ["UsageMetric"]


class UsageMetric:
    """Tokens of every request against the limit less the reply reserve."""

    columns = (
        Column(
            "tokens", "tokens of the request: messages, their overhead, tool definitions", "tokens"
        ),
        Column("messages", "messages of the request", "messages"),
        Column("over", "tokens beyond the limit less the reserve", "tokens"),
        Column("overflow", "whether the request is too large", "0 or 1"),
        Column("panicked", "whether it had to be repaired in panic to fit", "0 or 1"),
        Column("stuck", "whether what must never be dropped is itself too large", "0 or 1"),
        Column("strategy_tokens", "tokens of the strategy's own model calls", "tokens"),
        Column("strategy_calls", "model calls of the strategy's own", "calls"),
        Column("written", "summaries and the like that a model was to write", "texts"),
        Column("fallbacks", "of these, made without the model in whole or in part", "texts"),
    )
    scores = (
        Score(
            "tokens_mean",
            "tokens a request, mean",
            "tokens",
            "ratio",
            "tokens",
            better="lower",
            heading="tokens\nmean",
        ),
        Score(
            "tokens_peak",
            "tokens of the largest request",
            "tokens",
            "max",
            "tokens",
            better="lower",
            heading="tokens\npeak",
        ),
        Score(
            "tokens_total",
            "tokens of all requests",
            "tokens",
            "sum",
            "tokens",
            better="lower",
        ),
        Score(
            "messages_mean",
            "messages a request, mean",
            "messages",
            "ratio",
            "messages",
        ),
        Score(
            "overflow_rate",
            "share of requests that are too large",
            "share",
            "ratio",
            "overflow",
            better="lower",
            heading="over\n%",
            legend="over: requests larger than the limit less the reserve",
        ),
        Score(
            "panic_rate",
            "share of requests repaired in panic",
            "share",
            "ratio",
            "panicked",
            better="lower",
        ),
        Score(
            "stuck_rate",
            "share that no dropping can make fit",
            "share",
            "ratio",
            "stuck",
            better="lower",
        ),
        Score(
            "strategy_tokens",
            "tokens of the strategy's own calls",
            "tokens",
            "sum",
            "strategy_tokens",
            better="lower",
        ),
        Score(
            "strategy_calls",
            "the strategy's own calls",
            "calls",
            "sum",
            "strategy_calls",
            better="lower",
        ),
        Score(
            "fallbacks",
            "texts that were made without the model",
            "texts",
            "sum",
            "fallbacks",
            better="lower",
        ),
        Score(
            "fallback_rate",
            "share of what a model was to write that was made without it",
            "share",
            "ratio",
            "fallbacks",
            "written",
            better="lower",
        ),
    )
    observers: ClassVar[Mapping[str, RequestObserver]] = {}

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """See ``columns``."""
        tokens = np.array([trace.tokens for trace in traces], dtype=np.float64)
        room = np.array([trace.budget.limit - trace.budget.reserve for trace in traces])
        over = np.maximum(tokens - room[:, None], 0)
        panicked, stuck, spent, calls, texts, without = (np.zeros_like(tokens) for _ in range(6))
        event_flags = {"panic": panicked, "stuck": stuck}
        for row, trace in enumerate(traces):
            for turn, event in trace.context.events:
                if event in event_flags:
                    event_flags[event][row, turn] = 1
            for call in trace.context.model_calls:
                spent[row, call.request_index] += call.prompt_tokens + call.completion_tokens
                calls[row, call.request_index] += 1
            for text in list_generated_texts(trace.context):
                texts[row, text.request] += 1
                without[row, text.request] += bool(text.reason)
        return {
            "tokens": tokens,
            "messages": np.array([trace.message_counts for trace in traces], dtype=np.float64),
            "over": over,
            "overflow": (over > 0).astype(np.float64),
            "panicked": panicked,
            "stuck": stuck,
            "strategy_tokens": spent,
            "strategy_calls": calls,
            "written": texts,
            "fallbacks": without,
        }


usage = UsageMetric()

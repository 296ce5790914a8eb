"""Size of the requests, overflows, and the strategy's own model calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score
from ctxlab.evaluation.metrics.strategy_calls import list_generated_texts


class UsageMetric:
    """Tokens of each request, compared with the limit minus the reserve."""

    columns = (
        Column(
            "tokens",
            "tokens of the request: messages, their overhead and tool definitions",
            "tokens",
        ),
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
    "figures of each request"
    scores = (
        Score(
            "tokens_mean",
            "mean tokens per request",
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
            "mean messages per request",
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
            legend="over: requests larger than the limit minus the reserve",
        ),
        Score(
            "panic_rate",
            "share of requests that panic had to shorten",
            "share",
            "ratio",
            "panicked",
            better="lower",
        ),
        Score(
            "stuck_rate",
            "share of requests that cannot be made to fit",
            "share",
            "ratio",
            "stuck",
            better="lower",
        ),
        Score(
            "strategy_tokens",
            "tokens of the strategy's own model calls",
            "tokens",
            "sum",
            "strategy_tokens",
            better="lower",
        ),
        Score(
            "strategy_calls",
            "the strategy's own model calls",
            "calls",
            "sum",
            "strategy_calls",
            better="lower",
        ),
        Score(
            "fallbacks",
            "texts of the strategy that were written without its model",
            "texts",
            "sum",
            "fallbacks",
            better="lower",
        ),
        Score(
            "fallback_rate",
            "share of the strategy's texts that were written without its model",
            "share",
            "ratio",
            "fallbacks",
            "written",
            better="lower",
        ),
    )
    "figures of a run and of the leaderboard"
    observers: ClassVar[Mapping[str, RequestObserver]] = {}
    "no observers are needed"

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """Compute ``columns`` for each trace.

        Parameters
        ----------
        prepared : PreparedRecording
            The recording that was replayed.
        traces : sequence of Trace
            One trace per configuration.

        Returns
        -------
        mapping of str to numpy.ndarray of shape (traces, requests)
            Figures by column name.
        """
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

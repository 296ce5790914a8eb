"""Model calls of strategies, and the texts that strategies requested from models.

A strategy reports the event ``summary`` when a summary is ready, and ``contents`` when a table of
contents is ready. If the text was made partly or fully without the model, the strategy first reports
``summary fallback: REASON`` or ``contents fallback: REASON``. It reports a failed retrieval as
``retrieval fallback: REASON``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ctxlab.context.context import Ledger
from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.engine import Trace, distinct_replays
from ctxlab.llm.base import ModelCall, Reply

_FALLBACK = re.compile(r"(\w+) fallback: (?:part \d+ of \d+: )?(.*)", re.DOTALL)
_WRITTEN = re.compile(r"(summary|contents)(?: rejected: .*)?", re.DOTALL)
_NUMBERS = re.compile(r"\d[\d,.]*")
_MAX_REASONS = 10
"maximum number of fallback reasons listed per strategy"
_NO_CALLS = {"calls": 0, "cached": 0, "attempts": 0, "tokens": 0, "usd": 0.0}


class GeneratedText(NamedTuple):
    """A text that a strategy requested from a model, such as a summary."""

    request: int
    "number of the request before which the strategy needed the text"
    kind: str
    "``summary``, ``contents`` or ``retrieval``; empty if the strategy reported no event"
    reason: str = ""
    "reason why the text was made partly or fully without the model; empty if the model made it"


def list_generated_texts(context: Ledger) -> list[GeneratedText]:
    """List the texts that a strategy requested from models during a replay.

    Summaries that needed no model are not included. In the example, this is the first summary: no model
    call and no fallback was reported before it. The fallback belongs to the second summary.

    Parameters
    ----------
    context : Ledger
        Events and model calls of the replay.

    Returns
    -------
    list of GeneratedText
        Requested texts, including those that the model failed to write.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.context import Context
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(100), History(TokenCounter("gpt-4o")))
    >>> context.report("summary")
    >>> context.report("summary fallback: busy")
    >>> context.report("summary")
    >>> list_generated_texts(context)
    [GeneratedText(request=0, kind='summary', reason='busy')]
    """
    asked = {call.request_index for call in context.model_calls}
    found: list[GeneratedText] = []
    failed: dict[tuple[int, str], str] = {}
    for request, event in context.events:
        if match := _FALLBACK.fullmatch(event):
            failed.setdefault((request, match[1]), match[2])
        elif match := _WRITTEN.fullmatch(event):
            reason = failed.pop((request, match[1]), "")
            if reason or request in asked:
                found.append(GeneratedText(request, match[1], reason))
    found += [GeneratedText(request, kind, reason) for (request, kind), reason in failed.items()]
    return found + [
        GeneratedText(request, "") for request in sorted(asked - {t.request for t in found})
    ]


class StrategyCalls(NamedTuple):
    """Model calls of all strategies over one recording, and the texts requested by the strategies."""

    calls: list[ModelCall]
    "model calls of all strategies"
    texts_by_strategy: dict[str, list[GeneratedText]]
    "requested texts of each strategy; the keys are the strategies as strings"


def collect_strategy_calls(traces: Iterable[Trace]) -> StrategyCalls:
    """Collect the model calls of the traces of one recording, including the calls for probes.

    If several traces share one replay, its calls are counted once.

    Parameters
    ----------
    traces : iterable of Trace
        Traces of one recording.

    Returns
    -------
    StrategyCalls
        Model calls and requested texts.
    """
    spent: list[ModelCall] = []
    made: dict[str, list[GeneratedText]] = {}
    for trace in distinct_replays(traces)[0]:
        for account in (trace.context, *trace.preview_ledgers):
            spent += account.model_calls
            if found := list_generated_texts(account):
                made.setdefault(repr(trace.strategy), []).extend(found)
    return StrategyCalls(spent, made)


class StrategyCallTotals:
    """Running totals of the model calls of an evaluation."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, Any]] = {}
        self._texts: dict[str, list[GeneratedText]] = {}
        self._wordings: dict[str, str] = {}

    def add(self, made: StrategyCalls) -> None:
        """Add the model calls of one recording to the totals.

        Parameters
        ----------
        made : StrategyCalls
            Model calls and requested texts of the recording.
        """
        for call in made.calls:
            totals = self._calls.setdefault(call.model, _NO_CALLS.copy())
            totals["calls"] += 1
            totals["cached"] += call.cached
            totals["attempts"] += call.attempts
            if not call.cached:
                totals["tokens"] += call.prompt_tokens + call.completion_tokens
                totals["usd"] += call.usd
        for strategy, texts in made.texts_by_strategy.items():
            self._texts.setdefault(strategy, []).extend(map(self._merge_reason, texts))

    def add_replies(self, model: str, replies: Iterable[Reply | ModelUnavailable]) -> None:
        """Add calls that no strategy made, such as those of a judge that grades answers to probes.

        Parameters
        ----------
        model : str
            Name of the model.
        replies : iterable of Reply or ModelUnavailable
            Reply to each call, or the error if the call failed.
        """
        self.add(StrategyCalls([ModelCall.from_reply(0, model, reply) for reply in replies], {}))

    def _merge_reason(self, text: GeneratedText) -> GeneratedText:
        """Replace the reason of a text by an earlier reason that differs only in its numbers.

        For example, "too long (512 of 400)" replaces a later "too long (90 of 80)", so that both are
        counted as the same reason.
        """
        alike = _NUMBERS.sub("#", text.reason)
        return text._replace(reason=self._wordings.setdefault(alike, text.reason))

    def manifest(self) -> dict[str, Any]:
        """Return the totals as they are stored in the manifest.

        Returns
        -------
        dict
            The key ``calls`` maps the name of each model to its totals. The totals ``tokens`` and
            ``usd`` exclude cached calls, and ``usd`` is None if a price is unknown. The key
            ``fallbacks`` maps each strategy with fallbacks to counts: all its texts (``written``),
            those made partly or fully without the model (``fallbacks``), and the latter by kind
            (``kinds``) and by the most frequent reasons (``reasons``).
        """
        fallbacks = {}
        for strategy, texts in self._texts.items():
            if failed := [text for text in texts if text.reason]:
                fallbacks[strategy] = {
                    "kinds": dict(Counter(text.kind for text in failed)),
                    "written": len(texts),
                    "fallbacks": len(failed),
                    "reasons": dict(Counter(t.reason for t in failed).most_common(_MAX_REASONS)),
                }
        calls = {
            model: totals | {"usd": None if math.isnan(totals["usd"]) else totals["usd"]}
            for model, totals in self._calls.items()  # JSON has no nan
        }
        return {"calls": calls, "fallbacks": fallbacks}

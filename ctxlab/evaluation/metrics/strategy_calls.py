"""Model calls of strategies, and the texts that these calls wrote or failed to write.

A strategy reports ``summary fallback: reason`` (or ``contents``, ``retrieval``, …) if it had to do
without its model, and ``summary`` when the text is ready.
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
    """A text that a model should write, or find, for a strategy."""

    request: int
    "the request before which it was needed"
    kind: str
    "``summary``, ``contents`` or ``retrieval``; empty if the strategy did not report it"
    reason: str = ""
    "why it was made partly or fully without the model; empty if the model made it"


def list_generated_texts(context: Ledger) -> list[GeneratedText]:
    """List the texts that models should write in a replay, as the strategy reported them.

    Summaries of strategies that call no model are left out.

    Parameters
    ----------
    context : Ledger
        Events and model calls of a replay.

    Returns
    -------
    list of GeneratedText
        The texts.

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
    for turn, event in context.events:
        if match := _FALLBACK.fullmatch(event):
            failed.setdefault((turn, match[1]), match[2])
        elif match := _WRITTEN.fullmatch(event):
            reason = failed.pop((turn, match[1]), "")
            if reason or turn in asked:
                found.append(GeneratedText(turn, match[1], reason))
    found += [GeneratedText(turn, kind, reason) for (turn, kind), reason in failed.items()]
    return found + [GeneratedText(turn, "") for turn in sorted(asked - {t.request for t in found})]


class StrategyCalls(NamedTuple):
    """Model calls of the strategies over one recording, and the texts they wrote."""

    calls: list[ModelCall]
    "the model calls"
    texts_by_strategy: dict[str, list[GeneratedText]]
    "the texts, by strategy as text"


def collect_strategy_calls(traces: Iterable[Trace]) -> StrategyCalls:
    """Collect the model calls of the traces of one recording, those for probes included.

    A replay that several budgets share counts once.

    Parameters
    ----------
    traces : iterable of Trace
        Traces of one recording.

    Returns
    -------
    StrategyCalls
        The calls and the texts.
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
    """Totals of the model calls of a run, recording by recording."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, Any]] = {}
        self._texts: dict[str, list[GeneratedText]] = {}
        self._wordings: dict[str, str] = {}

    def add(self, made: StrategyCalls) -> None:
        """Add the calls of one recording.

        Parameters
        ----------
        made : StrategyCalls
            Calls and texts of the recording.
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
        """Add the replies of a model that is asked about a recording.

        Parameters
        ----------
        model : str
            Name of the model.
        replies : iterable of Reply or ModelUnavailable
            Its replies.
        """
        self.add(StrategyCalls([ModelCall.from_reply(0, model, reply) for reply in replies], {}))

    def _merge_reason(self, text: GeneratedText) -> GeneratedText:
        """Count reasons such as "(512 of 400)" and "(90 of 80)" as one, in the words of the first."""
        alike = _NUMBERS.sub("#", text.reason)
        return text._replace(reason=self._wordings.setdefault(alike, text.reason))

    def manifest(self) -> dict[str, Any]:
        """Return the totals for the manifest.

        Returns
        -------
        dict
            ``calls`` by model: tokens and dollars exclude cached calls, and ``usd`` is None if a
            price is unknown. ``fallbacks`` by strategy if there are any.
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

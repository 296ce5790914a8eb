"""Model calls of strategies, and the texts that these calls wrote or failed to write.

A strategy reports ``summary fallback: reason`` (or ``contents``, ``retrieval``, …) if it had to do
without its model, and ``summary`` when the text is ready.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ctxlab.context.context import Ledger
from ctxlab.evaluation.engine import Trace
from ctxlab.llm.base import ModelCall

_FALLBACK = re.compile(r"(\w+) fallback: (?:part \d+ of \d+: )?(.*)", re.DOTALL)
_WRITTEN = re.compile(r"(summary|contents)(?: rejected: .*)?", re.DOTALL)
_NUMBERS = re.compile(r"\d[\d,.]*")
_MAX_REASONS = 10
"maximum number of fallback reasons listed per strategy"


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
    told = {each.request for each in found}
    return found + [GeneratedText(turn, "") for turn in sorted(asked - told)]


class CallTotals(NamedTuple):
    """Totals of the calls of one model; tokens and dollars exclude cached calls."""

    calls: int = 0
    "number of calls"
    cached: int = 0
    "number of calls answered from disk"
    attempts: int = 0
    "number of HTTP requests"
    tokens: int = 0
    "prompt and completion tokens"
    usd: float = 0.0
    "cost; nan if the price of a call is unknown"

    def plus(self, call: ModelCall) -> CallTotals:
        """Return the totals with one more call.

        Parameters
        ----------
        call : ModelCall
            The call to add.

        Returns
        -------
        CallTotals
            The new totals.
        """
        new = not call.cached
        return CallTotals(
            self.calls + 1,
            self.cached + call.cached,
            self.attempts + call.attempts,
            self.tokens + new * (call.prompt_tokens + call.completion_tokens),
            self.usd + (call.usd if new else 0.0),
        )


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
    once = {id(trace.context): trace for trace in traces}
    spent: list[ModelCall] = []
    made: dict[str, list[GeneratedText]] = {}
    for trace in once.values():
        for account in (trace.context, *trace.preview_ledgers):
            spent += account.model_calls
            if found := list_generated_texts(account):
                made.setdefault(repr(trace.strategy), []).extend(found)
    return StrategyCalls(spent, made)


class StrategyCallTotals:
    """Totals of the model calls of a run, recording by recording."""

    def __init__(self) -> None:
        self.calls: dict[str, CallTotals] = {}
        "totals by model"
        self.text_counts: dict[str, Counter[str]] = {}
        "number of texts of each kind, by strategy"
        self.fallback_reasons: dict[str, Counter[str]] = {}
        "number of fallbacks by reason, by strategy; reasons that differ only in numbers are merged"
        self._first_wordings: dict[str, str] = {}
        self._fallback_kinds: dict[str, Counter[str]] = {}

    def add(self, asked: StrategyCalls) -> None:
        """Add the calls of one recording.

        Parameters
        ----------
        asked : StrategyCalls
            Calls and texts of the recording.
        """
        for call in asked.calls:
            self.calls[call.model] = self.calls.get(call.model, CallTotals()).plus(call)
        for strategy, made in asked.texts_by_strategy.items():
            self.text_counts.setdefault(strategy, Counter()).update(each.kind for each in made)
            failed = [each for each in made if each.reason]
            self._fallback_kinds.setdefault(strategy, Counter()).update(
                each.kind for each in failed
            )
            reasons = self.fallback_reasons.setdefault(strategy, Counter())
            for each in failed:
                # "(512 of 400)" and "(90 of 80)" are one reason; keep the wording of the first.
                alike = _NUMBERS.sub("#", each.reason)
                reasons[self._first_wordings.setdefault(alike, each.reason)] += 1

    def manifest(self) -> dict[str, Any]:
        """Return the totals for the manifest.

        Returns
        -------
        dict
            ``calls`` by model, and ``fallbacks`` by strategy if there are any.
        """
        return {
            "calls": {model: _totals_to_dict(calls) for model, calls in self.calls.items()},
            "fallbacks": {
                strategy: {
                    "kinds": dict(self._fallback_kinds[strategy]),
                    "written": self.text_counts[strategy].total(),
                    "fallbacks": reasons.total(),
                    "reasons": dict(reasons.most_common(_MAX_REASONS)),
                }
                for strategy, reasons in self.fallback_reasons.items()
                if reasons
            },
        }


def _totals_to_dict(calls: CallTotals) -> Mapping[str, Any]:
    fields = calls._asdict()
    return {**fields, "usd": None if math.isnan(calls.usd) else calls.usd}  # JSON has no nan

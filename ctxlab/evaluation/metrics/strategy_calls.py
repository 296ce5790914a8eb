"""What strategies ask models for is counted by what became of it: written by the model, or without it.

A strategy reports ``summary fallback: reason`` (``contents``, ``retrieval`` …) where it did without the
model that it was to ask, and ``summary`` once the text stands.
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

__all__ = [
    "CallTotals",
    "GeneratedText",
    "StrategyCallTotals",
    "StrategyCalls",
    "collect_strategy_calls",
    "list_generated_texts",
]

_FALLBACK = re.compile(r"(\w+) fallback: (?:part \d+ of \d+: )?(.*)", re.DOTALL)
_WRITTEN = re.compile(r"(summary|contents)(?: rejected: .*)?", re.DOTALL)
_NUMBERS = re.compile(r"\d[\d,.]*")
_MAX_REASONS = 10
"reasons that are told one by one, of those that a strategy met"


class GeneratedText(NamedTuple):
    """One thing that a model was to write, or to find, for a strategy."""

    request: int
    "the request of the agent before which it was wanted"
    kind: str
    "summary, contents, retrieval; empty where the strategy reports nothing of it"
    reason: str = ""
    "why it was made without the model, in whole or in part; empty where the model made it"


def list_generated_texts(context: Ledger) -> list[GeneratedText]:
    """What a model was to write in a replay, as the strategy reported it.

    Summaries of strategies that ask no model do not count.

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
    """The calls of one model, added up; tokens and dollars are those of calls that were billed now."""

    calls: int = 0
    cached: int = 0
    "of them, answered from disk"
    attempts: int = 0
    "HTTP requests"
    tokens: int = 0
    usd: float = 0.0
    "nan once a call had no known price"

    def plus(self, call: ModelCall) -> CallTotals:
        """With one call more."""
        new = not call.cached
        return CallTotals(
            self.calls + 1,
            self.cached + call.cached,
            self.attempts + call.attempts,
            self.tokens + new * (call.prompt_tokens + call.completion_tokens),
            self.usd + (call.usd if new else 0.0),
        )


class StrategyCalls(NamedTuple):
    """What the strategies asked over one recording, and what became of it."""

    calls: list[ModelCall]
    texts_by_strategy: dict[str, list[GeneratedText]]
    "by strategy, as text"


def collect_strategy_calls(traces: Iterable[Trace]) -> StrategyCalls:
    """What was asked in the traces of a recording, for its questions too.

    A replay that several budgets share counts once.
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
    """Adds up, recording by recording, what a run asked."""

    def __init__(self) -> None:
        self.calls: dict[str, CallTotals] = {}
        self.text_counts: dict[str, Counter[str]] = {}
        "how many of each kind, by strategy"
        self.fallback_reasons: dict[str, Counter[str]] = {}
        "why texts were made without the model, by strategy; figures left out"
        self._first_wordings: dict[str, str] = {}
        self._fallback_kinds: dict[str, Counter[str]] = {}

    def add(self, asked: StrategyCalls) -> None:
        """One recording more."""
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
                # "(512 of 400)" and "(90 of 80)" are one reason; it is told as it was met first.
                alike = _NUMBERS.sub("#", each.reason)
                reasons[self._first_wordings.setdefault(alike, each.reason)] += 1

    def manifest(self) -> dict[str, Any]:
        """As a manifest has it: ``calls`` by model, ``fallbacks`` by strategy where there are some."""
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
    return {**fields, "usd": None if math.isnan(calls.usd) else calls.usd}  # JSON knows no nan

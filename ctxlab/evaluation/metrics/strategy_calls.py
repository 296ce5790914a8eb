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

from ctxlab.context.ledger import Account
from ctxlab.evaluation.engine import Trace
from ctxlab.llm.base import Spending

__all__ = ["Asked", "Calls", "Tally", "Written", "asked_in", "written"]

_FALLBACK = re.compile(r"(\w+) fallback: (?:part \d+ of \d+: )?(.*)", re.DOTALL)
_DONE = re.compile(r"(summary|contents)(?: rejected: .*)?", re.DOTALL)
_FIGURES = re.compile(r"\d[\d,.]*")
_REASONS = 10
"reasons that are told one by one, of those that a strategy met"


class Written(NamedTuple):
    """One thing that a model was to write, or to find, for a strategy."""

    turn: int
    "the request of the agent before which it was wanted"
    kind: str
    "summary, contents, retrieval; empty where the strategy reports nothing of it"
    reason: str = ""
    "why it was made without the model, in whole or in part; empty where the model made it"


def written(context: Account) -> list[Written]:
    """What a model was to write in a replay, as the strategy reported it.

    Summaries of strategies that ask no model do not count.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.context import Context
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(100), History(TokenCounter("gpt-4o")))
    >>> context.report("summary")
    >>> context.report("summary fallback: busy")
    >>> context.report("summary")
    >>> written(context)
    [Written(turn=0, kind='summary', reason='busy')]
    """
    asked = {call.turn for call in context.spent}
    found: list[Written] = []
    failed: dict[tuple[int, str], str] = {}
    for turn, event in context.events:
        if match := _FALLBACK.fullmatch(event):
            failed.setdefault((turn, match[1]), match[2])
        elif match := _DONE.fullmatch(event):
            reason = failed.pop((turn, match[1]), "")
            if reason or turn in asked:
                found.append(Written(turn, match[1], reason))
    found += [Written(turn, kind, reason) for (turn, kind), reason in failed.items()]
    told = {each.turn for each in found}
    return found + [Written(turn, "") for turn in sorted(asked - told)]


class Calls(NamedTuple):
    """The calls of one model, added up; tokens and dollars are those of calls that were billed now."""

    calls: int = 0
    cached: int = 0
    "of them, answered from disk"
    attempts: int = 0
    "HTTP requests"
    tokens: int = 0
    usd: float = 0.0
    "nan once a call had no known price"

    def plus(self, call: Spending) -> Calls:
        """With one call more."""
        new = not call.cached
        return Calls(
            self.calls + 1,
            self.cached + call.cached,
            self.attempts + call.attempts,
            self.tokens + new * (call.prompt + call.completion),
            self.usd + (call.usd if new else 0.0),
        )


class Asked(NamedTuple):
    """What the strategies asked over one recording, and what became of it."""

    spent: list[Spending]
    written: dict[str, list[Written]]
    "by strategy, as text"


def asked_in(traces: Iterable[Trace]) -> Asked:
    """What was asked in the traces of a recording, for its questions too.

    A replay that several budgets share counts once.
    """
    once = {id(trace.context): trace for trace in traces}
    spent: list[Spending] = []
    made: dict[str, list[Written]] = {}
    for trace in once.values():
        for account in (trace.context, *trace.accounts):
            spent += account.spent
            if found := written(account):
                made.setdefault(repr(trace.strategy), []).extend(found)
    return Asked(spent, made)


class Tally:
    """Adds up, recording by recording, what a run asked."""

    def __init__(self) -> None:
        self.calls: dict[str, Calls] = {}
        self.written: dict[str, Counter[str]] = {}
        "how many of each kind, by strategy"
        self.reasons: dict[str, Counter[str]] = {}
        "why texts were made without the model, by strategy; figures left out"
        self._words: dict[str, str] = {}
        self._kinds: dict[str, Counter[str]] = {}

    def add(self, asked: Asked) -> None:
        """One recording more."""
        for call in asked.spent:
            self.calls[call.model] = self.calls.get(call.model, Calls()).plus(call)
        for strategy, made in asked.written.items():
            self.written.setdefault(strategy, Counter()).update(each.kind for each in made)
            failed = [each for each in made if each.reason]
            self._kinds.setdefault(strategy, Counter()).update(each.kind for each in failed)
            reasons = self.reasons.setdefault(strategy, Counter())
            for each in failed:
                # "(512 of 400)" and "(90 of 80)" are one reason; it is told as it was met first.
                alike = _FIGURES.sub("#", each.reason)
                reasons[self._words.setdefault(alike, each.reason)] += 1

    def manifest(self) -> dict[str, Any]:
        """As a manifest has it: ``calls`` by model, ``fallbacks`` by strategy where there are some."""
        return {
            "calls": {model: _plain(calls) for model, calls in self.calls.items()},
            "fallbacks": {
                strategy: {
                    "kinds": dict(self._kinds[strategy]),
                    "written": self.written[strategy].total(),
                    "fallbacks": reasons.total(),
                    "reasons": dict(reasons.most_common(_REASONS)),
                }
                for strategy, reasons in self.reasons.items()
                if reasons
            },
        }


def _plain(calls: Calls) -> Mapping[str, Any]:
    fields = calls._asdict()
    return {**fields, "usd": None if math.isnan(calls.usd) else calls.usd}  # JSON knows no nan

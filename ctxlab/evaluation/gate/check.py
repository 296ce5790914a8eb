"""The gate replays what a project's budgets name and says which of their bounds no longer hold.

A bound by itself holds or does not: it is about these recordings. A margin is about the strategy: the
figure now is compared with the committed baseline, recording by recording, and

- it is *ok* where the figure is the same or better, or where even the worse end of the 95 % interval of
  the difference is within the margin;
- it is *worse*, a breach, where the figure is worse by more than the margin and the interval holds
  nothing but worse; where there is no interval (too few clusters, or all are alike), or the score is a
  maximum, the figure decides, and the finding says so;
- else it is *unclear*: reported with its interval, and no breach unless the budgets are ``strict``.

A replay that asks no model is deterministic, so code that does the same gives a difference of exactly
zero, and a repeated run the same findings: the gate cannot flap. What the interval allows for is which
recordings happen to be there. A change that concerns one task of many is a change on these recordings
and says little about others; what must not happen even once is bounded by itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from ctxlab import __version__
from ctxlab._utils.tables import html
from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import ratio_difference
from ctxlab.evaluation.gate.baseline import (
    Baseline,
    Part,
    by_cluster,
    columns_of,
    difference_of_data,
    figure,
    part_of,
    read_baseline,
    write_baseline,
)
from ctxlab.evaluation.gate.config import (
    Bound,
    Budget,
    Budgets,
    Experiment,
    read_budgets,
)
from ctxlab.evaluation.gate.findings import (
    Finding,
    Outcome,
    score_in_words,
)
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import run
from ctxlab.formats import OnSkip

__all__ = ["Change", "Gate", "Update", "check_budgets", "findings_of", "update_baseline"]

_DUST = 1e-9
"share of a figure below which two are the same: sums of fractions end differently on other machines"


@dataclass(frozen=True, repr=False)
class Gate:
    """Every bound that was looked at."""

    findings: tuple[Finding, ...]
    strict: bool = False

    @property
    def breaches(self) -> tuple[Finding, ...]:
        """Those that fail."""
        return tuple(f for f in self.findings if self.fails(f))

    @property
    def holds(self) -> bool:
        """Whether none does."""
        return not self.breaches

    def fails(self, finding: Finding) -> bool:
        """Whether a finding is a breach: it is worse, or unclear where that fails as well."""
        return finding.outcome == "worse" or (self.strict and finding.outcome == "unclear")

    @property
    def ordered(self) -> tuple[Finding, ...]:
        """Breaches first, then what is unclear, then the rest."""
        rank = {"worse": 0, "unclear": 1, "ok": 2}
        return tuple(sorted(self.findings, key=lambda finding: rank[finding.outcome]))

    def __repr__(self) -> str:
        return f"<Gate: {len(self.findings)} bounds, {len(self.breaches)} broken>"

    def _repr_html_(self) -> str:
        heads = ["", "budget", "score", "baseline", "now", "difference (95 %)", "bound"]
        rows = [
            [
                "BREACH" if self.fails(f) else f.outcome,
                f.budget.where,
                f.score.name,
                *f.cells,
                f.rule,
            ]
            for f in self.ordered
        ]
        return html(heads, rows) + "".join(f"<p>{escape(f.sentence)}</p>" for f in self.breaches)


@dataclass(frozen=True)
class Change:
    """A figure of a baseline that is not what it was; None where there was none or is none any more."""

    where: str
    score: Score | None
    "None: of a budget that is gone"
    before: float | None
    now: float | None


@dataclass(frozen=True)
class Update:
    """What came of writing a baseline."""

    path: Path
    written: bool
    changes: tuple[Change, ...]
    data: tuple[str, ...]
    "experiment by experiment, in what its recordings or their counting changed"


def check_budgets(
    budgets: Budgets | str | Path,
    only: Collection[str] | str = (),
    *,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
) -> Gate:
    """Runs the experiments of a file of budgets, or ``only`` some, and looks at every bound.

    Raises ``SpecError`` where budgets or baseline do not fit what is there, and what ``run`` raises.
    """
    budgets = budgets if isinstance(budgets, Budgets) else read_budgets(budgets)
    renew = f"ctxlab gate {budgets.path} --update"
    before = read_baseline(budgets.baseline)
    parts = before.experiments if before else {}
    found: list[Finding] = []
    for experiment in budgets.only((only,) if isinstance(only, str) else only):
        then = parts.get(experiment.name)
        _fits(then, experiment.budgets, budgets.baseline, renew)  # before anything is run for it
        results = run(experiment.spec, progress, on_skip)
        found += findings_of(results, experiment.budgets, then, budgets.baseline, renew)
    return Gate(tuple(found), budgets.strict)


def findings_of(
    results: Results, budgets: Sequence[Budget], then: Part | None, source: Path, renew: str
) -> list[Finding]:
    """What became of the bounds of budgets, all of one experiment.

    ``then``: its part of the baseline, ``source`` the baseline's file, ``renew`` the command that writes
    it anew. Raises ``SpecError`` where the two cannot be compared and where a figure is not known.
    """
    now = part_of(results, budgets)
    _fits(then, budgets, source, renew)
    compares = any(budget.margins for budget in budgets)
    if then and compares and (said := difference_of_data(now, then) or _gaps(now, then, budgets)):
        name = budgets[0].experiment
        raise SpecError(
            f"{source}: {name} was run on something else: {said}; look at it, then {renew} takes it"
        )
    found = []
    for budget in budgets:
        for bound in budget.bounds:
            value = _known(bound.score, now, budget)
            if bound.kind == "margin":
                assert then is not None
                found.append(_compared(budget, bound, value, now, then))
            else:
                beyond = (value - bound.value) * (1 if bound.kind == "max" else -1)
                outcome: Outcome = "worse" if beyond > _DUST * abs(bound.value) else "ok"
                found.append(Finding(budget, bound, value, outcome))
    return found


def _compared(budget: Budget, bound: Bound, value: float, now: Part, then: Part) -> Finding:
    """What became of a margin."""
    score, before = bound.score, then.budgets[budget.key]
    sums = now.budgets[budget.key].sums
    old = _known(score, then, budget)
    finding = Finding(budget, bound, value, "ok", old, before.strategy)
    if abs(value - old) <= _DUST * max(abs(value), abs(old)):
        return replace(finding, now=old)
    worse = (value - old) * (1 if score.better == "lower" else -1)
    beyond = worse > bound.margin(old) + _DUST * abs(old)
    low = high = math.nan
    clusters = 0
    if score.how != "max":
        pairs = [by_cluster(score, each, now.recordings) for each in (sums, before.sums)]
        difference = ratio_difference(*pairs[0], *pairs[1])
        # A sum is compared as the mean of a recording, of which there are as many on both sides.
        times = len(sums) if score.how == "sum" else 1
        low, high = times * difference.low, times * difference.high
        clusters = difference.clusters
    finding = replace(finding, low=low, high=high, clusters=clusters)
    if math.isnan(low):
        return replace(finding, outcome="worse" if beyond else "ok")
    ends = (low, high) if score.better == "lower" else (-high, -low)
    if beyond and ends[0] > 0:
        return replace(finding, outcome="worse")
    # What is better here is no breach, however little is known of other recordings.
    sure = worse <= 0 or ends[1] <= bound.margin(old)
    return finding if sure else replace(finding, outcome="unclear")


def update_baseline(
    budgets: Budgets | str | Path,
    only: Collection[str] | str = (),
    *,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
) -> Update:
    """Runs the experiments of a file of budgets and writes what is found to its baseline file.

    Where ``only`` some are named the others stay in the file as they are; what the budgets name no more
    is taken out. Raises what ``check_budgets`` raises, but for a baseline that does not fit.
    """
    budgets = budgets if isinstance(budgets, Budgets) else read_budgets(budgets)
    before = read_baseline(budgets.baseline)
    old = before.experiments if before else {}
    new = {e.name: old[e.name] for e in budgets.experiments if e.name in old}
    changes: list[Change] = []
    data: list[str] = []
    for experiment in budgets.only((only,) if isinstance(only, str) else only):
        then = new.pop(experiment.name, None)
        if not experiment.compared:
            continue
        results = run(experiment.spec, progress, on_skip)
        now = part_of(results, experiment.compared, margins=True)
        new[experiment.name] = now
        if then and (said := difference_of_data(now, then)):
            data.append(f"{experiment.name}: {said}")
        changes += _changes(experiment, now, then)
    for name in sorted(old.keys() - new.keys()):
        changes += [Change(f"{name} / {key}", None, None, None) for key in old[name].budgets]
    new_file = write_baseline(Baseline(__version__, new), budgets.baseline)
    return Update(budgets.baseline, new_file, tuple(changes), tuple(data))


def _changes(experiment: Experiment, now: Part, then: Part | None) -> Iterator[Change]:
    """Every figure of an experiment that is not what it was, and every one that is no more."""
    told = set()
    for budget in experiment.compared:
        told.add(budget.key)
        for bound in budget.margins:
            value = _known(bound.score, now, budget)
            old = _figure(bound.score, then, budget)
            if old != value:
                yield Change(budget.where, bound.score, old, value)
    for key in sorted(then.budgets.keys() - told) if then else ():
        yield Change(f"{experiment.name} / {key}", None, None, None)


def _fits(then: Part | None, budgets: Sequence[Budget], source: Path, renew: str) -> None:
    """Raises where a baseline does not hold what budgets compare with it."""
    for budget in budgets:
        for bound in budget.margins:
            if _figure(bound.score, then, budget) is None:
                what = f"{budget.where} has no {score_in_words(bound.score)} in the baseline yet"
                raise SpecError(f"{source}: {what}; {renew} writes it")


def _gaps(now: Part, then: Part, budgets: Sequence[Budget]) -> str:
    """A budget whose sums are not those of the recordings, as after a merge that went wrong."""
    for budget in budgets:
        if budget.margins:
            sums = then.budgets[budget.key].sums
            if sums.keys() != now.budgets[budget.key].sums.keys():
                return f"the baseline of {budget.where} does not hold the recordings that it names"
            if any(value is None for row in sums.values() for value in row.values()):
                return f"the baseline of {budget.where} holds a figure that is not known"
    return ""


def _figure(score: Score, part: Part | None, budget: Budget) -> float | None:
    """A score in a part of a baseline; None where it is not there, nan where it was not known."""
    entry = part.budgets.get(budget.key) if part else None
    if entry is None or not all(
        set(columns_of(score)) <= row.keys() for row in entry.sums.values()
    ):
        return None
    return figure(score, entry.sums)


def _known(score: Score, part: Part, budget: Budget) -> float:
    """A figure that is there. Raises where it is not known, which neither holds nor breaks a bound."""
    value = _figure(score, part, budget)
    if value is None or math.isnan(value):
        why = (
            f"no price is known for {', '.join(_unpriced(part))}"
            if score.unit == "USD"
            else "nothing to measure it by"
        )
        raise SpecError(f"{budget.where}: {score_in_words(score)} is not known: {why}")
    return value


def _unpriced(part: Part) -> list[str]:
    """The models of an experiment whose prices are not known."""
    prices = part.prices or {}
    unknown = [name for name, each in prices.items() if not (each["input"] or each["output"])]
    return unknown or part.models

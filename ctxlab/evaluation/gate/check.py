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
from ctxlab._utils.tables import html_table
from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import ratio_difference
from ctxlab.evaluation.gate.baseline import (
    ExperimentBaseline,
    GateBaseline,
    compute_score,
    describe_data_changes,
    make_experiment_baseline,
    read_baseline,
    score_columns,
    sum_by_cluster,
    write_baseline,
)
from ctxlab.evaluation.gate.config import (
    Bound,
    GateBudget,
    GateConfig,
    GateExperiment,
    read_gate_config,
)
from ctxlab.evaluation.gate.findings import Finding, FindingOutcome, score_label
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import run_experiment
from ctxlab.formats import OnSkip

__all__ = [
    "BaselineChange",
    "BaselineUpdate",
    "GateResults",
    "check_results",
    "run_gate",
    "update_baseline",
]

_TOLERANCE = 1e-9
"share of a figure below which two are the same: sums of fractions end differently on other machines"


@dataclass(frozen=True, repr=False)
class GateResults:
    """Every bound that was looked at."""

    findings: tuple[Finding, ...]
    strict: bool = False

    @property
    def breaches(self) -> tuple[Finding, ...]:
        """Those that fail."""
        return tuple(f for f in self.findings if self.is_breach(f))

    @property
    def passed(self) -> bool:
        """Whether none does."""
        return not self.breaches

    def is_breach(self, finding: Finding) -> bool:
        """Whether a finding is a breach: it is worse, or unclear where that fails as well."""
        return finding.outcome == "worse" or (self.strict and finding.outcome == "unclear")

    @property
    def sorted_findings(self) -> tuple[Finding, ...]:
        """Breaches first, then what is unclear, then the rest."""
        rank = {"worse": 0, "unclear": 1, "ok": 2}
        return tuple(sorted(self.findings, key=lambda finding: rank[finding.outcome]))

    def __repr__(self) -> str:
        return f"<GateResults: {len(self.findings)} bounds, {len(self.breaches)} broken>"

    def _repr_html_(self) -> str:
        heads = ["", "budget", "score", "baseline", "now", "difference (95 %)", "bound"]
        rows = [
            [
                "BREACH" if self.is_breach(f) else f.outcome,
                f.budget.label,
                f.score.name,
                *f.cells,
                f.bound_text,
            ]
            for f in self.sorted_findings
        ]
        return html_table(heads, rows) + "".join(
            f"<p>{escape(f.sentence)}</p>" for f in self.breaches
        )


@dataclass(frozen=True)
class BaselineChange:
    """A figure of a baseline that is not what it was; None where there was none or is none any more."""

    label: str
    score: Score | None
    "None: of a budget that is gone"
    before: float | None
    now: float | None


@dataclass(frozen=True)
class BaselineUpdate:
    """What came of writing a baseline."""

    path: Path
    file_changed: bool
    changes: tuple[BaselineChange, ...]
    data_changes: tuple[str, ...]
    "experiment by experiment, in what its recordings or their counting changed"


def run_gate(
    config: GateConfig | str | Path,
    experiments: Collection[str] | str = (),
    *,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
) -> GateResults:
    """Runs the experiments of a gate file, or those named in ``experiments``, and checks every bound.

    Raises ``SpecError`` where budgets or baseline do not fit what is there, and what
    ``run_experiment`` raises.
    """
    config = config if isinstance(config, GateConfig) else read_gate_config(config)
    renew = f"ctxlab gate {config.path} --update"
    before = read_baseline(config.baseline)
    parts = before.experiments if before else {}
    found: list[Finding] = []
    for experiment in config.select(
        (experiments,) if isinstance(experiments, str) else experiments
    ):
        then = parts.get(experiment.name)
        _require_baseline_scores(
            then, experiment.budgets, config.baseline, renew
        )  # before anything is run for it
        results = run_experiment(experiment.spec, progress, on_skip)
        found += check_results(results, experiment.budgets, then, config.baseline, renew)
    return GateResults(tuple(found), config.strict)


def check_results(
    results: Results,
    budgets: Sequence[GateBudget],
    baseline: ExperimentBaseline | None,
    baseline_path: Path,
    update_command: str,
) -> list[Finding]:
    """What became of the bounds of budgets, all of one experiment.

    ``baseline``: its part of the baseline, ``baseline_path`` the baseline's file,
    ``update_command`` the command that writes it anew. Raises ``SpecError`` where the two cannot be
    compared and where a figure is not known.
    """
    now = make_experiment_baseline(results, budgets)
    _require_baseline_scores(baseline, budgets, baseline_path, update_command)
    compares = any(budget.margins for budget in budgets)
    if (
        baseline
        and compares
        and (said := describe_data_changes(now, baseline) or _baseline_gaps(now, baseline, budgets))
    ):
        name = budgets[0].experiment
        raise SpecError(
            f"{baseline_path}: {name} was run on something else: {said}; look at it, "
            f"then {update_command} takes it"
        )
    found = []
    for budget in budgets:
        for bound in budget.bounds:
            value = _require_score(bound.score, now, budget)
            if bound.kind == "margin":
                assert baseline is not None
                found.append(_check_margin(budget, bound, value, now, baseline))
            else:
                beyond = (value - bound.value) * (1 if bound.kind == "max" else -1)
                outcome: FindingOutcome = (
                    "worse" if beyond > _TOLERANCE * abs(bound.value) else "ok"
                )
                found.append(Finding(budget, bound, value, outcome))
    return found


def _check_margin(
    budget: GateBudget,
    bound: Bound,
    value: float,
    now: ExperimentBaseline,
    baseline: ExperimentBaseline,
) -> Finding:
    """What became of a margin."""
    score, before = bound.score, baseline.budgets[budget.baseline_key]
    sums = now.budgets[budget.baseline_key].sums
    old = _require_score(score, baseline, budget)
    finding = Finding(budget, bound, value, "ok", old, before.strategy)
    if abs(value - old) <= _TOLERANCE * max(abs(value), abs(old)):
        return replace(finding, value=old)
    worse = (value - old) * (1 if score.better == "lower" else -1)
    beyond = worse > bound.margin(old) + _TOLERANCE * abs(old)
    low = high = math.nan
    clusters = 0
    if score.how != "max":
        pairs = [sum_by_cluster(score, each, now.recordings) for each in (sums, before.sums)]
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
    config: GateConfig | str | Path,
    experiments: Collection[str] | str = (),
    *,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
) -> BaselineUpdate:
    """Runs the experiments of a file of budgets and writes what is found to its baseline file.

    Where ``experiments`` some are named the others stay in the file as they are; what the budgets
    name no more is taken out. Raises what ``run_gate`` raises, but for a baseline that does not
    fit.
    """
    config = config if isinstance(config, GateConfig) else read_gate_config(config)
    before = read_baseline(config.baseline)
    old = before.experiments if before else {}
    new = {e.name: old[e.name] for e in config.experiments if e.name in old}
    changes: list[BaselineChange] = []
    data: list[str] = []
    for experiment in config.select(
        (experiments,) if isinstance(experiments, str) else experiments
    ):
        then = new.pop(experiment.name, None)
        if not experiment.baseline_budgets:
            continue
        results = run_experiment(experiment.spec, progress, on_skip)
        now = make_experiment_baseline(results, experiment.baseline_budgets, margins_only=True)
        new[experiment.name] = now
        if then and (said := describe_data_changes(now, then)):
            data.append(f"{experiment.name}: {said}")
        changes += _iter_changes(experiment, now, then)
    for name in sorted(old.keys() - new.keys()):
        changes += [
            BaselineChange(f"{name} / {key}", None, None, None) for key in old[name].budgets
        ]
    new_file = write_baseline(GateBaseline(__version__, new), config.baseline)
    return BaselineUpdate(config.baseline, new_file, tuple(changes), tuple(data))


def _iter_changes(
    experiment: GateExperiment, now: ExperimentBaseline, baseline: ExperimentBaseline | None
) -> Iterator[BaselineChange]:
    """Every figure of an experiment that is not what it was, and every one that is no more."""
    told = set()
    for budget in experiment.baseline_budgets:
        told.add(budget.baseline_key)
        for bound in budget.margins:
            value = _require_score(bound.score, now, budget)
            old = _score_or_none(bound.score, baseline, budget)
            if old != value:
                yield BaselineChange(budget.label, bound.score, old, value)
    for key in sorted(baseline.budgets.keys() - told) if baseline else ():
        yield BaselineChange(f"{experiment.name} / {key}", None, None, None)


def _require_baseline_scores(
    baseline: ExperimentBaseline | None,
    budgets: Sequence[GateBudget],
    baseline_path: Path,
    update_command: str,
) -> None:
    """Raises where a baseline does not hold what budgets compare with it."""
    for budget in budgets:
        for bound in budget.margins:
            if _score_or_none(bound.score, baseline, budget) is None:
                what = f"{budget.label} has no {score_label(bound.score)} in the baseline yet"
                raise SpecError(f"{baseline_path}: {what}; {update_command} writes it")


def _baseline_gaps(
    now: ExperimentBaseline, baseline: ExperimentBaseline, budgets: Sequence[GateBudget]
) -> str:
    """A budget whose sums are not those of the recordings, as after a merge that went wrong."""
    for budget in budgets:
        if budget.margins:
            sums = baseline.budgets[budget.baseline_key].sums
            if sums.keys() != now.budgets[budget.baseline_key].sums.keys():
                return f"the baseline of {budget.label} does not hold the recordings that it names"
            if any(value is None for row in sums.values() for value in row.values()):
                return f"the baseline of {budget.label} holds a figure that is not known"
    return ""


def _score_or_none(
    score: Score, part: ExperimentBaseline | None, budget: GateBudget
) -> float | None:
    """A score in a part of a baseline; None where it is not there, nan where it was not known."""
    entry = part.budgets.get(budget.baseline_key) if part else None
    if entry is None or not all(
        set(score_columns(score)) <= row.keys() for row in entry.sums.values()
    ):
        return None
    return compute_score(score, entry.sums)


def _require_score(score: Score, part: ExperimentBaseline, budget: GateBudget) -> float:
    """A figure that is there. Raises where it is not known, which neither holds nor breaks a bound."""
    value = _score_or_none(score, part, budget)
    if value is None or math.isnan(value):
        why = (
            f"no price is known for {', '.join(_unpriced_models(part))}"
            if score.unit == "USD"
            else "nothing to measure it by"
        )
        raise SpecError(f"{budget.label}: {score_label(score)} is not known: {why}")
    return value


def _unpriced_models(part: ExperimentBaseline) -> list[str]:
    """The models of an experiment whose prices are not known."""
    prices = part.prices or {}
    unknown = [name for name, each in prices.items() if not (each["input"] or each["output"])]
    return unknown or part.models

"""Run the experiments of a gate file and check their bounds.

A fixed bound (``max``, ``min``) is either met or not. A margin limits how much worse a score may become
than in the committed baseline: a score that is worse by more than the margin fails the gate.

A replay without model calls is deterministic. With unchanged code the difference is exactly 0, so a
difference beyond the margin is a fact about these recordings, and no chance is involved. Only the
difference decides. A larger loss can therefore never pass where a smaller one fails. The 95 % interval
says what the difference may be on other recordings: the scores are compared recording by recording, and
clusters of recordings are resampled. Use a fixed bound for events that must never happen, such as an
overflow.

New logs of an agent are compared with old ones by ``ctxlab.evaluation.gate.logs``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctxlab._utils.html import paragraph, table_html, wrap_html
from ctxlab._utils.tables import text_columns
from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import ratio_difference
from ctxlab.evaluation.gate.baseline import (
    ExperimentBaseline,
    compute_score,
    describe_data_changes,
    make_experiment_baseline,
    read_baseline,
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
from ctxlab.evaluation.gate.findings import Finding, score_label
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import run_experiment
from ctxlab.formats import OnSkip

_TOLERANCE = 1e-9
"relative difference below which scores count as equal; sums of floats differ between computers"


@dataclass(frozen=True, repr=False)
class GateResults:
    """Findings of a gate, one for each bound that was checked."""

    findings: tuple[Finding, ...]
    "one finding per bound"

    @property
    def breaches(self) -> tuple[Finding, ...]:
        """Findings that fail the gate."""
        return tuple(f for f in self.findings if f.outcome == "worse")

    @property
    def unclear(self) -> tuple[Finding, ...]:
        """Findings of a comparison of logs that the logs do not settle."""
        return tuple(f for f in self.findings if f.outcome == "unclear")

    @property
    def passed(self) -> bool:
        """True if no finding fails the gate. Unclear findings do not fail it."""
        return not self.breaches

    @property
    def sorted_findings(self) -> tuple[Finding, ...]:
        """Findings ordered by outcome: worse, unclear, ok."""
        rank = {"worse": 0, "unclear": 1, "ok": 2}
        return tuple(sorted(self.findings, key=lambda finding: rank[finding.outcome]))

    def __repr__(self) -> str:
        """Return a short description with the number of bounds and of breaches."""
        return f"<GateResults: {len(self.findings)} bounds, {len(self.breaches)} violated>"

    def _repr_html_(self) -> str:
        heads = ["", "budget", "score", "baseline", "now", "difference (95 %)", "bound"]
        rows = [
            (f.label, f.budget.label, f.score.name, *f.cells, f.bound_text)
            for f in self.sorted_findings
        ]
        said = (paragraph(finding.sentence) for finding in self.breaches)
        return wrap_html(*said, table_html(text_columns(heads, rows)))


@dataclass(frozen=True)
class BaselineChange:
    """Change of one score, or removal of one budget, when a baseline is updated."""

    label: str
    "name of the budget in printed output"
    score: Score | None
    "score that changed; None if the budget was removed"
    before: float | None
    "score in the old baseline; None if the old baseline did not have it"
    now: float | None
    "score in the new baseline; None if the budget was removed"


@dataclass(frozen=True)
class BaselineUpdate:
    """Changes that an update of a baseline made."""

    path: Path
    "path of the baseline file"
    file_changed: bool
    "True if the content of the file changed"
    changes: tuple[BaselineChange, ...]
    "changed scores and removed budgets"
    data_changes: tuple[str, ...]
    "one description for each experiment whose recordings, token counting or prices changed"


def run_gate(
    config: GateConfig | str | Path,
    experiments: Collection[str] | str = (),
    *,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
) -> GateResults:
    """Run the experiments of a gate file and check every bound.

    Parameters
    ----------
    config : GateConfig, str or Path
        Gate file, parsed or as a path.
    experiments : str or collection of str, optional
        Names of the experiments to run. All experiments run by default.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    on_skip : callable, optional
        Function that is called for each skipped file, with its path and the reason.

    Returns
    -------
    GateResults
        One finding per bound.

    Raises
    ------
    SpecError
        If the gate file is not valid, the baseline does not match the data, or a score is unknown.
    ReadError
        If a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import ctxlab
    >>> folder = Path(tempfile.mkdtemp())
    >>> experiment = '''
    ... data = ["bundled:long-chat"]
    ... limits = [8000]
    ... '''
    >>> _ = (folder / "chat.toml").write_text(experiment)
    >>> budgets = '''
    ... [chat]
    ... max = { overflow_rate = 0 }
    ... [chat.window]
    ... strategy = "sliding_window"
    ... '''
    >>> _ = (folder / "budgets.toml").write_text(budgets)
    >>> ctxlab.run_gate(folder / "budgets.toml")
    <GateResults: 1 bounds, 0 violated>
    """
    config = config if isinstance(config, GateConfig) else read_gate_config(config)
    renew = f"ctxlab gate {config.path} --update"
    baselines = read_baseline(config.baseline)
    found: list[Finding] = []
    for experiment in config.select(experiments):
        then, budgets = baselines.get(experiment.name), experiment.budgets
        # Check this before the experiment, which may take long.
        _require_baseline_scores(then, budgets, config.baseline, renew)
        results = run_experiment(experiment.spec, progress, on_skip)
        found += check_results(results, budgets, then, config.baseline, renew)
    return GateResults(tuple(found))


def check_results(
    results: Results,
    budgets: Sequence[GateBudget],
    baseline: ExperimentBaseline | None,
    baseline_path: Path,
    update_command: str,
) -> list[Finding]:
    """Check the bounds of the budgets of one experiment.

    Parameters
    ----------
    results : Results
        Results of the experiment.
    budgets : sequence of GateBudget
        Budgets of the experiment.
    baseline : ExperimentBaseline or None
        Baseline of the experiment, if there is one.
    baseline_path : Path
        Path of the baseline file, for error messages.
    update_command : str
        Command that updates the baseline, for error messages.

    Returns
    -------
    list of Finding
        One finding per bound.

    Raises
    ------
    SpecError
        If the results cannot be compared with the baseline, or a score is unknown.
    """
    now = make_experiment_baseline(results, budgets)
    _require_baseline_scores(baseline, budgets, baseline_path, update_command)
    if baseline and any(budget.margins for budget in budgets):
        said = describe_data_changes(now, baseline) or _baseline_gaps(now, baseline, budgets)
        if said:
            what = f"the data of {budgets[0].experiment} differs from its baseline: {said}"
            raise SpecError(f"{baseline_path}: {what}; if this is intended, run {update_command}")
    return [_check_bound(each, bound, now, baseline) for each in budgets for bound in each.bounds]


def _check_bound(
    budget: GateBudget, bound: Bound, now: ExperimentBaseline, baseline: ExperimentBaseline | None
) -> Finding:
    """Compare a score with a fixed bound or, if the bound is a margin, with its baseline value."""
    value, score = _require_score(bound.score, now, budget), bound.score
    if bound.kind != "margin":
        beyond = (value - bound.value) * (1 if bound.kind == "max" else -1)
        broken = beyond > _TOLERANCE * abs(bound.value)
        return Finding(budget, bound, value, "worse" if broken else "ok")
    assert baseline is not None
    then = baseline.budgets[budget.baseline_key]
    old = _require_score(score, baseline, budget)
    finding = Finding(budget, bound, value, "ok", old, then.strategy)
    if abs(value - old) <= _TOLERANCE * max(abs(value), abs(old)):
        return replace(finding, value=old)
    if score.how != "max":
        sums = now.budgets[budget.baseline_key].sums
        pairs = [sum_by_cluster(score, each, now.recordings) for each in (sums, then.sums)]
        found = ratio_difference(*pairs[0], *pairs[1])
        # ``sum_by_cluster`` turns a sum into a mean per recording. Convert the interval back.
        times = len(sums) if score.how == "sum" else 1
        low, high = times * found.low, times * found.high
        finding = replace(finding, low=low, high=high, clusters=found.clusters)
    beyond = finding.loss > finding.margin + _TOLERANCE * abs(old)
    return replace(finding, outcome="worse" if beyond else "ok")


def update_baseline(
    config: GateConfig | str | Path,
    experiments: Collection[str] | str = (),
    *,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
) -> BaselineUpdate:
    """Run the experiments of a gate file and write the results to its baseline file.

    Only the experiments that are run are updated; the stored results of other experiments are kept.
    Experiments and budgets that are no longer in the gate file are removed from the baseline.

    Parameters
    ----------
    config : GateConfig, str or Path
        Gate file, parsed or as a path.
    experiments : str or collection of str, optional
        Names of the experiments to run. All experiments run by default.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    on_skip : callable, optional
        Function that is called for each skipped file, with its path and the reason.

    Returns
    -------
    BaselineUpdate
        Differences between the old and the new baseline.

    Raises
    ------
    SpecError
        If the gate file is not valid, or a score is unknown.
    ReadError
        If a file cannot be read.
    """
    config = config if isinstance(config, GateConfig) else read_gate_config(config)
    old = read_baseline(config.baseline)
    new = {e.name: old[e.name] for e in config.experiments if e.name in old}
    changes: list[BaselineChange] = []
    data: list[str] = []
    for experiment in config.select(experiments):
        then = new.pop(experiment.name, None)
        if not experiment.baseline_budgets:
            continue
        results = run_experiment(experiment.spec, progress, on_skip)
        now = make_experiment_baseline(results, experiment.baseline_budgets, margins_only=True)
        new[experiment.name] = now
        if then and (said := describe_data_changes(now, then)):
            data.append(f"{experiment.name}: {said}")
        changes += _iter_changes(experiment, now, then)
    changes += [
        BaselineChange(f"{name} / {key}", None, None, None)
        for name in sorted(old.keys() - new.keys())
        for key in old[name].budgets
    ]
    changed = write_baseline(new, config.baseline)
    return BaselineUpdate(config.baseline, changed, tuple(changes), tuple(data))


def _iter_changes(
    experiment: GateExperiment, now: ExperimentBaseline, then: ExperimentBaseline | None
) -> Iterator[BaselineChange]:
    """Yield a change for each changed score and each removed budget of an experiment."""
    gone = set(then.budgets if then else ())
    for budget in experiment.baseline_budgets:
        gone.discard(budget.baseline_key)
        for bound in budget.margins:
            value = _require_score(bound.score, now, budget)
            old = _find_score(bound.score, then, budget)
            if old != value:
                yield BaselineChange(budget.label, bound.score, old, value)
    for key in sorted(gone):
        yield BaselineChange(f"{experiment.name} / {key}", None, None, None)


def _require_baseline_scores(
    baseline: ExperimentBaseline | None,
    budgets: Sequence[GateBudget],
    baseline_path: Path,
    update_command: str,
) -> None:
    """Raise ``SpecError`` if the baseline lacks a score that a margin needs."""
    for budget in budgets:
        for bound in budget.margins:
            if _find_score(bound.score, baseline, budget) is None:
                what = f"{budget.label} has no {score_label(bound.score)} in the baseline yet"
                raise SpecError(f"{baseline_path}: {what}; run {update_command} to add it")


def _baseline_gaps(
    now: ExperimentBaseline, baseline: ExperimentBaseline, budgets: Sequence[GateBudget]
) -> str:
    """Describe the first budget whose stored sums are incomplete or belong to other recordings.

    This can happen after a bad merge. Return an empty string if there is no such budget.
    """
    for budget in budgets:
        if budget.margins:
            sums = baseline.budgets[budget.baseline_key].sums
            if sums.keys() != now.budgets[budget.baseline_key].sums.keys():
                return f"the stored sums of {budget.label} cover other recordings than this run"
            if any(value is None for row in sums.values() for value in row.values()):
                return f"the stored sums of {budget.label} contain a null"
    return ""


def _find_score(score: Score, part: ExperimentBaseline | None, budget: GateBudget) -> float | None:
    """Compute a score of a budget from stored sums.

    Return None if the baseline does not contain the budget, or if the stored sums lack a column that
    the score needs. Return nan if the score had no value, for example a cost without known prices.
    """
    entry = part.budgets.get(budget.baseline_key) if part else None
    if entry and all(row.keys() >= {*score.run_columns} for row in entry.sums.values()):
        return compute_score(score, entry.sums)
    return None


def _require_score(score: Score, part: ExperimentBaseline, budget: GateBudget) -> float:
    """Compute a score from stored sums; raise ``SpecError`` if the sums do not suffice."""
    value = _find_score(score, part, budget)
    if value is not None and not math.isnan(value):
        return value
    why = "no request has a value for it"
    if score.unit == "USD":
        prices = (part.prices or {}).items()
        models = [name for name, each in prices if not (each["input"] or each["output"])]
        why = f"no price is known for {', '.join(models or part.models)}"
    raise SpecError(f"{budget.label}: {score_label(score)} could not be computed: {why}")

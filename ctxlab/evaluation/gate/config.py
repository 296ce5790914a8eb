"""Gate files, such as ``evals/budgets.toml``: what strategies may cost and must keep.

A table is an experiment, and a table inside it is a named budget. The strategy of a budget may
change: the gate checks if the change keeps the bounds. ``max`` and ``min`` bound a score, and
``margin`` says how much worse than the committed baseline it may become. Bounds in an experiment's
table apply to all of its budgets::

    baseline = "baseline.json"        # written by ctxlab gate --update

    [logs]                            # runs logs.toml in the same folder
    max = { overflow_rate = 0, invalid_rate = 0 }
    margin = { recall_far = 0.02 }

    [logs.masking]
    strategy = "observation_mask(keep=10) | sliding_window | panic"
    limits = 8000                     # default: each limit of the experiment
    max = { tokens_mean = "6k" }
    margin = { tokens_mean = "2 %" }
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab._utils.humanize import parse_limit, parse_quantity
from ctxlab.errors import SpecError, UnknownName, require_known
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.spec import Spec, prefix_errors, read_spec, read_table
from ctxlab.strategies import parse_strategy

BoundKind: TypeAlias = Literal["max", "min", "margin"]

BOUND_KINDS: tuple[BoundKind, ...] = ("max", "min", "margin")
"""Kinds of bounds: at most, at least, and how much worse than the baseline."""

_FILE_KEYS = ("baseline", "strict")
_EXPERIMENT_KEYS = ("file", "limits", *BOUND_KINDS)
_BUDGET_KEYS = ("strategy", "limits", *BOUND_KINDS)


@dataclass(frozen=True)
class Bound:
    """A bound of one score."""

    kind: BoundKind
    "``max``, ``min`` or ``margin``"
    score: Score
    "the score that is bounded"
    value: float
    "the bound in the score's unit, or a share if ``relative``"
    relative: bool = False
    "True if a margin is a share of the baseline's figure"

    def margin(self, baseline_value: float) -> float:
        """Return the allowed deterioration in the score's unit.

        Parameters
        ----------
        baseline_value : float
            Figure of the baseline.

        Returns
        -------
        float
            How much worse the score may become.
        """
        return self.value * abs(baseline_value) if self.relative else self.value


@dataclass(frozen=True)
class GateBudget:
    """A named budget: one strategy under one limit, and its bounds."""

    experiment: str
    "name of the experiment"
    name: str
    "name of the budget"
    strategy: str
    "the strategy as it prints"
    limit: int | float
    "tokens, or a fraction of each recording"
    bounds: tuple[Bound, ...]
    "the bounds to check"

    @property
    def baseline_key(self) -> str:
        """Key in a baseline: name and limit, independent of the strategy.

        >>> GateBudget("logs", "masking", "observation_mask(keep=3)", 8000, ()).baseline_key
        'masking at 8000'
        """
        return f"{self.name} at {self.limit}".strip()

    @property
    def label(self) -> str:
        """Name in a sentence.

        >>> GateBudget("logs", "masking", "observation_mask(keep=3)", 8000, ()).label
        'logs / masking at 8,000'
        """
        share = isinstance(self.limit, float) and self.limit <= 1
        limit = f"{self.limit * 100:.3g} %" if share else f"{self.limit:,.0f}"
        return f"{' / '.join(filter(None, (self.experiment, self.name)))} at {limit}"

    @property
    def margins(self) -> tuple[Bound, ...]:
        """Bounds that compare with a baseline."""
        return tuple(bound for bound in self.bounds if bound.kind == "margin")


@dataclass(frozen=True)
class GateExperiment:
    """An experiment and its budgets."""

    name: str
    "name of its table"
    spec: Spec
    "the experiment, limited to the strategies and limits of its budgets"
    budgets: tuple[GateBudget, ...]
    "the budgets, one per strategy and limit"

    @property
    def baseline_budgets(self) -> tuple[GateBudget, ...]:
        """Budgets with a bound that compares with a baseline."""
        return tuple(budget for budget in self.budgets if budget.margins)


@dataclass(frozen=True)
class GateConfig:
    """The content of a gate file."""

    path: Path
    "the gate file"
    baseline: Path
    "the baseline file"
    strict: bool
    "True if unclear findings fail as well"
    experiments: tuple[GateExperiment, ...]
    "the experiments of the file"

    def select(self, names: Collection[str] | str) -> tuple[GateExperiment, ...]:
        """Return the experiments with the given names.

        Parameters
        ----------
        names : str or collection of str
            Names of experiments; empty for all.

        Returns
        -------
        tuple of GateExperiment
            The experiments, in the order of the file.

        Raises
        ------
        UnknownName
            If a name is not in the file.
        """
        names = (names,) if isinstance(names, str) else names
        for name in names:
            require_known(f"experiment of {self.path}", name, (e.name for e in self.experiments))
        return tuple(e for e in self.experiments if not names or e.name in names)


def read_gate_config(path: str | Path) -> GateConfig:
    """Read a gate file in TOML; experiments and baseline are relative to it.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    GateConfig
        Its content.

    Raises
    ------
    ReadError
        If the file cannot be read.
    SpecError
        If the content is not valid; the message names file and key, and the nearest known name.
    """
    path = Path(path)
    table = read_table(path)
    with prefix_errors(path):
        experiments = tuple(_parse_experiments(path, table))
        baseline = _get_value(table, "baseline", "baseline.json")
        strict = _get_value(table, "strict", False)
    return GateConfig(path, path.parent / Path(baseline).expanduser(), strict, experiments)


def parse_bounds(tables: Mapping[str, Any], scores: Iterable[Score]) -> tuple[Bound, ...]:
    """Parse tables of bounds, one per kind.

    Shares can be written as percentages and tokens as 8k.

    Parameters
    ----------
    tables : mapping
        A table of values by score name, for each kind of bound.
    scores : iterable of Score
        Scores that are measured.

    Returns
    -------
    tuple of Bound
        The bounds.

    Raises
    ------
    SpecError
        If a bound is not valid; the message starts with the key.

    Examples
    --------
    >>> from ctxlab.evaluation.metrics.tokens import UsageMetric
    >>> (bound,) = parse_bounds({"margin": {"tokens_mean": "2 %"}}, UsageMetric.scores)
    >>> bound.kind, bound.score.name, bound.value, bound.relative
    ('margin', 'tokens_mean', 0.02, True)
    """
    known = {score.name: score for score in scores}
    bounds: list[Bound] = []
    for kind in BOUND_KINDS:
        values = _get_value(tables, kind, {})
        with prefix_errors(kind):
            bounds += [_parse_bound(kind, name, value, known) for name, value in values.items()]
    return tuple(bounds)


def _parse_experiments(path: Path, table: Mapping[str, Any]) -> Iterator[GateExperiment]:
    tables = {name: inside for name, inside in table.items() if isinstance(inside, dict)}
    for key in table.keys() - tables.keys():
        require_known("key", key, _FILE_KEYS)
    if not tables:
        raise SpecError("no experiment; add a table such as [logs], which runs logs.toml")
    for name, inside in tables.items():
        with prefix_errors(name):
            yield _parse_experiment(path, name, inside)


def _parse_experiment(path: Path, name: str, table: Mapping[str, Any]) -> GateExperiment:
    file = _get_value(table, "file", f"{name}.toml")
    with prefix_errors("file"):
        spec = read_spec(path.parent / file)
    scores = [score for metric in spec.metrics for score in METRICS[metric].scores]
    shared, limits = parse_bounds(table, scores), table.get("limits", spec.limits)
    budgets: list[GateBudget] = []
    written: list[str] = []
    for key, inside in table.items():
        if key in _EXPERIMENT_KEYS:
            continue
        if not isinstance(inside, dict):
            raise UnknownName("key", key, _EXPERIMENT_KEYS)
        with prefix_errors(key):
            _check_budget_keys(inside)
            own = {(b.kind, b.score.name): b for b in (*shared, *parse_bounds(inside, scores))}
            if not own:
                raise SpecError("no bounds; add max, min or margin")
            written.append(_get_value(inside, "strategy", ""))
            strategy, bounds = repr(parse_strategy(written[-1])), tuple(own.values())
            within = _parse_limits(inside.get("limits", limits), spec.limits)
            budgets += [GateBudget(name, key, strategy, limit, bounds) for limit in within]
    if not budgets:
        raise SpecError(f"no budget; add a table [{name}.NAME] with a strategy")
    used = tuple(dict.fromkeys(budget.limit for budget in budgets))
    strategies = tuple(dict.fromkeys(written))
    only = msgspec.structs.replace(spec, strategies=strategies, limits=used)
    return GateExperiment(name, only, tuple(budgets))


def _check_budget_keys(table: Mapping[str, Any]) -> None:
    if "strategy" not in table:
        keys = ", ".join(_EXPERIMENT_KEYS)
        raise SpecError(f"neither a known key ({keys}) nor a budget, which needs a strategy")
    for key in table:
        require_known("key", key, _BUDGET_KEYS)


def _parse_limits(value: Any, known: tuple[int | float | str, ...]) -> list[int | float]:
    limits = [parse_limit(x) for x in (value if isinstance(value, (list, tuple)) else [value])]
    for limit in limits:
        if limit not in known:
            has = ", ".join(map(str, known))
            raise SpecError(f"limits: the experiment has no limit {limit}; choose from {has}")
    return list(dict.fromkeys(limits))


def _parse_bound(kind: BoundKind, name: str, value: Any, scores: Mapping[str, Score]) -> Bound:
    score = scores[require_known("score", name, scores)]
    margin, share = kind == "margin", score.unit == "share"
    if margin and not score.better:
        raise SpecError(f"for {name} neither lower nor higher is worse; use max and min instead")
    number: Any = value
    unit = ""
    if isinstance(value, str):
        number, unit = parse_quantity(value) or (None, "")
    if type(number) not in (int, float) or not 0 <= number < math.inf:
        raise SpecError(f"{name}: expected at least 0, such as 8k, 0.02 or 2 %, got {value!r}")
    if unit and not (margin or share):
        raise SpecError(f"{name}: expected a number of {score.unit}, got the share {value!r}")
    bound = number / 100 if unit else number
    if share and not margin and bound > 1:
        raise SpecError(f"{name}: expected a share of at most 1 or 100 %, got {value!r}")
    return Bound(kind, score, bound, margin and bool(unit))


def _get_value(table: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return the value of a key, which must have the type of its default."""
    value = table.get(key, default)
    if not isinstance(value, type(default)):
        words = {str: "text", bool: "true or false", dict: "a table of scores"}
        raise SpecError(f"{key}: expected {words[type(default)]}, got {value!r}")
    return value

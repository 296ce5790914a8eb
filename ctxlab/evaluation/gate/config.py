"""Gate files, such as ``evals/budgets.toml``, which set bounds for the scores of strategies.

Each table of the file is an experiment, and each table inside an experiment is a named budget: a
strategy with bounds for its scores. ``max`` and ``min`` bound a score. ``margin`` limits how much
worse a score may become than in the committed results of an earlier run (the baseline). If you change
the strategy of a budget, its bounds stay, and the gate shows whether the new strategy meets them. Bounds
in the table of an experiment apply to all budgets of the experiment::

    baseline = "baseline.json"        # written by ctxlab gate --update

    [logs]                            # runs logs.toml in the same folder
    max = { overflow_rate = 0, invalid_rate = 0 }
    margin = { recall_far_held = 0.02 }

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
from ctxlab._utils.numbers import format_limit
from ctxlab.errors import SpecError, UnknownName, require_known
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.spec import Spec, prefix_errors, read_spec, read_table
from ctxlab.strategies import parse_strategy

BoundKind: TypeAlias = Literal["max", "min", "margin"]

BOUND_KINDS: tuple[BoundKind, ...] = ("max", "min", "margin")
"""Kinds of bounds: maximum, minimum, and amount by which a score may be worse than in the baseline."""

_FILE_KEYS = ("baseline",)
_EXPERIMENT_KEYS = ("file", "limits", *BOUND_KINDS)
_BUDGET_KEYS = ("strategy", "limits", *BOUND_KINDS)


@dataclass(frozen=True)
class Bound:
    """Upper bound, lower bound or margin of one score."""

    kind: BoundKind
    "``max``, ``min`` or ``margin``"
    score: Score
    "the score that is checked"
    value: float
    "bound in the score's unit, or, if ``relative``, as a fraction of the score in the baseline"
    relative: bool = False
    "True for a margin that is a fraction of the score in the baseline, such as 2 %"

    def margin(self, baseline_value: float) -> float:
        """Convert the value of a margin into the score's unit.

        Parameters
        ----------
        baseline_value : float
            Value of the score in the baseline.

        Returns
        -------
        float
            Difference by which the score may become worse.
        """
        return self.value * abs(baseline_value) if self.relative else self.value


@dataclass(frozen=True)
class GateBudget:
    """Named budget of a gate file: a strategy, a limit, and the bounds of its scores."""

    experiment: str
    "name of the experiment"
    name: str
    "name of the budget"
    strategy: str
    "``repr`` of the strategy"
    limit: int | float | None
    "limit in tokens, or as a fraction of each recording's length; None if the strategy has no limit"
    bounds: tuple[Bound, ...]
    "bounds of the scores"

    @property
    def baseline_key(self) -> str:
        """Key of the budget in a baseline: its name and limit.

        The strategy is not part of the key, so that a new strategy is compared with the old one.

        >>> GateBudget("logs", "masking", "observation_mask(keep=3)", 8000, ()).baseline_key
        'masking at 8000'
        """
        return self.name if self.limit is None else f"{self.name} at {self.limit}".strip()

    @property
    def label(self) -> str:
        """Name of the budget in printed output and errors, with experiment and limit.

        >>> GateBudget("logs", "masking", "observation_mask(keep=3)", 8000, ()).label
        'logs / masking at 8,000'
        """
        name = " / ".join(filter(None, (self.experiment, self.name)))
        if self.limit is None:
            return name
        return f"{name} at {format_limit(self.limit)}"

    @property
    def margins(self) -> tuple[Bound, ...]:
        """Bounds of kind ``margin``, which compare a score with the baseline."""
        return tuple(bound for bound in self.bounds if bound.kind == "margin")


@dataclass(frozen=True)
class GateExperiment:
    """An experiment of a gate file, with its budgets."""

    name: str
    "name of the experiment's table in the gate file"
    spec: Spec
    "the experiment, restricted to the strategies and limits of the budgets"
    budgets: tuple[GateBudget, ...]
    "one ``GateBudget`` for each named budget and each of its limits"

    @property
    def baseline_budgets(self) -> tuple[GateBudget, ...]:
        """Budgets with at least one margin.

        They can be checked only against the committed results of an earlier run (the baseline).
        """
        return tuple(budget for budget in self.budgets if budget.margins)


@dataclass(frozen=True)
class GateConfig:
    """Parsed content of a gate file."""

    path: Path
    "path of the gate file"
    baseline: Path
    "path of the baseline file"
    experiments: tuple[GateExperiment, ...]
    "experiments in the order of the file"

    def select(self, names: Collection[str] | str) -> tuple[GateExperiment, ...]:
        """Return the experiments with the given names.

        Parameters
        ----------
        names : str or collection of str
            Names of experiments. An empty collection selects all experiments.

        Returns
        -------
        tuple of GateExperiment
            Selected experiments, in the order of the file.

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
    """Read a gate file in TOML.

    Paths of experiments and of the baseline are relative to the folder of the gate file.

    Parameters
    ----------
    path : str or Path
        Path of the gate file.

    Returns
    -------
    GateConfig
        Parsed content of the file.

    Raises
    ------
    ReadError
        If the file cannot be read.
    SpecError
        If the content is not valid. The message names the file and the key, and suggests similar
        names for an unknown one.
    """
    path = Path(path)
    table = read_table(path)
    with prefix_errors(path):
        experiments = tuple(_parse_experiments(path, table))
        baseline = _get_value(table, "baseline", "baseline.json")
    return GateConfig(path, path.parent / Path(baseline).expanduser(), experiments)


def parse_bounds(tables: Mapping[str, Any], scores: Iterable[Score]) -> tuple[Bound, ...]:
    """Parse the tables ``max``, ``min`` and ``margin`` of an experiment or a budget.

    Values are numbers or strings: shares can be written as percentages (``"2 %"``) and tokens in
    thousands (``"8k"``).

    Parameters
    ----------
    tables : mapping
        Tables by kind of bound. Each table maps names of scores to values.
    scores : iterable of Score
        Scores that the experiment measures.

    Returns
    -------
    tuple of Bound
        One bound per value, ordered by kind.

    Raises
    ------
    SpecError
        If a bound is not valid. The message starts with the kind of bound, such as ``max``.

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
        raise SpecError("expected an experiment, got none; add a table like [logs] for logs.toml")
    for name, inside in tables.items():
        with prefix_errors(name):
            yield _parse_experiment(path, name, inside)


def _parse_experiment(path: Path, name: str, table: Mapping[str, Any]) -> GateExperiment:
    file = _get_value(table, "file", f"{name}.toml")
    with prefix_errors("file"):
        spec = read_spec(path.parent / file)
    scores = [score for metric in spec.chosen_metrics for score in metric.scores]
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
                raise SpecError("expected a bound, got none; add a table named max, min or margin")
            written.append(_get_value(inside, "strategy", ""))
            strategy, bounds = repr(parse_strategy(written[-1])), tuple(own.values())
            within = _parse_limits(inside.get("limits", limits), spec.limits)
            budgets += [GateBudget(name, key, strategy, limit, bounds) for limit in within]
    if not budgets:
        raise SpecError(f"expected a budget, got none; add a table [{name}.NAME] with a strategy")
    used = tuple(dict.fromkeys(budget.limit for budget in budgets))
    strategies = tuple(dict.fromkeys(written))
    only = msgspec.structs.replace(spec, strategies=strategies, limits=used)
    return GateExperiment(name, only, tuple(budgets))


def _check_budget_keys(table: Mapping[str, Any]) -> None:
    if "strategy" not in table:
        keys = ", ".join(_EXPERIMENT_KEYS)
        raise SpecError(
            f"a budget needs the key 'strategy', got only {list(table)}; add it, or, if this "
            f"table is not a budget, rename it to one of {keys}"
        )
    for key in table:
        require_known("key", key, _BUDGET_KEYS)


def _parse_limits(value: Any, known: tuple[int | float | str, ...]) -> list[int | float]:
    limits = [parse_limit(x) for x in (value if isinstance(value, (list, tuple)) else [value])]
    for limit in limits:
        if limit not in known:
            has = ", ".join(map(str, known))
            raise SpecError(f"limits: expected a limit of the experiment ({has}), got {limit}")
    return list(dict.fromkeys(limits))


def _parse_bound(kind: BoundKind, name: str, value: Any, scores: Mapping[str, Score]) -> Bound:
    score = scores[require_known("score", name, scores)]
    margin, share = kind == "margin", score.unit == "share"
    if margin and not score.better:
        raise SpecError(
            f"{name!r} cannot have a margin, because neither more nor less is better; use max or min"
        )
    number: Any = value
    unit = ""
    if isinstance(value, str):
        number, unit = parse_quantity(value) or (None, "")
    if type(number) not in (int, float) or not 0 <= number < math.inf:
        raise SpecError(f"{name}: expected 0 or more, such as '8k', 0.02 or '2 %', got {value!r}")
    if unit and not (margin or share):
        raise SpecError(f"{name}: expected a number of {score.unit}, got the percentage {value!r}")
    bound = number / 100 if unit else number
    if share and not margin and bound > 1:
        raise SpecError(f"{name}: expected a share from 0 to 1 (0 % to 100 %), got {value!r}")
    return Bound(kind, score, bound, margin and bool(unit))


def _get_value(table: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return the value of a key, or the default if the key is missing.

    Raise ``SpecError`` if the value does not have the type of the default.
    """
    value = table.get(key, default)
    if not isinstance(value, type(default)):
        expected = "a string" if isinstance(default, str) else "a table of scores"
        raise SpecError(f"{key}: expected {expected}, got {value!r}")
    return value

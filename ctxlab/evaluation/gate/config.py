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

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab._utils.humanize import parse_limit, parse_quantity
from ctxlab.errors import CtxlabError, ReadError, SpecError, UnknownName
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.spec import Spec, read_spec
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

    def select(self, names: Collection[str]) -> tuple[GateExperiment, ...]:
        """Return the experiments with the given names.

        Parameters
        ----------
        names : collection of str
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
        known = [experiment.name for experiment in self.experiments]
        for name in names:
            if name not in known:
                raise UnknownName(f"experiment of {self.path}", name, known)
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
    table = _read_toml(path)
    with _prefix_errors(path):
        experiments = tuple(_parse_experiments(path, table))
        baseline = _require_type("baseline", table.get("baseline", "baseline.json"), str)
        strict = _require_type("strict", table.get("strict", False), bool)
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
    >>> from ctxlab.evaluation.metrics import UsageMetric
    >>> (bound,) = parse_bounds({"margin": {"tokens_mean": "2 %"}}, UsageMetric.scores)
    >>> bound.kind, bound.score.name, bound.value, bound.relative
    ('margin', 'tokens_mean', 0.02, True)
    """
    known = {score.name: score for score in scores}
    return tuple(
        _parse_bound(kind, name, value, known)
        for kind in BOUND_KINDS
        for name, value in _require_type(kind, tables.get(kind, {}), dict).items()
    )


@contextmanager
def _prefix_errors(where: str | Path) -> Iterator[None]:
    """Prefix errors with the place in which they occur."""
    try:
        yield
    except CtxlabError as error:
        raise SpecError(f"{where}: {error}") from None


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not TOML: {error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8 text") from None


def _parse_experiments(path: Path, table: Mapping[str, Any]) -> Iterator[GateExperiment]:
    tables = {name: inside for name, inside in table.items() if isinstance(inside, dict)}
    for key in table:
        if key not in (*_FILE_KEYS, *tables):
            raise UnknownName("key", key, _FILE_KEYS)
    if not tables:
        raise SpecError("no experiment; add a table such as [logs], which runs logs.toml")
    for name, inside in tables.items():
        with _prefix_errors(name):
            yield _parse_experiment(path, name, inside)


def _parse_experiment(path: Path, name: str, table: Mapping[str, Any]) -> GateExperiment:
    file = _require_type("file", table.get("file", f"{name}.toml"), str)
    with _prefix_errors("file"):
        spec = read_spec(path.parent / file)
    scores = [s for metric in spec.metrics for s in METRICS[metric].scores]
    shared, limits = parse_bounds(table, scores), table.get("limits", spec.limits)
    made, written = [], []
    for key, inside in table.items():
        if isinstance(inside, dict) and key not in _EXPERIMENT_KEYS:
            with _prefix_errors(key):
                bounds = {
                    (b.kind, b.score.name): b
                    for b in (*shared, *_parse_budget_bounds(inside, scores))
                }
                if not bounds:
                    raise SpecError("no bounds; add max, min or margin")
                strategy = repr(parse_strategy(_require_type("strategy", inside["strategy"], str)))
                written.append(inside["strategy"])
                within = _parse_limits(inside.get("limits", limits), spec.limits)
                holds = tuple(bounds.values())
                made += [GateBudget(name, key, strategy, limit, holds) for limit in within]
        elif key not in _EXPERIMENT_KEYS:
            raise UnknownName("key", key, _EXPERIMENT_KEYS)
    if not made:
        raise SpecError(f"no budget; add a table [{name}.NAME] with a strategy")
    replayed = msgspec.structs.replace(
        spec,
        strategies=tuple(dict.fromkeys(written)),
        limits=tuple(dict.fromkeys(budget.limit for budget in made)),
    )
    return GateExperiment(name, replayed, tuple(made))


def _parse_budget_bounds(table: Mapping[str, Any], scores: list[Score]) -> tuple[Bound, ...]:
    """Parse the bounds of one budget's table, after checking its keys."""
    if "strategy" not in table:
        keys = ", ".join(_EXPERIMENT_KEYS)
        raise SpecError(f"neither a known key ({keys}) nor a budget, which needs a strategy")
    for key in table:
        if key not in _BUDGET_KEYS:
            raise UnknownName("key", key, _BUDGET_KEYS)
    return parse_bounds(table, scores)


def _parse_limits(value: Any, known: tuple[int | float | str, ...]) -> list[int | float]:
    several = value if isinstance(value, (list, tuple)) else [value]
    limits = [parse_limit(limit) for limit in several]
    for limit in limits:
        if limit not in known:
            has = ", ".join(str(each) for each in known)
            raise SpecError(f"limits: the experiment has no limit {limit}; choose from {has}")
    return list(dict.fromkeys(limits))


def _parse_bound(kind: BoundKind, name: str, value: Any, scores: Mapping[str, Score]) -> Bound:
    if name not in scores:
        raise SpecError(f"{kind}: {UnknownName('score', name, scores)}")
    if kind == "margin" and not scores[name].better:
        raise SpecError(
            f"{kind}: for {name} neither lower nor higher is worse; use max and min instead"
        )
    number, unit = value, ""
    if isinstance(value, str):
        number, unit = parse_quantity(value) or (None, "")
    wrong = isinstance(number, bool) or not isinstance(number, (int, float))
    if wrong or not 0 <= number < float("inf"):
        raise SpecError(
            f"{kind}: {name}: expected at least 0, such as 8000, 8k, 0.02 or 2 %, got {value!r}"
        )
    share = scores[name].unit == "share"
    if unit and kind != "margin" and not share:
        raise SpecError(
            f"{kind}: {name}: expected a number of {scores[name].unit}, got the share {value!r}"
        )
    bound = number / 100 if unit else number
    if share and kind != "margin" and bound > 1:
        raise SpecError(f"{kind}: {name}: expected a share of at most 1 or 100 %, got {value!r}")
    return Bound(kind, scores[name], bound, kind == "margin" and bool(unit))


def _require_type(key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        words = {str: "text", bool: "true or false", dict: "a table of scores"}
        raise SpecError(f"{key}: expected {words[kind]}, got {value!r}")
    return value

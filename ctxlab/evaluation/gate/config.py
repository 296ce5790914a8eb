"""A budget says what a strategy may cost and must keep; ``evals/budgets.toml`` holds a project's.

A table is an experiment, a table in it a budget, under a name of its own: the strategy's text may
change, and whether the change holds is what the gate is for. ``max`` and ``min`` bound a score by
itself, and ``margin`` says how much worse than the committed baseline it may become. What stands in the
experiment's table holds for each of its budgets::

    baseline = "baseline.json"        # ctxlab gate --update writes it

    [logs]                            # logs.toml beside this file
    max = { overflow_rate = 0, invalid_rate = 0 }
    margin = { recall_far = 0.02 }

    [logs.masking]
    strategy = "observation_mask(keep=10) | sliding_window | panic"
    limits = 8000                     # left out: each limit of the experiment
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

__all__ = [
    "BOUND_KINDS",
    "Bound",
    "BoundKind",
    "GateBudget",
    "GateConfig",
    "GateExperiment",
    "parse_bounds",
    "read_gate_config",
]

BoundKind: TypeAlias = Literal["max", "min", "margin"]

BOUND_KINDS: tuple[BoundKind, ...] = ("max", "min", "margin")
"""Of bounds: at most, at least, and how much worse than the baseline."""

_FILE_KEYS = ("baseline", "strict")
_EXPERIMENT_KEYS = ("file", "limits", *BOUND_KINDS)
_BUDGET_KEYS = ("strategy", "limits", *BOUND_KINDS)


@dataclass(frozen=True)
class Bound:
    """What one score may be, or how much worse than before."""

    kind: BoundKind
    score: Score
    value: float
    relative: bool = False
    "a share of the baseline's figure; margins alone"

    def margin(self, baseline_value: float) -> float:
        """How much worse than ``baseline_value`` is within it, in the score's unit."""
        return self.value * abs(baseline_value) if self.relative else self.value


@dataclass(frozen=True)
class GateBudget:
    """One strategy within one limit, under its own name, and its bounds."""

    experiment: str
    name: str
    strategy: str
    "as it prints"
    limit: int | float
    bounds: tuple[Bound, ...]

    @property
    def baseline_key(self) -> str:
        """What it is called in a baseline: its name and limit, whatever its strategy is.

        >>> GateBudget("logs", "masking", "observation_mask(keep=3)", 8000, ()).baseline_key
        'masking at 8000'
        """
        return f"{self.name} at {self.limit}".strip()

    @property
    def label(self) -> str:
        """What it is called in a sentence.

        >>> GateBudget("logs", "masking", "observation_mask(keep=3)", 8000, ()).label
        'logs / masking at 8,000'
        """
        share = isinstance(self.limit, float) and self.limit <= 1
        limit = f"{self.limit * 100:.3g} %" if share else f"{self.limit:,.0f}"
        return f"{' / '.join(filter(None, (self.experiment, self.name)))} at {limit}"

    @property
    def margins(self) -> tuple[Bound, ...]:
        """Those of its bounds that look at a baseline."""
        return tuple(bound for bound in self.bounds if bound.kind == "margin")


@dataclass(frozen=True)
class GateExperiment:
    """The budgets of one experiment, and what is to be run for them."""

    name: str
    spec: Spec
    "of the experiment, with the strategies and limits of its budgets alone"
    budgets: tuple[GateBudget, ...]

    @property
    def baseline_budgets(self) -> tuple[GateBudget, ...]:
        """The budgets of which a bound looks at a baseline."""
        return tuple(budget for budget in self.budgets if budget.margins)


@dataclass(frozen=True)
class GateConfig:
    """What a file of budgets says."""

    path: Path
    baseline: Path
    strict: bool
    "whether what is unclear fails as well"
    experiments: tuple[GateExperiment, ...]

    def select(self, names: Collection[str]) -> tuple[GateExperiment, ...]:
        """The experiments of these names; all where none is named. Raises ``UnknownName``."""
        known = [experiment.name for experiment in self.experiments]
        for name in names:
            if name not in known:
                raise UnknownName(f"experiment of {self.path}", name, known)
        return tuple(e for e in self.experiments if not names or e.name in names)


def read_gate_config(path: str | Path) -> GateConfig:
    """The budgets in a TOML file; experiments and baseline are found beside it.

    Raises ``ReadError`` for a file that cannot be read and ``SpecError`` that names file and key for
    what makes no sense, with the nearest key or score for one that is unknown.
    """
    path = Path(path)
    table = _read_toml(path)
    with _prefix_errors(path):
        experiments = tuple(_parse_experiments(path, table))
        baseline = _require_type("baseline", table.get("baseline", "baseline.json"), str)
        strict = _require_type("strict", table.get("strict", False), bool)
    return GateConfig(path, path.parent / Path(baseline).expanduser(), strict, experiments)


def parse_bounds(tables: Mapping[str, Any], scores: Iterable[Score]) -> tuple[Bound, ...]:
    """The bounds in tables of figures by score, one a kind; ``scores`` are those that are measured.

    Shares may be written in per cent and tokens as 8k. Raises ``SpecError`` that begins with the key.

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
    """What is written wrongly says in which place."""
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
        raise SpecError("it has no experiment: a table [logs] stands for logs.toml beside it")
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
                    raise SpecError("it bounds nothing: write max, min or margin")
                strategy = repr(parse_strategy(_require_type("strategy", inside["strategy"], str)))
                written.append(inside["strategy"])
                within = _parse_limits(inside.get("limits", limits), spec.limits)
                holds = tuple(bounds.values())
                made += [GateBudget(name, key, strategy, limit, holds) for limit in within]
        elif key not in _EXPERIMENT_KEYS:
            raise UnknownName("key", key, _EXPERIMENT_KEYS)
    if not made:
        raise SpecError(f"it has no budget: write a table [{name}.NAME] with a strategy")
    replayed = msgspec.structs.replace(
        spec,
        strategies=tuple(dict.fromkeys(written)),
        limits=tuple(dict.fromkeys(budget.limit for budget in made)),
    )
    return GateExperiment(name, replayed, tuple(made))


def _parse_budget_bounds(table: Mapping[str, Any], scores: list[Score]) -> tuple[Bound, ...]:
    """The bounds of one budget's table, whose keys are looked at first."""
    if "strategy" not in table:
        keys = ", ".join(_EXPERIMENT_KEYS)
        raise SpecError(f"neither a key ({keys}) nor a budget, which has a strategy")
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
            raise SpecError(f"limits: the experiment has no limit of {limit}; it has {has}")
    return list(dict.fromkeys(limits))


def _parse_bound(kind: BoundKind, name: str, value: Any, scores: Mapping[str, Score]) -> Bound:
    if name not in scores:
        raise SpecError(f"{kind}: {UnknownName('score', name, scores)}")
    if kind == "margin" and not scores[name].better:
        raise SpecError(
            f"{kind}: of {name} neither less nor more is worse; bound it by max and min"
        )
    number, unit = value, ""
    if isinstance(value, str):
        number, unit = parse_quantity(value) or (None, "")
    wrong = isinstance(number, bool) or not isinstance(number, (int, float))
    if wrong or not 0 <= number < float("inf"):
        raise SpecError(f"{kind}: {name}: {value!r} is not 0 or more; write 8000, 8k, 0.02 or 2 %")
    share = scores[name].unit == "share"
    if unit and kind != "margin" and not share:
        raise SpecError(f"{kind}: {name}: {value!r} is a share, and it counts {scores[name].unit}")
    bound = number / 100 if unit else number
    if share and kind != "margin" and bound > 1:
        raise SpecError(
            f"{kind}: {name}: {value!r} is more than all; a share is 1 or 100 % at most"
        )
    return Bound(kind, scores[name], bound, kind == "margin" and bool(unit))


def _require_type(key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        words = {str: "text", bool: "true or false", dict: "a table of scores"}
        raise SpecError(f"{key}: {words[kind]} belongs here, not {value!r}")
    return value

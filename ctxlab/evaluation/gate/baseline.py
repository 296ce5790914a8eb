"""Baseline of a gate: the results of the last accepted run, in a committed JSON file.

The file stores the digest and cluster of each recording. A budget of the gate is a strategy with
bounds for its scores; a margin is a bound relative to the baseline. For each budget with a margin,
the file stores the sums from which the scores are computed. There is one line per recording, so that
diffs stay readable. The current run and the baseline are compared recording by recording. A
comparison is possible only if the recordings and the token counting are the same. If a score of cost
or caching is compared, the prices must be the same too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ctxlab import __version__
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.gate.config import GateBudget
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.evaluation.results import Results
from ctxlab.tokens.cache_timeline import AS_RECORDED

RecordingSums: TypeAlias = dict[str, dict[str, float | None]]
"""Sums by name of recording and name of column. If a score is a maximum, its column contains maxima
instead of sums. Unknown values are None."""

_SUM_DIGITS = 9
"""number of decimal places of a stored sum; further decimals may differ between versions of numpy and
are never displayed"""
_PRICED_COLUMNS = frozenset(column.name for column in CostMetric.columns)
_COST_SETTINGS = ("cache_ttl", "fixed", "reasoning")


class RecordingIdentity(msgspec.Struct, frozen=True):
    """Digest and cluster of a recording, used to detect changed recordings."""

    digest: str
    "digest of the recording's content"
    cluster: str
    "name of the recording's cluster"


class BaselineEntry(msgspec.Struct, frozen=True):
    """Stored results of a strategy with bounds: sums of columns, for each recording."""

    strategy: str
    "``repr`` of the strategy"
    sums: RecordingSums
    "sums by name of recording and name of column"


class ExperimentBaseline(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored results of one experiment, with the recordings and settings that they depend on."""

    models: list[str]
    "models whose tokenizers counted the tokens of the recordings"
    reserve: int
    "tokens kept for the reply"
    recordings: dict[str, RecordingIdentity]
    "identity of each recording, by name"
    budgets: dict[str, BaselineEntry]
    "sums of each budget, by ``GateBudget.baseline_key``"
    profiles: list[dict[str, Any]] = []
    "calibrations of token counts, one per model family"
    prices: dict[str, dict[str, Any]] | None = None
    "prices and cache rules of each model; None if no stored column depends on prices"
    costs: dict[str, str | int] | None = None
    """settings of the cost: ``cache_ttl``, ``fixed`` and ``reasoning``; None if no stored column depends
    on prices"""


class _BaselineFile(msgspec.Struct, frozen=True):
    """Content of a baseline file, as stored in JSON."""

    ctxlab: str
    "version of ctxlab that wrote the file"
    experiments: dict[str, ExperimentBaseline]
    "baselines by name of experiment"


def read_baseline(path: Path) -> dict[str, ExperimentBaseline]:
    """Read a baseline file.

    Parameters
    ----------
    path : Path
        Path of the baseline file.

    Returns
    -------
    dict of str to ExperimentBaseline
        Baselines by name of experiment; empty if the file does not exist.

    Raises
    ------
    ReadError
        If the file cannot be read or is not a baseline.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=_BaselineFile).experiments
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"not a baseline: {error}; delete the file and run ctxlab gate --update to write it"
        raise ReadError(path, None, why) from None


def write_baseline(experiments: dict[str, ExperimentBaseline], path: Path) -> bool:
    """Write a baseline file atomically.

    Parameters
    ----------
    experiments : dict of str to ExperimentBaseline
        Baselines by name of experiment.
    path : Path
        Path of the file. An existing file is replaced.

    Returns
    -------
    bool
        True if the file was written, False if it already had the same content.
    """
    content = _BaselineFile(__version__, experiments)
    text = f"{_format_json(msgspec.to_builtins(content))}\n".encode()
    if path.is_file() and path.read_bytes() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return True


def make_experiment_baseline(
    results: Results, budgets: Iterable[GateBudget], *, margins_only: bool = False
) -> ExperimentBaseline:
    """Collect the sums that the baseline file stores for each budget of an experiment.

    The scores that the gate checks are computed from these sums.

    Parameters
    ----------
    results : Results
        Results of the experiment.
    budgets : iterable of GateBudget
        Budgets of the experiment.
    margins_only : bool, default False
        Collect only the sums of scores with a margin.

    Returns
    -------
    ExperimentBaseline
        The sums of each budget, with the recordings and settings that they depend on.

    Raises
    ------
    SpecError
        If a bounded score was not measured.
    """
    manifest, runs = results.manifest, results.runs
    entries: dict[str, BaselineEntry] = {}
    columns: set[str] = set()
    for budget in budgets:
        bounds = budget.margins if margins_only else budget.bounds
        names = sorted({column for bound in bounds for column in bound.score.run_columns})
        columns.update(names)
        if absent := sorted(set(names) - set(runs.columns)):
            said = f"{absent[0]} was not measured; add its metric to the experiment's metrics"
            raise SpecError(f"{budget.label}: {said}")
        rows = runs[(runs["strategy"] == budget.strategy) & (runs["limit"] == budget.limit)]
        figures = rows[names].to_numpy(dtype=np.float64)
        sums = {
            str(recording): dict(zip(names, map(_round_sum, row), strict=True))
            for recording, row in zip(rows["recording"], figures, strict=True)
        }
        entries[budget.baseline_key] = BaselineEntry(budget.strategy, sums)
    priced = bool(columns & _PRICED_COLUMNS)
    return ExperimentBaseline(
        models=sorted(manifest["tokens"]),
        profiles=manifest["spec"].get("profiles") or [],
        reserve=manifest["spec"]["reserve"],
        recordings={
            r["recording"]: RecordingIdentity(r["digest"], r["cluster"]) for r in results.recordings
        },
        budgets=entries,
        prices=_used_prices(manifest) if priced else None,
        costs={name: manifest["spec"][name] for name in _COST_SETTINGS} if priced else None,
    )


def compute_score(score: Score, sums: RecordingSums) -> float:
    """Compute a score over all recordings, in the same way as the leaderboard.

    Parameters
    ----------
    score : Score
        Score to compute.
    sums : dict
        Sums by recording and column.

    Returns
    -------
    float
        Value of the score; nan if it is unknown.
    """
    above, *below = _column_values(score, sums)
    known = above[~np.isnan(above)]
    if not len(known) or (score.unit == "USD" and len(known) < len(above)):
        return math.nan  # a partial sum of money would be misleading
    if score.how == "max":
        return float(known.max())
    total, whole = math.fsum(known), math.fsum(np.nan_to_num(below[0])) if below else 1.0
    return total / whole if whole > 0 else math.nan


def sum_by_cluster(
    score: Score, sums: RecordingSums, recordings: Mapping[str, RecordingIdentity]
) -> list[npt.NDArray[Any]]:
    """Sum the numerator and denominator of a score by cluster.

    The denominator of a score that is a sum is the number of recordings, so that the ratio is a mean
    per recording.

    Parameters
    ----------
    score : Score
        Score that is a sum or a ratio of sums.
    sums : dict
        Sums by recording and column.
    recordings : mapping of str to RecordingIdentity
        Identity of each recording, by name of recording.

    Returns
    -------
    list of numpy.ndarray of shape (clusters,)
        Two arrays, the numerators and the denominators by cluster, in order of cluster name.
    """
    names, places = np.unique([recordings[name].cluster for name in sums], return_inverse=True)
    columns = [*map(np.nan_to_num, _column_values(score, sums)), np.ones(len(places))]
    return [np.bincount(places, column, len(names)) for column in columns[:2]]


def describe_data_changes(current: ExperimentBaseline, baseline: ExperimentBaseline) -> str:
    """Describe how recordings, token counting and prices differ between a run and the baseline.

    Parameters
    ----------
    current : ExperimentBaseline
        Results of the current run.
    baseline : ExperimentBaseline
        Results in the committed baseline.

    Returns
    -------
    str
        Differences, separated by semicolons; an empty string if there are none.
    """
    said = []
    if current.models != baseline.models:
        listed = [", ".join(part.models) for part in (current, baseline)]
        said.append(f"the model is {listed[0]} and was {listed[1]}")
    if current.reserve != baseline.reserve:
        said.append(f"the reserve is {current.reserve} and was {baseline.reserve}")
    if current.profiles != baseline.profiles:
        said.append("the token calibration has changed")
    changed = sum(baseline.recordings.get(id, it) != it for id, it in current.recordings.items())
    new = len(current.recordings.keys() - baseline.recordings.keys())
    gone = len(baseline.recordings.keys() - current.recordings.keys())
    counts = [(changed, "changed"), (new, "new"), (gone, "missing")]
    if words := [f"{count} {what}" for count, what in counts if count]:
        said.append(f"recordings: {', '.join(words)} (the baseline has {len(baseline.recordings)})")
    if baseline.prices:
        for name, prices in (current.prices or {}).items():
            before = baseline.prices.get(name, {})
            if keys := [key for key in prices if prices[key] != before.get(key)]:
                said.append(f"the prices of {name} have changed ({', '.join(keys)})")
    if baseline.costs:
        for name, value in (current.costs or {}).items():
            before = baseline.costs.get(name, getattr(AS_RECORDED, name))  # a setting may be new
            if value != before:
                said.append(f"{name} is {value} and was {before}")
    return "; ".join(said)


def _used_prices(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Collect the prices and cache rules of each model of a run."""
    used = {}
    for name, prices in sorted(manifest["prices"].items()):
        found = {**prices, **manifest["cache"][name]}
        used[name] = {key: found[key] for key in sorted(found.keys() - {"source", "warning"})}
    return used


def _column_values(score: Score, sums: RecordingSums) -> list[npt.NDArray[np.float64]]:
    """Return one array for each column of a score, with one value per recording."""
    rows, names = sums.values(), score.run_columns
    return [np.array([row[name] for row in rows], dtype=np.float64) for name in names]


def _round_sum(value: float) -> float | None:
    if math.isnan(value):
        return None
    value = round(float(value), _SUM_DIGITS)
    return int(value) if value == int(value) else value


def _format_json(value: Any, depth: int = 0) -> str:
    """Format JSON with sorted keys. An object without nested objects takes one line."""
    if not isinstance(value, dict) or not any(isinstance(v, dict) for v in value.values()):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    indent = " " * (depth + 1)
    inside = (
        f"{indent}{json.dumps(key, ensure_ascii=False)}: {_format_json(value[key], depth + 1)}"
        for key in sorted(value)
    )
    return "{\n" + ",\n".join(inside) + "\n" + " " * depth + "}"

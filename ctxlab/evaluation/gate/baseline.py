"""A baseline is what budgets were last found to cost and keep, committed as text that diffs well.

It holds, for each recording, its digest and cluster, and for each budget with a margin the sums that its
scores are made of: a line a recording. Whoever compares with it pairs recording by recording. It holds
only when it was made with the same recordings, counted the same way; where money or a prompt cache is
compared, at the same prices.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.gate.config import GateBudget
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.evaluation.results import Results

__all__ = [
    "BaselineEntry",
    "ExperimentBaseline",
    "GateBaseline",
    "RecordingIdentity",
    "RecordingSums",
    "compute_score",
    "describe_data_changes",
    "make_experiment_baseline",
    "read_baseline",
    "score_columns",
    "sum_by_cluster",
    "write_baseline",
]

RecordingSums: TypeAlias = dict[str, dict[str, float | None]]
"""Recording → column → its sum (of a score that is a maximum, the maximum); None: not known."""

_SUM_DIGITS = 9
"of a sum: more differs between versions of numpy, and no score shows it"
_PRICED_COLUMNS = frozenset(column.name for column in CostMetric.columns)


class RecordingIdentity(msgspec.Struct, frozen=True):
    """Which conversation a recording is, and which of them it stands with."""

    digest: str
    cluster: str


class BaselineEntry(msgspec.Struct, frozen=True):
    """What one budget was found to sum up to."""

    strategy: str
    sums: RecordingSums


class ExperimentBaseline(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one experiment was run on, how it was counted, and what its budgets were found to be."""

    models: list[str]
    "that counted the recordings"
    reserve: int
    recordings: dict[str, RecordingIdentity]
    budgets: dict[str, BaselineEntry]
    "by ``GateBudget.baseline_key``"
    profiles: list[dict[str, Any]] = []
    "how families of models count, where they were calibrated"
    prices: dict[str, dict[str, Any]] | None = None
    "what a token and the cache of each model cost, where a score rests on it"


class GateBaseline(msgspec.Struct, frozen=True):
    """What a baseline file holds, experiment by experiment."""

    ctxlab: str
    "the version that wrote it"
    experiments: dict[str, ExperimentBaseline]


def read_baseline(path: Path) -> GateBaseline | None:
    """The baseline in a file; None where there is none yet. Raises ``ReadError``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=GateBaseline)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"no baseline: {error}; delete the file, and ctxlab gate --update writes it anew"
        raise ReadError(path, None, why) from None


def write_baseline(baseline: GateBaseline, path: Path) -> bool:
    """Puts it in the place of what the file held, at once; returns whether anything is different."""
    text = _format_json(msgspec.to_builtins(baseline)) + "\n"
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(text.encode())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return True


def make_experiment_baseline(
    results: Results, budgets: Iterable[GateBudget], *, margins_only: bool = False
) -> ExperimentBaseline:
    """What an experiment was found to be, for every bound of its budgets, or for ``margins_only``
    alone.
    """
    manifest, runs = results.manifest, results.runs
    entries: dict[str, BaselineEntry] = {}
    columns: set[str] = set()
    for budget in budgets:
        bounds = budget.margins if margins_only else budget.bounds
        names = sorted({column for bound in bounds for column in score_columns(bound.score)})
        columns.update(names)
        if absent := sorted(set(names) - set(runs.columns)):
            raise SpecError(f"{budget.label}: {absent[0]} was not measured; see metrics")
        rows = runs[(runs["strategy"] == budget.strategy) & (runs["limit"] == budget.limit)]
        figures = rows[names].to_numpy(dtype=np.float64)
        sums = {
            str(recording): dict(zip(names, map(_round_sum, row), strict=True))
            for recording, row in zip(rows["recording"], figures, strict=True)
        }
        entries[budget.baseline_key] = BaselineEntry(budget.strategy, sums)
    return ExperimentBaseline(
        models=sorted(manifest["tokens"]),
        profiles=manifest["spec"].get("profiles") or [],
        reserve=manifest["spec"]["reserve"],
        recordings={
            r["recording"]: RecordingIdentity(r["digest"], r["cluster"])
            for r in manifest["recordings"]
        },
        budgets=entries,
        prices=_used_prices(manifest) if columns & _PRICED_COLUMNS else None,
    )


def score_columns(score: Score) -> tuple[str, ...]:
    """The columns of a run that a score is made from.

    >>> score_columns(Score("tokens_mean", "", "tokens", "ratio", "tokens"))
    ('tokens', 'requests')
    """
    if score.how == "max":
        return (score.name,)
    if score.how == "sum":
        return (score.column,)
    return score.column, score.per or "requests"


def compute_score(score: Score, sums: RecordingSums) -> float:
    """The score over all recordings, as the leaderboard has it; nan where it is not known."""
    above, *below = (_column_values(sums, column) for column in score_columns(score))
    known = above[~np.isnan(above)]
    if not len(known) or (score.unit == "USD" and len(known) < len(above)):
        return math.nan  # less than all of a bill is no bill
    if score.how == "max":
        return float(known.max())
    total = math.fsum(known)
    if not below:
        return total
    whole = math.fsum(below[0][~np.isnan(below[0])])
    return total / whole if whole > 0 else math.nan


def sum_by_cluster(
    score: Score, sums: RecordingSums, recordings: Mapping[str, RecordingIdentity]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What is above and below the line of a score, by cluster in order of their names.

    Of a sum the number of recordings stands below: it is the mean of a recording.
    """
    clusters = [recordings[name].cluster for name in sums]
    order = {name: place for place, name in enumerate(sorted(set(clusters)))}
    places = [order[name] for name in clusters]
    above, *below = (np.nan_to_num(_column_values(sums, column)) for column in score_columns(score))
    under = below[0] if below else np.ones(len(above))
    return tuple(np.bincount(places, column, len(order)) for column in (above, under))  # type: ignore[return-value]


def describe_data_changes(current: ExperimentBaseline, baseline: ExperimentBaseline) -> str:
    """In what the data or the way it is counted differs, in words; empty where it does not."""
    said = []
    if current.models != baseline.models:
        listed = [", ".join(part.models) for part in (current, baseline)]
        said.append(f"the model is {listed[0]} and was {listed[1]}")
    if current.reserve != baseline.reserve:
        said.append(f"the reserve is {current.reserve} and was {baseline.reserve}")
    if current.profiles != baseline.profiles:
        said.append("the profile that tokens are counted by is another one")
    changed = sum(baseline.recordings.get(id, it) != it for id, it in current.recordings.items())
    new = len(current.recordings.keys() - baseline.recordings.keys())
    gone = len(baseline.recordings.keys() - current.recordings.keys())
    counts = [(changed, "changed"), (new, "new"), (gone, "gone")]
    if words := [f"{count} {what}" for count, what in counts if count]:
        said.append(f"of {len(baseline.recordings)} recordings {', '.join(words)}")
    if current.prices and baseline.prices and current.prices != baseline.prices:
        said += _price_changes(current.prices, baseline.prices)
    return "; ".join(said)


def _used_prices(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Collect the prices and cache rules of each model that a run was priced by."""
    left_out = {"source", "warning"}
    found = {
        name: {**prices, **manifest["cache"][name]} for name, prices in manifest["prices"].items()
    }
    return {
        name: {key: each[key] for key in sorted(each.keys() - left_out)}
        for name, each in sorted(found.items())
    }


def _price_changes(
    now: Mapping[str, dict[str, Any]], then: Mapping[str, dict[str, Any]]
) -> Iterator[str]:
    """Each model whose prices are not what they were, and which of them."""
    for name, prices in now.items():
        before = then.get(name, {})
        if keys := [key for key in prices if prices[key] != before.get(key)]:
            yield f"the prices of {name} have changed ({', '.join(keys)})"


def _column_values(sums: RecordingSums, column: str) -> npt.NDArray[np.float64]:
    return np.array([row[column] for row in sums.values()], dtype=np.float64)


def _round_sum(value: float) -> float | None:
    if math.isnan(value):
        return None
    value = round(float(value), _SUM_DIGITS)
    return int(value) if value == int(value) else value


def _format_json(value: Any, depth: int = 0) -> str:
    """JSON with sorted keys, in which a table of plain figures takes one line."""
    if not isinstance(value, dict) or not any(isinstance(v, dict) for v in value.values()):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    indent = " " * (depth + 1)
    inside = (
        f"{indent}{json.dumps(key, ensure_ascii=False)}: {_format_json(value[key], depth + 1)}"
        for key in sorted(value)
    )
    return "{\n" + ",\n".join(inside) + "\n" + " " * depth + "}"

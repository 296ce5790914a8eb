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

from ctxlab.errors import (
    ReadError,
    SpecError,
)
from ctxlab.evaluation.gate.config import Budget
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.metrics.cost import Cost
from ctxlab.evaluation.results import Results

__all__ = [
    "Baseline",
    "Entry",
    "Part",
    "Said",
    "Sums",
    "by_cluster",
    "columns_of",
    "difference_of_data",
    "figure",
    "part_of",
    "read_baseline",
    "write_baseline",
]

Sums: TypeAlias = dict[str, dict[str, float | None]]
"""Recording → column → its sum (of a score that is a maximum, the maximum); None: not known."""

_DIGITS = 9
"of a sum: more differs between versions of numpy, and no score shows it"
_PRICED = frozenset(column.name for column in Cost.columns)


class Said(msgspec.Struct, frozen=True):
    """Which conversation a recording is, and which of them it stands with."""

    digest: str
    cluster: str


class Entry(msgspec.Struct, frozen=True):
    """What one budget was found to sum up to."""

    strategy: str
    sums: Sums


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one experiment was run on, how it was counted, and what its budgets were found to be."""

    models: list[str]
    "that counted the recordings"
    reserve: int
    recordings: dict[str, Said]
    budgets: dict[str, Entry]
    "by ``Budget.key``"
    profiles: list[dict[str, Any]] = []
    "how families of models count, where they were calibrated"
    prices: dict[str, dict[str, Any]] | None = None
    "what a token and the cache of each model cost, where a score rests on it"


class Baseline(msgspec.Struct, frozen=True):
    """What a baseline file holds, experiment by experiment."""

    ctxlab: str
    "the version that wrote it"
    experiments: dict[str, Part]


def read_baseline(path: Path) -> Baseline | None:
    """The baseline in a file; None where there is none yet. Raises ``ReadError``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"no baseline: {error}; delete the file, and ctxlab gate --update writes it anew"
        raise ReadError(path, None, why) from None


def write_baseline(baseline: Baseline, path: Path) -> bool:
    """Puts it in the place of what the file held, at once; returns whether anything is different."""
    text = _lines(msgspec.to_builtins(baseline)) + "\n"
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


def part_of(results: Results, budgets: Iterable[Budget], *, margins: bool = False) -> Part:
    """What an experiment was found to be, for every bound of its budgets, or for ``margins`` alone."""
    manifest, runs = results.manifest, results.runs
    entries: dict[str, Entry] = {}
    columns: set[str] = set()
    for budget in budgets:
        bounds = budget.margins if margins else budget.bounds
        names = sorted({column for bound in bounds for column in columns_of(bound.score)})
        columns.update(names)
        if absent := sorted(set(names) - set(runs.columns)):
            raise SpecError(f"{budget.where}: {absent[0]} was not measured; see metrics")
        rows = runs[(runs["strategy"] == budget.strategy) & (runs["limit"] == budget.limit)]
        figures = rows[names].to_numpy(dtype=np.float64)
        sums = {
            str(recording): dict(zip(names, map(_rounded, row), strict=True))
            for recording, row in zip(rows["recording"], figures, strict=True)
        }
        entries[budget.key] = Entry(budget.strategy, sums)
    return Part(
        models=sorted(manifest["tokens"]),
        profiles=manifest["spec"].get("profiles") or [],
        reserve=manifest["spec"]["reserve"],
        recordings={
            r["recording"]: Said(r["digest"], r["cluster"]) for r in manifest["recordings"]
        },
        budgets=entries,
        prices=_priced(manifest) if columns & _PRICED else None,
    )


def columns_of(score: Score) -> tuple[str, ...]:
    """The columns of a run that a score is made from.

    >>> columns_of(Score("tokens_mean", "", "tokens", "ratio", "tokens"))
    ('tokens', 'requests')
    """
    if score.how == "max":
        return (score.name,)
    if score.how == "sum":
        return (score.column,)
    return score.column, score.per or "requests"


def figure(score: Score, sums: Sums) -> float:
    """The score over all recordings, as the leaderboard has it; nan where it is not known."""
    above, *below = (_column(sums, column) for column in columns_of(score))
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


def by_cluster(
    score: Score, sums: Sums, recordings: Mapping[str, Said]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What is above and below the line of a score, by cluster in order of their names.

    Of a sum the number of recordings stands below: it is the mean of a recording.
    """
    clusters = [recordings[name].cluster for name in sums]
    order = {name: place for place, name in enumerate(sorted(set(clusters)))}
    places = [order[name] for name in clusters]
    above, *below = (np.nan_to_num(_column(sums, column)) for column in columns_of(score))
    under = below[0] if below else np.ones(len(above))
    return tuple(np.bincount(places, column, len(order)) for column in (above, under))  # type: ignore[return-value]


def difference_of_data(now: Part, then: Part) -> str:
    """In what the data or the way it is counted differs, in words; empty where it does not."""
    said = []
    if now.models != then.models:
        listed = [", ".join(part.models) for part in (now, then)]
        said.append(f"the model is {listed[0]} and was {listed[1]}")
    if now.reserve != then.reserve:
        said.append(f"the reserve is {now.reserve} and was {then.reserve}")
    if now.profiles != then.profiles:
        said.append("the profile that tokens are counted by is another one")
    changed = sum(then.recordings.get(id, it) != it for id, it in now.recordings.items())
    new = len(now.recordings.keys() - then.recordings.keys())
    gone = len(then.recordings.keys() - now.recordings.keys())
    counts = [(changed, "changed"), (new, "new"), (gone, "gone")]
    if words := [f"{count} {what}" for count, what in counts if count]:
        said.append(f"of {len(then.recordings)} recordings {', '.join(words)}")
    if now.prices and then.prices and now.prices != then.prices:
        said += _repriced(now.prices, then.prices)
    return "; ".join(said)


def _priced(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Collect the prices and cache rules of each model that a run was priced by."""
    left_out = {"source", "warning"}
    found = {
        name: {**prices, **manifest["cache"][name]} for name, prices in manifest["prices"].items()
    }
    return {
        name: {key: each[key] for key in sorted(each.keys() - left_out)}
        for name, each in sorted(found.items())
    }


def _repriced(
    now: Mapping[str, dict[str, Any]], then: Mapping[str, dict[str, Any]]
) -> Iterator[str]:
    """Each model whose prices are not what they were, and which of them."""
    for name, prices in now.items():
        before = then.get(name, {})
        if keys := [key for key in prices if prices[key] != before.get(key)]:
            yield f"the prices of {name} have changed ({', '.join(keys)})"


def _column(sums: Sums, column: str) -> npt.NDArray[np.float64]:
    return np.array([row[column] for row in sums.values()], dtype=np.float64)


def _rounded(value: float) -> float | None:
    if math.isnan(value):
        return None
    value = round(float(value), _DIGITS)
    return int(value) if value == int(value) else value


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with sorted keys, in which a table of plain figures takes one line."""
    if not isinstance(value, dict) or not any(isinstance(v, dict) for v in value.values()):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    indent = " " * (depth + 1)
    inside = (
        f"{indent}{json.dumps(key, ensure_ascii=False)}: {_lines(value[key], depth + 1)}"
        for key in sorted(value)
    )
    return "{\n" + ",\n".join(inside) + "\n" + " " * depth + "}"

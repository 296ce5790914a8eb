"""A comparison says of two strategies on the same requests how they differ, and how sure that is.

It is paired: both were replayed over the same recordings, and whole clusters are drawn or exchanged, so
that four trials of one task are one witness. What it shows always has an interval beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import isclose
from typing import Any

import numpy as np
import pandas as pd

from ctxlab._utils.humanize import (
    quantity,
    split_limit,
)
from ctxlab.errors import (
    SpecError,
    UnknownName,
)
from ctxlab.evaluation.bootstrap import (
    FEW,
    Difference,
    holm,
    ratio_difference,
)
from ctxlab.evaluation.comparison.report import (
    Comparison,
    Configuration,
    amount,
)
from ctxlab.evaluation.experiment import Choice
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.results import Results
from ctxlab.strategies import (
    as_strategy,
    parse,
)

__all__ = ["COMPARED", "compare"]

COMPARED: tuple[str, ...] = (
    "tokens_mean",
    "cost_usd",
    "overflow_rate",
    "recall",
    "recall_far",
    "evidence_recall",
    "answer_containment",
    "survival_end",
    "exact",
    "f1",
    "contains",
    "agrees_both",
)
"""Scores that are compared where none are named, of those that were measured."""

_Array = np.ndarray[Any, np.dtype[np.float64]]


def compare(
    results: Results,
    *choices: Choice,
    scores: Sequence[str] | str | None = None,
    margins: Mapping[str, float | str] | None = None,
    by: str | None = None,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compares every pair of the chosen strategies of an evaluation.

    ``choices`` are strategies, as they are or as text, ``"panic"`` or ``"panic @ 16k"``; without a limit
    they are compared at each limit. Nothing chosen compares all. ``margins``: by score, how much worse
    the first of a pair may be and still count as no worse, as a difference of shares, or relative for
    what is no share (0.05, ``"5 %"``). ``by``: a fact about recordings, such as ``format`` or ``model``,
    whose values are compared apart. Only requests that count on both sides are compared: a question that
    one of the two got no answer to says nothing of either. P-values of a score are corrected together
    (Holm). Raises ``SpecError`` for what was not evaluated or measured.
    """
    if not isinstance(results, Results):
        raise SpecError(f"compare: results are wanted, not {type(results).__name__}: see evaluate")
    if not 0 < level < 1 or samples < 1000:
        raise SpecError(f"compare: 0 < level < 1 and samples >= 1000, not {level} and {samples}")
    measured = {score.name: score for score in results.scores if score.how != "max"}
    named = (scores,) if isinstance(scores, str) else tuple(scores or ())
    allowed = {name: _margin(name, margin) for name, margin in (margins or {}).items()}
    wanted = [measured[_known("score", name, measured)] for name in named]
    if not wanted:
        board = results.leaderboard(samples=1)
        told = [name for name in COMPARED if name in measured and not board[name].isna().all()]
        wanted = [measured[name] for name in told]
    more = allowed.keys() - {score.name for score in wanted}
    wanted += [measured[_known("score", name, measured)] for name in allowed if name in more]
    pairs = _pairs(results, choices)
    rows = []
    for kind, requests in _parts(results, by):
        for a, b in pairs:
            sides = _side_by_side(requests, a, b)
            for score in wanted:
                found = _row(*sides, a, b, score, level, samples, seed)
                rows.append({"kind": kind, **found, "margin": allowed.get(score.name, np.nan)})
    table = pd.DataFrame(rows)
    groups = table.groupby("score", sort=False)["p"]
    table.insert(
        list(table).index("p") + 1, "p_holm", groups.transform(lambda p: holm(p.to_numpy()))
    )
    least = 2.0 * 0.5 ** table["clusters"].to_numpy(dtype=np.float64) * groups.transform("count")
    table["finding"] = [
        _finding(row, level, least_p)
        for row, least_p in zip(table.itertuples(), least, strict=True)
    ]
    return Comparison(table if by else table.drop(columns="kind"), level)


def _margin(name: str, margin: float | str) -> float:
    value = margin
    if isinstance(margin, str):
        found = quantity(margin)
        value = np.nan if found is None else found[0] / 100 if found[1] else found[0]
    if not float(value) >= 0:
        raise SpecError(
            f"margins: {name}: a margin is 0 or more, such as 0.02 or 5 %, not {margin}"
        )
    return float(value)


def _parts(results: Results, by: str | None) -> Iterator[tuple[str, pd.DataFrame]]:
    requests = results.requests
    if by is None:
        yield "", requests
        return
    facts = results.manifest["recordings"]
    known = [key for key in ("format", "model", "source", "cluster") if key in facts[0]]
    if by not in known:
        raise UnknownName("fact about recordings", by, known)
    kinds = {each["recording"]: str(each[by]) for each in facts}
    of = requests["recording"].astype(str).map(kinds)
    for kind in dict.fromkeys(of):
        yield kind, requests[of == kind]


def _pairs(
    results: Results, choices: Sequence[Choice]
) -> list[tuple[Configuration, Configuration]]:
    had = results.requests[["strategy", "limit"]].drop_duplicates()
    there = [Configuration(str(s), float(x)) for s, x in had.itertuples(index=False)]
    limits = list(dict.fromkeys(each.limit for each in there))
    chosen: list[tuple[str, float | None]] = [_read(choice, there) for choice in choices]
    if not chosen:
        chosen = [(name, None) for name in dict.fromkeys(each.strategy for each in there)]
    for name, limit in chosen:
        if limit is not None and Configuration(name, limit) not in there:
            known = ", ".join(f"{each:g}" for each in limits)
            raise SpecError(f"{name} was not evaluated at {limit:g}; the limits are {known}")
    # Those at a limit of their own stand beside all others; the rest pair up limit by limit.
    pairs = []
    for one, two in combinations(chosen, 2):
        for limit in limits if None in (one[1], two[1]) else limits[:1]:
            a, b = (Configuration(name, limit if at is None else at) for name, at in (one, two))
            if a in there and b in there and a != b and (a, b) not in pairs:
                pairs.append((a, b))
    if not pairs:
        raise SpecError("a comparison needs two strategies, or one at two limits")
    return pairs


def _read(choice: Choice, there: Sequence[Configuration]) -> tuple[str, float | None]:
    """``panic @ 16k`` as the name that the results have and the limit."""
    choice = choice if isinstance(choice, str) else repr(as_strategy(choice))
    text, limit = split_limit(choice)
    if limit is not None:  # a share may have been rounded where it was shown
        near = [each.limit for each in there if isclose(each.limit, limit, rel_tol=1e-3)]
        limit = near[0] if near else float(limit)
    names = dict.fromkeys(each.strategy for each in there)
    if text in names:
        return text, limit
    try:
        name = repr(parse(text))
    except SpecError:
        name = text
    return _known("strategy of this evaluation", name, names), limit


def _known(kind: str, name: str, names: Mapping[str, Any]) -> str:
    if name not in names:
        raise UnknownName(kind, name, names)
    return name


def _side_by_side(
    requests: pd.DataFrame, a: Configuration, b: Configuration
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same requests of the same recordings, in the same order, as each of two prepared them."""
    sides = []
    for which in (a, b):
        same = (requests["strategy"] == which.strategy) & (requests["limit"] == which.limit)
        sides.append(requests[same].set_index(["recording", "request"]))
    first, second = sides
    return first, second.loc[first.index] if not first.index.equals(second.index) else second


def _row(
    first: pd.DataFrame,
    second: pd.DataFrame,
    a: Configuration,
    b: Configuration,
    score: Score,
    level: float,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    relative = score.unit != "share"
    columns = [_columns(side, score) for side in (first, second)]
    told = [(below > 0) & (_money(score) | ~np.isnan(above)) for above, below in columns]
    both, either = told[0] & told[1], told[0] | told[1]
    clusters = first["cluster"].cat.codes.to_numpy()[both]
    size = len(first["cluster"].cat.categories)
    sums = [
        np.bincount(clusters, each[both], size).astype(np.float64)
        for pair in columns
        for each in pair
    ]
    found = ratio_difference(*sums, relative=relative, level=level, samples=samples, seed=seed)
    values = [_value(score, *sums[:2]), _value(score, *sums[2:])]
    recordings = first.index.get_level_values("recording")[both]
    counts = _counts(recordings, columns, both, score)
    return {
        "a": a.strategy, "b": b.strategy, "limit_a": a.limit, "limit_b": b.limit,
        "score": score.name, "meaning": score.meaning, "unit": score.unit, "better": score.better,
        "relative": relative, "value_a": values[0], "value_b": values[1],
        **_bounded(found, relative),
        "wins": counts[0], "ties": counts[1], "losses": counts[2], "recordings": sum(counts),
        "clusters": found.clusters, "left_out": int((either & ~both).sum()),
    }  # fmt: skip


def _columns(requests: pd.DataFrame, score: Score) -> tuple[_Array, _Array]:
    """What is above and below the line of a score, request by request."""
    above = requests[score.column].to_numpy(dtype=np.float64)
    if score.how == "sum" or not score.per:
        return above, np.ones(len(above))
    return above, requests[score.per].to_numpy(dtype=np.float64)


def _money(score: Score) -> bool:
    """Whether what is not known of one request is not known of all: less than a bill is no bill."""
    return score.unit == "USD"


def _value(score: Score, above: _Array, below: _Array) -> float:
    if score.how == "sum":
        return float(above.sum())
    return float(above.sum() / below.sum()) if below.sum() else np.nan


def _bounded(found: Difference, relative: bool) -> dict[str, float]:
    """A share differs by 1 at most, and nothing is less than nothing."""
    low, high = found.low, found.high
    low = max(low, -1.0) if not np.isnan(low) else low
    high = min(high, 1.0) if not (relative or np.isnan(high)) else high
    return {
        "difference": found.estimate,
        "low": low,
        "high": high,
        "p": found.p,
        "effect": found.effect,
    }


def _counts(
    recordings: pd.Index[Any], columns: Sequence[tuple[_Array, _Array]], both: Any, score: Score
) -> tuple[int, int, int]:
    """In how many recordings the first is better, equal and worse."""
    codes, names = pd.factorize(recordings)
    shares = []
    for above, below in columns:
        over, under = (np.bincount(codes, each[both], len(names)) for each in (above, below))
        shares.append(over if score.how == "sum" else over / under)
    gain = (shares[0] - shares[1]) * (-1 if score.better == "lower" else 1)
    gain = gain[~np.isnan(gain)]
    least = 1e-9 * max(
        np.nanmax(np.abs(shares[0]), initial=0), np.nanmax(np.abs(shares[1]), initial=0)
    )
    wins, losses = int((gain > least).sum()), int((gain < -least).sum())
    return wins, len(gain) - wins - losses, losses


def _finding(row: Any, level: float, least_p: float) -> str:
    """What may be said of a row in a word or two; ``least_p``: the smallest that its test can give."""
    if np.isnan(row.p) or np.isnan(row.difference):
        return "unknown"
    parts = row.low > 0 or row.high < 0
    alike = np.isnan(row.low) and row.clusters >= FEW and row.difference != 0
    said = "unclear"
    if row.difference == 0 and row.p == 1 and np.isnan(row.low):
        said = "equal here"
    elif least_p > 1 - level or row.clusters < FEW:
        said = "too few"
    elif row.p_holm <= 1 - level and (parts or alike):  # the test and the interval must agree
        higher = row.difference > 0
        said = "higher" if higher else "lower"
        if row.better:
            said = "better" if higher == (row.better == "higher") else "worse"
    if np.isnan(row.margin) or np.isnan(row.low):
        return said
    worst, best = (row.high, row.low) if row.better == "lower" else (-row.low, -row.high)
    margin = amount(row, row.margin)[1:]
    if worst < row.margin:
        return f"{said}; not worse by {margin}"
    return f"{said}; {'worse by more than' if best > row.margin else 'may be worse by'} {margin}"

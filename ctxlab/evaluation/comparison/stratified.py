"""Two groups are compared within strata, so that what differs between strata explains nothing.

A stratum is where both groups were under the same conditions, such as one compaction of one recording.
Each gives the difference of its two shares, and counts for as much as the smaller group can tell
(n·m / (n + m)). That is the Mantel-Haenszel risk difference. It is a difference of two ratios of sums
over strata, and so over clusters, whose interval ``ctxlab.evaluation.bootstrap`` gives.

Source: Greenland and Robins, Biometrics 41, 1985 (estimator); Mantel and Haenszel, Journal of the
National Cancer Institute 22, 1959 (test, here by exchanging members within strata).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab.evaluation.bootstrap import ratio_difference

__all__ = ["StratifiedDifference", "stratified_difference"]

_Array = npt.NDArray[np.float64]


class StratifiedDifference(NamedTuple):
    """The share of one group less that of the other, both weighted as the strata are."""

    estimate: float
    low: float
    """of the interval over clusters; nan with fewer than five that have both groups, and where nothing
    or everything was hit, since no draw then says how rare the other is"""
    high: float
    p: float
    "two-sided, the groups exchanged within clusters; with five clusters it is never below 1/16"
    p_members: float
    "two-sided, members exchanged within strata: it takes them for independent, and clusters for given"
    first: float
    "the first group's share"
    second: float
    counted: tuple[int, int]
    "members of each group in strata that have both"
    hits: tuple[int, int]
    clusters: int
    "that have a stratum with both groups"


def stratified_difference(
    hits: Sequence[bool] | pd.Series[bool],
    in_first_group: Sequence[bool] | pd.Series[bool],
    strata: pd.DataFrame,
    clusters: Sequence[str] | pd.Series[str],
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> StratifiedDifference:
    """How much more often a member of ``hits`` is true in the first group (those for which
    ``in_first_group`` is true) than in the other.

    All have one row a member; rows of ``strata`` that are equal are one stratum, within one cluster.
    Without a stratum that has both groups everything is nan.

    >>> each = pd.DataFrame({"hit": [1, 1, 0, 0], "lost": [1, 1, 0, 0], "point": [1, 2, 1, 2]})
    >>> found = stratified_difference(each.hit, each.lost, each[["point"]], ["a", "b", "a", "b"])
    >>> found.estimate, found.counted, found.hits
    (1.0, (2, 2), (2, 0))
    """
    table = _count_by_stratum(hits, in_first_group, strata, clusters)
    if not len(table):
        nan = float("nan")
        return StratifiedDifference(nan, nan, nan, nan, nan, nan, nan, (0, 0), (0, 0), 0)
    n, m, a, b = (table[name].to_numpy(dtype=np.float64) for name in ("n", "m", "a", "b"))
    weight = n * m / (n + m)
    first, second = weight * a / n, weight * b / m
    parts = pd.DataFrame({"first": first, "second": second, "weight": weight})
    sums = parts.groupby(table["cluster"].to_numpy(), sort=False).sum()
    one, other, all_of = (sums[name].to_numpy(dtype=np.float64) for name in sums)
    found = ratio_difference(one, all_of, other, all_of, resamples=resamples, seed=seed)
    told = 0 < (a + b).sum() < (n + m).sum()
    low, high = np.clip([found.low, found.high], -1, 1) if told else (np.nan, np.nan)
    return StratifiedDifference(
        found.estimate,
        float(low),
        float(high),
        found.p_value,
        _permutation_p_value(n, m, a, b, resamples, seed),
        float(first.sum() / weight.sum()),
        float(second.sum() / weight.sum()),
        (int(n.sum()), int(m.sum())),
        (int(a.sum()), int(b.sum())),
        len(sums),
    )


def _count_by_stratum(
    hits: Sequence[bool] | pd.Series[bool],
    in_first_group: Sequence[bool] | pd.Series[bool],
    strata: pd.DataFrame,
    clusters: Sequence[str] | pd.Series[str],
) -> pd.DataFrame:
    """Members ``n`` and ``m`` and hits ``a`` and ``b`` of each stratum that has both groups."""
    rows = pd.DataFrame(
        {
            "cluster": np.asarray(clusters),
            "stratum": strata.groupby(list(strata), sort=False, dropna=False).ngroup().to_numpy(),
            "n": np.asarray(in_first_group, dtype=bool).astype(int),
            "m": 1 - np.asarray(in_first_group, dtype=bool).astype(int),
            "hit": np.asarray(hits, dtype=bool).astype(int),
        }
    )
    rows["a"], rows["b"] = rows["n"] * rows["hit"], rows["m"] * rows["hit"]
    table = rows.groupby(["cluster", "stratum"], sort=False).sum().reset_index()
    return table[(table["n"] > 0) & (table["m"] > 0)]


def _permutation_p_value(
    n: _Array, m: _Array, a: _Array, b: _Array, resamples: int, seed: int
) -> float:
    """Share of exchanges within strata that part the groups as far: hits go by a hypergeometric."""
    hits = (a + b).astype(int)
    random = np.random.default_rng(seed)
    drawn = random.hypergeometric(n.astype(int), m.astype(int), hits, size=(resamples, len(n)))
    there = ((drawn * m - (hits - drawn) * n) / (n + m)).sum(axis=1)
    here = ((a * m - b * n) / (n + m)).sum()
    return float(((np.abs(there) >= abs(here) - 1e-9).sum() + 1) / (resamples + 1))

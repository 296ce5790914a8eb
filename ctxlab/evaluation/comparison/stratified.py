"""Difference of two groups within strata, so that differences between strata do not confound it.

A stratum contains members of both groups under the same conditions, such as one compaction of one
recording. Each stratum gives the difference of two shares, weighted by n·m / (n + m): the
Mantel-Haenszel risk difference. It is a difference of two ratios of sums over strata, and therefore
over clusters, so ``ctxlab.evaluation.bootstrap`` provides its interval.

References
----------
- Estimator: Greenland and Robins, Biometrics 41, 1985.
- Test, here by permuting members within strata: Mantel and Haenszel, Journal of the National Cancer
  Institute 22, 1959.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab.evaluation.bootstrap import ratio_difference

_Array = npt.NDArray[np.float64]


class StratifiedDifference(NamedTuple):
    """The share of the first group minus that of the second, both weighted by stratum."""

    estimate: float
    "the difference of the shares"
    low: float
    """lower bound of the interval over clusters; nan with fewer than five clusters that have both
    groups, and if none or all of the members are hits, because no resample can show how rare the
    other outcome is"""
    high: float
    "upper bound of the interval"
    p: float
    "two-sided p-value, groups swapped within clusters; with five clusters it is at least 1/16"
    p_members: float
    "two-sided p-value, members permuted within strata; it treats members as independent"
    first: float
    "share of the first group"
    second: float
    "share of the second group"
    counted: tuple[int, int]
    "members of each group in strata that have both"
    hits: tuple[int, int]
    "members of each group that are hits"
    clusters: int
    "clusters that have a stratum with both groups"


def stratified_difference(
    hits: Sequence[bool] | pd.Series[bool],
    in_first_group: Sequence[bool] | pd.Series[bool],
    strata: pd.DataFrame,
    clusters: Sequence[str] | pd.Series[str],
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> StratifiedDifference:
    """Compare how often ``hits`` is true in the first group and in the second.

    Parameters
    ----------
    hits : sequence of bool
        Outcome of each member.
    in_first_group : sequence of bool
        True for members of the first group.
    strata : pandas.DataFrame
        One row per member; equal rows within a cluster are one stratum.
    clusters : sequence of str
        Cluster of each member.
    resamples : int, default 10000
        Number of bootstrap resamples and of permutations.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    StratifiedDifference
        Estimate, interval and p-values; all nan if no stratum has both groups.

    Examples
    --------
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
    tests = found.p_value, _permutation_p(n, m, a, b, resamples, seed)
    rates = float(first.sum() / weight.sum()), float(second.sum() / weight.sum())
    counted, hit = (int(n.sum()), int(m.sum())), (int(a.sum()), int(b.sum()))
    interval = found.estimate, float(low), float(high)
    return StratifiedDifference(*interval, *tests, *rates, counted, hit, len(sums))


def _count_by_stratum(
    hits: Sequence[bool] | pd.Series[bool],
    in_first_group: Sequence[bool] | pd.Series[bool],
    strata: pd.DataFrame,
    clusters: Sequence[str] | pd.Series[str],
) -> pd.DataFrame:
    """Count members (``n``, ``m``) and hits (``a``, ``b``) of each stratum that has both groups."""
    first, hit = np.asarray(in_first_group, dtype=bool), np.asarray(hits, dtype=bool)
    counts = {"n": first, "m": ~first, "a": first & hit, "b": ~first & hit}
    rows = pd.DataFrame(counts).astype(int)
    rows["cluster"] = np.asarray(clusters)
    rows["stratum"] = strata.groupby(list(strata), sort=False, dropna=False).ngroup().to_numpy()
    table = rows.groupby(["cluster", "stratum"], sort=False).sum().reset_index()
    return table[(table["n"] > 0) & (table["m"] > 0)]


def _permutation_p(n: _Array, m: _Array, a: _Array, b: _Array, resamples: int, seed: int) -> float:
    """Return the share of permutations within strata with at least the observed difference.

    Permuted hits follow a hypergeometric distribution.
    """
    hits = (a + b).astype(int)
    random = np.random.default_rng(seed)
    drawn = random.hypergeometric(n.astype(int), m.astype(int), hits, size=(resamples, len(n)))
    there = ((drawn * m - (hits - drawn) * n) / (n + m)).sum(axis=1)
    here = ((a * m - b * n) / (n + m)).sum()
    return float(((np.abs(there) >= abs(here) - 1e-9).sum() + 1) / (resamples + 1))

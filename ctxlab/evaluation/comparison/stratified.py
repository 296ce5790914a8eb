"""Difference between two groups, computed within strata to avoid confounding.

A stratum contains members of both groups under the same conditions. For example, all members
are files that an agent read before one compaction. The outcome of a member is a hit or not. In each
stratum, the share of hits in the second group is subtracted from the share in the first. The weighted
mean of these differences, with the weights n·m / (n + m) for groups of n and m members, is the
Mantel-Haenszel risk difference. It can be written as a difference of two ratios of sums over
clusters, so ``ctxlab.evaluation.bootstrap`` computes its interval.

References
----------
- Estimator: Greenland and Robins, Biometrics 41, 1985.
- Test: Mantel and Haenszel, Journal of the National Cancer Institute 22, 1959. This module permutes
  members within strata instead of using the asymptotic distribution.
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
    """Share of hits in the first group minus the share in the second, weighted by stratum."""

    estimate: float
    "weighted difference between the shares of hits"
    low: float
    """lower bound of the interval over clusters; nan if fewer than five clusters contain both
    groups, or if all members have the same outcome (resamples then cannot show how rare the other
    outcome is)"""
    high: float
    "upper bound of the interval; nan if there is no lower bound"
    p: float
    """two-sided p-value of a test that swaps the groups within clusters; with five clusters it
    cannot be below 1/16"""
    p_members: float
    """two-sided p-value of a test that permutes members within strata and so treats them as
    independent of each other"""
    first: float
    "weighted share of hits in the first group"
    second: float
    "weighted share of hits in the second group"
    counted: tuple[int, int]
    "number of members of the first and of the second group, in strata that contain both groups"
    hits: tuple[int, int]
    "number of these members that are hits, for the first and for the second group"
    clusters: int
    "number of clusters with at least one stratum that contains both groups"


def stratified_difference(
    hits: Sequence[bool] | pd.Series[bool],
    in_first_group: Sequence[bool] | pd.Series[bool],
    strata: pd.DataFrame,
    clusters: Sequence[str] | pd.Series[str],
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> StratifiedDifference:
    """Compare the shares of hits in two groups of members, such as files, within strata.

    Parameters
    ----------
    hits : sequence of bool
        Outcome of each member: True for a hit.
    in_first_group : sequence of bool
        True for members of the first group, False for members of the second.
    strata : pandas.DataFrame
        Conditions of each member, one row per member. Members of the same cluster with equal rows
        form one stratum.
    clusters : sequence of str
        Cluster of each member.
    resamples : int, default 10000
        Number of bootstrap resamples and of permutations.
    seed : int, default 0
        Seed of the random number generator.

    Returns
    -------
    StratifiedDifference
        Estimate, interval and p-values. They are nan if no stratum contains both groups.

    Examples
    --------
    >>> each = pd.DataFrame({"hit": [1, 1, 0, 0], "lost": [1, 1, 0, 0], "format": ["x", "y"] * 2})
    >>> found = stratified_difference(each.hit, each.lost, each[["format"]], ["a", "b", "a", "b"])
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
    """Count the members and hits of each stratum that contains both groups.

    The columns ``n`` and ``a`` count the members and hits of the first group, ``m`` and ``b`` those
    of the second.
    """
    first, hit = np.asarray(in_first_group, dtype=bool), np.asarray(hits, dtype=bool)
    counts = {"n": first, "m": ~first, "a": first & hit, "b": ~first & hit}
    rows = pd.DataFrame(counts).astype(int)
    rows["cluster"] = np.asarray(clusters)
    rows["stratum"] = strata.groupby(list(strata), sort=False, dropna=False).ngroup().to_numpy()
    table = rows.groupby(["cluster", "stratum"], sort=False).sum().reset_index()
    return table[(table["n"] > 0) & (table["m"] > 0)]


def _permutation_p(n: _Array, m: _Array, a: _Array, b: _Array, resamples: int, seed: int) -> float:
    """Return the two-sided p-value of a permutation test within strata.

    It is the share of permutations whose difference is as large as the observed one or larger. The
    hits of a group in a permuted stratum follow a hypergeometric distribution.
    """
    hits = (a + b).astype(int)
    random = np.random.default_rng(seed)
    drawn = random.hypergeometric(n.astype(int), m.astype(int), hits, size=(resamples, len(n)))
    there = ((drawn * m - (hits - drawn) * n) / (n + m)).sum(axis=1)
    here = ((a * m - b * n) / (n + m)).sum()
    return float(((np.abs(there) >= abs(here) - 1e-9).sum() + 1) / (resamples + 1))

"""Cluster bootstrap intervals and permutation tests for ratios of sums.

Recordings of one task depend on each other, so they form a cluster, and whole clusters are resampled
with replacement. An estimate is a ratio of two sums over clusters. Its interval is symmetric around
the estimate and studentized: the deviation of each resample from the estimate is divided by the
standard error of this resample. The standard errors (HC3) give dominant clusters more weight, as a
jackknife does. The standard error of a resample has a lower bound, so that a resample in which all
clusters agree counts as a large deviation and not as an infinite one.

With 5 to 100 clusters of very different sizes, 95 % intervals cover a paired difference in 93 to 96 %
of simulations, and in 91 to 93 % if the difference grows with the size. They cover shares near 1 in 88
to 99 %; most of the other intervals are too high. Percentile intervals of a paired difference cover it
in 82 to 94 %. ``evals/coverage.py`` computes these figures, and ``docs/numbers.md`` has its table.

Two configurations (each is a strategy under a limit) are compared on the same clusters. The
permutation test swaps the values of the two configurations within some of the clusters.

The smallest detectable difference estimates how small a true difference can be so that its 95 %
interval excludes 0 in 80 % of cases: ``half width of the interval + t(0.80, clusters − 1) × standard
error``. The first term is what an estimate must exceed, and the second term is how far an estimate
falls short of the true difference in 20 % of cases. This is the minimum detectable effect of Bloom,
with the bootstrap's own half width in place of ``t(0.975, clusters − 1) × standard error``. If the true
difference is the mean of this estimate over many samples, intervals exclude 0 in 72 to 81 % of
simulations, and in 59 to 74 % if it is the estimate from one other sample, because the standard error
is itself an estimate.

If all clusters have the same ratio, there is no interval, because the data does not show how much
clusters can differ.

References
----------
- Symmetric percentile-t: Hall, The Bootstrap and Edgeworth Expansion, 1992, §3.5.
- HC3 standard errors: MacKinnon and White, Journal of Econometrics 29, 1985.
- Minimum detectable effect: Bloom, Evaluation Review 19(5), 1995.
- Interval of a difference of two samples (MOVER): Zou and Donner, Statistics in Medicine 27, 2008.
- Random sign-flipping: Hemerik and Goeman, TEST 27, 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MIN_CLUSTERS = 5
"""Minimum number of clusters for an interval. Fewer clusters have too few distinct resamples."""

POWER = 0.8
"""Intended probability that an interval excludes 0 if the true difference is the smallest detectable
one. The actual one is lower with few clusters."""

_MAX_EXACT_CLUSTERS = 12
"maximum number of clusters for which the permutation test enumerates all swaps"
_MIN_VARIANCE_SHARE = 0.25
"lower bound of a resample's variance, as a share of the variance that one cluster contributes"
_ROUNDING_TOLERANCE = 1e-13
"a variance below this share of its sum of squares is rounding error and is treated as 0"
_ZERO_TOLERANCE = 1e-12
_MAX_CELLS = 4_000_000
"maximum number of resamples × clusters in memory at a time"

_Array = npt.NDArray[np.float64]


class RatioDifference(NamedTuple):
    """Difference of a ratio of sums between two configurations (first minus second), with a test."""

    estimate: float
    "the difference, or the relative change if one was requested"
    low: float
    """lower bound of the interval; nan if fewer than five clusters are informative (see
    ``clusters``), or if all of them have the same difference"""
    high: float
    "upper bound of the interval; nan if ``low`` is nan"
    p_value: float
    "two-sided p-value of the sign-flip permutation test; nan without informative clusters"
    effect_size: float
    "the difference divided by its standard deviation between clusters (Cohen's d_z for paired data)"
    clusters: int
    "number of informative clusters: clusters in which both denominators are positive"
    detectable: float
    """estimate of the smallest difference (or relative increase) whose interval would exclude 0 with
    the probability ``POWER``; nan if ``low`` is nan"""


def ratio_interval(
    numerators: _Array,
    denominators: _Array,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[_Array, _Array]:
    """Compute an interval of ``sum(numerators) / sum(denominators)`` for each configuration.

    The sums are over the clusters in which neither value of the configuration is nan. The bounds
    are nan if fewer than ``MIN_CLUSTERS`` clusters have a positive denominator, or if all clusters
    have the same ratio. If no numerator is negative, the lower bound is at least 0. If no numerator
    exceeds its denominator either, the upper bound is at most 1.

    Parameters
    ----------
    numerators : numpy.ndarray of shape (clusters, configurations)
        Sum of the numerator in each cluster.
    denominators : numpy.ndarray of shape (clusters, configurations)
        Sum of the denominator in each cluster.
    level : float, default 0.95
        Intended coverage of the interval.
    resamples : int, default 2000
        Number of bootstrap resamples.
    seed : int, default 0
        Seed of the bootstrap.

    Returns
    -------
    low, high : numpy.ndarray of shape (configurations,)
        Lower and upper bound of each configuration's interval.

    Examples
    --------
    >>> low, high = ratio_interval(np.arange(8.0)[:, None], np.full((8, 1), 10.0))
    >>> bool(0 < low[0] < 0.35 < high[0] < 1)
    True
    >>> ratio_interval(np.ones((4, 1)), np.ones((4, 1)))  # fewer than five clusters
    (array([nan]), array([nan]))
    """
    low, high = np.full(numerators.shape[1], np.nan), np.full(numerators.shape[1], np.nan)
    for column in range(numerators.shape[1]):
        known = ~np.isnan(numerators[:, column] + denominators[:, column])
        a, b = numerators[known, column], denominators[known, column]
        # Compare with a ratio of 0.
        pairs = _PairedRatios(a, b, np.zeros(len(a)), (b > 0).astype(float))
        reach, estimate = pairs.half_width(level, resamples, seed), pairs.estimate
        low[column], high[column] = estimate - reach, estimate + reach
    natural = np.nan_to_num(numerators) >= 0
    low = np.where(natural.all(axis=0), np.maximum(low, 0), low)
    share = natural & (np.nan_to_num(numerators) <= np.nan_to_num(denominators) + _ZERO_TOLERANCE)
    return low, np.where(share.all(axis=0), np.minimum(high, 1), high)


def ratio_difference(
    a_numerators: _Array,
    a_denominators: _Array,
    b_numerators: _Array,
    b_denominators: _Array,
    *,
    relative: bool = False,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> RatioDifference:
    """Compute the difference of two ratios of sums over the same clusters: ``a`` minus ``b``.

    Clusters in which a denominator is 0 are left out. If any value is nan, the result is nan. The
    permutation test swaps ``a`` and ``b`` within some of the clusters. It enumerates all swaps of up
    to twelve clusters. For more clusters it draws ``resamples`` random swaps.

    Parameters
    ----------
    a_numerators, a_denominators : numpy.ndarray of shape (clusters,)
        Sums of the first configuration in each cluster.
    b_numerators, b_denominators : numpy.ndarray of shape (clusters,)
        Sums of the second configuration in each cluster.
    relative : bool, default False
        If True, divide the difference by the ratio of the second configuration (``b``). The interval
        is then computed on a logarithmic scale, and is nan unless both ratios are positive.
    level : float, default 0.95
        Intended coverage of the interval.
    resamples : int, default 10000
        Number of bootstrap resamples, and of random swaps for more than twelve clusters.
    seed : int, default 0
        Seed of the bootstrap and of the swaps.

    Returns
    -------
    RatioDifference
        Estimate, interval, p-value, effect size, number of clusters and smallest detectable
        difference.

    Examples
    --------
    >>> ones = np.ones(8)
    >>> found = ratio_difference(np.arange(8.0) + 2, ones, np.arange(8.0), ones)
    >>> found.estimate, found.p_value, found.clusters
    (2.0, 0.0078125, 8)
    """
    pairs = _PairedRatios(a_numerators, a_denominators, b_numerators, b_denominators, relative)
    reach = pairs.half_width(level, resamples, seed)
    detectable = reach + _t_quantile(POWER, pairs.clusters - 1) * pairs.error
    found = np.array([pairs.estimate, pairs.estimate - reach, pairs.estimate + reach, detectable])
    if relative:
        with np.errstate(over="ignore"):
            found = np.expm1(found)
    estimate, low, high, detectable = found.tolist()
    tests = pairs.p_value(resamples, seed), pairs.effect_size, pairs.clusters
    return RatioDifference(estimate, low, high, *tests, detectable)


def difference_of_samples(
    first: tuple[_Array, _Array, _Array], second: tuple[_Array, _Array, _Array]
) -> tuple[_Array, _Array, _Array]:
    """Compute the difference of two estimates from clusters that have nothing to do with each other.

    The interval of the difference follows from the intervals of both estimates (method MOVER of Zou
    and Donner). It is nan if one of the two has no interval.

    Parameters
    ----------
    first, second : tuple of (numpy.ndarray, numpy.ndarray, numpy.ndarray)
        Estimate, and lower and upper bound of its interval.

    Returns
    -------
    tuple of (numpy.ndarray, numpy.ndarray, numpy.ndarray)
        ``first`` minus ``second``, and lower and upper bound of the interval of this difference.

    Examples
    --------
    >>> new, old = np.array([5.0, 2.0, 8.0]), np.array([1.0, -3.0, 5.0])
    >>> [float(each) for each in difference_of_samples(new, old)]
    [4.0, -1.0, 9.0]
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    difference = a - b
    low = difference - np.hypot(a - a_low, b_high - b)
    return difference, low, difference + np.hypot(a_high - a, b - b_low)


def holm_correction(p_values: _Array) -> _Array:
    """Adjust p-values for multiple comparisons by the Holm-Bonferroni method.

    Parameters
    ----------
    p_values : numpy.ndarray of shape (n,)
        P-values of a family of tests. Values of nan do not count as tests of the family.

    Returns
    -------
    numpy.ndarray of shape (n,)
        Adjusted p-values in the same order; nan where the p-value is nan.

    References
    ----------
    - Holm, Scandinavian Journal of Statistics 6, 1979.

    Examples
    --------
    >>> holm_correction(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p_values), np.nan)
    order = np.argsort(p_values, kind="stable")[: int((~np.isnan(p_values)).sum())]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1)
    return corrected


class _PairedRatios:
    """Two ratios of sums over the same clusters, stored so that many resamples are fast to compute.

    ``moments`` has one row per cluster with the numerators and denominators, and with their squares
    and products. ``swapped_moments`` has the same rows with the two ratios swapped. The moments of a
    resample are a weighted sum of rows. The estimate and its standard error are computed from these
    sums.
    """

    def __init__(self, a: _Array, b: _Array, c: _Array, d: _Array, relative: bool = False) -> None:
        columns = np.array([a, b, c, d], dtype=np.float64)
        known = not np.isnan(columns).any()
        columns = np.nan_to_num(columns)
        a, b, c, d = columns[:, (columns[1] > 0) & (columns[3] > 0)]
        self.clusters = len(a) if known else 0
        self.relative = relative
        self.estimate = self.error = np.nan
        if not (self.clusters and b.sum() > 0 and d.sum() > 0):
            self.clusters = 0
            return
        # Center both ratios to avoid cancellation in the sums of squares.
        self.center = (a.sum() + c.sum()) / (b.sum() + d.sum())
        u, v = a - self.center * b, c - self.center * d
        self.zero_tolerance = _ZERO_TOLERANCE * max(abs(a.sum() / b.sum()), abs(c.sum() / d.sum()))
        self.cluster_weights = 1 / (1 - np.minimum(np.maximum(b / b.sum(), d / d.sum()), 0.9)) ** 2
        self.moments = self._stack_moments(u, b, v, d)
        self.swapped_moments = self._stack_moments(v, d, u, b)
        estimate, error = self._estimate_and_error(self.moments.sum(axis=0)[None], relative)
        self.estimate, self.error = float(estimate[0]), float(error[0])

    def _stack_moments(self, u: _Array, b: _Array, v: _Array, d: _Array) -> _Array:
        squares = (u * u, u * b, b * b, v * v, v * d, d * d, u * v, u * d, b * v, b * d)
        return np.stack([u, b, v, d, *(self.cluster_weights * each for each in squares)], axis=1)

    def _estimate_and_error(self, sums: _Array, relative: bool) -> tuple[_Array, _Array]:
        """Compute estimate and standard error from each row of summed moments; nan if undefined."""
        u, b, v, d, uu, ub, bb, vv, vd, dd, uv, ud, bv, bd = sums.T
        with np.errstate(invalid="ignore", divide="ignore"):
            r, s = u / b, v / d
            own = (uu - 2 * r * ub + r * r * bb) / b**2
            other = (vv - 2 * s * vd + s * s * dd) / d**2
            both = (uv - s * ud - r * bv + r * s * bd) / (b * d)
            one, two = np.ones_like(r), -np.ones_like(r)
            estimate = r - s
            if relative:
                first, second = r + self.center, s + self.center
                known = (first > self.zero_tolerance) & (second > self.zero_tolerance)
                estimate = np.where(known, np.log(first / second), np.nan)
                estimate = np.where((second > self.zero_tolerance) & ~known, -np.inf, estimate)
                one, two = 1 / first, -1 / second
            square = one**2 * own + two**2 * other + 2 * one * two * both
            # If large squares cancel, the remainder is rounding error.
            large = one**2 * (uu + r * r * bb) / b**2 + two**2 * (vv + s * s * dd) / d**2
            error = np.sqrt(np.where(square > _ROUNDING_TOLERANCE * large, square, 0.0))
        return estimate, np.where(np.isnan(estimate), np.nan, error)

    def half_width(self, level: float, resamples: int, seed: int) -> float:
        """Return half the width of the bootstrap interval; nan if there is no interval."""
        n = self.clusters
        if n < MIN_CLUSTERS or not self.error > 0 or np.isinf(self.estimate):
            return np.nan
        least = _MIN_VARIANCE_SHARE / n
        far = []
        for draws in _iter_resamples(n, resamples, seed):
            estimate, error = self._estimate_and_error(draws @ self.moments, self.relative)
            spread = np.sqrt((error**2 + least * self.error**2) / (1 + least))
            far.append(_studentize(estimate - self.estimate, spread))
        steps = np.concatenate(far)
        steps = steps[np.isfinite(steps)]  # a resample with a denominator of 0 is not informative
        if len(steps) < resamples / 2:
            return np.nan
        return float(np.quantile(steps, level, method="higher")) * self.error

    def p_value(self, resamples: int, seed: int) -> float:
        """Return the share of swaps whose studentized difference is at least the observed one."""
        n = self.clusters
        if not n:
            return np.nan
        whole, change = self.moments.sum(axis=0), self.swapped_moments - self.moments
        here = _studentize(*self._estimate_and_error(whole[None], False))[0]

        def count_reached(flips: npt.NDArray[np.int64]) -> int:
            there = _studentize(*self._estimate_and_error(whole + flips @ change, False))
            return int((there >= here * (1 - 1e-9)).sum())

        if n <= _MAX_EXACT_CLUSTERS:
            flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
            return count_reached(flips) / len(flips)
        random = np.random.default_rng(seed)
        sizes = [(size, n) for size in _chunk_sizes(resamples, n)]
        reached = sum(count_reached(random.integers(0, 2, size=size)) for size in sizes)
        return (reached + 1) / (resamples + 1)

    @property
    def effect_size(self) -> float:
        """Difference divided by its standard deviation between clusters (Cohen's d_z)."""
        if not self.clusters or not self.error > 0 or np.isinf(self.estimate):
            return 0.0 if self.estimate == 0 else np.nan
        return self.estimate / (self.error * sqrt(self.clusters))


def _t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t distribution.

    The expansion (Abramowitz and Stegun, 26.7.5) is exact to 0.001 for the probability 0.8 and four
    or more degrees of freedom.

    >>> round(_t_quantile(0.8, 4), 3), round(_t_quantile(0.8, 10**6), 3)
    (0.941, 0.842)
    """
    if freedom < 1:
        return np.nan
    z, n = NormalDist().inv_cdf(probability), freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def _studentize(estimate: _Array, error: _Array) -> _Array:
    """Return the absolute estimate divided by its standard error; 0 if the estimate is 0."""
    size = np.abs(estimate)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > _ZERO_TOLERANCE, size / error, np.where(np.isnan(size), np.nan, 0.0))


def _iter_resamples(clusters: int, resamples: int, seed: int) -> Iterable[_Array]:
    """Return arrays with one row per resample, which contains how often each cluster is drawn."""
    if resamples * clusters <= _MAX_CELLS:
        return _cached_resamples(clusters, resamples, seed)
    return _generate_resamples(clusters, resamples, seed)


def _generate_resamples(clusters: int, resamples: int, seed: int) -> Iterator[_Array]:
    random, chances = np.random.default_rng(seed), np.full(clusters, 1 / clusters)
    for size in _chunk_sizes(resamples, clusters):
        yield random.multinomial(clusters, chances, size=size).astype(np.float64)


@lru_cache(maxsize=2)
def _cached_resamples(clusters: int, resamples: int, seed: int) -> tuple[_Array, ...]:
    """Return all resamples, cached because drawing is slow and all intervals use the same ones."""
    return tuple(_generate_resamples(clusters, resamples, seed))


def _chunk_sizes(resamples: int, clusters: int) -> list[int]:
    at_once = max(1, _MAX_CELLS // clusters)
    return [min(at_once, resamples - start) for start in range(0, resamples, at_once)]

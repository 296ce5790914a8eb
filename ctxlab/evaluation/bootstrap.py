"""A bootstrap over clusters says how much a figure depends on which recordings happened to be there.

Recordings that repeat one task are not independent, so whole clusters are drawn, with
replacement. A figure is a ratio of sums over clusters. Its interval is studentised and symmetric: each
draw is measured in standard errors of its own, and those weigh clusters that dominate a sum as a
jackknife would. With clusters of very different sizes that holds its 95 % where the percentile interval
of the same draws covers 80 to 90 % (``tests/evaluation/test_bootstrap.py`` has the simulation). A
draw in which all clusters agree counts as far away, but not as infinitely far.
Two configurations are compared on the same clusters, and tested by exchanging them within clusters.

What no cluster shows, no draw shows: where none differ there is no interval, for those that might
differ are not among them. Shares near 0 or 1 are held less often, 91 times in a hundred.

Source: Hall, The Bootstrap and Edgeworth Expansion, 1992, §3.5 (symmetric percentile-t); MacKinnon and
White, Journal of Econometrics 29, 1985 (HC3); Hemerik and Goeman, TEST 27, 2018 (random sign-flipping).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "MIN_CLUSTERS",
    "RatioDifference",
    "holm_correction",
    "ratio_difference",
    "ratio_interval",
]

MIN_CLUSTERS = 5
"""Clusters below which there is no interval: so few draws differ that they say next to nothing."""

_MAX_EXACT_CLUSTERS = 12
"clusters up to which every exchange of two configurations is tried"
_MIN_VARIANCE_SHARE = 0.25
"of a cluster's part of the variance, below which that of a draw never falls"
_ROUNDING_TOLERANCE = 1e-13
"share of the squares in it below which a variance is nothing"
_ZERO_TOLERANCE = 1e-12
_MAX_CELLS = 4_000_000
"draws × clusters that are held at a time"

_Array = npt.NDArray[np.float64]


class RatioDifference(NamedTuple):
    """One figure of two configurations on the same clusters: the first's less the second's."""

    estimate: float
    low: float
    """of the interval; nan with fewer than five clusters that have anything to say, and where all of
    them say the same"""
    high: float
    p_value: float
    "two-sided, of the sign-flip permutation test; nan where nothing is known of either"
    effect_size: float
    "the difference in standard deviations between clusters (paired, as Cohen's d_z)"
    clusters: int
    "that have anything to say"


def ratio_interval(
    numerators: _Array,
    denominators: _Array,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[_Array, _Array]:
    """Bounds of ``sum(numerators) / sum(denominators)`` over clusters.

    ``numerators`` and ``denominators`` have shape ``(clusters, configurations)``; the bounds have
    one value a configuration. Below ``MIN_CLUSTERS`` clusters with anything in ``denominators``
    they are nan, and where all clusters agree: next to nothing is known about other recordings. A
    cluster of which nothing is known (nan) is left out. Bounds of what cannot be negative, or more
    than all, are cut there.
    """
    low, high = np.full(numerators.shape[1], np.nan), np.full(numerators.shape[1], np.nan)
    for column in range(numerators.shape[1]):
        known = ~np.isnan(numerators[:, column] + denominators[:, column])
        a, b = numerators[known, column], denominators[known, column]
        pairs = _PairedRatios(
            a, b, np.zeros(len(a)), (b > 0).astype(float)
        )  # beside a ratio of nothing
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
    """``sum(a_numerators) / sum(a_denominators)`` less the same of ``b``, paired by cluster.

    Each argument has shape ``(clusters,)``; clusters in which either has nothing to divide by are left
    out. ``relative``: as a share of ``b``'s; the interval is then that of the logarithm of their ratio,
    and there is none where either is not positive. The test tries every exchange of ``a`` and
    ``b`` within clusters up to twelve of them, and ``resamples`` random ones above.

    >>> ones = np.ones(8)
    >>> found = ratio_difference(np.arange(8.0) + 2, ones, np.arange(8.0), ones)
    >>> found.estimate, found.p_value, found.clusters
    (2.0, 0.0078125, 8)
    """
    pairs = _PairedRatios(a_numerators, a_denominators, b_numerators, b_denominators, relative)
    reach = pairs.half_width(level, resamples, seed)
    found = np.array([pairs.estimate, pairs.estimate - reach, pairs.estimate + reach])
    if relative:
        with np.errstate(over="ignore"):
            found = np.expm1(found)
    estimate, low, high = found.tolist()
    return RatioDifference(
        estimate,
        low,
        high,
        pairs.p_value(resamples, seed),
        pairs.effect_size,
        pairs.clusters,
    )


def holm_correction(p_values: _Array) -> _Array:
    """P-values of a family of tests, corrected so that one false alarm in all of them is as rare.

    What is nan stays so and is no member of the family. Source: Holm, Scandinavian Journal of
    Statistics 6, 1979.

    >>> holm_correction(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p_values), np.nan)
    order = np.argsort(p_values, kind="stable")[: int((~np.isnan(p_values)).sum())]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1)
    return corrected


class _PairedRatios:
    """Two ratios of sums over the same clusters, as sums of products from which all else follows.

    A draw of clusters, and an exchange within clusters, is a weighted sum of the rows of ``moments``;
    estimate and standard error of each draw are worked out from the sums alone.
    """

    def __init__(self, a: _Array, b: _Array, c: _Array, d: _Array, relative: bool = False) -> None:
        columns = [np.asarray(each, dtype=np.float64) for each in (a, b, c, d)]
        known = not any(np.isnan(each).any() for each in columns)
        a, b, c, d = (np.nan_to_num(each) for each in columns)
        telling = (b > 0) & (d > 0)
        a, b, c, d = (each[telling] for each in (a, b, c, d))
        self.clusters = len(a) if known else 0
        self.relative = relative
        self.estimate = self.error = np.nan
        if not (self.clusters and b.sum() > 0 and d.sum() > 0):
            self.clusters = 0
            return
        # Deviations from one middle, so that sums of squares do not cancel.
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
        """Estimate and standard error of each row of sums; nan where there is nothing to divide by."""
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
            # What is left of large squares that cancel is rounding.
            large = one**2 * (uu + r * r * bb) / b**2 + two**2 * (vv + s * s * dd) / d**2
            error = np.sqrt(np.where(square > _ROUNDING_TOLERANCE * large, square, 0.0))
        return estimate, np.where(np.isnan(estimate), np.nan, error)

    def half_width(self, level: float, resamples: int, seed: int) -> float:
        """How far the interval goes to either side of the estimate; nan where that is not known."""
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
        steps = steps[np.isfinite(steps)]  # a draw that holds nothing to divide by says nothing
        if len(steps) < resamples / 2:
            return np.nan
        return float(np.quantile(steps, level, method="higher")) * self.error

    def p_value(self, resamples: int, seed: int) -> float:
        """Share of exchanges that part the two as far as they are, in standard errors."""
        n = self.clusters
        if not n:
            return np.nan
        whole, change = self.moments.sum(axis=0), self.swapped_moments - self.moments
        here = _studentize(*self._estimate_and_error(whole[None], False))[0]
        if n <= _MAX_EXACT_CLUSTERS:
            flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
            there = _studentize(*self._estimate_and_error(whole + flips @ change, False))
            return float((there >= here * (1 - 1e-9)).mean())
        random, reached = np.random.default_rng(seed), 0
        for size in _chunk_sizes(resamples, n):
            flips = random.integers(0, 2, size=(size, n))
            there = _studentize(*self._estimate_and_error(whole + flips @ change, False))
            reached += int((there >= here * (1 - 1e-9)).sum())
        return (reached + 1) / (resamples + 1)

    @property
    def effect_size(self) -> float:
        """The difference in standard deviations between clusters."""
        if not self.clusters or not self.error > 0 or np.isinf(self.estimate):
            return 0.0 if self.estimate == 0 else np.nan
        return self.estimate / (self.error * sqrt(self.clusters))


def _studentize(estimate: _Array, error: _Array) -> _Array:
    """How many standard errors from nothing; nothing is no distance even without an error."""
    size = np.abs(estimate)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > _ZERO_TOLERANCE, size / error, np.where(np.isnan(size), np.nan, 0.0))


def _iter_resamples(clusters: int, resamples: int, seed: int) -> Iterable[_Array]:
    """How often each cluster is in each draw, in parts of which one is held at a time."""
    if resamples * clusters <= _MAX_CELLS:
        return _cached_resamples(clusters, resamples, seed)
    return _generate_resamples(clusters, resamples, seed)


def _generate_resamples(clusters: int, resamples: int, seed: int) -> Iterator[_Array]:
    random, chances = np.random.default_rng(seed), np.full(clusters, 1 / clusters)
    for size in _chunk_sizes(resamples, clusters):
        yield random.multinomial(clusters, chances, size=size).astype(np.float64)


@lru_cache(maxsize=2)
def _cached_resamples(clusters: int, resamples: int, seed: int) -> tuple[_Array, ...]:
    """All draws, once for all figures of a board: they are the dearest part of an interval."""
    return tuple(_generate_resamples(clusters, resamples, seed))


def _chunk_sizes(resamples: int, clusters: int) -> list[int]:
    at_once = max(1, _MAX_CELLS // clusters)
    return [min(at_once, resamples - start) for start in range(0, resamples, at_once)]

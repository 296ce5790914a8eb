"""A bootstrap over clusters says how much a figure depends on which recordings happened to be there.

Recordings that repeat one task are no independent witnesses, so whole clusters are drawn, with
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

__all__ = ["FEW", "Difference", "holm", "ratio_difference", "ratio_interval"]

FEW = 5
"""Clusters below which there is no interval: so few draws differ that they say next to nothing."""

_EXACT = 12
"clusters up to which every exchange of two configurations is tried"
_LEAST = 0.25
"of a cluster's part of the variance, below which that of a draw never falls"
_ROUNDING = 1e-13
"share of the squares in it below which a variance is nothing"
_DUST = 1e-12
_CELLS = 4_000_000
"draws × clusters that are held at a time"

_Array = npt.NDArray[np.float64]


class Difference(NamedTuple):
    """One figure of two configurations on the same clusters: the first's less the second's."""

    estimate: float
    low: float
    """of the interval; nan with fewer than five clusters that have anything to say, and where all of
    them say the same"""
    high: float
    p: float
    "two-sided, of the sign-flip permutation test; nan where nothing is known of either"
    effect: float
    "the difference in standard deviations between clusters (paired, as Cohen's d_z)"
    clusters: int
    "that have anything to say"


def ratio_interval(
    above: _Array, below: _Array, *, level: float = 0.95, samples: int = 2000, seed: int = 0
) -> tuple[_Array, _Array]:
    """Bounds of ``sum(above) / sum(below)`` over clusters.

    ``above`` and ``below`` have shape ``(clusters, configurations)``; the bounds have one value a
    configuration. Below ``FEW`` clusters with anything in ``below`` they are nan, and where all clusters
    agree: next to nothing is known about other recordings. A cluster of which nothing is known (nan) is
    left out. Bounds of what cannot be negative, or more than all, are cut there.
    """
    low, high = np.full(above.shape[1], np.nan), np.full(above.shape[1], np.nan)
    for column in range(above.shape[1]):
        known = ~np.isnan(above[:, column] + below[:, column])
        a, b = above[known, column], below[known, column]
        pairs = _Pairs(a, b, np.zeros(len(a)), (b > 0).astype(float))  # beside a ratio of nothing
        reach, estimate = pairs.reach(level, samples, seed), pairs.estimate
        low[column], high[column] = estimate - reach, estimate + reach
    natural = np.nan_to_num(above) >= 0
    low = np.where(natural.all(axis=0), np.maximum(low, 0), low)
    share = natural & (np.nan_to_num(above) <= np.nan_to_num(below) + _DUST)
    return low, np.where(share.all(axis=0), np.minimum(high, 1), high)


def ratio_difference(
    a_above: _Array,
    a_below: _Array,
    b_above: _Array,
    b_below: _Array,
    *,
    relative: bool = False,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """``sum(a_above) / sum(a_below)`` less the same of ``b``, paired by cluster.

    Each argument has shape ``(clusters,)``; clusters in which either has nothing to divide by are left
    out. ``relative``: as a share of ``b``'s; the interval is then that of the logarithm of their ratio,
    and there is none where either is not positive. The test tries every exchange of ``a`` and
    ``b`` within clusters up to twelve of them, and ``samples`` random ones above.

    >>> ones = np.ones(8)
    >>> found = ratio_difference(np.arange(8.0) + 2, ones, np.arange(8.0), ones)
    >>> found.estimate, found.p, found.clusters
    (2.0, 0.0078125, 8)
    """
    pairs = _Pairs(a_above, a_below, b_above, b_below, relative)
    reach = pairs.reach(level, samples, seed)
    found = np.array([pairs.estimate, pairs.estimate - reach, pairs.estimate + reach])
    if relative:
        with np.errstate(over="ignore"):
            found = np.expm1(found)
    estimate, low, high = found.tolist()
    return Difference(
        estimate,
        low,
        high,
        pairs.p(samples, seed),
        pairs.effect,
        pairs.clusters,
    )


def holm(p: _Array) -> _Array:
    """P-values of a family of tests, corrected so that one false alarm in all of them is as rare.

    What is nan stays so and is no member of the family. Source: Holm, Scandinavian Journal of
    Statistics 6, 1979.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    corrected = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1)
    return corrected


class _Pairs:
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
        self.middle = (a.sum() + c.sum()) / (b.sum() + d.sum())
        u, v = a - self.middle * b, c - self.middle * d
        self.dust = _DUST * max(abs(a.sum() / b.sum()), abs(c.sum() / d.sum()))
        self.weight = 1 / (1 - np.minimum(np.maximum(b / b.sum(), d / d.sum()), 0.9)) ** 2
        self.moments = self._of(u, b, v, d)
        self.exchanged = self._of(v, d, u, b)
        estimate, error = self._read(self.moments.sum(axis=0)[None], relative)
        self.estimate, self.error = float(estimate[0]), float(error[0])

    def _of(self, u: _Array, b: _Array, v: _Array, d: _Array) -> _Array:
        squares = (u * u, u * b, b * b, v * v, v * d, d * d, u * v, u * d, b * v, b * d)
        return np.stack([u, b, v, d, *(self.weight * each for each in squares)], axis=1)

    def _read(self, sums: _Array, relative: bool) -> tuple[_Array, _Array]:
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
                first, second = r + self.middle, s + self.middle
                known = (first > self.dust) & (second > self.dust)
                estimate = np.where(known, np.log(first / second), np.nan)
                estimate = np.where((second > self.dust) & ~known, -np.inf, estimate)
                one, two = 1 / first, -1 / second
            square = one**2 * own + two**2 * other + 2 * one * two * both
            # What is left of large squares that cancel is rounding.
            large = one**2 * (uu + r * r * bb) / b**2 + two**2 * (vv + s * s * dd) / d**2
            error = np.sqrt(np.where(square > _ROUNDING * large, square, 0.0))
        return estimate, np.where(np.isnan(estimate), np.nan, error)

    def reach(self, level: float, samples: int, seed: int) -> float:
        """How far the interval goes to either side of the estimate; nan where that is not known."""
        n = self.clusters
        if n < FEW or not self.error > 0 or np.isinf(self.estimate):
            return np.nan
        least = _LEAST / n
        far = []
        for draws in _draws(n, samples, seed):
            estimate, error = self._read(draws @ self.moments, self.relative)
            spread = np.sqrt((error**2 + least * self.error**2) / (1 + least))
            far.append(_distance(estimate - self.estimate, spread))
        steps = np.concatenate(far)
        steps = steps[np.isfinite(steps)]  # a draw that holds nothing to divide by says nothing
        if len(steps) < samples / 2:
            return np.nan
        return float(np.quantile(steps, level, method="higher")) * self.error

    def p(self, samples: int, seed: int) -> float:
        """Share of exchanges that part the two as far as they are, in standard errors."""
        n = self.clusters
        if not n:
            return np.nan
        whole, change = self.moments.sum(axis=0), self.exchanged - self.moments
        here = _distance(*self._read(whole[None], False))[0]
        if n <= _EXACT:
            flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
            there = _distance(*self._read(whole + flips @ change, False))
            return float((there >= here * (1 - 1e-9)).mean())
        random, reached = np.random.default_rng(seed), 0
        for size in _parts(samples, n):
            flips = random.integers(0, 2, size=(size, n))
            there = _distance(*self._read(whole + flips @ change, False))
            reached += int((there >= here * (1 - 1e-9)).sum())
        return (reached + 1) / (samples + 1)

    @property
    def effect(self) -> float:
        """The difference in standard deviations between clusters."""
        if not self.clusters or not self.error > 0 or np.isinf(self.estimate):
            return 0.0 if self.estimate == 0 else np.nan
        return self.estimate / (self.error * sqrt(self.clusters))


def _distance(estimate: _Array, error: _Array) -> _Array:
    """How many standard errors from nothing; nothing is no distance even without an error."""
    size = np.abs(estimate)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > _DUST, size / error, np.where(np.isnan(size), np.nan, 0.0))


def _draws(clusters: int, samples: int, seed: int) -> Iterable[_Array]:
    """How often each cluster is in each draw, in parts of which one is held at a time."""
    if samples * clusters <= _CELLS:
        return _drawn(clusters, samples, seed)
    return _drawing(clusters, samples, seed)


def _drawing(clusters: int, samples: int, seed: int) -> Iterator[_Array]:
    random, chances = np.random.default_rng(seed), np.full(clusters, 1 / clusters)
    for size in _parts(samples, clusters):
        yield random.multinomial(clusters, chances, size=size).astype(np.float64)


@lru_cache(maxsize=2)
def _drawn(clusters: int, samples: int, seed: int) -> tuple[_Array, ...]:
    """All draws, once for all figures of a board: they are the dearest part of an interval."""
    return tuple(_drawing(clusters, samples, seed))


def _parts(samples: int, clusters: int) -> list[int]:
    at_once = max(1, _CELLS // clusters)
    return [min(at_once, samples - start) for start in range(0, samples, at_once)]

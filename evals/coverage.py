"""Simulate how often 95 % intervals contain the true value: ``python evals/coverage.py [--quick]``.

Each replication draws clusters of very different sizes and computes their interval with
``ctxlab.evaluation.bootstrap``, and a percentile interval for comparison. The table is printed as
Markdown. ``docs/numbers.md`` contains it. ``--quick`` uses few replications, so that its percentages are
rough.

The number of needs in a cluster is lognormal with a median of 33. Its logarithm has the standard
deviation 1. The share of a cluster has a beta distribution around its mean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.bootstrap import ratio_difference, ratio_interval

Array: TypeAlias = npt.NDArray[np.float64]
Draw: TypeAlias = Callable[[np.random.Generator, int], tuple[Array, Array, Array]]
"""Function that draws clusters. It returns the numerators of both strategies, and the denominators."""

CLUSTERS = (5, 9, 20, 50, 100)
REPLICATIONS, QUICK_REPLICATIONS = 5000, 100
RESAMPLES = 2000
MEAN_LOG_SIZE, SPREAD = 3.5, 1.0
"mean and standard deviation of the logarithm of the number of needs in a cluster"
CONCENTRATION = 10
"sum of both parameters of the beta distribution of a cluster's share"
_POPULATION = 2_000_000
"number of clusters from which a true value is computed"


class Scenario(NamedTuple):
    """Clusters to draw, and what is estimated: a share, or the difference of two strategies."""

    name: str
    draw: Draw
    paired: bool = False
    near_one: bool = False


class Simulated(NamedTuple):
    """Intervals of all replications; nan where a replication has none."""

    truth: float
    low: Array
    high: Array
    percentile_low: Array
    percentile_high: Array
    detectable: Array
    "smallest differences that could be shown; nan for a share"

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the true value."""
        return self._share((self.low <= self.truth) & (self.truth <= self.high))

    @property
    def percentile_coverage(self) -> float:
        """Share of the percentile intervals that contain the true value."""
        inside = (self.percentile_low <= self.truth) & (self.truth <= self.percentile_high)
        return self._share(inside)

    @property
    def width(self) -> float:
        """Mean width of the intervals."""
        return float(np.nanmean(self.high - self.low))

    @property
    def percentile_width(self) -> float:
        """Mean width of the percentile intervals, in replications with an interval."""
        return float((self.percentile_high - self.percentile_low)[~np.isnan(self.low)].mean())

    @property
    def too_high(self) -> float:
        """Share of the intervals that lie above the true value."""
        return self._share(self.low > self.truth)

    @property
    def missing(self) -> float:
        """Share of the replications without an interval."""
        return float(np.isnan(self.low).mean())

    @property
    def power(self) -> float:
        """Share of intervals that exclude 0 if the true difference is the mean of ``detectable``."""
        return self._power(np.full(len(self.low), np.nanmean(self.detectable)))

    @property
    def printed_power(self) -> float:
        """Share that excludes 0 if the true difference is the ``detectable`` of another sample."""
        return self._power(np.roll(self.detectable, 1))

    def _power(self, effect: Array) -> float:
        """Give the population the true difference ``effect``, with either sign, and count intervals.

        A constant that is added to the share of each cluster moves the estimate and its interval by
        this constant, and does not change the width of the interval.
        """
        moves = [sign * effect - self.truth for sign in (1, -1)]
        return float(np.mean([self._share((self.low > -m) | (self.high < -m)) for m in moves]))

    def _share(self, true: npt.NDArray[np.bool_]) -> float:
        """Return the share of true values among the replications with an interval."""
        return float(true[~np.isnan(self.low)].mean())


def draw_share(
    random: np.random.Generator, clusters: int, mean: float, slope: float = 0.0
) -> tuple[Array, Array, Array]:
    """Draw a share whose log odds change by ``slope`` if the logarithm of the size grows by 1."""
    size = _draw_sizes(random, clusters)
    share = _draw_shares(random, np.log(mean / (1 - mean)) + slope * _centred(size))
    return _count(random, size, share), np.zeros(clusters), size


def draw_pair(
    random: np.random.Generator, clusters: int, slope: float = 0.0
) -> tuple[Array, Array, Array]:
    """Draw the shares of two strategies; ``slope`` says how their difference grows with the size."""
    size = _draw_sizes(random, clusters)
    second = np.clip(_draw_shares(random, np.full(clusters, np.log(0.7 / 0.3))), 0.001, 0.999)
    gain = 0.5 + slope * _centred(size) + 0.5 * random.normal(size=clusters)
    first = _logistic(np.log(second / (1 - second)) + gain)
    return _count(random, size, first), _count(random, size, second), size


def _draw_sizes(random: np.random.Generator, clusters: int) -> Array:
    return np.ceil(np.exp(MEAN_LOG_SIZE + SPREAD * random.normal(size=clusters)))


def _centred(size: Array) -> Array:
    return np.log(size) - MEAN_LOG_SIZE


def _draw_shares(random: np.random.Generator, log_odds: Array) -> Array:
    middle = _logistic(log_odds)
    return random.beta(CONCENTRATION * middle, CONCENTRATION * (1 - middle))


def _logistic(log_odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def _count(random: np.random.Generator, size: Array, share: Array) -> Array:
    return random.binomial(size.astype(np.int64), share).astype(np.float64)


SCENARIOS = (
    Scenario("difference", draw_pair, paired=True),
    Scenario("growing difference", partial(draw_pair, slope=0.5), paired=True),
    Scenario("share .70", partial(draw_share, mean=0.7)),
    Scenario("falling share", partial(draw_share, mean=0.7, slope=-0.5)),
    Scenario("share .95", partial(draw_share, mean=0.95), near_one=True),
    Scenario("share .97", partial(draw_share, mean=0.97), near_one=True),
    Scenario("share .99", partial(draw_share, mean=0.99), near_one=True),
)


@lru_cache
def true_value(draw: Draw) -> float:
    """Return the ratio (or the difference of ratios) of a very large number of clusters."""
    first, second, size = draw(np.random.default_rng(1), _POPULATION)
    return float((first - second).sum() / size.sum())


def percentile_interval(top: Array, size: Array, resamples: int) -> tuple[float, float]:
    """Return the 95 % percentile interval of ``sum(top) / sum(size)``."""
    draws = _draw_resamples(len(size), resamples)
    low, high = np.quantile(draws @ top / (draws @ size), [0.025, 0.975])
    return float(low), float(high)


@lru_cache(maxsize=1)
def _draw_resamples(clusters: int, resamples: int) -> Array:
    chances = np.full(clusters, 1 / clusters)
    return np.random.default_rng(0).multinomial(clusters, chances, resamples).astype(np.float64)


def simulate(
    draw: Draw, clusters: int, replications: int, *, paired: bool = False, seed: int = 0
) -> Simulated:
    """Compute the intervals of many samples of a population.

    Parameters
    ----------
    draw : Draw
        Function that draws clusters.
    clusters : int
        Number of clusters in a sample.
    replications : int
        Number of samples.
    paired : bool, default False
        Estimate the difference of both strategies, and not the share of the first.
    seed : int, default 0
        Seed of the samples.

    Returns
    -------
    Simulated
        Intervals of all samples.
    """
    random = np.random.default_rng([seed, clusters])
    rows = []
    for _ in range(replications):
        first, second, size = draw(random, clusters)
        beside = percentile_interval(first - second, size, RESAMPLES)
        if paired:
            found = ratio_difference(first, size, second, size, resamples=RESAMPLES)
            rows.append((found.low, found.high, *beside, found.detectable))
        else:
            low, high = ratio_interval(first[:, None], size[:, None], resamples=RESAMPLES)
            rows.append((float(low[0]), float(high[0]), *beside, np.nan))
    return Simulated(true_value(draw), *np.array(rows).T)


def render_rows(scenario: Scenario, samples: Sequence[Simulated]) -> Iterable[list[str]]:
    """Yield the rows of a scenario, with one column for each number of clusters.

    Parameters
    ----------
    scenario : Scenario
        Scenario of the rows.
    samples : sequence of Simulated
        Intervals for each number of clusters.

    Yields
    ------
    list of str
        Cells of a row. The first cell says what the row contains.
    """

    def row(label: str, text: Callable[[Simulated], str]) -> list[str]:
        return [f"{scenario.name}{label}", *map(text, samples)]

    yield row("", lambda s: f"{s.coverage:.1%} ({s.width:.2f})")
    yield row(": percentile", lambda s: f"{s.percentile_coverage:.1%} ({s.percentile_width:.2f})")
    if scenario.paired:
        yield row(": power", lambda s: f"{s.power:.1%}")
        yield row(": power at the printed value", lambda s: f"{s.printed_power:.1%}")
    if scenario.near_one:
        yield row(": interval too high", lambda s: f"{s.too_high:.1%}")
        yield row(": no interval", lambda s: f"{s.missing:.1%}")


def render_table(replications: int) -> str:
    """Simulate all scenarios, and return a Markdown table with all of their rows."""
    rows: list[list[str]] = []
    for scenario in SCENARIOS:
        samples = [
            simulate(scenario.draw, clusters, replications, paired=scenario.paired)
            for clusters in CLUSTERS
        ]
        rows += render_rows(scenario, samples)
    return markdown_table(["", *(f"{n} clusters" for n in CLUSTERS)], rows)


def main(arguments: Sequence[str]) -> None:
    """Simulate all scenarios and print the table."""
    if arguments not in ([], ["--quick"]):
        sys.exit(__doc__)
    replications = QUICK_REPLICATIONS if arguments else REPLICATIONS
    print(render_table(replications))


if __name__ == "__main__":
    main(sys.argv[1:])

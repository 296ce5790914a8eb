"""Tests of the bootstrap: sums equal those of a slow loop, and intervals cover the true value."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxlab.evaluation.bootstrap import (
    MIN_CLUSTERS,
    POWER,
    RatioDifference,
    difference_of_samples,
    holm_correction,
    ratio_difference,
    ratio_interval,
)

SIZES = st.lists(st.integers(0, 20), min_size=MIN_CLUSTERS, max_size=9)


def slow(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[float, float]:
    """Compute the difference of two ratios and its standard error in a loop over residuals."""
    first, second = a.sum() / b.sum(), c.sum() / d.sum()
    total = 0.0
    weights = 1 / (1 - np.minimum(np.maximum(b / b.sum(), d / d.sum()), 0.9)) ** 2
    for w, ai, bi, ci, di in zip(weights, a, b, c, d, strict=True):
        total += w * ((ai - first * bi) / b.sum() - (ci - second * di) / d.sum()) ** 2
    return first - second, sqrt(total)


@given(SIZES, st.integers(0, 10**6))
def test_an_interval_is_that_of_a_slow_loop_over_the_same_draws(
    sizes: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    below = np.array(sizes, dtype=float)
    keep = below > 0
    assume(keep.sum() >= MIN_CLUSTERS)
    above, other = (np.floor(random.random(len(sizes)) * (below + 1)) for _ in range(2))
    found = ratio_difference(above, below, other, below, resamples=60, seed=3)
    a, b, c = above[keep], below[keep], other[keep]
    estimate, error = slow(a, b, c, b)
    assert found.estimate == pytest.approx(estimate, abs=1e-9)
    assert found.clusters == len(b)
    if error < 1e-6:
        return
    weight = 1 / (1 - np.minimum(b / b.sum(), 0.9)) ** 2
    steps = []
    for draw in np.random.default_rng(3).multinomial(len(b), np.full(len(b), 1 / len(b)), size=60):
        rows = np.repeat(np.arange(len(b)), draw)
        size, shift = b[rows].sum(), (a - c)[rows].sum() / b[rows].sum()
        spread = (weight[rows] * ((a - c)[rows] - shift * b[rows]) ** 2).sum() / size**2
        spread = (max(spread, 0) + error**2 / 4 / len(b)) / (1 + 1 / 4 / len(b))
        steps.append(abs(shift - estimate) / sqrt(spread))
    reach = np.quantile(steps, 0.95, method="higher") * error
    assert found.high - found.estimate == pytest.approx(reach, rel=1e-6)
    assert found.estimate - found.low == pytest.approx(reach, rel=1e-6)


def pairs(
    random: np.random.Generator, clusters: int, spread: float, gain: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate the needs in view of two strategies, and all needs, in clusters of unequal size."""
    size = np.ceil(np.exp(3.5 + spread * random.normal(size=clusters)))
    ease = 1.2 + 0.6 * random.normal(size=clusters)
    noise = 0.5 * random.normal(size=clusters) if gain else 0.0
    first = 1 / (1 + np.exp(-(ease + gain + noise)))
    second = 1 / (1 + np.exp(-ease))
    return random.binomial(size.astype(int), first), random.binomial(size.astype(int), second), size


@pytest.mark.simulations
@pytest.mark.parametrize("spread", [0.5, 1.0])
@pytest.mark.parametrize("clusters", [9, 20, 50])
def test_ninety_five_per_cent_of_the_intervals_hold_the_truth(clusters: int, spread: float) -> None:
    random = np.random.default_rng(7)
    first, second, size = pairs(random, 2_000_000, spread, 0.5)
    truth = (first.sum() - second.sum()) / size.sum()
    rounds, held = 1500, 0
    for _ in range(rounds):
        a, b, n = pairs(random, clusters, spread, 0.5)
        found = ratio_difference(a, n, b, n, resamples=800, seed=int(random.integers(1 << 30)))
        held += found.low <= truth <= found.high
    assert held / rounds == pytest.approx(0.95, abs=0.015)


@pytest.mark.simulations
@pytest.mark.parametrize("clusters", [9, 20, 50])
def test_five_per_cent_of_the_tests_see_a_difference_where_there_is_none(clusters: int) -> None:
    random = np.random.default_rng(8)
    rounds, alarms = 1500, 0
    for _ in range(rounds):
        a, b, n = pairs(random, clusters, 1.0, 0.0)
        found = ratio_difference(a, n, b, n, resamples=800, seed=int(random.integers(1 << 30)))
        alarms += found.p_value <= 0.05
    assert alarms / rounds == pytest.approx(0.05, abs=0.015)


@pytest.mark.simulations
@pytest.mark.parametrize("clusters", [9, 20, 50])
def test_eighty_per_cent_of_the_intervals_show_the_smallest_detectable_difference(
    clusters: int,
) -> None:
    random = np.random.default_rng(9)
    rounds = 1500

    def draw() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = np.ceil(np.exp(3.5 + 0.5 * random.normal(size=clusters)))
        ease = 0.6 + 0.1 * random.normal(size=clusters)
        first, second = (size * (ease + 0.05 * random.normal(size=clusters)) for _ in "ab")
        return first, second, size

    def compare(a: np.ndarray, b: np.ndarray, n: np.ndarray) -> RatioDifference:
        return ratio_difference(a, n, b, n, resamples=800, seed=int(random.integers(1 << 30)))

    detectable = float(np.mean([compare(*draw()).detectable for _ in range(300)]))
    shown = 0
    for _ in range(rounds):
        a, b, n = draw()
        shown += compare(a + detectable * n, b, n).low > 0
    assert shown / rounds == pytest.approx(POWER, abs=0.05)


def test_a_relative_difference_has_a_relative_smallest_difference() -> None:
    random = np.random.default_rng(5)
    a, b, ones = random.random(20) + 5, random.random(20) + 5, np.ones(20)
    plain = ratio_difference(a, ones, b, ones)
    relative = ratio_difference(a, ones, b, ones, relative=True)
    assert plain.estimate - plain.low < plain.detectable < 2 * (plain.estimate - plain.low)
    assert relative.detectable == pytest.approx(plain.detectable / b.mean(), rel=0.1)


@pytest.mark.simulations
def test_a_difference_of_samples_is_covered_at_least_as_often_as_said() -> None:
    random = np.random.default_rng(6)
    held, rounds = 0, 1500
    for _ in range(rounds):
        samples = []
        for clusters, mean in ((12, 5.0), (25, 4.0)):
            size = np.ceil(np.exp(2 + 0.5 * random.normal(size=clusters)))[:, None]
            sums = size * (mean + random.normal(size=(clusters, 1)))
            seed = int(random.integers(1 << 30))
            bounds = ratio_interval(sums, size, resamples=300, seed=seed)
            samples.append((sums.sum(0) / size.sum(0), *bounds))
        _, low, high = difference_of_samples(*samples)
        held += bool(low[0] <= 1 <= high[0])
    assert 0.94 < held / rounds < 0.99


@pytest.mark.simulations
def test_a_test_with_clusters_of_one_size_is_that_of_scipy() -> None:
    from scipy import stats  # takes a second to import, in every worker

    random = np.random.default_rng(4)
    a, b, ones = random.random(9), random.random(9) + 0.2, np.ones(9)

    def studentised(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return stats.ttest_rel(x, y, axis=axis).statistic  # type: ignore[no-any-return]

    theirs = stats.permutation_test(
        (a, b), studentised, permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    assert ratio_difference(a, ones, b, ones).p_value == pytest.approx(theirs.pvalue)


def test_more_clusters_than_can_be_tried_out_are_drawn_to_nearly_the_same_p() -> None:
    from scipy import stats

    random = np.random.default_rng(5)
    a, b, ones = random.normal(size=16) + 0.5, random.normal(size=16), np.ones(16)
    drawn = ratio_difference(a, ones, b, ones, resamples=20_000).p_value
    exact = stats.permutation_test(
        (a, b),
        lambda x, y, axis: stats.ttest_rel(x, y, axis=axis).statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=70_000,
    ).pvalue
    assert drawn == pytest.approx(exact, abs=0.01)


def test_where_no_cluster_differs_there_is_no_interval_for_nothing_is_known_of_those_that_may() -> (
    None
):
    random = np.random.default_rng(6)
    a, n = random.random(30) * 7, random.integers(7, 90, 30).astype(float)
    found = ratio_difference(a, n, a, n)
    assert (found.estimate, found.p_value, found.effect_size, found.clusters) == (0.0, 1.0, 0.0, 30)
    assert np.isnan([found.low, found.high]).all()
    low, high = ratio_interval(n[:, None], n[:, None])
    assert np.isnan([*low, *high]).all()


@pytest.mark.parametrize("clusters", [6, 12, 50])
def test_where_one_cluster_differs_the_interval_has_bounds(clusters: int) -> None:
    a, n = np.full(clusters, 2.0), np.full(clusters, 10.0)
    a[0] = 3.0
    found = ratio_difference(a, n, np.full(clusters, 2.0), n)
    assert found.low < 0 < found.estimate < found.high
    assert found.high - found.low < 30 * found.estimate
    assert found.p_value == 1.0


@pytest.mark.simulations
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("clusters", [20, 50])
def test_intervals_of_a_single_share_hold_it_nine_times_in_ten(clusters: int, share: float) -> None:
    random = np.random.default_rng(5)
    size = np.ceil(np.exp(3.5 + 0.7 * random.normal(size=(clusters, 1500))))
    above = random.binomial(size.astype(int), random.beta(share * 12, (1 - share) * 12, size.shape))
    low, high = ratio_interval(above.astype(float), size, resamples=800)
    assert ((low <= share) & (share <= high)).mean() >= 0.9


def test_what_is_nothing_has_no_share_of_anything() -> None:
    random = np.random.default_rng(3)
    ones, some, none = np.ones(12), random.random(12), np.zeros(12)
    gone = ratio_difference(none, ones, some, ones, relative=True)
    assert gone.estimate == -1
    assert gone.p_value < 0.05
    new = ratio_difference(some, ones, none, ones, relative=True)
    assert np.isnan([gone.low, gone.high, new.estimate, new.low, new.high]).all()


def test_a_cluster_that_only_one_of_two_has_is_no_pair() -> None:
    random = np.random.default_rng(2)
    a, b, n = random.random(9), random.random(9), np.ones(9)
    half = n.copy()
    half[5:] = 0
    found = ratio_difference(a * half, half, b, n)
    assert found.clusters == 5
    assert found == ratio_difference(a[:5], n[:5], b[:5], n[:5])


@given(st.integers(0, 10**6), st.booleans())
def test_the_other_way_round_everything_is_mirrored(seed: int, relative: bool) -> None:
    random = np.random.default_rng(seed)
    a, b, n = random.random(8), random.random(8), random.random(8) + 0.5
    one = ratio_difference(a, n, b, n, resamples=200)
    two = ratio_difference(b, n, a, n, resamples=200)
    assert one.p_value == two.p_value
    assert one.estimate == pytest.approx(-two.estimate)
    assert (one.low, one.high) == pytest.approx((-two.high, -two.low))
    share = ratio_difference(a, n, b, n, relative=True, resamples=200)
    assert share.estimate == pytest.approx((a / n.sum()).sum() / (b / n.sum()).sum() - 1)
    assert share.low > -1
    assert share.p_value == one.p_value
    back = ratio_difference(b, n, a, n, relative=True, resamples=200)
    assert 1 + back.low == pytest.approx(1 / (1 + share.high))


def test_a_cluster_with_nothing_to_say_changes_nothing() -> None:
    random = np.random.default_rng(9)
    a, b, n = random.random(9), random.random(9), random.random(9) + 1
    padded = [np.append(each, [0.0, 0.0]) for each in (a, n, b, n)]
    assert ratio_difference(*padded) == ratio_difference(a, n, b, n)
    low, high = ratio_interval(np.stack([a, b], 1), np.stack([n, n], 1))
    more = ratio_interval(
        *(np.vstack([t, np.zeros((3, 2))]) for t in (np.stack([a, b], 1), np.stack([n, n], 1)))
    )
    np.testing.assert_array_equal([low, high], more)


def test_too_few_clusters_give_no_interval() -> None:
    few = np.arange(MIN_CLUSTERS - 1.0)[:, None]
    low, high = ratio_interval(few, few + 4)
    assert np.isnan([*low, *high]).all()
    found = ratio_difference(few[:, 0], few[:, 0] + 4, few[:, 0] / 2, few[:, 0] + 4)
    assert np.isnan([found.low, found.high]).all()
    assert found.p_value >= 2 / 2 ** (MIN_CLUSTERS - 1)


def test_what_is_unknown_stays_unknown() -> None:
    ones = np.ones(8)
    unknown = ones.copy()
    unknown[3] = np.nan
    found = ratio_difference(unknown, ones, ones, ones)
    assert np.isnan([found.estimate, found.low, found.high, found.p_value]).all()
    nothing = ratio_difference(ones, 0 * ones, ones, 0 * ones)
    assert np.isnan([nothing.estimate, nothing.low, nothing.p_value]).all()


def test_bounds_of_a_share_stay_a_share() -> None:
    above = np.array([[0.0], [0], [0], [0], [9], [10]])
    low, high = ratio_interval(above, np.full((6, 1), 10.0))
    assert low[0] == 0
    assert high[0] == 1


def test_a_wider_level_and_fewer_clusters_widen_the_interval() -> None:
    above, below = np.random.default_rng(1).random((40, 1)), np.ones((40, 1))
    wide = np.subtract(*ratio_interval(above, below, level=0.99)[::-1])
    usual = np.subtract(*ratio_interval(above, below)[::-1])
    assert usual < wide
    assert usual < np.subtract(*ratio_interval(above[:8], below[:8])[::-1])


@given(st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=1, max_size=8))
def test_holm_is_the_slow_way_and_keeps_the_order(p: list[float]) -> None:
    found = holm_correction(np.array(p))
    known = sorted((value, i) for i, value in enumerate(p) if value == value)
    least = 0.0
    for rank, (value, i) in enumerate(known):
        least = max(least, min(1.0, value * (len(known) - rank)))
        assert found[i] == pytest.approx(least)
    assert np.isnan(found).sum() == len(p) - len(known)

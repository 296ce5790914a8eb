"""Tests of stratified comparisons of two groups."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.comparison.stratified import StratifiedDifference, stratified_difference


def members(*counts: tuple[str, int, int, int, int]) -> pd.DataFrame:
    """Return members for rows ``(cluster, hits of group 1, size 1, hits of group 2, size 2)``."""
    rows = []
    for stratum, (cluster, a, n, b, m) in enumerate(counts):
        rows += [(cluster, stratum, True, i < a) for i in range(n)]
        rows += [(cluster, stratum, False, i < b) for i in range(m)]
    return pd.DataFrame(rows, columns=["cluster", "stratum", "first", "hit"])


def compared(frame: pd.DataFrame, samples: int = 2000) -> StratifiedDifference:
    strata = frame[["cluster", "stratum"]]
    return stratified_difference(
        frame["hit"], frame["first"], strata, frame["cluster"], resamples=samples
    )


def test_what_differs_between_strata_only_is_no_difference() -> None:
    # The first group stands mostly where hits are rare: pooled, it has far fewer.
    frame = members(*[(c, 9, 90, 1, 10) for c in "abcde"], *[(c, 5, 10, 45, 90) for c in "abcde"])
    pooled = frame.groupby("first")["hit"].mean()
    assert pooled[True] - pooled[False] == pytest.approx(-0.32)
    found = compared(frame)
    assert found.estimate == pytest.approx(0)
    assert found.p == found.p_members == 1


def test_the_estimate_is_that_of_mantel_and_haenszel() -> None:
    frame = members(("a", 3, 4, 1, 6), ("b", 0, 5, 2, 5))
    weights = np.array([4 * 6 / 10, 5 * 5 / 10])
    shares = np.array([[3 / 4, 1 / 6], [0, 2 / 5]])
    found = compared(frame)
    assert found.first == pytest.approx((weights * shares[:, 0]).sum() / weights.sum())
    assert found.second == pytest.approx((weights * shares[:, 1]).sum() / weights.sum())
    assert found.estimate == pytest.approx(found.first - found.second)
    assert math.isnan(found.low)  # two clusters say nothing about others


def test_a_stratum_with_one_group_only_is_not_counted() -> None:
    both = members(("a", 3, 4, 1, 6))
    more = members(("a", 3, 4, 1, 6), ("b", 7, 7, 0, 0), ("c", 0, 0, 5, 9))
    assert compared(more)[0] == compared(both)[0]
    assert compared(more).counted == (4, 6)
    assert compared(more).clusters == 1
    assert math.isnan(compared(members(("b", 7, 7, 0, 0))).estimate)


counts = st.tuples(
    st.sampled_from("abcdef"), st.integers(0, 4), st.integers(4, 8), st.integers(0, 4),
    st.integers(4, 8),
)  # fmt: skip


@pytest.mark.properties
@given(st.lists(counts, min_size=1, max_size=8))
def test_groups_that_change_places_change_the_sign(
    given: list[tuple[str, int, int, int, int]],
) -> None:
    frame = members(*given)
    one, other = compared(frame, 200), compared(frame.assign(first=~frame["first"]), 200)
    assert one.estimate == pytest.approx(-other.estimate)
    assert one.p == pytest.approx(other.p)
    assert one.counted == other.counted[::-1]
    assert 0 < one.p_members <= 1
    told = 0 < sum(one.hits) < sum(one.counted)
    assert math.isnan(one.low) == (one.clusters < 5 or not told)
    if not math.isnan(one.low):
        assert -1 <= one.low <= one.estimate + 1e-9
        assert one.estimate - 1e-9 <= one.high <= 1
        assert one.low == pytest.approx(-other.high)


@pytest.mark.e2e
def test_exchanging_members_raises_no_false_alarm_oftener_than_it_says() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(400):
        first, second = random.binomial(12, 0.3, size=2), random.binomial(15, 0.3, size=2)
        frame = members(("a", first[0], 12, second[0], 15), ("a", first[1], 12, second[1], 15))
        found.append(compared(frame, 400).p_members)
    assert (np.array(found) <= 0.05).mean() < 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_exchanging_members_finds_a_difference_that_is_there() -> None:
    assert compared(members(("a", 19, 20, 2, 20), ("b", 18, 20, 3, 20))).p_members < 0.001

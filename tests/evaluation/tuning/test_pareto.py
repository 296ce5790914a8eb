"""Tests of the Pareto front against a comparison of all pairs of points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.tuning.pareto import pareto_front, pareto_ranks

FEW = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, float("nan")])
POINTS = st.lists(st.tuples(FEW | st.floats(0, 3), FEW | st.floats(0, 1)), max_size=30)


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return True if ``one`` is not worse in cost and recall, and better in at least one of them."""
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def by_hand(points: list[tuple[float, float]]) -> list[bool]:
    known = [not np.isnan(point).any() for point in points]
    return [
        ok and not any(ok2 and beats(q, p) for q, ok2 in zip(points, known, strict=True))
        for p, ok in zip(points, known, strict=True)
    ]


@given(POINTS)
def test_the_front_is_what_no_other_point_beats(points: list[tuple[float, float]]) -> None:
    cost, kept = [p[0] for p in points], [p[1] for p in points]
    assert pareto_front(cost, kept).tolist() == by_hand(points)


@given(POINTS)
def test_each_front_is_the_front_of_what_is_left(points: list[tuple[float, float]]) -> None:
    of = pareto_ranks([p[0] for p in points], [p[1] for p in points]).tolist()
    for number in range(max(of, default=-1) + 1):
        left = [p for p, rank in zip(points, of, strict=True) if rank >= number]
        assert by_hand(left) == [rank == number for rank in of if rank >= number]
    assert [rank < 0 for rank in of] == [bool(np.isnan(p).any()) for p in points]


@given(POINTS, st.randoms())
def test_the_order_of_the_points_does_not_matter(
    points: list[tuple[float, float]], chance: object
) -> None:
    mixed = list(range(len(points)))
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    there = pareto_ranks([points[i][0] for i in mixed], [points[i][1] for i in mixed])
    here = pareto_ranks([p[0] for p in points], [p[1] for p in points])
    assert there.tolist() == [here[i] for i in mixed]

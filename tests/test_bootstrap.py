"""Rules of ``ctxlab.bootstrap``: its bounds are those of a slow loop over the same draws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.bootstrap import ratio_interval


def slow(
    above: np.ndarray, below: np.ndarray, samples: int, seed: int
) -> list[tuple[float, float]]:
    clusters, configurations = above.shape
    draws = np.random.default_rng(seed).multinomial(
        clusters, [1 / clusters] * clusters, size=samples
    )
    bounds = []
    for c in range(configurations):
        ratios = []
        for draw in draws:
            picked = [i for i in range(clusters) for _ in range(draw[i])]
            bottom = sum(below[i, c] for i in picked)
            if bottom > 0:
                ratios.append(sum(above[i, c] for i in picked) / bottom)
        pair = np.quantile(ratios, [0.025, 0.975]) if ratios else (np.nan, np.nan)
        bounds.append((float(pair[0]), float(pair[1])))
    return bounds


TABLES = st.integers(2, 6).flatmap(
    lambda rows: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 3, 10]), min_size=2, max_size=2),
        min_size=rows,
        max_size=rows,
    )
)


@given(TABLES, st.integers(0, 3))
def test_bounds_are_those_of_a_slow_loop(table: list[list[int]], seed: int) -> None:
    below = np.array(table, dtype=float)
    above = np.minimum(below, 1.0) * np.arange(1, len(table) + 1)[:, None] / len(table)
    low, high = ratio_interval(above, below, samples=60, seed=seed)
    np.testing.assert_allclose(np.transpose([low, high]), slow(above, below, 60, seed), atol=1e-12)


def test_one_cluster_says_nothing_about_others() -> None:
    low, high = ratio_interval(np.array([[3.0, 1.0]]), np.array([[4.0, 4.0]]))
    assert np.isnan([*low, *high]).all()


def test_nothing_to_divide_by_gives_no_bounds_and_no_warning() -> None:
    low, high = ratio_interval(
        np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([[0.0, 2.0], [0.0, 4.0]])
    )
    assert np.isnan([low[0], high[0]]).all()
    assert (low[1], high[1]) == (0.5, 0.5)


def test_equal_configurations_have_equal_bounds_and_the_same_seed_the_same() -> None:
    above, below = np.random.default_rng(1).random((9, 1)), np.ones((9, 1))
    low, high = ratio_interval(np.hstack([above, above]), np.hstack([below, below]))
    assert low[0] == low[1] < above.mean() < high[0] == high[1]
    assert np.array_equal(
        low, ratio_interval(np.hstack([above, above]), np.hstack([below, below]))[0]
    )


def test_a_wider_level_and_fewer_clusters_widen_the_interval() -> None:
    above, below = np.random.default_rng(1).random((40, 1)), np.ones((40, 1))
    wide = np.subtract(*ratio_interval(above, below, level=0.99)[::-1])
    usual = np.subtract(*ratio_interval(above, below)[::-1])
    assert usual < wide
    assert usual < np.subtract(*ratio_interval(above[:8], below[:8])[::-1])

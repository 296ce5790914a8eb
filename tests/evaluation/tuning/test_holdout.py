"""Tests of the split: clusters stay whole, and both parts have all formats."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import SpecError
from ctxlab.evaluation.tuning.holdout import cluster_name, split_holdout
from ctxlab.messages.types import Message, Recording

CLUSTERS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 40)),
    min_size=8,
    max_size=30,
)


def recordings(clusters: list[tuple[str, int, int]]) -> list[Recording]:
    """Return recordings for ``(format, recordings in the cluster, messages of each)``."""
    return [
        Recording(f"{number}.{again}", (Message("user", "hi"),) * long, format=kind,
                  cluster=f"task-{number}" if each > 1 else None)
        for number, (kind, each, long) in enumerate(clusters)
        for again in range(each)
    ]  # fmt: skip


def clusters_of(some: list[Recording]) -> set[str]:
    return {cluster_name(recording) for recording in some}


@given(CLUSTERS, st.integers(0, 50), st.sampled_from([0.0, 0.3, 0.5, 0.6, 0.8]))
def test_no_cluster_stands_in_both_parts_and_nothing_is_lost(
    clusters: list[tuple[str, int, int]], seed: int, share: float
) -> None:
    given_ = recordings(clusters)
    try:
        tuned, held = split_holdout(given_, share, seed)
    except SpecError:
        return
    assert not clusters_of(tuned) & clusters_of(held)
    assert Counter(r.id for r in tuned + held) == Counter(r.id for r in given_)
    assert held == [r for r in given_ if r in held]
    assert bool(held) == (share > 0)


@given(CLUSTERS, st.integers(0, 50), st.sampled_from([0.3, 0.5, 0.8]))
def test_every_kind_that_can_be_is_in_both_parts_in_proportion(
    clusters: list[tuple[str, int, int]], seed: int, share: float
) -> None:
    try:
        tuned, held = split_holdout(recordings(clusters), share, seed)
    except SpecError:
        return
    for kind, count in Counter(kind for kind, _, _ in clusters).items():
        there = len(clusters_of([r for r in held if r.format == kind]))
        assert count < 2 or 0 < there < count
        assert count < 2 or abs(there - share * count) <= 1
    assert clusters_of(tuned)


@given(CLUSTERS, st.integers(0, 50))
def test_a_split_is_the_same_for_the_same_seed_whatever_is_said_in_the_recordings(
    clusters: list[tuple[str, int, int]], seed: int
) -> None:
    given_ = recordings(clusters)
    others = [Recording(r.id, (Message("user", "other"),) * len(r.messages), format=r.format,
                        cluster=r.cluster) for r in given_]  # fmt: skip
    try:
        parts = split_holdout(given_, 0.6, seed)
    except SpecError:
        return
    again = split_holdout(others, 0.6, seed)
    assert [[r.id for r in part] for part in parts] == [[r.id for r in part] for part in again]


def test_both_parts_are_alike_in_length_and_every_cluster_may_be_held_out() -> None:
    given_ = recordings([("a", 1, 2**number) for number in range(12)])
    held = [frozenset(clusters_of(split_holdout(given_, 0.5, seed)[1])) for seed in range(60)]
    assert len(set(held)) > 20
    assert set().union(*held) == clusters_of(given_)
    for some in held:
        for pair in range(6):  # neighbours in length are on different sides
            assert len(some & {f"{2 * pair}.0", f"{2 * pair + 1}.0"}) == 1


@pytest.mark.parametrize(
    ("count", "share", "remedy"),
    [
        (6, 0.5, "provide at least 7"),
        (8, 0.5, "use a holdout of 0.63"),
        (20, 0.1, "use a holdout of 0.25"),
        (20, 0.95, "use a smaller holdout"),
    ],
)
def test_too_few_clusters_are_refused_with_a_remedy_that_helps(
    count: int, share: float, remedy: str
) -> None:
    given_ = recordings([("a", 2, 5)] * count)
    with pytest.raises(
        SpecError, match=r"at least 5 are needed.*a holdout of 0 to evaluate"
    ) as error:
        split_holdout(given_, share)
    assert remedy in str(error.value)
    if "is enough" in remedy:
        _, held = split_holdout(given_, float(remedy.split("of ")[1].split()[0]))
        assert len(clusters_of(held)) == 5
    assert split_holdout(given_, 0)[1] == []


@pytest.mark.parametrize("share", [-0.1, 1, 2])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(SpecError, match="at least 0 and below 1"):
        split_holdout(recordings([("a", 1, 5)] * 20), share)

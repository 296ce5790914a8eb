"""Tests of progress bars."""

from __future__ import annotations

import threading

import pytest

from ctxlab._utils.progress import Counted, track


@pytest.mark.parametrize("show", [False, True])
def test_every_item_comes_through_and_no_thread_is_begun(show: bool) -> None:
    before = threading.active_count()
    seen = []
    for item in track(range(5), "counting", 5, show):
        seen.append(item)
        assert threading.active_count() == before  # a process can be forked at any moment
    assert seen == [0, 1, 2, 3, 4]


def test_a_counted_iterator_estimates_the_total_from_what_is_left() -> None:
    known, unknown = Counted([7, 8, 9]), Counted(each for each in [7, 8])
    assert (next(known), known.count, known.total) == (7, 1, 3)
    assert (next(unknown), unknown.count, unknown.total) == (7, 1, None)
    assert list(unknown) == [8]
    assert (unknown.count, unknown.total) == (2, 2)

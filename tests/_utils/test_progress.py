"""Tests of progress bars."""

from __future__ import annotations

import re
import threading
import time

import pytest

from ctxlab._utils import progress
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


def test_a_clock_that_jumps_gives_no_negative_or_infinite_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([1e9, 0.0, -1e9] * 100)
    monkeypatch.setattr(time, "time", lambda: next(moments))  # as set by hand, or by a server
    bar = progress._make_bar("TimeRemainingColumn", auto_refresh=False, rate=True)
    bar.add_task("work", total=100)
    (task,) = bar.tasks
    for completed in range(10, 50, 10):
        bar.update(task.id, completed=completed)
        assert 0 <= (task.speed or 0) < float("inf")
        assert (task.time_remaining or 0) >= 0


def test_a_notebook_shows_no_negative_time_if_the_clock_or_the_estimate_is_wrong() -> None:
    line = progress._NotebookLine("work")
    for completed, total, seconds in ((5, 10, -3.0), (12, 10, 3.0), (0, 10, 0.0), (5, None, -1.0)):
        shown = line._describe(completed, total, seconds)
        assert not re.search(r"-\d|inf|nan", shown)

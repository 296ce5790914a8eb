"""Tests of progress bars."""

from __future__ import annotations

import threading

import pytest

from ctxlab._utils.progress import track


@pytest.mark.parametrize("show", [False, True])
def test_every_item_comes_through_and_no_thread_is_begun(show: bool) -> None:
    before = threading.active_count()
    seen = []
    for item in track(range(5), "counting", 5, show):
        seen.append(item)
        assert threading.active_count() == before  # a process can be forked at any moment
    assert seen == [0, 1, 2, 3, 4]

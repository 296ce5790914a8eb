"""Tests that running calls finish and are kept when the caller is interrupted or another call fails."""

from __future__ import annotations

import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Generator
from contextlib import closing
from types import FrameType

import pytest

from ctxlab.llm import concurrency as threads
from ctxlab.llm.concurrency import map_unordered, run_uninterrupted


def slowly(asked: list[int], release: threading.Event) -> Callable[[int, threading.Event], int]:
    """Return a function that answers 0 at once and all other values after ``release`` is set."""

    def ask(item: int, cancelled: threading.Event) -> int:
        asked.append(item)
        if item:
            assert release.wait(90)
        return item * 10

    return ask


def test_an_interrupted_caller_leaves_with_what_was_under_way_and_begins_nothing_more() -> None:
    asked, kept, release = [], {}, threading.Event()  # type: ignore[var-annotated]
    with closing(map_unordered(slowly(asked, release), range(50), 4, kept.__setitem__)) as each:
        assert next(each) == (0, 0)
        while len(asked) < 5:
            time.sleep(0.01)
        threading.Timer(0.1, release.set).start()
        with pytest.raises(KeyboardInterrupt):
            each.throw(KeyboardInterrupt())
    assert sorted(kept) == sorted(asked) == [0, 1, 2, 3, 4]


def test_a_caller_that_leaves_early_leaves_with_what_was_under_way() -> None:
    asked, kept, release = [], {}, threading.Event()  # type: ignore[var-annotated]
    each = map_unordered(slowly(asked, release), range(50), 4, kept.__setitem__)
    next(each)
    threading.Timer(0.1, release.set).start()
    each.close()
    assert sorted(kept) == sorted(asked)
    assert len(asked) <= 5


def test_an_error_goes_on_once_what_was_under_way_is_kept() -> None:
    kept: dict[int, int] = {}
    both = threading.Barrier(2)

    def ask(item: int, cancelled: threading.Event) -> int:
        both.wait(60)
        if item == 0:
            raise ValueError("refused")
        assert cancelled.wait(60)
        return item

    with pytest.raises(ValueError, match="refused"):
        list(map_unordered(ask, range(9), 2, kept.__setitem__))
    assert kept == {1: 1}


def test_a_second_interruption_leaves_at_once() -> None:
    asked, release = [], threading.Event()  # type: ignore[var-annotated]
    each = map_unordered(slowly(asked, release), range(50), 4, lambda place, answer: None)
    next(each)
    timer = threading.Timer(0.5, interrupt_main)  # while what is under way is waited for
    timer.start()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        each.throw(KeyboardInterrupt())
    assert 0.4 < time.perf_counter() - begun < 60
    release.set()


def test_what_is_kept_is_kept_in_a_thread_that_no_signal_interrupts() -> None:
    kept: list[threading.Thread] = []

    def keep(place: int, answer: int) -> None:
        kept.append(threading.current_thread())

    list(map_unordered(lambda item, cancelled: item, range(9), 3, keep))
    run_uninterrupted(lambda: keep(0, 0))
    assert len(kept) == 10
    assert threading.main_thread() not in kept


def test_an_interruption_anywhere_in_the_caller_loses_nothing_and_hangs_nowhere() -> None:
    """The caller is interrupted at its first line, its second, and so on, to its last."""
    lines = 1
    while True:
        asked: list[int] = []
        kept: dict[int, int] = {}

        def ask(item: int, cancelled: threading.Event, asked: list[int] = asked) -> int:
            asked.append(item)
            return item

        with closing(map_unordered(ask, range(6), 2, kept.__setitem__)) as each:
            left = interrupted_after(lines, each)
        assert sorted(kept) == sorted(asked)
        if not left:
            break
        lines += 1
    assert lines > 20


def interrupted_after(lines: int, each: Generator[tuple[int, int], None, None]) -> bool:
    """Raise KeyboardInterrupt after ``lines`` lines of code; return True if it was raised."""
    left = lines

    def local(frame: FrameType, event: str, arg: object) -> Callable[..., object] | None:
        nonlocal left
        left -= event == "line"
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return local

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., object] | None:
        return local if frame.f_code.co_filename == threads.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        list(each)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_where_nothing_is_kept_nobody_is_waited_for() -> None:
    asked, release = [], threading.Event()  # type: ignore[var-annotated]
    each = map_unordered(slowly(asked, release), range(50), 4)
    next(each)
    begun = time.perf_counter()
    each.close()
    assert time.perf_counter() - begun < 60
    release.set()


@pytest.mark.parametrize("at_once", [1, 3, 20])
def test_no_more_are_ever_begun_and_not_kept_than_may_be_under_way(at_once: int) -> None:
    begun, kept, most = [], [], []  # type: ignore[var-annotated]

    def ask(item: int, cancelled: threading.Event) -> int:
        begun.append(item)
        most.append(len(begun) - len(kept))
        return item

    def keep(place: int, answer: int) -> None:
        time.sleep(0.002)  # a slow disk
        most.append(len(begun) - len(kept))
        kept.append(place)

    assert sorted(map_unordered(ask, range(30), at_once, keep)) == [(i, i) for i in range(30)]
    assert sorted(kept) == list(range(30))
    assert max(most) <= at_once


def test_nothing_is_left_running() -> None:
    before = threading.active_count()
    list(map_unordered(lambda item, cancelled: item, range(30), 5))
    until = time.perf_counter() + 5
    while threading.active_count() > before and time.perf_counter() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before

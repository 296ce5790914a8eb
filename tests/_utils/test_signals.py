"""Tests of ``defer_signals``: each signal is handled exactly once and by the right handler."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import combinations_with_replacement
from types import FrameType
from typing import Any

import pytest

from ctxlab._utils import signals
from ctxlab._utils.signals import defer_signals, sigterm_as_keyboard_interrupt

LINES = 60
"more lines than are gone through to hold and to let go"


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Install a handler that raises like Python's own, and yield the list of handled signals."""
    got: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        got.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hear)
    yield got
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def defer_and_press(at: tuple[int, ...], done: list[str]) -> int:
    """Send a signal at the given lines of ``defer_signals`` and return its number of lines."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != signals.__file__ or frame.f_code.co_name != "defer_signals":
            return None
        if event == "line":
            lines += 1
            for _ in range(at.count(lines)):
                press()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with defer_signals():
            done.append("begun")
            done.append("ended")
    finally:
        sys.settrace(before)
    return lines


def test_a_signal_waits_until_what_is_held_is_done_and_the_second_does_not() -> None:
    done = []

    def interrupted(times: int) -> None:
        with defer_signals():
            for _ in range(times):
                press()
                time.sleep(0.01)
            done.append(times)

    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            interrupted(times)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with defer_signals():
        pass


def test_a_signal_at_any_line_is_heard_once_and_parts_nothing(heard: list[int]) -> None:
    whole = defer_and_press((), [])
    assert 5 < whole < LINES
    for at in range(1, whole + 1):
        done: list[str] = []
        heard.clear()
        with pytest.raises(KeyboardInterrupt):
            defer_and_press((at,), done)
        assert len(heard) == 1
        assert done in ([], ["begun", "ended"])
        heard_afterwards(heard)


def test_of_two_signals_at_any_lines_one_is_heard_and_the_next_one_is(heard: list[int]) -> None:
    whole = defer_and_press((), [])
    for pair in combinations_with_replacement(range(1, whole + 1), 2):
        heard.clear()
        with pytest.raises(KeyboardInterrupt):
            defer_and_press(pair, [])
        assert heard
        heard_afterwards(heard)


def heard_afterwards(heard: list[int]) -> None:
    """Assert that signals are no longer deferred."""
    for _ in range(2):
        before = len(heard)
        with pytest.raises(KeyboardInterrupt):
            press()
        assert len(heard) == before + 1
    assert signal.getsignal(signal.SIGINT).__name__ == "hear"  # type: ignore[union-attr]


def test_a_signal_is_heard_where_what_is_held_fails(heard: list[int]) -> None:
    def fail() -> None:
        with defer_signals():
            press()
            raise OSError("the disk is full")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, OSError)
    assert len(heard) == 1


def test_sigterm_is_a_ctrl_c_in_the_block_alone(heard: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_keyboard_interrupt(), defer_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    assert not heard

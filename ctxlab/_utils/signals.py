"""Handle Ctrl+C and SIGTERM, so that cleanup code runs and critical sections are not interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def sigterm_as_keyboard_interrupt() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on SIGTERM within the ``with`` block, so that cleanup code runs."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer Ctrl+C to the end of the ``with`` block, and also SIGTERM if it has a Python handler.

    A second signal within the block takes effect immediately, so that a block that hangs can still be
    interrupted. The function has no effect in threads other than the main thread, because Python
    delivers signals only to the main thread.

    >>> with defer_signals():
    ...     done = "whole"
    >>> done
    'whole'
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}
    waiting: list[tuple[int, FrameType | None]] = []
    over = False

    def wait(number: int, frame: FrameType | None) -> None:
        if not over:
            waiting.append((number, frame))
        if over or len(waiting) > 1:
            # The handler may raise before the finally clause restores it, so restore it first.
            signal.signal(number, before[number])
            before[number](number, frame)

    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, wait)
        yield
    finally:
        over = True
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in waiting[:1]:
            before[number](number, frame)

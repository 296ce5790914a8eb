"""Ctrl+C and SIGTERM end what is under way, and part nothing that must be done as a whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["defer_signals", "sigterm_as_keyboard_interrupt"]

_SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def sigterm_as_keyboard_interrupt() -> Iterator[None]:
    """SIGTERM is a Ctrl+C in the block, so that what is half done is cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Ctrl+C, and SIGTERM where it is handled, take effect at the end of the block.

    A second signal takes effect at once: what waits for ever can still be left. In another thread than
    the main one nothing is done, since Python interrupts none of those.

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
            # What this raises may cut the end of the block short, which puts the handler back.
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

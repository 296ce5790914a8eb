"""Pause Python's cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Return a context manager that pauses the cyclic garbage collector.

    Code that creates many objects and keeps most of them makes the collector search all objects
    again and again for cycles, and find none. Objects outside of cycles are freed as usual.

    Examples
    --------
    >>> with pause_garbage_collection():
    ...     print(gc.isenabled())
    False
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""Who has a session open is known by its process, so that one that was killed blocks nobody."""

from __future__ import annotations

import os
import platform
import time
from importlib import import_module
from typing import Any

__all__ = ["current_process", "is_process_alive"]

_REMOTE_TIMEOUT = (
    600.0  # seconds after which a process of another machine, which cannot be seen, counts as gone
)


def current_process() -> str:
    """The process that asks: ``host/number/start``, for numbers are used again."""
    me = os.getpid()
    return f"{platform.node()}/{me}/{_psutil().Process(me).create_time():.2f}"


def is_process_alive(owner: str | None, last_active: float) -> bool:
    """Whether a process that ``current_process`` named still runs.

    ``last_active``: when it last did something, seconds since 1970. One of another machine counts
    as running for ten minutes after that.

    >>> gone = f"{platform.node()}/1/0.00"
    >>> [is_process_alive(owner, 0.0) for owner in (current_process(), gone, None)]
    [True, False, False]
    >>> [is_process_alive("elsewhere!/1/0.00", time.time() - ago) for ago in (0, 601)]
    [True, False]
    """
    try:
        host, number, start = (owner or "").split("/")
        process, began = int(number), float(start)
    except ValueError:
        return False
    if host != platform.node():
        return time.time() - last_active < _REMOTE_TIMEOUT
    psutil = _psutil()
    try:
        return bool(abs(psutil.Process(process).create_time() - began) < 1)
    except (psutil.Error, ValueError, OverflowError):
        return False


def _psutil() -> Any:
    return import_module("psutil")  # only who writes pays for it

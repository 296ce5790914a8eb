"""Identify the process that has a session open, so that a killed process does not block it."""

from __future__ import annotations

import platform
import time

# Seconds of inactivity after which a process of another machine counts as dead.
_REMOTE_TIMEOUT = 600.0


def current_process() -> str:
    """Return an identifier of this process: ``host/pid/start time``.

    The start time is included because process ids are reused.

    Returns
    -------
    str
        The identifier.
    """
    import psutil  # lazy: needed for writing only

    me = psutil.Process()
    return f"{platform.node()}/{me.pid}/{me.create_time():.2f}"


def is_process_alive(owner: str | None, last_active: float) -> bool:
    """Return True if a process that ``current_process`` named is still running.

    A process of another machine counts as running for ten minutes after its last activity.

    Parameters
    ----------
    owner : str or None
        Identifier of ``current_process``.
    last_active : float
        Time of its last activity, in seconds since 1970.

    Returns
    -------
    bool
        True if the process is running.

    Examples
    --------
    >>> gone = f"{platform.node()}/1/0.00"
    >>> [is_process_alive(owner, 0.0) for owner in (current_process(), gone, None)]
    [True, False, False]
    >>> [is_process_alive("elsewhere!/1/0.00", time.time() - ago) for ago in (0, 601)]
    [True, False]
    """
    import psutil

    try:
        host, number, start = (owner or "").split("/")
        process, began = int(number), float(start)
    except ValueError:
        return False
    if host != platform.node():
        return time.time() - last_active < _REMOTE_TIMEOUT
    try:
        return bool(abs(psutil.Process(process).create_time() - began) < 1)
    except (psutil.Error, ValueError, OverflowError):
        return False

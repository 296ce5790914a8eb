"""A supervisor stands between us and a command, so that nothing the command began outlives it.

It is a small program of its own (``python process_supervisor.py PARENT REPORT PSUTIL COMMAND``), which
imports nothing of ctxlab. It starts the command in a shell with a session of its own, and stays until
nothing is left of what the command began. To the file descriptor REPORT it writes ``pid N`` and, when
the shell has ended, ``exit N``, before it ``alone 1`` where that left nothing. Its standard input is a
leash: when that ends, because we closed it or were killed ourselves, it ends everything. On Linux it
adopts whatever loses its parent, so that daemons with a session of their own are found too.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

__all__ = ["supervise"]

_TERMINATE_GRACE = 0.5
"seconds between asking a process to end and ending it"
_KILL_TIMEOUT = 5.0
"seconds after which what cannot be killed, since it waits for a broken disk, is left alone"
_POLL_INTERVAL = 1.0
"seconds between looks at whether we are still there, and at groups that only looks can see"
_PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG = 36, 1


def supervise(parent_pid: int, report_fd: int, psutil_folder: str, command: str) -> None:
    """Runs a command, and returns once nothing of it is left.

    ``parent_pid``: our process, whose end is the command's. ``psutil_folder``: where psutil lies.
    """
    os.set_inheritable(report_fd, False)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # only the leash ends the supervisor
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    shell = _start_shell(command)
    os.write(report_fd, f"pid {shell}\n".encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for output in (1, 2):
        os.dup2(nothing, output)  # else the pipe would never end

    while _reap_children(shell, report_fd):
        ready, _, _ = select.select([0, woken], [], [], _POLL_INTERVAL)
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
        if 0 in ready or os.getppid() != parent_pid:
            return _terminate_all(shell, report_fd, psutil_folder)
    return None


def _start_shell(command: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in range(1, signal.NSIG):
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv("/bin/sh", ["sh", "-c", command])
    except BaseException as error:
        os.write(2, f"the shell does not start: {error}\n".encode())
    finally:
        os._exit(127)


def _reap_children(shell: int, report: int) -> bool:
    """Whether anything is left; reaps what ended, and reports the end of the shell."""
    told, left = "", False
    with suppress(ChildProcessError):
        while not left:
            pid, status = os.waitpid(-1, os.WNOHANG)
            left = pid == 0
            if pid == shell:
                told = f"exit {os.waitstatus_to_exitcode(status)}\n"
    left = left or _signal_group(shell, 0)
    if told:
        alone = "" if left else "alone 1\n"
        with suppress(BrokenPipeError):
            os.write(report, f"{alone}{told}".encode())
    return left


def _signal_group(group: int, number: int) -> bool:
    """Whether the group of the shell still has members; they get the signal."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def _terminate_all(shell: int, report: int, folder: str) -> None:
    """Asks everything to end, waits a moment, and ends it."""
    sys.path.append(folder)
    psutil: Any = None  # then only the group is found
    with suppress(ImportError):
        psutil = import_module("psutil")
    started = time.monotonic()
    number: int = signal.SIGTERM
    while _reap_children(shell, report) and time.monotonic() - started < _KILL_TIMEOUT:
        _signal_group(shell, number)
        _signal_children(psutil, number)
        if number == signal.SIGTERM:
            # What is stopped hears nothing else.
            _signal_group(shell, signal.SIGCONT)
            asked = time.monotonic()
            while _reap_children(shell, report) and time.monotonic() - asked < _TERMINATE_GRACE:
                time.sleep(0.01)
            number = signal.SIGKILL
        else:
            time.sleep(0.01)


def _signal_children(psutil: Any, number: int) -> None:
    if psutil is None:
        return
    with suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.send_signal(number)


def _prctl(option: int, value: int) -> None:
    """A setting that only Linux has."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    supervise(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])

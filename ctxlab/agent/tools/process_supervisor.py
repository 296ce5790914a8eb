"""Supervisor process of one command: ends the command and all its descendants.

This is a separate program (``python process_supervisor.py PARENT REPORT PSUTIL COMMAND``) that
imports nothing of ctxlab. It starts the command in a shell with its own session and runs until no
process of the command is left. It writes ``pid N`` to the file descriptor REPORT, and ``exit N``
when the shell has ended, preceded by ``alone 1`` if no process is left then. When its standard
input ends, because the parent closed it or was killed, the supervisor ends all processes. On Linux
it adopts processes that lost their parent, so that it also finds daemons with their own session.
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

_TERMINATE_GRACE = 0.5
"seconds between SIGTERM and SIGKILL"
_KILL_TIMEOUT = 5.0
"seconds after which a process that cannot be killed, for instance in a disk wait, is left alone"
_POLL_INTERVAL = 1.0
"seconds between checks for the parent and for process groups that only polling can find"
_PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG = 36, 1


def supervise(parent_pid: int, report_fd: int, psutil_folder: str, command: str) -> None:
    """Run a command and return once none of its processes is left.

    Parameters
    ----------
    parent_pid : int
        Process id of the parent; the command ends with it.
    report_fd : int
        File descriptor for the reports.
    psutil_folder : str
        Folder that contains psutil.
    command : str
        Shell command.
    """
    os.set_inheritable(report_fd, False)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # only the end of standard input ends the supervisor
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    shell = _start_shell(command)
    os.write(report_fd, f"pid {shell}\n".encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for output in (1, 2):
        os.dup2(nothing, output)  # otherwise the pipe would never end

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
        os.write(2, f"cannot start the shell: {error}\n".encode())
    finally:
        os._exit(127)


def _reap_children(shell: int, report: int) -> bool:
    """Reap ended processes, report the end of the shell, and return True if any process is left."""
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
    """Send a signal to the shell's group and return True if the group still has members."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def _terminate_all(shell: int, report: int, folder: str) -> None:
    """Ask all processes to end, wait a moment, and kill the rest."""
    sys.path.append(folder)
    psutil: Any = None  # without psutil only the group is found
    with suppress(ImportError):
        psutil = import_module("psutil")
    started = time.monotonic()
    number: int = signal.SIGTERM
    while _reap_children(shell, report) and time.monotonic() - started < _KILL_TIMEOUT:
        _signal_group(shell, number)
        _signal_children(psutil, number)
        if number == signal.SIGTERM:
            # A stopped process handles no signal but SIGCONT and SIGKILL.
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
    """Set a process option that only Linux has."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    supervise(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])

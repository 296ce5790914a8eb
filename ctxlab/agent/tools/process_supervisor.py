"""Supervisor program that runs one shell command and can end all processes of the command.

This is a separate program (``python process_supervisor.py PARENT REPORT PSUTIL COMMAND``) that does
not import ctxlab. PARENT is the process id of the caller, and PSUTIL the folder that contains the
package psutil. The program starts the command in a shell with its own process session (``setsid``).
It runs until no process of the command is left. It writes lines to the file descriptor REPORT:
``pid N`` with the process id when the shell has started, and ``exit N`` with the exit code when the
shell has ended. If no process of the command is left when the shell ends, the program writes
``alone 1`` before ``exit N``.

When the standard input of the supervisor ends, because the parent process closed it or was killed,
the supervisor ends all processes of the command. On Linux, the supervisor adopts processes whose
parent has ended, so it also finds daemons with their own process session.

If REPORT is -1, the command is a server that talks to the caller through its standard input and
output, such as an MCP server. The supervisor then writes no lines. When the standard input ends, the
server has a second to end by itself. When the server has ended, the supervisor ends its remaining
processes.
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
"seconds after which the supervisor no longer tries to kill a process, such as one blocked by disk I/O"
_SERVER_GRACE = 1.0
"seconds that a server has to end by itself after the end of its standard input"
_POLL_INTERVAL = 1.0
"seconds between two checks of whether the parent and the command's processes are still running"
_PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG = 36, 1


def supervise(parent_pid: int, report_fd: int, psutil_folder: str, command: str) -> None:
    """Run a shell command and return when no process of the command is left.

    Parameters
    ----------
    parent_pid : int
        Process id of the parent process. When the parent ends, the command is ended too.
    report_fd : int
        File descriptor to which the program writes its lines (see the module docstring); -1 if the
        command is a server that uses the standard input and output of this program.
    psutil_folder : str
        Folder that contains the package psutil. It is added to the module search path, because the
        program runs without site packages.
    command : str
        Command for ``/bin/sh``.
    """
    is_server = report_fd == -1
    stopping: list[int] = []
    if not is_server:
        os.set_inheritable(report_fd, False)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # only the end of standard input ends the supervisor
    if is_server:  # the MCP SDK sends SIGTERM if it has waited too long
        signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    shell = _start_shell(command, is_server)
    _write_report(report_fd, f"pid {shell}\n")
    nothing = os.open(os.devnull, os.O_RDWR)
    for output in (1, 2):
        os.dup2(nothing, output)  # otherwise the supervisor would keep the output pipe open

    polled = select.poll()
    polled.register(woken, select.POLLIN)
    polled.register(0, 0 if is_server else select.POLLIN)  # the end of input is always reported
    while _reap_children(shell, report_fd):
        ready = [each for each, _ in polled.poll(_POLL_INTERVAL * 1000)]
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
        if is_server and not _is_running(shell):
            break
        if 0 in ready or stopping or os.getppid() != parent_pid:
            asked = time.monotonic()
            while is_server and not stopping and time.monotonic() - asked < _SERVER_GRACE:
                _reap_children(shell, report_fd)
                if not _is_running(shell):
                    break
                time.sleep(0.01)
            break
    else:
        return
    _terminate_all(shell, report_fd, psutil_folder)


def _is_running(pid: int) -> bool:
    """Return True if a child process exists. An ended process exists until it is reaped."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _write_report(report: int, line: str) -> None:
    if report != -1:
        with suppress(BrokenPipeError):
            os.write(report, line.encode())


def _start_shell(command: str, keep_stdin: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in range(1, signal.NSIG):
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if not keep_stdin:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv("/bin/sh", ["sh", "-c", command])
    except BaseException as error:
        os.write(2, f"cannot start the shell: {error}\n".encode())
    finally:
        os._exit(127)


def _reap_children(shell: int, report: int) -> bool:
    """Reap ended processes, and return True if a process of the command is still running.

    If the shell has ended, its exit code is written to the file descriptor ``report``.
    """
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
        _write_report(report, alone + told)
    return left


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to the shell's process group; return True if the group has a process.

    Signal 0 only tests whether the group has a process.
    """
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def _terminate_all(shell: int, report: int, folder: str) -> None:
    """Send SIGTERM to all processes of the command, wait briefly, and kill the remaining ones.

    ``folder`` is the folder that contains the package psutil.
    """
    sys.path.append(folder)
    psutil: Any = None  # without psutil, only processes in the shell's group are found
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
    """Set an option of this process with ``prctl`` on Linux; do nothing on other systems."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    supervise(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])

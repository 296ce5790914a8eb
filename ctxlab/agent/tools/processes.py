"""Run shell commands, and end all their processes at a timeout, an interruption or program exit.

Each command has its own supervisor process (``ctxlab.agent.tools.process_supervisor``). The
supervisor ends the command and all its descendants at the timeout, on request, and when this
program ends, even by ``kill -9``.
"""

from __future__ import annotations

import codecs
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from ctxlab.agent.tools.environment import names_to_keep, without_secrets
from ctxlab.errors import CtxlabError

SUPERVISOR_SCRIPT = Path(__file__).with_name("process_supervisor.py")
_MARKER_VARIABLE = "CTXLAB_COMMAND"
_SILENCE_SECONDS, _DRAIN_SECONDS = 0.1, 0.5
"reading of output after the end of the shell: seconds of silence that end it; maximum seconds"
_SUPERVISOR_TIMEOUT = 8.0
"maximum seconds to wait until a supervisor has ended all processes; then it is killed"


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a shell command."""

    exit_code: int | None
    "exit code of the shell; ``-n`` if signal n ended it; None if the supervisor was killed"
    output: str
    "stdout and stderr in order of arrival; the middle of a long output is left out"
    timed_out: bool
    "True if the command was ended because it exceeded its timeout"
    process_id: str
    "id that the ``ProcessManager`` gave to the command, such as ``p1``"
    still_running: bool = False
    "True if the shell has ended but background processes of the command are still running"


@dataclass(frozen=True)
class RunningCommand:
    """Shell command with at least one running process."""

    process_id: str
    "id that the ``ProcessManager`` gave to the command, such as ``p1``"
    command: str
    "text of the shell command"
    pid: int | None
    "process id and process group id of the shell; None until the shell has started"
    started: float
    "start time in seconds since 1970"


class ProcessManager:
    r"""Runs shell commands for an agent and ends all their processes.

    Several threads can run commands at the same time. A command runs in ``/bin/sh`` with its own
    process session (``setsid``), without a terminal or standard input. It inherits the environment
    of this program, except variables whose names suggest keys, tokens or passwords. The limits of
    this protection are described in ``ctxlab.agent.tools.environment``.

    ``run`` returns when the shell of the command ends. Background processes of the command keep
    running, and ``list_running`` lists them. They are ended by ``kill_all``, at the end of the
    ``with`` block, and when the program ends, even by ``kill -9``. Each process first receives
    SIGTERM, and SIGKILL if it is still running half a second later. On Linux, processes that
    created their own process session are also ended. On other systems, such a process is ended only
    if its parent is still running. Processes that were started through another program, such as a
    container engine, ``systemd-run`` or ``at``, are not ended.

    Parameters
    ----------
    keep_env : iterable of str, optional
        Names of variables that commands inherit even if the names suggest secrets, such as
        ``["GITHUB_TOKEN"]``.

    Examples
    --------
    >>> with ProcessManager() as processes:
    ...     result = processes.run("echo out; echo err >&2; exit 3", timeout=5.0)
    >>> result.exit_code, result.output, result.timed_out, result.still_running
    (3, 'out\nerr\n', False, False)
    """

    def __init__(self, *, keep_env: Iterable[str] = ()) -> None:
        self.keep_env = names_to_keep(keep_env)
        self._numbers = count(1)
        self._children: dict[str, _ChildProcess] = {}
        self._lock = threading.Lock()
        self._owner_pid = os.getpid()
        weakref.finalize(self, _terminate_all, self._children, self._lock, self._owner_pid)

    def __enter__(self) -> ProcessManager:
        """Return the manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes of all commands."""
        self.kill_all()

    def __repr__(self) -> str:
        """Show the number of running commands."""
        return f"<ProcessManager: {len(self.list_running())} running>"

    def run(
        self,
        command: str,
        *,
        cwd: str | Path | None = None,
        timeout: float = 60.0,
        limit_chars: int = 30_000,
    ) -> CommandResult:
        """Run a shell command and wait until it ends or exceeds the timeout.

        On ``KeyboardInterrupt``, all processes of the command are ended, and the exception is
        raised again.

        Parameters
        ----------
        command : str
            Command for ``/bin/sh``.
        cwd : str or pathlib.Path, optional
            Working directory; None uses the working directory of this program.
        timeout : float, optional
            Maximum number of seconds that the shell may run. After that, all processes of the
            command are ended.
        limit_chars : int, optional
            Maximum number of characters of the output. The middle of a longer output is replaced by
            a note.

        Returns
        -------
        CommandResult
            Exit code and output of the command.

        Raises
        ------
        CtxlabError
            If the system is neither Linux nor macOS.
        OSError
            If the command cannot be started, for instance because ``cwd`` does not exist or the
            command is longer than 128 KiB.
        ValueError
            If the command contains a null byte.
        """
        if os.name != "posix":
            raise CtxlabError(f"Expected Linux or macOS to run commands, got {sys.platform!r}")
        if "\0" in command:
            raise ValueError(f"Expected a command without null bytes, got {command!r}")
        environ = without_secrets(os.environ, self.keep_env)
        child = _ChildProcess(f"p{next(self._numbers)}", command, cwd, limit_chars, environ)
        with self._lock:
            for name in [name for name, each in self._children.items() if each.all_gone.is_set()]:
                del self._children[name]
            self._children[child.process_id] = child
        try:
            child.thread.start()
            over = child.shell_ended.wait(max(0.0, min(timeout, threading.TIMEOUT_MAX)))
            if not over:
                child.terminate()
        except BaseException:
            child.terminate()
            raise
        if child.error is not None:
            raise child.error
        left = not (child.left_nothing or child.all_gone.wait(_SILENCE_SECONDS / 10))
        return CommandResult(child.exit_code, child.output.text(), not over, child.process_id, left)

    def list_running(self) -> list[RunningCommand]:
        """Return the commands that still have running processes.

        Returns
        -------
        list of RunningCommand
            Commands in the order in which they were started.
        """
        with self._lock:
            children = list(self._children.values())
        running = (each for each in children if not (each.left_nothing or each.all_gone.is_set()))
        return [RunningCommand(c.process_id, c.command, c.pid, c.started) for c in running]

    def kill_all(self) -> None:
        """End all commands and their processes, and wait until they have ended.

        A call of ``run`` that is waiting in another thread returns a result with the exit code of
        a killed process.
        """
        _terminate_all(self._children, self._lock, self._owner_pid)


def _terminate_all(children: dict[str, _ChildProcess], lock: threading.Lock, owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of this program must not end the commands
        return
    with lock:
        mine = list(children.values())
    for child in mine:
        child.request_stop()
    for child in mine:
        child.terminate()


@dataclass(eq=False)
class _ChildProcess:
    """A command, its supervisor process, and the thread that reads the output of both.

    The thread also starts the supervisor. Python runs signal handlers only in the main thread, so no
    signal can interrupt the thread before the handle of the new process is stored.
    """

    process_id: str
    command: str
    cwd: str | Path | None
    limit_chars: int
    environ: dict[str, str]
    "environment of the command, and of the supervisor, which the command can inspect; has no secrets"
    started: float = field(default_factory=time.time)
    pid: int | None = None
    exit_code: int | None = None
    error: Exception | None = None
    "reason why the command could not be started"
    shell_ended: threading.Event = field(default_factory=threading.Event)
    "set when the shell has ended and its output is complete"
    all_gone: threading.Event = field(default_factory=threading.Event)
    "set when the supervisor and all processes of the command have ended"
    left_nothing: bool = False
    "True if no other process of the command was running when its shell ended"

    def __post_init__(self) -> None:
        self.output = _TruncatedOutput(self.limit_chars)
        self._stop_requested, self._supervisor_stdin = False, -1
        self._lock = threading.Lock()
        self._supervisor: subprocess.Popen[bytes] | None = None
        run = self._run_in_thread
        self.thread = threading.Thread(target=run, name="ctxlab-process", daemon=True)

    def request_stop(self) -> None:
        """Tell the supervisor to end all processes of the command; do not wait for it."""
        with self._lock:
            self._stop_requested = True
            if self._supervisor_stdin != -1:
                os.close(self._supervisor_stdin)
                self._supervisor_stdin = -1

    def terminate(self) -> None:
        """End all processes of the command and wait until they have ended."""
        self.request_stop()
        if self.thread.ident is None:  # the thread was not started because of an interruption
            self.all_gone.set()
        elif not self.all_gone.wait(_SUPERVISOR_TIMEOUT):
            with self._lock:
                if self._supervisor is not None and not self.all_gone.is_set():
                    self._supervisor.kill()  # the shell then ends, too
            self.all_gone.wait(_SUPERVISOR_TIMEOUT)

    def _run_in_thread(self) -> None:
        try:
            self._run_supervisor()
        except Exception as error:  # raised again by ``ProcessManager.run``
            self.error = error
        finally:
            self.output.close()
            self.request_stop()
            self.shell_ended.set()
            self.all_gone.set()

    def _run_supervisor(self) -> None:
        with self._lock:
            if self._stop_requested:
                return
            held, self._supervisor_stdin = os.pipe()
        report, reporting = os.pipe()
        output, written = os.pipe()
        try:
            spec = find_spec("psutil")
            folder = str(Path(spec.origin).parents[1]) if spec and spec.origin else ""
            arguments = [str(os.getpid()), str(reporting), folder, self.command]
            marker = os.urandom(8).hex()
            supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SUPERVISOR_SCRIPT), *arguments],
                stdin=held, stdout=written, stderr=written, pass_fds=(reporting,),
                cwd=self.cwd, env={**self.environ, _MARKER_VARIABLE: marker}, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            for each in (report, output):
                os.close(each)
            raise
        finally:
            for each in (reporting, written, held):
                os.close(each)
        with self._lock:
            self._supervisor = supervisor
        try:
            self._read_output(report, output)
        finally:
            for each in (report, output):
                os.close(each)
            supervisor.wait()
            if supervisor.returncode < 0:  # the supervisor was killed, so it could not clean up
                _kill_by_marker(marker)

    def _read_output(self, report: int, output: int) -> None:
        """Read the supervisor's report and the command's output until the supervisor has ended."""
        reading = select.poll()
        reading.register(report, select.POLLIN)
        reading.register(output, select.POLLIN)
        lines, kept, flows, until = b"", True, True, 0.0
        while kept or flows:
            # Output that arrives long after the end of the shell comes from a background process.
            last = not kept or (self.exit_code is not None and not self.shell_ended.is_set())
            ready = [each for each, _ in reading.poll(_SILENCE_SECONDS * 1000 if last else None)]
            if output in ready:
                if piece := os.read(output, 1 << 16):
                    self.output.add(piece)
                else:
                    reading.unregister(output)
                    flows = False
            if report in ready:
                if not (piece := os.read(report, 4096)):
                    reading.unregister(report)
                    kept = False
                lines = self._parse_report(lines + piece)
                until = time.monotonic() + _DRAIN_SECONDS
            if last and (not ready or not flows or time.monotonic() > until):
                self.shell_ended.set()
                if not kept:
                    return

    def _parse_report(self, lines: bytes) -> bytes:
        """Parse the complete lines of a supervisor's report and return the incomplete last line."""
        *whole, rest = lines.split(b"\n")
        for line in whole:
            # A command can write to this pipe through /proc, but that affects only its own result.
            what, _, number = line.partition(b" ")
            with suppress(ValueError):
                if what == b"pid" and self.pid is None:
                    self.pid = int(number)
                elif what == b"alone":
                    self.left_nothing = True
                elif what == b"exit":
                    self.exit_code = int(number)
        return rest[:99]


def _kill_by_marker(marker: str) -> None:
    """Kill all processes that have ``marker`` in the environment variable ``CTXLAB_COMMAND``."""
    psutil: Any = import_module("psutil")
    latest, found = time.monotonic() + _SUPERVISOR_TIMEOUT / 4, True
    while found and time.monotonic() < latest:
        found = False
        for each in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if each.environ().get(_MARKER_VARIABLE) == marker:
                    found = True
                    each.kill()


class _TruncatedOutput:
    """Collects output that arrives in pieces, and keeps only its beginning and its end."""

    def __init__(self, limit: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._limit = max(limit, 2)
        self._head = ""
        self._tail: list[str] = []
        self._tail_size = 0
        self._total_chars = 0
        self._lock = threading.Lock()

    def add(self, piece: bytes) -> None:
        self._append(self._decoder.decode(piece))

    def close(self) -> None:
        self._append(self._decoder.decode(b"", final=True))

    def text(self) -> str:
        with self._lock:
            tail = "".join(self._tail)[-(self._limit - self._limit // 2) :]
            left_out = self._total_chars - len(self._head) - len(tail)
            if left_out <= 0:
                return self._head + tail
            return f"{self._head}\n[… {left_out:,} characters left out …]\n{tail}"

    def _append(self, text: str) -> None:
        with self._lock:
            self._total_chars += len(text)
            room = self._limit // 2 - len(self._head)
            self._head += text[:room]
            if rest := text[room:]:
                self._tail.append(rest)
                self._tail_size += len(rest)
                if self._tail_size > 4 * self._limit:
                    self._tail = ["".join(self._tail)[-self._limit :]]
                    self._tail_size = len(self._tail[0])

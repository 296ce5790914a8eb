"""Run programs in a terminal (tmux), and find the processes that they leave.

Each terminal has its own tmux server, which is stopped at the end of the test.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

PROMPT = "here$ "


class Terminal:
    """A terminal: methods press keys, read the screen, and wait for text on the screen."""

    def __init__(self, socket: str) -> None:
        self._tmux = ("tmux", "-L", socket, "-f", os.devnull)
        # tmux needs a UTF-8 locale, and must not see the variable of a tmux that runs the tests.
        locale = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
        self._env = {k: v for k, v in os.environ.items() if k != "TMUX"} | {"LC_ALL": locale}

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments],
            capture_output=True,
            encoding="utf-8",
            timeout=20,
            env=self._env,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, text: str, enter: bool = True) -> None:
        self.tmux("send-keys", "-l", "--", text)
        if enter:
            self.press("Enter")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def run(self, command: Sequence[str]) -> None:
        self.type(shlex.join(command))

    def clear(self) -> None:
        """Clear the screen, of which only the line of the prompt stays, and the scroll-back history."""
        self.press("C-l")
        end = time.monotonic() + 20
        while "\n" in self.tmux("capture-pane", "-p").strip() and time.monotonic() < end:
            time.sleep(0.05)
        self.tmux("clear-history")

    def resize(self, columns: int, lines: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def screen(self) -> str:
        """Text on the screen and in the scroll-back history, without empty lines at the end."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-").rstrip("\n ")

    def wait(self, text: str, seconds: float = 60.0) -> str:
        """Wait until the screen contains a text, and return the screen."""
        return self.wait_for(lambda shown: text in shown, text, seconds)

    def wait_end(self, text: str, seconds: float = 60.0) -> str:
        """Wait until the last line of the screen is a text, such as a prompt, and return the screen."""
        wanted = text.rstrip()
        return self.wait_for(
            lambda shown: shown.rpartition("\n")[2].rstrip() == wanted,
            f"{text} at the end",
            seconds,
        )

    def wait_for(self, holds: Callable[[str], bool], what: str, seconds: float = 60.0) -> str:
        """Wait until a condition holds for the screen, and return the screen."""
        end = time.monotonic() + seconds
        shown = ""
        while time.monotonic() < end:
            shown = self.screen
            if holds(shown):
                return shown
            time.sleep(0.05)
        raise AssertionError(f"Expected {what!r} on the screen within {seconds:g} s, got:\n{shown}")


@contextmanager
def terminal(folder: Path, columns: int = 100, **variables: str) -> Iterator[Terminal]:
    """Open a terminal with a shell in a folder; skip the test if tmux or bash is missing."""
    if shutil.which("tmux") is None or shutil.which("bash") is None:
        pytest.skip("this test needs tmux and bash, and one of them is not installed")
    made = Terminal(f"ctxlab-test-{uuid4().hex[:8]}")
    settings = {**variables, "PS1": PROMPT, "HISTFILE": "", "COLUMNS": None, "LINES": None}
    shell = ["env"]
    for name, value in settings.items():
        shell += ["-u", name] if value is None else []
    shell += [f"{name}={value}" for name, value in settings.items() if value is not None]
    shell += ["bash", "--norc", "--noprofile"]
    made.tmux(
        *("new-session", "-d", "-x", str(columns), "-y", "50", "-c", str(folder)), shlex.join(shell)
    )
    try:
        made.tmux("set-option", "-g", "history-limit", "5000")
        made.wait_end(PROMPT)
        yield made
    finally:
        with subprocess.Popen([*made._tmux, "kill-server"], stderr=subprocess.DEVNULL):
            pass


def running(command: str) -> list[psutil.Process]:
    """Return the processes whose command line is exactly ``command``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline() == command.split():
                found.append(process)
        except psutil.Error:
            continue
    return found


def gone(command: str, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while running(command):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def appears(command: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not running(command):
        assert time.monotonic() < end, f"{command} did not start within {seconds:g} s"
        time.sleep(0.05)

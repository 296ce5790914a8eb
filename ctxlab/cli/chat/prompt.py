"""Read the user's lines in a chat from a terminal, with editing and a history."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from ctxlab._utils.private_files import create_file

_MAX_HISTORY_LINES = 1_000


class LineCleared(Exception):
    """Raised if the user presses Ctrl+C to discard a line that is not empty."""


class LineReader:
    """Read the lines that the user enters in a chat.

    Lines can be edited, and the arrow keys recall earlier lines. A line that ends with a backslash
    continues on the next line.

    Parameters
    ----------
    history_path : Path, optional
        File that stores earlier lines. It is created if its folder exists, and only its owner can
        read it. None stores no lines.
    """

    def __init__(self, history_path: Path | None = None) -> None:
        self.interactive = sys.stdin.isatty()
        self._history_path = history_path
        self._readline = _load_readline() if self.interactive else None
        if self._readline is not None and history_path is not None:
            with suppress(OSError, ValueError):
                self._readline.read_history_file(str(history_path))
        self._saved_length = self._history_length()

    def read_line(self, prompt: str = "> ") -> str:
        """Read the next line.

        Parameters
        ----------
        prompt : str
            Prompt to show.

        Returns
        -------
        str
            The line without its line end. Lines that were continued with a backslash are joined by
            line ends.

        Raises
        ------
        EOFError
            If there are no more lines, or if the user pressed Ctrl+D.
        LineCleared
            If the user pressed Ctrl+C and the line was not empty.
        KeyboardInterrupt
            If the user pressed Ctrl+C and the line was empty.
        """
        lines: list[str] = []
        try:
            while True:
                line = self._read_raw_line("… " if lines else prompt)
                lines.append(line.removesuffix("\\"))
                if not line.endswith("\\"):
                    break
        except KeyboardInterrupt:
            print(file=sys.stderr)  # end the line on which the terminal printed ^C
            if lines or (self._readline and self._readline.get_line_buffer()):
                raise LineCleared from None
            raise
        self.save_history()
        return "\n".join(lines)

    def save_history(self) -> None:
        """Append new lines to the history file if its folder exists. Errors are ignored."""
        new = self._history_length() - self._saved_length
        if self._readline is None or self._history_path is None or new <= 0:
            return
        with suppress(OSError, AttributeError):  # some editing libraries cannot append to a file
            if self._history_path.parent.is_dir():
                create_file(self._history_path)
                self._readline.append_history_file(new, str(self._history_path))
                self._saved_length += new

    def ask(self, question: str) -> str:
        """Ask the user a question without adding the answer to the history.

        Parameters
        ----------
        question : str
            Text to show in place of the prompt.

        Returns
        -------
        str
            Line that the user entered.

        Raises
        ------
        EOFError
            If the user pressed Ctrl+D.
        KeyboardInterrupt
            If the user pressed Ctrl+C.
        """
        before = self._history_length()
        try:
            return self._read_raw_line(question)
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            raise
        finally:
            self._remove_history_from(before)

    def _read_raw_line(self, prompt: str) -> str:
        if sys.stdout.isatty():
            return input(prompt)
        sys.stderr.write(prompt)  # standard output is redirected and must not contain the prompt
        sys.stderr.flush()
        return input()

    def _history_length(self) -> int:
        return self._readline.get_current_history_length() if self._readline else 0

    def _remove_history_from(self, start: int) -> None:
        for place in range(self._history_length() - 1, start - 1, -1):
            assert self._readline is not None
            self._readline.remove_history_item(place)


def _load_readline() -> ModuleType | None:
    """Configure and return the module ``readline``; None if Python was built without it."""
    try:
        import readline
    except ImportError:
        return None
    with suppress(Exception):
        readline.parse_and_bind("set enable-bracketed-paste on")
    readline.set_history_length(_MAX_HISTORY_LINES)
    return readline

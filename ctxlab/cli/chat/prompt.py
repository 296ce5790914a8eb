"""Lines are read from whoever types, with a history that goes on from day to day, or from a pipe."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from ctxlab._utils.private_files import create_file

__all__ = ["LineCleared", "LineReader"]

_MAX_HISTORY_LINES = 1_000


class LineCleared(Exception):
    """Ctrl+C threw away a line that had something in it."""


class LineReader:
    """Asks for lines; each ``read_line`` gives one, until ``EOFError``.

    On a terminal a line can be edited, the arrows go through those of earlier, and one that ends with a
    backslash goes on in the next. ``history_path`` is the file of earlier lines, which only its
    owner can read; it is made once there is a folder for it. Ctrl+C raises ``LineCleared`` where
    something stood in the line, and ``KeyboardInterrupt`` where nothing did. From a pipe lines are
    read as they are, and nothing is shown.
    """

    def __init__(self, history_path: Path | None = None) -> None:
        self.interactive = sys.stdin.isatty()
        self._history_path = history_path
        self._readline = _load_readline() if self.interactive else None
        if not self.interactive and hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        if self._readline is not None and history_path is not None:
            with suppress(OSError, ValueError):
                self._readline.read_history_file(str(history_path))
        self._saved_length = self._history_length()

    def read_line(self, prompt: str = "> ") -> str:
        """The next line, without its end."""
        if not self.interactive:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        lines: list[str] = []
        try:
            while True:
                line = self._read_raw_line("… " if lines else prompt)
                lines.append(line.removesuffix("\\"))
                if not line.endswith("\\"):
                    break
        except KeyboardInterrupt:
            # On a terminal, ^C stands where the line broke off.
            print(file=sys.stderr)
            if lines or (self._readline and self._readline.get_line_buffer()):
                raise LineCleared from None
            raise
        self.save_history()
        return "\n".join(lines)

    def save_history(self) -> None:
        """Adds the lines of late to the file, once its folder is there.

        That it cannot be written is no reason to stop a chat.
        """
        new = self._history_length() - self._saved_length
        if self._readline is None or self._history_path is None or new <= 0:
            return
        with suppress(OSError, AttributeError):  # not every editing library can append
            if self._history_path.parent.is_dir():
                create_file(self._history_path)
                self._readline.append_history_file(new, str(self._history_path))
                self._saved_length += new

    def ask(self, question: str) -> str:
        """An answer that is no line of the conversation: it is not kept.

        Raises ``EOFError`` and ``KeyboardInterrupt`` for Ctrl+D and Ctrl+C, with the line ended.
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
        sys.stderr.write(prompt)  # else it would stand in the file that the answers go into
        sys.stderr.flush()
        return input()

    def _history_length(self) -> int:
        return self._readline.get_current_history_length() if self._readline else 0

    def _remove_history_from(self, start: int) -> None:
        for place in range(self._history_length() - 1, start - 1, -1):
            assert self._readline is not None
            self._readline.remove_history_item(place)


def _load_readline() -> ModuleType | None:
    """Python's line editing, where it was built with it."""
    try:
        import readline
    except ImportError:
        return None
    with suppress(Exception):
        readline.parse_and_bind("set enable-bracketed-paste on")
    readline.set_history_length(_MAX_HISTORY_LINES)
    return readline

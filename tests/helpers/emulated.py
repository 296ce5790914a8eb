"""A small terminal: it understands the sequences that the chat writes, and keeps all lines."""

from __future__ import annotations

import re

from rich.cells import cell_len

_TOKEN = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(.)", re.DOTALL)


class Emulated:
    """Lines of a terminal of a certain width and height, with those that scrolled away."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._lines: list[list[str]] = [[]]
        self._joined = {0: False}  # True for lines that continue the line before
        self._x = self._y = 0
        self._wraps = True

    @property
    def text(self) -> str:
        """All lines; a line that was wrapped by the terminal is one line."""
        made: list[str] = []
        for number, line in enumerate(self._lines):
            if made and self._joined.get(number):
                made[-1] += "".join(line)
            else:
                made.append("".join(line))
        return "\n".join(line.rstrip() for line in made).rstrip("\n")

    def feed(self, text: str) -> None:
        for private, numbers, command, character in _TOKEN.findall(text):
            if character:
                self._put(character)
            elif command == "A":
                top = max(0, len(self._lines) - self.rows)
                self._y = max(top, self._y - int(numbers or 1))
            elif command == "J" and not numbers:
                del self._lines[self._y + 1 :]
                del self._lines[self._y][self._x :]
            elif command == "K" and numbers == "2":
                self._lines[self._y] = []
                self._joined[self._y] = False
            elif command in "hl" and private:
                self._wraps = command == "h" if numbers == "7" else self._wraps
            elif command != "m":
                raise AssertionError(f"Expected a known sequence, got {text!r}")

    def _put(self, character: str) -> None:
        if character == "\r":
            self._x = 0
        elif character == "\n":
            self._next_line(joined=False)
        elif character == "\t":
            self._x = min(self.columns - 1, self._x // 8 * 8 + 8)
        elif (width := cell_len(character)) > 0:
            if self._x + width > self.columns:
                if self._wraps:
                    self._next_line(joined=True)
                else:
                    self._x = self.columns - width
            line = self._lines[self._y]
            line += [" "] * (self._x - len(line))
            line[self._x : self._x + width] = [character, *[""] * (width - 1)]
            self._x += width
        elif character < " " or character == "\x7f":
            raise AssertionError(f"Expected no control character, got {character!r}")

    def _next_line(self, joined: bool) -> None:
        self._x, self._y = 0, self._y + 1
        if self._y == len(self._lines):
            self._lines.append([])
        self._joined[self._y] = joined

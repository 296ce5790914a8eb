"""Text files are read and searched line by line, within bounds, and a binary file is told apart."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, TypeAlias

from ctxlab.agent.tools.safe_paths import open_file_at

__all__ = ["LineFinder", "UnreadableText", "make_line_finder", "read_lines"]

_MAX_CHARS = 100_000
"of a file that one look gives"
_MAX_LINE_CHARS = 300
"characters of a line that was found"
_MAX_SEARCHED_BYTES = 10_000_000
"bytes of a file that is searched"
_SEEK_TIMEOUT = 10.0
"seconds for going through a file to the line that is wanted"
_MAX_PATTERN_CHARS = 1000
"characters of a regular expression: within much longer ones no time limit is kept"

LineFinder: TypeAlias = Callable[[int, str], Generator[tuple[int, str], None, None]]
"""Given an open folder and a name: the lines of the file that hold what is sought, with numbers."""


class UnreadableText(Exception):
    """A file that is not searched or read, and why."""


def read_lines(
    file_fd: int, start: int, stop: int, requested_end: int | None = None
) -> tuple[list[str], str | None]:
    """Lines ``start`` to ``stop``, counted from 1, as many as fit, and what is to be said of the rest.

    ``requested_end``: the line that was asked for as the last one; None: the end of the file.
    Raises ``UnreadableText`` for a binary file, and ``TimeoutError`` where the lines lie too far in it.
    """
    until = time.monotonic() + _SEEK_TIMEOUT
    with io.BufferedReader(io.FileIO(file_fd, closefd=False)) as reader:
        _check_is_text(reader.peek(8192))
        text = io.TextIOWrapper(reader, "utf-8", "replace", newline="\n")
        lines: list[str] = []
        number, room = 0, _MAX_CHARS
        while room > 0 and number < stop and (line := text.readline(_MAX_CHARS + 1)):
            whole = line.endswith("\n") or len(line) <= _MAX_CHARS
            number += 1
            if number >= start:
                lines.append(line[:room])
                if len(line) > room:
                    return (
                        lines,
                        f"line {number} is cut here: a result holds {_MAX_CHARS:,} characters",
                    )
                room -= len(line)
                continue
            while not whole and (rest := text.readline(_MAX_CHARS + 1)):
                whole = rest.endswith("\n")
                _check_deadline(until, start)
            _check_deadline(until, start)
        if number < start:
            size = "is empty" if number == 0 else f"ends with line {number}"
            return [], f"the file {size}"
        if requested_end is not None and number >= requested_end:
            return lines, None
        if text.readline(1):
            return lines, f"lines {start}-{number}; the file goes on: ask with start={number + 1}"
    return lines, None


def make_line_finder(text: str, is_regex: bool, ignore_case: bool, deadline: float) -> LineFinder:
    """What finds a text, or a regular expression, in the lines of a file.

    A search ends with ``TimeoutError`` once it is ``deadline`` (``time.monotonic``): an expression can
    take for ever on a single line. Raises ``ValueError`` for one that is wrong.
    """
    if is_regex:
        if len(text) > _MAX_PATTERN_CHARS:
            raise ValueError(f"a regular expression has at most {_MAX_PATTERN_CHARS:,} characters")
        regex: Any = import_module("regex")  # it knows a time limit, which Python's own does not
        try:
            pattern = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error

        def holds(line: str) -> bool:
            try:
                return (
                    pattern.search(line, timeout=max(deadline - time.monotonic(), 0.001))
                    is not None
                )
            except TimeoutError:
                raise TimeoutError(f"the search for {text!r} took too long: ask for less") from None

    elif ignore_case:
        sought = text.casefold()

        def holds(line: str) -> bool:
            return sought in line.casefold()

    else:

        def holds(line: str) -> bool:
            return text in line

    def find(folder: int, name: str) -> Generator[tuple[int, str], None, None]:
        number = open_file_at(folder, name, name)
        with open(number, "rb") as file:
            if os.fstat(number).st_size > _MAX_SEARCHED_BYTES:
                raise UnreadableText(f"larger than {_MAX_SEARCHED_BYTES // 1_000_000} MB")
            blob = file.read(_MAX_SEARCHED_BYTES)
        _check_is_text(blob[:8192])
        for count, line in enumerate(blob.decode("utf-8", "replace").split("\n"), 1):
            if holds(line := line.removesuffix("\r")):
                yield (
                    count,
                    line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}… (cut)",
                )

    return find


def _check_deadline(until: float, start: int) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"line {start:,} lies too far in the file to get there in time")


def _check_is_text(beginning: bytes) -> None:
    if b"\0" in beginning:
        raise UnreadableText("binary")

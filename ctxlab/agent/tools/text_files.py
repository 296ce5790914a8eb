"""Read and search text files line by line, with limits on size and time; reject binary files."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, TypeAlias

from ctxlab.agent.tools.safe_paths import open_file_at

_MAX_COUNTED_BYTES = 20_000_000
"maximum size of a file whose lines are counted"
_MAX_LINE_CHARS = 300
"maximum number of characters of a matching line that are returned"
_MAX_SEARCHED_BYTES = 10_000_000
"maximum size of a searched file, in bytes"
_SEEK_TIMEOUT = 10.0
"maximum seconds to reach the first requested line"
_MAX_PATTERN_CHARS = 1000
"maximum characters of a regular expression; the time limit does not work for much longer ones"

LineFinder: TypeAlias = Callable[[int, str], Generator[tuple[int, str], None, None]]
"""Function that yields the number and the text of each matching line of a file.

Its arguments are the file descriptor of a folder and the name of a file in the folder."""


class UnreadableText(Exception):
    """Error for a file that cannot be read or searched as text; the message is the reason."""


def read_lines(
    fd: int, start: int, end: int | None, max_chars: int, prefix_chars: int = 0
) -> tuple[list[str], str | None]:
    """Return a page of lines of a text file, and a note if lines are missing.

    Parameters
    ----------
    fd : int
        File descriptor of the file.
    start : int
        Number of the first line to return, from 1.
    end : int or None
        Number of the last line that the agent requested; None if it requested all lines up to the end of
        the file.
    max_chars : int
        Maximum number of characters of all lines together.
    prefix_chars : int, default 0
        Number of characters that are written before each line, which ``max_chars`` includes.

    Returns
    -------
    tuple of list of str and (str or None)
        Lines of the file, and a note on the lines that are missing. The note is None if all
        requested lines are returned.

    Raises
    ------
    UnreadableText
        If the file is binary.
    TimeoutError
        If the first line is not reached within the time limit.
    """
    until = time.monotonic() + _SEEK_TIMEOUT
    with io.BufferedReader(io.FileIO(fd, closefd=False)) as reader:
        _check_is_text(reader.peek(8192))
        text = io.TextIOWrapper(reader, "utf-8", "replace", newline="\n")
        lines: list[str] = []
        number, room, more = 0, max_chars, True
        while end is None or number < end:
            if not (line := text.readline(max_chars + 1)):
                more = False
                break
            if number + 1 < start:
                number += 1
                while len(line) > max_chars and not line.endswith("\n"):
                    line = text.readline(max_chars + 1)
                    _check_deadline(until, start)
                _check_deadline(until, start)
                continue
            if len(line) + prefix_chars > room:
                if lines:
                    break
                shown = max(0, room - prefix_chars)
                total = _total_lines(fd)
                return [
                    line[:shown]
                ], f"line {number + 1}{total} is cut here: it is longer than a page"
            number += 1
            lines.append(line)
            room -= len(line) + prefix_chars
        else:
            more = bool(text.readline(1))
    if number < start:
        size = "is empty" if number == 0 else f"ends with line {number}"
        return [], f"the file {size}"
    if not more and start == 1:
        return lines, None
    shown_lines = f"lines {start}-{number}{_total_lines(fd)}"
    complete = not more or (end is not None and number >= end)
    return lines, shown_lines if complete else f"{shown_lines}; continue with start={number + 1}"


def _total_lines(fd: int) -> str:
    """Return the number of lines of a file as `` of N``; an empty string if the file is too large."""
    if os.fstat(fd).st_size > _MAX_COUNTED_BYTES:
        return ""
    blob = os.pread(fd, _MAX_COUNTED_BYTES, 0)
    total = blob.count(b"\n") + (not blob.endswith(b"\n"))
    return f" of {total:,}"


def make_line_finder(text: str, is_regex: bool, ignore_case: bool, deadline: float) -> LineFinder:
    """Build a function that finds the lines of a file that match a string or regular expression.

    Parameters
    ----------
    text : str
        String or regular expression to search for.
    is_regex : bool
        True if ``text`` is a regular expression.
    ignore_case : bool
        True to treat upper and lower case as equal.
    deadline : float
        Time at which a search for a regular expression raises ``TimeoutError``, as a value of
        ``time.monotonic``. Without a limit, some expressions would run forever on a single line.

    Returns
    -------
    LineFinder
        Function that yields the matching lines of a file.

    Raises
    ------
    ValueError
        If the regular expression is invalid or too long.
    """
    if is_regex:
        if len(text) > _MAX_PATTERN_CHARS:
            most = f"at most {_MAX_PATTERN_CHARS:,} characters"
            raise ValueError(f"Expected a regular expression of {most}, got {len(text):,}")
        regex: Any = import_module("regex")  # supports a time limit, unlike Python's re
        try:
            pattern = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ValueError(f"invalid regular expression {text!r}: {error}") from error

        def holds(line: str) -> bool:
            seconds = max(deadline - time.monotonic(), 0.001)
            try:
                return pattern.search(line, timeout=seconds) is not None
            except TimeoutError:
                raise TimeoutError(
                    f"the search for {text!r} took too long; search fewer files or use a simpler "
                    "expression"
                ) from None

    else:
        fold = str.casefold if ignore_case else str
        sought = fold(text)

        def holds(line: str) -> bool:
            return sought in fold(line)

    def find(folder: int, name: str) -> Generator[tuple[int, str], None, None]:
        number = open_file_at(folder, name, name)
        with open(number, "rb") as file:
            if os.fstat(number).st_size > _MAX_SEARCHED_BYTES:
                raise UnreadableText(f"larger than {_MAX_SEARCHED_BYTES // 1_000_000} MB")
            blob = file.read(_MAX_SEARCHED_BYTES)
        _check_is_text(blob[:8192])
        for count, line in enumerate(blob.decode("utf-8", "replace").split("\n"), 1):
            if holds(line := line.removesuffix("\r")):
                is_long = len(line) > _MAX_LINE_CHARS
                yield count, f"{line[:_MAX_LINE_CHARS]}… (cut)" if is_long else line

    return find


def _check_deadline(until: float, start: int) -> None:
    if time.monotonic() > until:
        raise TimeoutError(
            f"line {start:,} was not reached within {_SEEK_TIMEOUT:g} s; pass a smaller start"
        )


def _check_is_text(beginning: bytes) -> None:
    if b"\0" in beginning:
        raise UnreadableText("binary")

"""Read and search text files line by line, within size and time limits; detect binary files."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, TypeAlias

from ctxlab.agent.tools.safe_paths import open_file_at

_MAX_CHARS = 100_000
"maximum characters of a file in one result"
_MAX_LINE_CHARS = 300
"maximum characters of a matching line"
_MAX_SEARCHED_BYTES = 10_000_000
"maximum size of a searched file in bytes"
_SEEK_TIMEOUT = 10.0
"maximum seconds to reach the first requested line"
_MAX_PATTERN_CHARS = 1000
"maximum characters of a regular expression: the time limit fails for much longer ones"

LineFinder: TypeAlias = Callable[[int, str], Generator[tuple[int, str], None, None]]
"""Given a folder's file descriptor and a file name, yields matching lines with their numbers."""


class UnreadableText(Exception):
    """A file that cannot be read or searched as text, with the reason."""


def read_lines(fd: int, start: int, stop: int, end: int | None) -> tuple[list[str], str | None]:
    """Return lines of a text file, as many as fit into a result.

    Parameters
    ----------
    fd : int
        File descriptor of the file.
    start : int
        First line, from 1.
    stop : int
        Last line to return.
    end : int or None
        Last line that the caller asked for; None for the end of the file.

    Returns
    -------
    tuple of list of str and (str or None)
        The lines, and a note on what is missing, if anything.

    Raises
    ------
    UnreadableText
        If the file is binary.
    TimeoutError
        If the first line is too far into the file to be reached in time.
    """
    until = time.monotonic() + _SEEK_TIMEOUT
    with io.BufferedReader(io.FileIO(fd, closefd=False)) as reader:
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
                    note = f"line {number} is cut here: a result holds {_MAX_CHARS:,} characters"
                    return lines, note
                room -= len(line)
                continue
            while not whole and (rest := text.readline(_MAX_CHARS + 1)):
                whole = rest.endswith("\n")
                _check_deadline(until, start)
            _check_deadline(until, start)
        if number < start:
            size = "is empty" if number == 0 else f"ends with line {number}"
            return [], f"the file {size}"
        if end is not None and number >= end:
            return lines, None
        if text.readline(1):
            return lines, f"lines {start}-{number}; the file continues: use start={number + 1}"
    return lines, None


def make_line_finder(text: str, is_regex: bool, ignore_case: bool, deadline: float) -> LineFinder:
    """Build a function that finds a text or a regular expression in the lines of a file.

    Parameters
    ----------
    text : str
        Text or regular expression.
    is_regex : bool
        True if ``text`` is a regular expression.
    ignore_case : bool
        True to ignore case.
    deadline : float
        Value of ``time.monotonic`` at which a search raises ``TimeoutError``: an expression can run
        forever on a single line.

    Returns
    -------
    LineFinder
        The function.

    Raises
    ------
    ValueError
        If the regular expression is not valid.
    """
    if is_regex:
        if len(text) > _MAX_PATTERN_CHARS:
            most = f"at most {_MAX_PATTERN_CHARS:,} characters"
            raise ValueError(f"Expected a regular expression of {most}, got {len(text):,}")
        regex: Any = import_module("regex")  # supports a time limit, unlike Python's re
        try:
            pattern = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{text!r} is not a valid regular expression: {error}") from error

        def holds(line: str) -> bool:
            seconds = max(deadline - time.monotonic(), 0.001)
            try:
                return pattern.search(line, timeout=seconds) is not None
            except TimeoutError:
                raise TimeoutError(f"the search for {text!r} took too long; narrow it") from None

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
        raise TimeoutError(f"line {start:,} is too far into the file to be reached in time")


def _check_is_text(beginning: bytes) -> None:
    if b"\0" in beginning:
        raise UnreadableText("binary")

"""Text files are read and searched line by line, within bounds, and a binary file is told apart."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, TypeAlias

from ctxlab.agent.tools.safe_paths import opened_file

__all__ = ["Find", "NotText", "found_in", "lines_of"]

_CHARACTERS = 100_000
"of a file that one look gives"
_SHOWN = 300
"characters of a line that was found"
_LARGEST = 10_000_000
"bytes of a file that is searched"
_PASSING = 10.0
"seconds for going through a file to the line that is wanted"
_EXPRESSION = 1000
"characters of a regular expression: within much longer ones no time limit is kept"

Find: TypeAlias = Callable[[int, str], Generator[tuple[int, str], None, None]]
"""Given an open folder and a name: the lines of the file that hold what is sought, with numbers."""


class NotText(Exception):
    """A file that is not searched or read, and why."""


def lines_of(
    file: int, start: int, stop: int, last: int | None = None
) -> tuple[list[str], str | None]:
    """Lines ``start`` to ``stop``, counted from 1, as many as fit, and what is to be said of the rest.

    ``last``: the line that was asked for as the last one; None: the end of the file. Raises
    ``NotText`` for a binary file, and ``TimeoutError`` where the lines lie too far in it.
    """
    until = time.monotonic() + _PASSING
    with io.BufferedReader(io.FileIO(file, closefd=False)) as reader:
        _must_be_text(reader.peek(8192))
        text = io.TextIOWrapper(reader, "utf-8", "replace", newline="\n")
        lines: list[str] = []
        number, room = 0, _CHARACTERS
        while room > 0 and number < stop and (line := text.readline(_CHARACTERS + 1)):
            whole = line.endswith("\n") or len(line) <= _CHARACTERS
            number += 1
            if number >= start:
                lines.append(line[:room])
                if len(line) > room:
                    return (
                        lines,
                        f"line {number} is cut here: a result holds {_CHARACTERS:,} characters",
                    )
                room -= len(line)
                continue
            while not whole and (rest := text.readline(_CHARACTERS + 1)):
                whole = rest.endswith("\n")
                _must_be_early(until, start)
            _must_be_early(until, start)
        if number < start:
            size = "is empty" if number == 0 else f"ends with line {number}"
            return [], f"the file {size}"
        if last is not None and number >= last:
            return lines, None
        if text.readline(1):
            return lines, f"lines {start}-{number}; the file goes on: ask with start={number + 1}"
    return lines, None


def found_in(text: str, is_regex: bool, ignore_case: bool, until: float) -> Find:
    """What finds a text, or a regular expression, in the lines of a file.

    A search ends with ``TimeoutError`` once it is ``until`` (``time.monotonic``): an expression can
    take for ever on a single line. Raises ``ValueError`` for one that is wrong.
    """
    if is_regex:
        if len(text) > _EXPRESSION:
            raise ValueError(f"a regular expression has at most {_EXPRESSION:,} characters")
        regex: Any = import_module("regex")  # it knows a time limit, which Python's own does not
        try:
            pattern = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error

        def holds(line: str) -> bool:
            try:
                return (
                    pattern.search(line, timeout=max(until - time.monotonic(), 0.001)) is not None
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
        number = opened_file(folder, name, name)
        with open(number, "rb") as file:
            if os.fstat(number).st_size > _LARGEST:
                raise NotText(f"larger than {_LARGEST // 1_000_000} MB")
            blob = file.read(_LARGEST)
        _must_be_text(blob[:8192])
        for count, line in enumerate(blob.decode("utf-8", "replace").split("\n"), 1):
            if holds(line := line.removesuffix("\r")):
                yield count, line if len(line) <= _SHOWN else f"{line[:_SHOWN]}… (cut)"

    return find


def _must_be_early(until: float, start: int) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"line {start:,} lies too far in the file to get there in time")


def _must_be_text(beginning: bytes) -> None:
    if b"\0" in beginning:
        raise NotText("binary")

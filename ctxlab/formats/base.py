"""A format is a name, a way to recognise a file by its content, and a reader that streams.

What readers share is ``Source``: it gives rows with their line numbers, or the one JSON value of
the file, and it holds the policy for what is broken. ``on_error="raise"`` stops at the first broken
line; ``"skip"`` reads on and counts. Either way nothing is left out in silence: what a reader skips
ends in ``Recording.skipped``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats.io.files import (
    BOM,
    Place,
    opened,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.io.json_array import elements
from ctxlab.messages.types import Recording

__all__ = ["Format", "LeaveOut", "Lost", "OnError", "Source", "recordings", "silent"]

OnError: TypeAlias = Literal["raise", "skip"]

LeaveOut: TypeAlias = Callable[[str], None]
"""Told of each thing that a reader leaves out, such as ``"row of type summary"``; once each."""

Lost: TypeAlias = Callable[[str], None]
"""Told of each thing that a format has no place for, such as ``"time of a message"``; once each."""

_AT_ONCE = 1 << 26
_SHOWN = 3


@dataclass(frozen=True)
class Format:
    """A recorded format: everything that ctxlab knows of it."""

    name: str
    meaning: str
    "one line for ``--help``"
    sniff: Callable[[Head], bool]
    "does a file that begins like this hold the format? Looks at content, never at the name"
    read: Callable[[Source], Iterator[Recording]]
    "the recordings of a file, one by one"
    dump: Callable[[Recording, Lost], str] | None = None
    "a recording as text whose last line is ended, where the format can be written"
    single: bool = False
    "a file holds one recording and no more"
    together: Callable[[Head], str] | None = None
    "files of one folder that look like it and have this key in common are read as one"


@dataclass
class Source:
    """A file that is being read, and what was left out of it so far."""

    path: Place
    name: str
    "what the ids of its recordings begin with: the path below what was asked for, less its suffix"
    on_error: OnError = "raise"
    others: tuple[Place, ...] = ()
    "files of the same folder that are read together with it (``Format.together``), in order"
    _skipped: dict[str, list[int | None]] = field(default_factory=dict, init=False)

    def rows(self) -> Iterator[tuple[int, Any]]:
        """The JSON values of a JSONL file with their line numbers, from 1; blank lines are none.

        Several values on one line are several rows of that line.
        """
        with opened(self.path) as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(BOM) if number == 1 else line
                if not text.strip():
                    continue
                try:
                    value = parse_json(text)
                except ValueError as error:
                    values = _several(text)
                    if not values:
                        self.broken("not JSON", number, detail=_where(error))
                    for value in values:
                        yield number, value
                    continue
                yield number, value

    def value(self) -> Any:
        """The one JSON value of the file; ``ReadError`` where it is none, under either policy."""
        with opened(self.path) as file:
            return self._parsed(file.read())

    def values(self) -> Iterator[tuple[Place, Any]]:
        """The one JSON value of this file and of each of ``others``; a broken one is told."""
        for number, path in enumerate((self.path, *self.others), start=1):
            try:
                yield path, Source(path, self.name).value()
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                self.skip(f"broken file: {error.reason}", number)

    def items(self) -> Iterator[tuple[int, Any]]:
        """The elements of the JSON list in the file with their numbers, from 0.

        A large file is read element by element. Where ``on_error`` is ``"skip"``, an element that is
        broken costs itself alone. ``ReadError`` where the file is no list.
        """
        with opened(self.path) as file:
            start = file.read(_AT_ONCE)
            if len(start) < _AT_ONCE:
                try:
                    value = self._parsed(start)
                except ReadError:
                    if self.on_error == "raise":
                        raise
                else:
                    if not isinstance(value, list):
                        raise ReadError(self.path, None, "the file is no list")
                    yield from enumerate(value)
                    return
        yield from self._one_by_one()

    def _one_by_one(self) -> Iterator[tuple[int, Any]]:
        count = 0
        with opened(self.path) as file:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            try:
                for count, text in enumerate(elements(file)):
                    try:
                        value = parse_json(text)
                    except ValueError as error:
                        self.broken("not JSON", count, "element", detail=_where(error))
                        continue
                    yield count, value
            except ValueError as error:
                self.broken(str(error), count + 1, "element")

    def _parsed(self, content: bytes) -> Any:
        try:
            return parse_json(content.removeprefix(BOM))
        except ValueError as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else None
            raise ReadError(self.path, line, f"not JSON: {_where(error)}") from None

    def broken(self, reason: str, number: int, unit: str = "line", *, detail: str = "") -> None:
        """Something cannot be read: raises ``ReadError``, or counts the reason and returns.

        ``unit`` names what ``number`` counts: a line, or an element of a list in the file.
        """
        reason = reason if len(reason) <= 200 else reason[:199] + "…"
        if self.on_error == "skip":
            return self.skip(f"broken {unit}: {reason}", number)
        said = f"{reason}: {detail}" if detail else reason
        if unit == "line":
            raise ReadError(self.path, number, said)
        raise ReadError(self.path, None, f"{unit} {number}: {said}")

    @contextmanager
    def guard(self, number: int, unit: str = "line") -> Iterator[None]:
        """What a wrong value raises inside is ``broken``; the body does not go on after it."""
        try:
            yield
        except (ValueError, msgspec.ValidationError) as error:
            self.broken(str(error), number, unit)
        except KeyError as error:
            self.broken(f"{error} is missing", number, unit)
        except (TypeError, AttributeError, IndexError) as error:
            self.broken(f"not of the expected shape ({error})", number, unit)
        except RecursionError:
            self.broken("nested too deeply", number, unit)

    def skip(self, reason: str, number: int | None = None) -> None:
        """Counts something left out; a number, where given, is shown behind the reason."""
        self._skipped.setdefault(reason, []).append(number)

    def take(self) -> dict[str, int]:
        """What was left out since the last time, reason → how many, with the first numbers.

        >>> source = Source("a", "a")
        >>> source.skip("broken line: not JSON", 17); source.skip("row of type progress")
        >>> source.take(), source.take()
        ({'broken line: not JSON (17)': 1, 'row of type progress': 1}, {})
        """
        taken = {_numbered(reason, where): len(where) for reason, where in self._skipped.items()}
        self._skipped.clear()
        return taken


def recordings(format: Format, source: Source) -> Iterator[Recording]:
    """The recordings of a file with format, source and every skip filled in.

    What is left out after the last recording is counted there, so each recording is held back until
    the next one is read. Where the file yields none, the source keeps what was left out.
    """
    held: Recording | None = None
    try:
        for recording in format.read(source):
            if held is not None:
                yield held
            held = msgspec.structs.replace(
                recording,
                format=format.name,
                source=str(source.path),
                skipped=_added(recording.skipped, source.take()),
            )
    except ReadError as error:
        if held is None or source.on_error == "raise":
            raise
        source.skip(f"broken from here on: {error.reason}")
    if held is not None:
        yield msgspec.structs.replace(held, skipped=_added(held.skipped, source.take()))


def silent(reason: str) -> None:
    """Takes the place of ``leave_out`` where the same was told already, or is made up for."""


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one | other}


def _numbered(reason: str, where: list[int | None]) -> str:
    numbers = [str(number) for number in where if number is not None]
    if not numbers:
        return reason
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"{reason} ({', '.join(numbers[:_SHOWN])}{more})"


def _where(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _several(text: bytes) -> list[Any]:
    """The JSON values that stand one behind the other in a text; none where it holds anything else."""
    decoder, values, end = json.JSONDecoder(), [], 0
    try:
        line = text.decode().strip()
        while end < len(line):
            value, end = decoder.raw_decode(line, end)
            values.append(value)
            while end < len(line) and line[end].isspace():
                end += 1
    except (ValueError, RecursionError):
        return []
    return values

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
from ctxlab.formats.io.files import BOM, PathOrUrl, open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.json_array import iter_array_elements
from ctxlab.messages.types import Recording

__all__ = [
    "Format",
    "OnError",
    "SkipCallback",
    "Source",
    "UnsupportedCallback",
    "ignore_skip",
    "read_recordings",
]

OnError: TypeAlias = Literal["raise", "skip"]

SkipCallback: TypeAlias = Callable[[str], None]
"""Told of each thing that a reader leaves out, such as ``"row of type summary"``; once each."""

UnsupportedCallback: TypeAlias = Callable[[str], None]
"""Told of each thing that a format has no place for, such as ``"time of a message"``; once each."""

_MAX_WHOLE_READ_BYTES = 1 << 26
_MAX_LISTED_NUMBERS = 3


@dataclass(frozen=True)
class Format:
    """A recorded format: everything that ctxlab knows of it."""

    name: str
    description: str
    "one line for ``--help``"
    sniff: Callable[[FileHead], bool]
    "does a file that begins like this hold the format? Looks at content, never at the name"
    read: Callable[[Source], Iterator[Recording]]
    "the recordings of a file, one by one"
    dump: Callable[[Recording, UnsupportedCallback], str] | None = None
    "a recording as text whose last line is ended, where the format can be written"
    single_recording: bool = False
    "a file holds one recording and no more"
    group_key: Callable[[FileHead], str] | None = None
    "files of one folder that look like it and have this key in common are read as one"


@dataclass
class Source:
    """A file that is being read, and what was left out of it so far."""

    path: PathOrUrl
    name: str
    "what the ids of its recordings begin with: the path below what was asked for, less its suffix"
    on_error: OnError = "raise"
    other_paths: tuple[PathOrUrl, ...] = ()
    "files of the same folder that are read together with it (``Format.group_key``), in order"
    _skipped: dict[str, list[int | None]] = field(default_factory=dict, init=False)

    def read_jsonl(self) -> Iterator[tuple[int, Any]]:
        """The JSON values of a JSONL file with their line numbers, from 1; blank lines are none.

        Several values on one line are several rows of that line.
        """
        with open_file(self.path) as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(BOM) if number == 1 else line
                if not text.strip():
                    continue
                try:
                    value = parse_json(text)
                except ValueError as error:
                    values = _parse_concatenated_json(text)
                    if not values:
                        self.report_error("not JSON", number, detail=_json_error_text(error))
                    for value in values:
                        yield number, value
                    continue
                yield number, value

    def read_json(self) -> Any:
        """The one JSON value of the file; ``ReadError`` where it is none, under either policy."""
        with open_file(self.path) as file:
            return self._parse_content(file.read())

    def read_json_files(self) -> Iterator[tuple[PathOrUrl, Any]]:
        """The one JSON value of this file and of each of ``other_paths``; a broken one is told."""
        for number, path in enumerate((self.path, *self.other_paths), start=1):
            try:
                yield path, Source(path, self.name).read_json()
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                self.skip(f"broken file: {error.reason}", number)

    def read_json_array(self) -> Iterator[tuple[int, Any]]:
        """The elements of the JSON list in the file with their numbers, from 0.

        A large file is read element by element. Where ``on_error`` is ``"skip"``, an element that is
        broken costs itself alone. ``ReadError`` where the file is no list.
        """
        with open_file(self.path) as file:
            start = file.read(_MAX_WHOLE_READ_BYTES)
            if len(start) < _MAX_WHOLE_READ_BYTES:
                try:
                    value = self._parse_content(start)
                except ReadError:
                    if self.on_error == "raise":
                        raise
                else:
                    if not isinstance(value, list):
                        raise ReadError(self.path, None, "the file is no list")
                    yield from enumerate(value)
                    return
        yield from self._stream_json_array()

    def _stream_json_array(self) -> Iterator[tuple[int, Any]]:
        count = 0
        with open_file(self.path) as file:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            try:
                for count, text in enumerate(iter_array_elements(file)):
                    try:
                        value = parse_json(text)
                    except ValueError as error:
                        self.report_error(
                            "not JSON", count, "element", detail=_json_error_text(error)
                        )
                        continue
                    yield count, value
            except ValueError as error:
                self.report_error(str(error), count + 1, "element")

    def _parse_content(self, content: bytes) -> Any:
        try:
            return parse_json(content.removeprefix(BOM))
        except ValueError as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else None
            raise ReadError(self.path, line, f"not JSON: {_json_error_text(error)}") from None

    def report_error(
        self, reason: str, number: int, item: str = "line", *, detail: str = ""
    ) -> None:
        """Something cannot be read: raises ``ReadError``, or counts the reason and returns.

        ``item`` names what ``number`` counts: a line, or an element of a list in the file.
        """
        reason = reason if len(reason) <= 200 else reason[:199] + "…"
        if self.on_error == "skip":
            return self.skip(f"broken {item}: {reason}", number)
        message = f"{reason}: {detail}" if detail else reason
        if item == "line":
            raise ReadError(self.path, number, message)
        raise ReadError(self.path, None, f"{item} {number}: {message}")

    @contextmanager
    def handle_errors(self, number: int, item: str = "line") -> Iterator[None]:
        """Passes what a wrong value raises inside to ``report_error``; the body does not go on then."""
        try:
            yield
        except (ValueError, msgspec.ValidationError) as error:
            self.report_error(str(error), number, item)
        except KeyError as error:
            self.report_error(f"{error} is missing", number, item)
        except (TypeError, AttributeError, IndexError) as error:
            self.report_error(f"not of the expected shape ({error})", number, item)
        except RecursionError:
            self.report_error("nested too deeply", number, item)

    def skip(self, reason: str, number: int | None = None) -> None:
        """Counts something left out; a number, where given, is shown behind the reason."""
        self._skipped.setdefault(reason, []).append(number)

    def pop_skipped(self) -> dict[str, int]:
        """What was left out since the last time, reason → how many, with the first numbers.

        >>> source = Source("a", "a")
        >>> source.skip("broken line: not JSON", 17); source.skip("row of type progress")
        >>> source.pop_skipped(), source.pop_skipped()
        ({'broken line: not JSON (17)': 1, 'row of type progress': 1}, {})
        """
        taken = {
            _append_numbers(reason, where): len(where) for reason, where in self._skipped.items()
        }
        self._skipped.clear()
        return taken


def read_recordings(format: Format, source: Source) -> Iterator[Recording]:
    """The recordings of a file with format, source and every skip filled in.

    What is left out after the last recording is counted there, so each recording is held back until
    the next one is read. Where the file yields none, the source keeps what was left out.
    """
    previous: Recording | None = None
    try:
        for recording in format.read(source):
            if previous is not None:
                yield previous
            previous = msgspec.structs.replace(
                recording,
                format=format.name,
                source=str(source.path),
                skipped=_add_counts(recording.skipped, source.pop_skipped()),
            )
    except ReadError as error:
        if previous is None or source.on_error == "raise":
            raise
        source.skip(f"broken from here on: {error.reason}")
    if previous is not None:
        yield msgspec.structs.replace(
            previous, skipped=_add_counts(previous.skipped, source.pop_skipped())
        )


def ignore_skip(reason: str) -> None:
    """Takes the place of ``skip`` where the same was told already, or is made up for."""


def _add_counts(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one | other}


def _append_numbers(reason: str, numbers_seen: list[int | None]) -> str:
    numbers = [str(number) for number in numbers_seen if number is not None]
    if not numbers:
        return reason
    more = (
        f" and {len(numbers) - _MAX_LISTED_NUMBERS} more"
        if len(numbers) > _MAX_LISTED_NUMBERS
        else ""
    )
    return f"{reason} ({', '.join(numbers[:_MAX_LISTED_NUMBERS])}{more})"


def _json_error_text(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _parse_concatenated_json(text: bytes) -> list[Any]:
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

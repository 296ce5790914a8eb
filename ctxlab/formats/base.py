"""The ``Format`` and ``Source`` types that all readers use.

A ``Format`` has a name, a function that recognises a file by its content, and a reader that yields
recordings. A ``Source`` is the file that is being read. Its methods return the rows of the file
with their line numbers, or the single JSON value of the file. It also applies the policy for
malformed content: ``on_error="raise"`` stops at the first malformed line, and ``"skip"`` counts the
line and continues. Readers report everything that they skip, and ``Recording.skipped`` contains the
counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError, redact_urls
from ctxlab.formats.fields import parse_json_or_none
from ctxlab.formats.io.files import BOM, PathOrUrl, open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.json_array import iter_array_elements
from ctxlab.formats.io.limits import TooLongError, iter_lines, read_whole
from ctxlab.messages.types import Recording

OnError: TypeAlias = Literal["raise", "skip"]

SkipCallback: TypeAlias = Callable[[str], None]
"""Called with a description of each item that a reader skips, such as ``"row of type summary"``."""

UnsupportedCallback: TypeAlias = Callable[[str], None]
"""Called with the name of each item that a format cannot store, such as ``"time of a message"``."""

Location: TypeAlias = tuple[int, str]
"""Position of a value in a file: its number and what is counted, such as ``(3, "line")``."""

_MAX_WHOLE_READ_BYTES = 1 << 26
_MAX_LISTED_NUMBERS = 3
_MAX_SNIFFED_LINES = 50

# Names of things that a format may be unable to store; ``write.describe_loss`` forms their plural.
_MESSAGE_KEYS = ("name", "reasoning", "usage", "time", "file", "extra")
_MESSAGE_FIELDS = {key: f"{key} of a message" for key in _MESSAGE_KEYS}
_MESSAGE_FIELDS["file"] = "active file of a message"
_RECORDING_FIELDS = {"cluster": "cluster of a recording", "meta": "meta of a recording"}
_LIST_FIELDS = {"probes": "probe", "compactions": "compaction"}


@dataclass(frozen=True)
class Format:
    """A file format for recordings, with the functions that recognise, read and write it."""

    name: str
    "name on the command line and in ``Recording.format``"
    description: str
    "one-line description, shown by ``ctxlab formats``"
    sniff: Callable[[FileHead], bool]
    "returns True if the beginning of a file is in this format; the file name is not considered"
    read: Callable[[Source], Iterator[Recording]]
    "reads a file and yields its recordings"
    dump: Callable[[Recording, UnsupportedCallback], str] | None = None
    "converts a recording to text that ends with a newline; None if the format cannot be written"
    single_recording: bool = False
    "True if a file can contain only one recording"
    group_key: Callable[[FileHead], str | None] | None = None
    """returns the key of a file; files that have the same folder and key are read together. Files are
    read separately if there is no function or if it returns None"""
    spans_folders: bool = False
    "True if files that have the same key are read together even if their folders differ"
    versions: str = ""
    """versions of the product, library or specification with which the reader was checked, such as
    ``0.36.0 to 0.144.5``. It says so if no real file was read, only source code or documentation"""
    not_read: str = ""
    """what a file may contain that the reader leaves out, and what is not in the file. Empty if there is
    nothing of this kind"""


@dataclass
class Source:
    """A file that is being read, with counts of the items skipped so far."""

    path: PathOrUrl
    "the file to read"
    name: str
    "prefix of the recording ids: the path relative to the requested folder, without its suffix"
    on_error: OnError = "raise"
    'how to handle malformed content: ``"raise"`` an error, or ``"skip"`` it and count it'
    other_paths: tuple[PathOrUrl, ...] = ()
    "other files that are read together with ``path`` (``Format.group_key``), in order"
    root: Path | None = None
    """folder outside of which no related file is read, such as the log of a parent conversation; by
    default, the folder of ``path``"""
    _skipped: dict[str, list[int | None]] = field(default_factory=dict, init=False)

    def read_jsonl(self) -> Iterator[tuple[int, Any]]:
        """Read the JSON values of a JSONL file.

        Blank lines are ignored. If a line contains several values, all are yielded with the same
        line number.

        Yields
        ------
        int
            The line number, counted from 1.
        Any
            The JSON value.

        Raises
        ------
        ReadError
            If a line is not valid JSON and ``on_error`` is ``"raise"``.
        """
        with open_file(self.path) as file:
            for number, line in iter_lines(file):
                if isinstance(line, TooLongError):
                    self.report_error(str(line), number)
                    continue
                text = line.removeprefix(BOM) if number == 1 else line
                if not text.strip():
                    continue
                try:
                    values = [parse_json(text)]
                except ValueError as error:
                    values = _parse_concatenated_json(text)
                    if not values:
                        self.report_error("not JSON", number, detail=_json_error_text(error))
                for value in values:
                    yield number, value

    def read_json(self) -> Any:
        """Parse the whole file as one JSON value.

        Returns
        -------
        Any
            The parsed value.

        Raises
        ------
        ReadError
            If the file is not valid JSON or too large, even if ``on_error`` is ``"skip"``.
        """
        with open_file(self.path) as file:
            try:
                content = read_whole(file, "a file that is one JSON value")
            except ValueError as error:
                raise ReadError(self.path, None, str(error)) from None
        return self._parse_content(content)

    def read_json_files(self) -> Iterator[tuple[PathOrUrl, Any]]:
        """Parse this file and each file in ``other_paths`` as one JSON value.

        If ``on_error`` is ``"skip"``, files that are not valid JSON are skipped and counted.

        Yields
        ------
        Path or str
            The path of the file.
        Any
            The parsed value.

        Raises
        ------
        ReadError
            If a file is not valid JSON and ``on_error`` is ``"raise"``.
        """
        for number, path in enumerate((self.path, *self.other_paths), start=1):
            try:
                yield path, Source(path, self.name).read_json()
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                self.skip(f"broken file: {error.reason}", number)

    def read_json_array(self) -> Iterator[tuple[int, Any]]:
        """Read the elements of the JSON list in the file.

        A large file is read element by element. If ``on_error`` is ``"skip"``, a malformed element
        is skipped and counted, and the other elements are read.

        Yields
        ------
        int
            The index of the element, counted from 0.
        Any
            The element.

        Raises
        ------
        ReadError
            If the file is not a JSON list, or an element is malformed and ``on_error`` is
            ``"raise"``.
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
                    kind = type(value).__name__
                    raise ReadError(self.path, None, f"expected a JSON list, got {kind}")
                yield from enumerate(value)
                return
        del start
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
                        said = _json_error_text(error)
                        self.report_error("not JSON", count, "element", detail=said)
                        continue
                    yield count, value
            except ValueError as error:
                self.report_error(str(error), count + 1, "element")

    def read_json_values(self) -> Iterator[tuple[Location | None, Any]]:
        """Read the values of a file that is JSONL, a JSON list or a single JSON object.

        Yields
        ------
        tuple of (int, str), or None
            Line number and ``"line"`` for JSONL, index and ``"element"`` for a list. None if the
            file is a single object.
        Any
            The value of the line, of the list element, or of the whole file.

        Raises
        ------
        ReadError
            If the file is not valid JSON, or a value is malformed and ``on_error`` is ``"raise"``.
        """
        head = FileHead.from_file(self.path)
        value = parse_json_or_none(head.first_bytes) if head.is_complete else None
        if value is None and _is_jsonl(head):
            yield from (((line, "line"), row) for line, row in self.read_jsonl())
        elif isinstance(head.value, list):
            yield from (((index, "element"), each) for index, each in self.read_json_array())
        else:
            yield None, self.read_json()

    def _parse_content(self, content: bytes) -> Any:
        try:
            return parse_json(content.removeprefix(BOM))
        except ValueError as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else None
            raise ReadError(self.path, line, f"not JSON: {_json_error_text(error)}") from None

    def report_error(self, reason: str, number: int, item: str = "line", detail: str = "") -> None:
        """Raise ``ReadError`` for malformed content, or count it if ``on_error`` is ``"skip"``.

        Parameters
        ----------
        reason : str
            Description of the error, cut off after 200 characters. Skipped items are counted per
            reason.
        number : int
            Line number or index of the malformed item.
        item : str
            Kind of the malformed item, such as ``"line"`` or ``"element"``.
        detail : str
            Text that is appended to the error message. It is not part of the counted reason.

        Raises
        ------
        ReadError
            If ``on_error`` is ``"raise"``.
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
        """Return a context manager that passes parsing errors of its body to ``report_error``.

        It catches errors about invalid or missing values. If ``on_error`` is ``"skip"``, execution
        continues after the ``with`` block.

        Parameters
        ----------
        number : int
            Line number or index of the item that the body parses.
        item : str
            Kind of this item, such as ``"line"`` or ``"element"``.

        Raises
        ------
        ReadError
            If the body raises such an error and ``on_error`` is ``"raise"``.
        """
        try:
            yield
        except (ValueError, msgspec.ValidationError) as error:
            self.report_error(str(error), number, item)
        except KeyError as error:
            self.report_error(f"{error} is missing", number, item)
        except (TypeError, AttributeError, IndexError) as error:
            self.report_error(f"unexpected structure ({error})", number, item)
        except RecursionError:
            self.report_error("nested too deeply", number, item)

    def skip(self, reason: str, number: int | None = None, count: int = 1) -> None:
        """Count items that the reader skips.

        Parameters
        ----------
        reason : str
            Description of one skipped item, such as ``"row of type progress"``. Items are counted
            per description.
        number : int, optional
            Line number or index of the item, shown after the description.
        count : int
            Number of skipped items.
        """
        self._skipped.setdefault(reason, []).extend([number] * count)

    def pop_skipped(self) -> dict[str, int]:
        """Return the counts of the skipped items, and reset them to zero.

        Returns
        -------
        dict of str to int
            Reason → number of items. The reason includes the line numbers of the first three items,
            if known.

        Examples
        --------
        >>> source = Source("a", "a")
        >>> source.skip("broken line: not JSON", 17); source.skip("row of type progress")
        >>> source.pop_skipped(), source.pop_skipped()
        ({'broken line: not JSON (17)': 1, 'row of type progress': 1}, {})
        """
        skipped, self._skipped = self._skipped, {}
        return {_append_numbers(reason, where): len(where) for reason, where in skipped.items()}


def read_recordings(format: Format, source: Source) -> Iterator[Recording]:
    """Read the recordings of a file and set their ``format``, ``source`` and ``skipped``.

    Each recording is yielded only after the next one has been read, because items skipped at the
    end of the file are counted in the last recording. If the file contains no recording, the counts
    stay in ``source``.

    Parameters
    ----------
    format : Format
        The format of the file.
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The recordings, in the order of the file.

    Raises
    ------
    ReadError
        If the file is malformed and either ``on_error`` is ``"raise"`` or no recording was read
        before the error. Otherwise, reading ends at the error, which is counted as skipped.
    """
    previous: Recording | None = None
    try:
        for recording in format.read(source):
            if previous is not None:
                yield previous
            previous = _add_skipped(recording, source)
            changes = {"format": format.name, "source": redact_urls(str(source.path))}
            previous = msgspec.structs.replace(previous, **changes)
    except ReadError as error:
        if previous is None or source.on_error == "raise":
            raise
        source.skip(f"broken from here on: {error.reason}")
    if previous is not None:
        yield _add_skipped(previous, source)


def whole_folder(head: FileHead) -> str:
    """Return the same key for every file, so that all files of a folder are read together.

    Formats use this function as their ``Format.group_key``.

    Parameters
    ----------
    head : FileHead
        The beginning of a file; not used.

    Returns
    -------
    str
        An empty string.
    """
    return ""


def ignore_skip(reason: str) -> None:
    """Do nothing. Passed as ``skip`` if the skipped items are already counted by another call.

    Parameters
    ----------
    reason : str
        Description of the skipped item; not used.
    """


def report_losses(recording: Recording, report: UnsupportedCallback, supported: str) -> None:
    """Report each value of a recording that a simple chat format cannot store.

    Such a format stores messages, tools and the model. The fields that describe the origin of a
    recording (``id``, ``format``, ``source``, ``skipped``) are not reported.

    Parameters
    ----------
    recording : Recording
        The recording to write.
    report : Callable
        Called once for each value that would be lost, with the name of its field.
    supported : str
        An optional field of messages, such as ``"name"``, that this format can store.
    """
    for key, name in _LIST_FIELDS.items():
        for _ in getattr(recording, key):
            report(name)
    own, of_messages = (_RECORDING_FIELDS, [recording]), (_MESSAGE_FIELDS, recording.messages)
    for fields, holders in (own, of_messages):
        for holder, (key, name) in product(holders, fields.items()):
            if key != supported and getattr(holder, key) not in (None, {}):
                report(name)
    if not recording.messages:
        report("recording without messages")


def _add_skipped(recording: Recording, source: Source) -> Recording:
    old, new = recording.skipped, source.pop_skipped()
    counts = {reason: old.get(reason, 0) + new.get(reason, 0) for reason in old | new}
    return msgspec.structs.replace(recording, skipped=counts)


def _append_numbers(reason: str, numbers_seen: list[int | None]) -> str:
    numbers = [str(number) for number in numbers_seen if number is not None]
    if not numbers:
        return reason
    rest = len(numbers) - _MAX_LISTED_NUMBERS
    more = f" and {rest} more" if rest > 0 else ""
    return f"{reason} ({', '.join(numbers[:_MAX_LISTED_NUMBERS])}{more})"


def _json_error_text(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at column {error.colno}"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _parse_concatenated_json(text: bytes) -> list[Any]:
    """Parse a line with several JSON values. Return an empty list if one of them is not valid."""
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


def _is_jsonl(head: FileHead) -> bool:
    """Check whether a file is JSONL: at least one of its lines is a complete JSON value.

    The lines of a pretty-printed value are not complete values. In a list with one element per line,
    the lines are not complete either, because they end with a comma.
    """
    *lines, last = head.first_bytes.split(b"\n")
    if not lines:
        return last[:1] == b"{"
    flush = (line for line in lines[:_MAX_SNIFFED_LINES] if line[:1] in (b"{", b"["))
    return any(parse_json_or_none(line) is not None for line in flush)

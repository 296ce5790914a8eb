"""Read the rows of Parquet, Arrow, CSV and JSON files, one after another.

A Parquet file is read in small batches and only the columns that are used, so that memory does not
grow with the file. Its values are converted to JSON values. The columns of a Parquet file have fixed
types: a key that only some messages have is null in all others. Null values in objects are
therefore left out. The same holds for Arrow files. pyarrow runs no code from the file.
"""

from __future__ import annotations

import base64
import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from typing_extensions import override

from ctxlab.errors import ReadError
from ctxlab.formats.base import Source
from ctxlab.formats.io.files import open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.limits import MAX_VALUE_BYTES, TooLongError, read_whole, too_long

PARQUET_MAGIC = b"PAR1"
"""The first bytes of a Parquet file."""

ARROW_MAGICS = (b"ARROW1\0\0", b"\xff\xff\xff\xff")
"""The first bytes of an Arrow file, and of a file with an Arrow stream."""

BINARY_MAGICS = (PARQUET_MAGIC, *ARROW_MAGICS)
"""The first bytes of the tables that are not text."""

_BATCH_ROWS = 16
_BUFFER_BYTES = 1 << 20
_DELIMITERS = ",\t;"


@dataclass(frozen=True)
class Table(ABC):
    """A table whose rows can be read several times."""

    item: str = field(default="row", kw_only=True)
    """what the number of a row counts: ``"row"``, ``"line"`` or ``"element"``"""

    @abstractmethod
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows.

        Parameters
        ----------
        only : sequence of str, optional
            The columns to read. By default, all columns are read.

        Yields
        ------
        int
            Number of the row.
        dict
            Column → value.
        """

    @abstractmethod
    def silent(self) -> Table:
        """Return the table for a further pass over its rows, which does not report errors again.

        Returns
        -------
        Table
            A table with the same rows.
        """


def open_table(source: Source) -> Table:
    """Open a file as a table.

    Parameters
    ----------
    source : Source
        The file to read.

    Returns
    -------
    Table
        The rows of a Parquet or Arrow file, of JSON objects, or of a CSV or TSV file.
    """
    head = FileHead.from_file(source.path)
    if head.first_bytes.startswith(PARQUET_MAGIC):
        return ParquetTable(source)
    if head.first_bytes.startswith(ARROW_MAGICS):
        return ArrowTable(source)
    if not is_json(head):
        return CsvTable(source, item="line")
    return JsonTable(source, item="element" if isinstance(head.value, list) else "line")


def is_json(head: FileHead) -> bool:
    """Check whether a file starts like a JSON object or list.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the first character is a bracket. A line of a CSV file may also be a JSON value.
    """
    return head.first_bytes.lstrip()[:1] in (b"{", b"[")


@dataclass(frozen=True)
class ParquetTable(Table):
    """The rows of a Parquet file, counted from 0."""

    source: Source
    "the file to read"

    @override
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows; see ``Table.rows``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        number = 0
        with open_file(self.source.path) as raw:
            try:
                settings: dict[str, Any] = {"pre_buffer": False, "buffer_size": _BUFFER_BYTES}
                with pq.ParquetFile(raw, **settings) as file:
                    for batch in file.iter_batches(_BATCH_ROWS, columns=only, use_threads=False):
                        for row in to_json_rows(batch):
                            yield number, row
                            number += 1
            except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
                if isinstance(error, ReadError):
                    raise
                text = str(error).partition("\n")[0] or type(error).__name__
                raise ReadError(self.source.path, None, f"broken Parquet file: {text}") from None

    @override
    def silent(self) -> ParquetTable:
        """Return the table for a further pass; see ``Table.silent``."""
        return self


@dataclass(frozen=True)
class JsonTable(Table):
    """The objects of a JSONL file or a JSON list."""

    source: Source
    "the file to read"

    @override
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows; see ``Table.rows``. All columns are read."""
        for where, row in self.source.read_json_values():
            number, item = where or (0, self.item)
            if isinstance(row, dict):
                yield number, row
            else:
                self.source.report_error("expected an object", number, item)

    @override
    def silent(self) -> JsonTable:
        """Return the table for a further pass; see ``Table.silent``."""
        return replace(self, source=replace(self.source, on_error="skip"))


@dataclass(frozen=True)
class ArrowTable(Table):
    """The rows of an Arrow file or stream, counted from 0."""

    source: Source
    "the file to read"

    @override
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows; see ``Table.rows``."""
        import pyarrow as pa

        number = 0
        with open_file(self.source.path) as raw:
            try:
                for batch in _arrow_batches(raw):
                    batch.validate(full=True)  # the file may be made to do harm
                    chosen = batch if only is None else batch.select(list(only))
                    for start in range(0, chosen.num_rows, _BATCH_ROWS):
                        for row in to_json_rows(chosen.slice(start, _BATCH_ROWS)):
                            yield number, row
                            number += 1
            except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
                if isinstance(error, ReadError):
                    raise
                text = str(error).partition("\n")[0] or type(error).__name__
                raise ReadError(self.source.path, None, f"broken Arrow file: {text}") from None

    @override
    def silent(self) -> ArrowTable:
        """Return the table for a further pass; see ``Table.silent``."""
        return self


def _arrow_batches(raw: Any) -> Iterator[Any]:
    """Yield the batches of an Arrow file, or of a stream, which has no magic at its beginning.

    A local file is mapped into memory, so that a batch may be larger than memory, and a size that the
    file claims to have allocates nothing.
    """
    import pyarrow as pa

    is_file = raw.read(len(ARROW_MAGICS[0])) == ARROW_MAGICS[0]
    raw.seek(0)
    if isinstance(raw, io.BufferedReader) and isinstance(raw.raw, io.FileIO):
        source = pa.memory_map(str(raw.name))
    else:
        source = pa.BufferReader(read_whole(raw, "an Arrow file that is compressed or remote"))
    with source, (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as batches:
        if is_file:
            yield from map(batches.get_batch, range(batches.num_record_batches))
        else:
            yield from batches


@dataclass(frozen=True)
class CsvTable(Table):
    """The rows of a CSV or TSV file with a header. The number of a row is its first line."""

    source: Source
    "the file to read"

    @override
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows; see ``Table.rows``. All values are strings."""
        csv.field_size_limit(MAX_VALUE_BYTES)
        line = 1
        with open_file(self.source.path) as raw:
            try:
                file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
                lines = _bounded_lines(file)
                first = next(lines, "")
                names = _split_line(first)
                for cells in csv.reader(lines, delimiter=_delimiter(first)):
                    # Lines are counted here, because a quoted value may contain line breaks.
                    start, line = line + 1, line + 1 + sum(_line_breaks(each) for each in cells)
                    if not cells:
                        continue
                    if len(cells) != len(names):
                        reason = f"expected {len(names)} columns, got {len(cells)}"
                        self.source.report_error(reason, start)
                        continue
                    yield start, dict(zip(names, cells, strict=True))
            except UnicodeDecodeError:
                raise ReadError(self.source.path, line + 1, "the text is not UTF-8") from None
            except (csv.Error, TooLongError) as error:
                reason = str(error) if isinstance(error, TooLongError) else f"not CSV: {error}"
                raise ReadError(self.source.path, line + 1, reason) from None

    @override
    def silent(self) -> CsvTable:
        """Return the table for a further pass; see ``Table.silent``."""
        return replace(self, source=replace(self.source, on_error="skip"))


def head_rows(head: FileHead) -> list[dict[str, Any]]:
    """Return the first rows of a file that may be a CSV or TSV file.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    list of dict
        At most three rows, with the value ``""`` in columns that were cut off. Empty if the file
        has no header of different names.
    """
    if b"\0" in head.first_bytes or is_json(head):
        return []
    text = head.first_bytes.decode("utf-8", "replace")
    first, _, rest = text.partition("\n")
    try:
        names = _split_line(first)
        if not all(names) or len(set(names)) < len(names):
            return []
        found = csv.reader(io.StringIO(rest, newline=""), delimiter=_delimiter(first))
        fields = [each for _, each in zip(range(3), found, strict=False) if each]
    except csv.Error:
        return []
    return [dict(zip(names, [*each, *[""] * len(names)], strict=False)) for each in fields]


def to_json_rows(batch: Any) -> list[dict[str, Any]]:
    """Convert a batch or table of pyarrow to rows of JSON values.

    Parameters
    ----------
    batch : pyarrow.RecordBatch or pyarrow.Table
        The rows.

    Returns
    -------
    list of dict
        Column → value. Null values of columns stay None; null values in objects are left out.
    """
    return [{name: _to_json(each) for name, each in row.items()} for row in batch.to_pylist()]


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _to_json(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_to_json(each) for each in value]
    convert = next((f for kind, f in _CONVERSIONS.items() if isinstance(value, kind)), None)
    if convert is not None:
        return convert(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    datetime: lambda value: value.isoformat(),
    date: lambda value: value.isoformat(),
    time: lambda value: value.isoformat(),
    Decimal: float,
    bytes: lambda value: base64.b64encode(value).decode(),
}


def _split_line(line: str) -> list[str]:
    text = line.removeprefix("\ufeff").rstrip("\r\n")
    return [each.strip() for each in next(csv.reader([text], delimiter=_delimiter(line)), [])]


def _bounded_lines(file: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a text file, and raise ``TooLongError`` at a line that is too long."""
    while line := file.readline(MAX_VALUE_BYTES + 1):
        if len(line) > MAX_VALUE_BYTES:
            raise too_long("a line")
        yield line


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _line_breaks(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")

"""Entries of the recordings of a run: one row per recording in a Parquet file, read when needed.

Texts, whole numbers and truth values have columns of these types. The columns of other values, such as
``skipped``, contain JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

import pyarrow as pa

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.evaluation.tables import PieceWriter, StoredTable

RECORDINGS_FILE = "recordings.parquet"
"""File name of the table of recordings in the folder of a saved run."""

_TYPES = {
    **dict.fromkeys(("recording", "cluster", "source", "format", "model"), pa.string()),
    **dict.fromkeys(("counted_as", "digest", "warning"), pa.string()),
    **dict.fromkeys(("messages", "requests", "tokens", "unlogged"), pa.int64()),
    "valid": pa.bool_(),
}


class StoredRecordings(Sequence[dict[str, Any]]):
    """Entries of recordings in a Parquet file, of which only some are in memory at a time.

    Parameters
    ----------
    path : Path
        File that ``RecordingWriter`` wrote.

    Raises
    ------
    ReadError
        If the file is missing or is not a Parquet file; later, if it was replaced.
    """

    def __init__(self, path: Path) -> None:
        self._table = StoredTable(path)

    def __len__(self) -> int:
        """Return the number of recordings."""
        return self._table.rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the entries in the order of the run."""
        for batch in self._table.iter_batches():
            yield from _to_entries(batch)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return one entry, or a list of them."""
        places = range(len(self))[index]
        if isinstance(places, int):
            return next(_to_entries(self._table.read_row(places)))
        return [self[place] for place in places]

    def __eq__(self, other: object) -> bool:
        """Check if another sequence has equal entries."""
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented if not isinstance(other, Sequence) else False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return a short description."""
        return f"<{len(self):,} recordings in {self._table.path}>"

    def copy_to(self, path: Path) -> None:
        """Link the file under another path, or copy it where links are not possible.

        Parameters
        ----------
        path : Path
            New path.
        """
        self._table.copy_to(path)


def read_entries(folder: Path, manifest: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the entries of the recordings of a saved run.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    manifest : mapping
        Manifest of the run, which lists the recordings if an earlier version of ctxlab saved it.

    Returns
    -------
    sequence of dict
        Entries, read from the file when they are needed.

    Raises
    ------
    ReadError
        If the file is not a Parquet file.
    """
    file = folder / RECORDINGS_FILE
    listed: list[dict[str, Any]] = manifest.get("recordings", [])
    return StoredRecordings(file) if file.is_file() else listed


class RecordingWriter:
    """Writes entries of recordings to a Parquet file in pieces. Use it in a ``with`` block.

    Parameters
    ----------
    path : Path
        File to write.
    """

    def __init__(self, path: Path) -> None:
        self._writer = PieceWriter(path)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Complete the file."""
        self._writer.close(complete=error is None)

    def write(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write the next entries.

        Parameters
        ----------
        entries : sequence of mapping
            Entries with the same keys as those before.
        """
        if entries:
            self._writer.write(_to_table(entries))


def _to_table(entries: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = {}
    for name in entries[0]:
        values = [each[name] for each in entries]
        kind = _TYPES.get(name)
        if kind is None:
            kind, values = pa.string(), list(map(dump_json, values))
        elif kind == pa.string():
            values = [text if text is None else _encodable(text) for text in values]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def _encodable(text: str) -> str:
    """Escape lone surrogates, which a Parquet file cannot contain."""
    return text.encode("utf-8", "backslashreplace").decode()


def _to_entries(table: pa.Table | pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = {
        name: column.to_pylist() if name in _TYPES else map(parse_json, column.to_pylist())
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def write_recordings(entries: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the entries of a run to a file, or link the file that contains them.

    Parameters
    ----------
    entries : sequence of mapping
        Entries of the run.
    path : Path
        File to write.
    """
    if isinstance(entries, StoredRecordings):
        entries.copy_to(path)
        return
    with RecordingWriter(path) as writer:
        writer.write(entries)

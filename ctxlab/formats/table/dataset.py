"""Exchange recordings with the package ``datasets`` of Hugging Face.

``to_dataset`` converts recordings to a ``Dataset``, which can be saved to disk, written as Parquet or
pushed to the hub. Reading it again, from memory or from any of these places, gives the same
recordings: each row has the columns of a native meta line (see ``ctxlab.formats.native``), and the
column ``messages``. Values that are no text are stored as JSON, because the columns of a data set have
fixed types, and the content of a message may be a text or a list.

Data sets that other programs made are read like other tables (see ``ctxlab.formats.table.reader``).

References
----------
huggingface.co/docs/datasets, "Dataset" and "Save", version 5 (2026).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec
from typing_extensions import override

from ctxlab.errors import CtxlabError, DataMissing, ReadError
from ctxlab.formats.base import Format, OnError, Source, read_recordings
from ctxlab.formats.native import ROW_COLUMNS, row_from_recording
from ctxlab.formats.table.reader import read_table
from ctxlab.formats.table.rows import Table, to_json_rows
from ctxlab.messages.types import Recording, check_recordings

_BATCH_ROWS = 16
_MIN_VERSION = 4


def to_dataset(recordings: Iterable[Recording]) -> Any:
    """Convert recordings to a data set of Hugging Face, without losing anything.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings. All of them are held in memory.

    Returns
    -------
    datasets.Dataset
        One row per recording. ``ctxlab.load`` reads it, and also what its methods ``save_to_disk``,
        ``to_parquet`` and ``push_to_hub`` write.

    Raises
    ------
    DataMissing
        If the package ``datasets`` is missing or too old.
    """
    import pyarrow as pa

    check_recordings(recordings)
    package = import_datasets("to_dataset")
    rows = [row_from_recording(recording) for recording in recordings]
    types = {name: pa.int64() if name == "version" else pa.string() for name in ROW_COLUMNS}
    return package.Dataset(pa.Table.from_pylist(rows, pa.schema(types)))


def import_datasets(purpose: str) -> Any:
    """Import the package ``datasets``.

    Parameters
    ----------
    purpose : str
        What needs the package; the error message starts with it.

    Returns
    -------
    module
        The package.

    Raises
    ------
    DataMissing
        If the package is missing, or older than version 4.
    """
    try:
        package = import_module("datasets")
        version = package.__version__
    except (ImportError, AttributeError):  # a folder named datasets is imported as an empty package
        fix = "run: pip install '.[hub]' in a clone of ctxlab"
        raise DataMissing(f"{purpose}: requires the package datasets; {fix}") from None
    if int(version.partition(".")[0]) < _MIN_VERSION:
        fix = "run: pip install --upgrade '.[hub]' in a clone of ctxlab"
        raise DataMissing(
            f"{purpose}: requires datasets {_MIN_VERSION} or later, got {version}; {fix}"
        )
    return package


@dataclass(frozen=True)
class MemoryDataset:
    """A ``Dataset`` or ``DatasetDict`` that was passed to ``load``."""

    splits: Mapping[str, Any]
    "splits by name"

    @classmethod
    def wrap(cls, value: object) -> MemoryDataset | None:
        """Return the splits of a data set, or None if the value is none.

        Parameters
        ----------
        value : object
            Anything.

        Returns
        -------
        MemoryDataset or None
            The data set. A ``Dataset`` without the name of a split is called ``data``.
        """
        package = sys.modules.get("datasets")  # whoever has a data set has imported the package
        if not isinstance(getattr(package, "Dataset", None), type):
            return None
        if isinstance(value, (package.DatasetDict, package.IterableDatasetDict)):  # type: ignore[union-attr]
            return cls({str(name): split for name, split in value.items()})
        if isinstance(value, (package.Dataset, package.IterableDataset)):  # type: ignore[union-attr]
            return cls({str(value.split or "data"): value})
        return None

    def __str__(self) -> str:
        """Return a name for messages."""
        return f"the data set with the split {', '.join(self.splits)}"

    def read(self, named: dict[str, str], on_error: OnError) -> Iterator[Recording]:
        """Read the recordings; see ``read_splits``. They have no source, because there is no file.

        Parameters
        ----------
        named : dict of str to str
            Columns that the user named, by field.
        on_error : {"raise", "skip"}
            How to handle malformed rows.

        Yields
        ------
        Recording
            A conversation.
        """
        for recording in read_splits(str(self), "", self.splits, named, on_error):
            yield msgspec.structs.replace(recording, source=None)


def read_splits(
    path: str, name: str, splits: Mapping[str, Any], named: dict[str, str], on_error: OnError
) -> Iterator[Recording]:
    """Read the recordings of the splits of a data set.

    Parameters
    ----------
    path : str
        The data set, for messages and ``Recording.source``.
    name : str
        Prefix of the ids. The name of the split follows. Rows that ``to_dataset`` made keep their ids.
    splits : mapping
        Splits by name, as the package ``datasets`` returns them.
    named : dict of str to str
        Columns that the user named, by field.
    on_error : {"raise", "skip"}
        How to handle malformed rows.

    Yields
    ------
    Recording
        A conversation.

    Raises
    ------
    ReadError
        If a row is malformed, or if no conversation is found.
    """
    found, left_out = False, ""
    for split, rows in splits.items():
        source = Source(path, f"{name}/{split}" if name else split, on_error)
        table = DatasetTable(path, rows)

        def read(source: Source, table: DatasetTable = table) -> Iterator[Recording]:
            yield from read_table(source, table, named)

        format = Format("table", "", lambda head: False, read)
        for recording in read_recordings(format, source):
            found = True
            yield recording
        left_out = "; ".join(source.pop_skipped())
    if not found:
        raise ReadError(path, None, "found no recording" + (f" ({left_out})" if left_out else ""))


@dataclass(frozen=True)
class DatasetTable(Table):
    """The rows of a split, counted from 0."""

    path: str
    "the data set, for messages"
    split: Any
    "split of the data set, as the package ``datasets`` returns it"

    @override
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows; see ``Table.rows``."""
        number = 0
        try:
            chosen = self.split if only is None else self.split.select_columns(list(only))
            # In this format, images and sounds are not decoded.
            for batch in chosen.with_format("arrow").iter(_BATCH_ROWS):
                for row in to_json_rows(batch):
                    yield number, row
                    number += 1
        except CtxlabError:
            raise
        except Exception as error:  # the package raises exceptions of many libraries
            raise unreadable(self.path, error) from None

    @override
    def silent(self) -> DatasetTable:
        """Return the table for a further pass; see ``Table.silent``."""
        return self


def unreadable(path: str, error: Exception) -> DataMissing:
    """Return the error for a data set that the package ``datasets`` cannot read.

    Parameters
    ----------
    path : str
        The data set.
    error : Exception
        What the package raised.

    Returns
    -------
    DataMissing
        The error to raise.
    """
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    fix = "check the name and the connection, or download its Parquet files and name their folder"
    return DataMissing(f"{path}: {text}; {fix}")

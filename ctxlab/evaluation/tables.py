"""Tables of a run in Parquet files. They are written in pieces, and read when they are needed.

A piece has the rows of some recordings, so that a table may be larger than memory. Labels, such as the
name of a recording, are categoricals. Their categories are the labels in the order of appearance, so
that a table is the same whether it was built at once or in pieces.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ctxlab.errors import ReadError

_LABEL = pa.dictionary(pa.int32(), pa.string())
_GROUP_BYTES = 8_000_000
"bytes of rows that are written as one row group"
_BATCH_ROWS = 1_000
"rows of a batch"


class StoredTable:
    """Table in a Parquet file, which is read when it is needed.

    Parameters
    ----------
    path : Path
        File of the table. A relative path counts from the working directory of this moment.

    Raises
    ------
    ReadError
        If the file is missing or is not a Parquet file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self._version = _version(self.path)
            about = pq.read_metadata(self.path)
        except (OSError, pa.ArrowException) as error:
            raise ReadError(path, None, f"not a saved evaluation: {error}") from None
        self.rows: int = about.num_rows
        self.columns = about.schema.to_arrow_schema().names

    def read(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the table, or some of its columns.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the columns; all if left out.

        Returns
        -------
        pandas.DataFrame
            The table.

        Raises
        ------
        ReadError
            If the file cannot be read, or was replaced after this object was made.
        """
        with self._open() as file:
            table = file.read(None if columns is None else list(columns))
            frame: pd.DataFrame = table.unify_dictionaries().to_pandas()
        if frame.empty:  # a file without labels does not store that they are texts
            labels = frame.select_dtypes("category").columns
            frame = frame.assign(**dict.fromkeys(labels, make_categorical((), np.arange(0))))
        return frame

    def read_codes(self, column: str) -> npt.NDArray[np.integer]:
        """Read a column of labels as numbers, without making a Python object of each label.

        Parameters
        ----------
        column : str
            Name of the column.

        Returns
        -------
        numpy.ndarray of shape (rows,)
            Number of each label, in the order in which labels appear.

        Raises
        ------
        ReadError
            As ``read`` does.
        """
        with self._open() as file:
            labels = file.read([column])[column]
            if not pa.types.is_dictionary(labels.type):
                labels = labels.dictionary_encode()
            codes = labels.unify_dictionaries().chunks
        return pd.factorize(np.concatenate([each.indices.to_numpy() for each in codes]))[0]

    def iter_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, so that only some of them are in memory.

        Yields
        ------
        pyarrow.RecordBatch
            The next rows.

        Raises
        ------
        ReadError
            As ``read`` does.
        """
        with self._open() as file:
            yield from file.iter_batches(_BATCH_ROWS)

    def read_row(self, number: int) -> pa.Table:
        """Read one row.

        Parameters
        ----------
        number : int
            Number of the row, from 0.

        Returns
        -------
        pyarrow.Table
            Table with this row.

        Raises
        ------
        ReadError
            As ``read`` does.
        """
        with self._open() as file:
            group = 0
            while number >= (rows := file.metadata.row_group(group).num_rows):
                number, group = number - rows, group + 1
            return file.read_row_group(group).slice(number, 1)

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        """Open the file, and raise ``ReadError`` if that or the ``with`` block cannot read it."""
        try:
            if _version(self.path) != self._version:
                problem = (
                    "another run was saved here since this one was loaded; load the results again"
                )
                raise ReadError(self.path, None, problem)
            with pq.ParquetFile(self.path) as file:
                yield file
        except (OSError, pa.ArrowException) as error:
            raise ReadError(self.path, None, f"the table is damaged: {error}") from None

    def copy_to(self, path: Path) -> None:
        """Link the file under another path, or copy it where links are not possible.

        Parameters
        ----------
        path : Path
            New path.
        """
        try:
            os.link(self.path, path)
        except OSError:
            shutil.copyfile(self.path, path)


def _version(path: Path) -> tuple[int, int, int]:
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


class PieceWriter:
    """Writes Arrow tables to a Parquet file, several of them as one row group.

    The description of a row group stays in memory until the file is complete, and whoever opens the
    file reads all of them. A group of each small table would cost more than its rows.

    Parameters
    ----------
    path : Path
        File to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def write(self, piece: pa.Table) -> None:
        """Add the next rows.

        Parameters
        ----------
        piece : pyarrow.Table
            Rows with the same columns as the pieces before.
        """
        self._waiting.append(piece)
        self._bytes += piece.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self, complete: bool) -> None:
        """Close the file.

        Parameters
        ----------
        complete : bool
            True to write the rows that are left; False after an error.
        """
        try:
            if complete and self._waiting:
                self._write_group()
        finally:
            if self._file is not None:
                self._file.close()

    def _write_group(self) -> None:
        if self._file is None:
            self._file = pq.ParquetWriter(self.path, self._waiting[0].schema)
        schema = self._file.schema
        group = pa.concat_tables([piece.cast(schema) for piece in self._waiting])
        self._waiting, self._bytes = [], 0
        self._file.write_table(group.unify_dictionaries(), row_group_size=max(group.num_rows, 1))


class TableWriter:
    """Writes a table to a Parquet file in pieces. Use it in a ``with`` block.

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

    def write(self, piece: pd.DataFrame) -> None:
        """Write the next rows.

        Parameters
        ----------
        piece : pandas.DataFrame
            Rows with the same columns as the pieces before.
        """
        table = pa.table({name: _to_arrow(column) for name, column in piece.items()})
        self._writer.write(table)


def _to_arrow(column: pd.Series) -> pa.Array:
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return pa.Array.from_pandas(column)
    categories = pa.array(list(column.cat.categories), pa.string())
    codes = pa.array(column.cat.codes, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, categories).cast(_LABEL)


def make_categorical(names: Sequence[str], rows: npt.NDArray[Any]) -> pd.Categorical[str]:
    """Create a categorical with ``names[i]`` for each ``i`` in ``rows``.

    Parameters
    ----------
    names : sequence of str
        Labels, some of which may be equal.
    rows : numpy.ndarray of shape (rows,)
        Index into ``names`` of each row.

    Returns
    -------
    pandas.Categorical
        The label of each row. The categories are the labels in the order of their first rows.

    Examples
    --------
    >>> list(make_categorical(["a", "b", "b"], np.array([2, 1, 0])).categories)
    ['b', 'a']
    """
    places: dict[str, int] = {}
    codes = np.full(len(names), -1)
    for each in pd.unique(rows).tolist():
        codes[each] = places.setdefault(names[each], len(places))
    return pd.Categorical.from_codes(codes[rows].tolist(), pd.Index(list(places), dtype="str"))

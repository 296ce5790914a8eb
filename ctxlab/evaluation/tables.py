"""Tables of a run in Parquet files. They are written in pieces, and read when they are needed.

A piece has the rows of some recordings, so that a table may be larger than memory. Labels, such as the
name of a recording, are categoricals. Their categories are the labels in the order of appearance, so
that a table is the same whether it was built at once or in pieces.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
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
        self.rows = about.num_rows
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
        try:
            if _version(self.path) != self._version:
                problem = (
                    "another run was saved here since this one was loaded; load the results again"
                )
                raise ReadError(self.path, None, problem)
            table = pq.ParquetFile(self.path).read(None if columns is None else list(columns))
            frame: pd.DataFrame = table.unify_dictionaries().to_pandas()
        except (OSError, pa.ArrowException) as error:
            raise ReadError(self.path, None, f"the table is damaged: {error}") from None
        if frame.empty:  # a file without labels does not store that they are texts
            labels = frame.select_dtypes("category").columns
            frame = frame.assign(**dict.fromkeys(labels, make_categorical((), np.arange(0))))
        return frame

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


class TableWriter:
    """Writes a table to a Parquet file in pieces. Use it in a ``with`` block.

    Parameters
    ----------
    path : Path
        File to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Complete the file."""
        if self._file is not None:
            self._file.close()

    def write(self, piece: pd.DataFrame) -> None:
        """Write the next rows.

        Parameters
        ----------
        piece : pandas.DataFrame
            Rows with the same columns as the pieces before.
        """
        table = pa.table({name: _to_arrow(column) for name, column in piece.items()})
        if self._file is None:
            self._file = pq.ParquetWriter(self.path, table.schema)
        self._file.write_table(table.cast(self._file.schema))


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

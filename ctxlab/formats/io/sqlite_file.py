"""Open SQLite databases read-only, also if they are remote, compressed or in use."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ctxlab.errors import ReadError
from ctxlab.formats.io.files import PathOrUrl, is_url, open_file

SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""


@contextmanager
def open_sqlite(path: PathOrUrl) -> Iterator[sqlite3.Connection]:
    """Open an SQLite database read-only. Errors of SQLite become errors that name the file.

    Invalid UTF-8 in texts is replaced. A remote or compressed database is copied temporarily.

    Parameters
    ----------
    path : str or Path
        Path or URL of the database.

    Yields
    ------
    sqlite3.Connection
        The connection, which returns rows as ``sqlite3.Row``.

    Raises
    ------
    ReadError
        If the file cannot be opened, or if SQLite reports an error.
    """
    with _local_copy(path) as local:
        try:
            with closing(sqlite3.connect(read_only_uri(local), uri=True, timeout=60)) as connection:
                connection.row_factory = sqlite3.Row
                connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # sqlite3 raises UnicodeDecodeError if a column name is not valid UTF-8.
            raise ReadError(path, None, str(error)) from None


def read_only_uri(path: Path) -> str:
    """Return the URI that makes SQLite open a database read-only.

    If there is no write-ahead log or journal, no process is writing to the database. SQLite then
    opens it as immutable and creates no files in its folder.

    Parameters
    ----------
    path : Path
        Path of the database.

    Returns
    -------
    str
        A ``file:`` URI with the mode as its query.
    """
    quiet = not any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    return f"{path.absolute().as_uri()}?{'immutable=1' if quiet else 'mode=ro'}"


@contextmanager
def _local_copy(path: PathOrUrl) -> Iterator[Path]:
    """Yield the path of the database, or of a temporary copy if it is remote or compressed."""
    if not is_url(path) and (local := Path(path)).is_file():
        with local.open("rb") as file:
            if file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC:
                yield local
                return
    with TemporaryDirectory() as folder:
        copy = Path(folder, "copy.db")
        with open_file(path) as packed, copy.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield copy

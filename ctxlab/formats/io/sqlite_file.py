"""Open SQLite databases read-only, also if they are remote, compressed or in use.

A database can contain views, virtual tables and computed columns, which run code of SQLite when they are
read. A view can run forever. Only ordinary tables can therefore be read, and only values up to
``MAX_VALUE_BYTES``.

References
----------
sqlite.org/security.html, "Untrusted SQLite Database Files".
"""

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
from ctxlab.formats.io.limits import MAX_VALUE_BYTES, too_long

SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""

_ALLOWED_ACTIONS = frozenset(
    (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_PRAGMA,
    )
)


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
        If the file cannot be opened, if SQLite reports an error, or if a query reads a view, a virtual
        table or a value that is too large.
    """
    with _local_copy(path) as local:
        try:
            with closing(sqlite3.connect(read_only_uri(local), uri=True, timeout=60)) as connection:
                connection.row_factory = sqlite3.Row
                connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                _restrict(connection)
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # sqlite3 raises UnicodeDecodeError if a column name is not valid UTF-8.
            raise ReadError(path, None, _error_text(error)) from None


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


def _restrict(connection: sqlite3.Connection) -> None:
    """Allow only queries of ordinary tables, and values of at most ``MAX_VALUE_BYTES``."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    # Virtual tables have no pages of their own.
    asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND coalesce(rootpage, 0) = 0"
    virtual = {name.casefold() for (name,) in connection.execute(asked)}

    def allow(action: int, first: str | None, second: str | None, _: object, view: object) -> int:
        if action not in _ALLOWED_ACTIONS or view is not None:
            return sqlite3.SQLITE_DENY
        reads_virtual = action == sqlite3.SQLITE_READ and (first or "").casefold() in virtual
        return sqlite3.SQLITE_DENY if reads_virtual else sqlite3.SQLITE_OK

    connection.set_authorizer(allow)


def _error_text(error: Exception) -> str:
    text = str(error)
    if "too big" in text:
        return str(too_long("a value in the database"))
    if any(each in text for each in ("not authorized", "prohibited", "vtable constructor")):
        remedy = "copy its rows to a table"
        return f"expected an ordinary table, got a view or a virtual table; {remedy}"
    return text


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

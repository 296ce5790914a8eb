"""Read what can be read of a damaged database, and copy it to a new one.

SQLite refuses a table of which a single page is damaged. This module reads the pages of the file and
of its write-ahead log without SQLite, whose file format is documented, and takes each intact row.

References
----------
sqlite.org/fileformat2.html, "B-tree Pages", "Record Format" and "The Write-Ahead Log".
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxlab.context.turns import TurnCounter
from ctxlab.formats.io.sqlite_file import SQLITE_MAGIC, read_only_uri
from ctxlab.sessions.common import is_session_id
from ctxlab.sessions.damage import find_role
from ctxlab.sessions.sqlite.schema import migrate_schema

TABLES = {
    "chat_sessions": (
        *("session_id", "title", "model", "status", "created_at", "updated_at", "summary"),
        *("recent_messages", "plan_steps", "current_step_index", "awaiting_continuation", "paused"),
        *("agent", "file", "strategy", "system", "tools", "meta", "owner", "messages", "turns"),
        *("replied", "window_stop", "steps"),
    ),
    "messages": ("id", "session_id", "position", "turn", "row", "indexed", "step"),
    "lines": ("session_id", "turn", "line"),
    "titles": ("session_id", "place", "title", "changed_at", "turn", "interaction_id"),
}
"""Columns of the tables of the current schema, in the order in which they are stored."""

_KEYS = {
    "chat_sessions": ("session_id",),
    "messages": ("session_id", "position"),
    "lines": ("session_id", "turn"),
    "titles": ("session_id", "place"),
}
_TABLE_LEAF, _INDEX_LEAF = 0x0D, 0x0A
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_DEFAULT_PAGE_SIZE = 4096
_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of an integer by its type

Row = dict[str, Any]


@dataclass
class SalvagedRows:
    """Rows of a damaged database, by table and primary key."""

    rows: dict[str, dict[tuple[Any, ...], Row]] = field(
        default_factory=lambda: {name: {} for name in TABLES}
    )
    "values by column, of each row"
    refused: list[str] = field(default_factory=list)
    "tables that SQLite could not read to their end"

    def add(self, table: str, row: Row) -> None:
        """Add a row, unless a row with its key is known.

        Parameters
        ----------
        table : str
            Name of the table.
        row : dict
            Values by column.
        """
        key = tuple(row[name] for name in _KEYS[table])
        self.rows[table].setdefault(key, row)


def salvage_rows(path: Path, *, extra_log: Path | None = None) -> SalvagedRows:
    """Read the rows of a damaged database.

    Rows that SQLite can read are preferred, since pages can contain rows of an earlier state.

    Parameters
    ----------
    path : Path
        Database file. Its write-ahead log is read, too.
    extra_log : Path, optional
        Another file with a write-ahead log of the database.

    Returns
    -------
    SalvagedRows
        All rows that are intact.
    """
    found = SalvagedRows()
    for table in TABLES:
        try:
            for row in _read_table(path, table):
                found.add(table, row)
        except sqlite3.Error:
            found.refused.append(table)
    if found.refused or extra_log is not None:
        for table, row in _scan_pages(_read_pages(path, extra_log)):
            found.add(table, row)
    return found


def copy_rows(found: SalvagedRows, connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in a new database, and insert rows.

    Sessions of which only messages are left get a new row. Rows that the schema refuses are left out.

    Parameters
    ----------
    found : SalvagedRows
        Rows to insert.
    connection : sqlite3.Connection
        Connection to an empty database.
    path : Path
        Name of the database in error messages.
    """
    connection.row_factory = sqlite3.Row
    migrate_schema(connection, path)
    with connection:
        for row in found.rows["chat_sessions"].values():
            insert_row(connection, "chat_sessions", row)
        ids = {id for (id,) in connection.execute("SELECT session_id FROM chat_sessions")}
        for id in {row["session_id"] for row in found.rows["messages"].values()} - ids:
            if is_session_id(id):
                insert_row(connection, "chat_sessions", missing_session(id))
        for table in ("messages", "lines", "titles"):
            for _, row in sorted(found.rows[table].items(), key=lambda item: str(item[0])):
                # Ids of messages are only used by the full-text index, which is built again.
                changed = {"id": None, "indexed": 0} if table == "messages" else {}
                with suppress(sqlite3.IntegrityError):
                    insert_row(connection, table, row | changed)


def missing_session(id: str) -> Row:
    """Return the row of a session of which only the messages are left.

    Parameters
    ----------
    id : str
        Session id.

    Returns
    -------
    dict of str to object
        Values of the table ``chat_sessions``.
    """
    row: Row = dict.fromkeys(TABLES["chat_sessions"])
    zeros = ("created_at", "updated_at", "system", "messages", "turns", "window_stop", "steps")
    row |= dict.fromkeys((*zeros, "awaiting_continuation", "paused"), 0)
    texts = {"title": "", "summary": "", "recent_messages": "[]", "tools": "[]", "meta": "{}"}
    return row | texts | {"session_id": id, "status": "closed", "replied": 1}


def counter_after(turn: int, step: int, text: str | bytes) -> TurnCounter:
    """Return the counter after a stored message.

    Parameters
    ----------
    turn : int
        Turn of the message.
    step : int
        Step of the message.
    text : str or bytes
        Stored row of the message.

    Returns
    -------
    TurnCounter
        Counter that has counted the message. A user message has no reply yet.
    """
    return TurnCounter(turn, step, find_role(text) != "user")


def insert_row(connection: sqlite3.Connection, table: str, row: Row) -> None:
    """Insert a row, unless a row with its key exists. A session that was active is closed.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection with an open transaction.
    table : str
        Name of the table.
    row : dict
        Values by column.
    """
    names = [name for name in TABLES[table] if name in row]
    marks = ", ".join("?" for _ in names)
    if table == "chat_sessions" and row.get("status") == "active":
        row = row | {"status": "closed", "owner": None}
    asked = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})"
    connection.execute(asked, [row[name] for name in names])


def _read_table(path: Path, table: str) -> Iterator[Row]:
    """Yield the rows of a table that SQLite can read. Raise ``sqlite3.Error`` at a damaged page."""
    with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.row_factory = sqlite3.Row
        names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if not names:
            raise sqlite3.DatabaseError(f"the table {table} is missing")
        for row in connection.execute(f"SELECT * FROM {table}"):
            yield dict(row)


def _read_pages(path: Path, extra_log: Path | None) -> Iterator[tuple[list[bytes], int]]:
    """Yield the pages of a database, and how many bytes at the end of each are not used.

    The pages of the write-ahead log are newer, and are yielded first. Its checksums are not verified:
    a page of which a part is damaged is read as far as it is intact.
    """
    data = path.read_bytes() if path.exists() else b""
    size, unused = _DEFAULT_PAGE_SIZE, 0
    if data.startswith(SQLITE_MAGIC):
        size = int.from_bytes(data[16:18], "big")
        size, unused = 65536 if size == 1 else size, data[20]
    if size < 512 or size & (size - 1):
        size, unused = _DEFAULT_PAGE_SIZE, 0
    pages = [data[at : at + size] for at in range(0, len(data) - size + 1, size)]
    for log in (path.with_name(f"{path.name}-wal"), extra_log):
        if log is None or not log.exists():
            continue
        frames = _read_frames(log.read_bytes(), size)
        newest = dict(frames)
        count = max([len(pages), *newest])
        # A page can refer to overflow pages, which may be in the log or in the file.
        stored = [*pages, *[bytes(size)] * (count - len(pages))]
        yield [newest.get(n, page) for n, page in enumerate(stored, 1)], unused
        yield [page for _, page in reversed(frames)], unused  # earlier states of the pages
    yield pages, unused


def count_committed(data: bytes) -> int:
    """Return the number of frames in a write-ahead log up to the last one that ends a transaction.

    Parameters
    ----------
    data : bytes
        Content of the log.

    Returns
    -------
    int
        Number of frames. Their checksums are not verified.
    """
    size = int.from_bytes(data[8:12], "big")
    if len(data) < 32 or int.from_bytes(data[:4], "big") not in _WAL_MAGIC or size < 512:
        return 0
    count = 0
    for number, at in enumerate(range(32, len(data) - size - 24 + 1, size + 24), start=1):
        if data[at + 8 : at + 16] != data[16:24]:
            break
        count = number if data[at + 4 : at + 8] != b"\0\0\0\0" else count
    return count


def _read_frames(data: bytes, size: int) -> list[tuple[int, bytes]]:
    """Return page number and content of each frame of a write-ahead log that belongs to its header."""
    salt = data[16:24]
    if len(data) < 32 or int.from_bytes(data[:4], "big") not in _WAL_MAGIC:
        salt = b""
    found = []
    for at in range(32, len(data) - size - 24 + 1, size + 24):
        number = int.from_bytes(data[at : at + 4], "big")
        if 0 < number < 1 << 24 and (not salt or data[at + 8 : at + 16] == salt):
            found.append((number, data[at + 24 : at + 24 + size]))
    return found


def _scan_pages(images: Iterator[tuple[list[bytes], int]]) -> Iterator[tuple[str, Row]]:
    for pages, unused in images:
        for number, page in enumerate(pages):
            start = 100 if number == 0 and page.startswith(SQLITE_MAGIC) else 0
            if len(page) < 512 or page[start] not in (_TABLE_LEAF, _INDEX_LEAF):
                continue
            for values in _read_cells(pages, page, start, len(page) - unused):
                if (found := _identify(values)) is not None:
                    yield found


def _identify(values: list[Any]) -> tuple[str, Row] | None:
    """Return the table that a record belongs to, and its values by column; None if it is another."""
    for table, columns in TABLES.items():
        row = dict(zip(columns, values, strict=False))
        if table == "messages" and len(values) == len(columns):
            whole = (row["position"], row["turn"], row["step"])
            if is_session_id(row["session_id"]) and isinstance(row["row"], str):
                return (table, row) if all(type(each) is int for each in whole) else None
        elif table == "chat_sessions" and 12 <= len(values) <= len(columns):
            if is_session_id(values[0]) and row["status"] in ("active", "closed", "archived"):
                return table, missing_session(values[0]) | row
        elif len(values) == len(columns) and is_session_id(values[0]) and type(values[1]) is int:
            texts = [row[name] for name in ("line", "title") if name in row]
            return (table, row) if all(isinstance(text, str) for text in texts) else None
    return None


def _read_cells(pages: list[bytes], page: bytes, start: int, usable: int) -> Iterator[list[Any]]:
    """Yield the values of each record of a leaf page. Records that are damaged are left out."""
    kind = page[start]
    (count,) = struct.unpack_from(">H", page, start + 3)
    for place in range(start + 8, min(start + 8 + 2 * count, usable - 1), 2):
        (at,) = struct.unpack_from(">H", page, place)
        try:
            size, at = _read_varint(page, at)
            if kind == _TABLE_LEAF:
                _, at = _read_varint(page, at)  # the row id
            payload = _read_payload(pages, page, at, size, usable, kind == _TABLE_LEAF)
            yield _parse_record(payload)
        except (IndexError, ValueError, struct.error):
            continue


def _read_payload(
    pages: list[bytes], page: bytes, at: int, size: int, usable: int, is_table: bool
) -> bytes:
    most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
    if size <= most:
        if at + size > usable:
            raise ValueError("the record is longer than its page")
        return page[at : at + size]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    parts, left = [page[at : at + local]], size - local
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    while left > 0:
        if not 0 < following <= len(pages) or len(parts) > len(pages):
            raise ValueError("an overflow page is missing")
        part = pages[following - 1]
        parts.append(part[4 : 4 + min(left, usable - 4)])
        left -= usable - 4
        following = int.from_bytes(part[:4], "big")
    return b"".join(parts)


def _parse_record(payload: bytes) -> list[Any]:
    end, at = _read_varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _read_varint(payload, at)
        kinds.append(kind)
    values: list[Any] = []
    at = end
    for kind in kinds:
        size = _SIZES.get(kind, 8 if kind == 7 else (kind - 12) // 2 if kind >= 12 else 0)
        part = payload[at : at + size]
        if len(part) < size or kind in (10, 11):
            raise ValueError("the record is cut")
        at += size
        if kind == 0:
            values.append(None)
        elif kind == 7:
            values.append(struct.unpack(">d", part)[0])
        elif kind in (8, 9):
            values.append(kind - 8)
        elif kind < 7:
            values.append(int.from_bytes(part, "big", signed=True))
        else:
            values.append(part if kind % 2 == 0 else part.decode(errors="replace"))
    return values


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(9):
        byte = data[at + place]
        if place == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("not a number")

"""Read sessions from the SQLite database of a workspace.

``SqliteStore`` writes the database ``.ctxlab/sessions.db``. Each session becomes one recording. The
table ``chat_sessions`` has one row per session. The table ``messages`` contains all messages
(``session_id``, ``position``, and ``row`` with a message in the native format). The table ``lines``
contains a one-line summary of each turn. In version 2, the number of a turn in this table counts each
reply of the model. Databases of version 1 contain only the newest messages, in the column
``recent_messages``. The database is opened read-only and can be read while a
chat uses it. Reading leaves no other files in its folder.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.ctxlab_sessions.chunks import COPIED_FROM_KEY, SESSION_META_KEYS
from ctxlab.formats.ctxlab_sessions.step_numbers import renumber_summaries
from ctxlab.formats.fields import get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.sqlite_file import SQLITE_MAGIC, open_sqlite
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, Recording

_APPLICATION_ID = b"CTXL"  # PRAGMA application_id, at byte 68 of the file
_SESSIONS_TABLE = b"CREATE TABLE chat_sessions"
MAX_SCHEMA_VERSION = 4
"""Newest version of the database schema that can be read."""


def sniff(head: FileHead) -> bool:
    """Check whether a file is a database in which ctxlab stores sessions.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True for an SQLite database with ctxlab's application id or a table ``chat_sessions``.
    """
    start = head.first_bytes
    ours = start[68:72] == _APPLICATION_ID or _SESSIONS_TABLE in start
    return ours and start.startswith(SQLITE_MAGIC)


def read(source: Source) -> Iterator[Recording]:
    """Read the sessions of a database.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        One recording per session, oldest first.

    Raises
    ------
    ReadError
        If the database is damaged, or was written by a newer version of ctxlab, or if a session is
        malformed and ``on_error`` is ``"raise"``.
    """
    with open_sqlite(source.path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > MAX_SCHEMA_VERSION:
            told = f"expected a database version of at most {MAX_SCHEMA_VERSION}"
            raise ReadError(source.path, None, f"{told}, got {version}; upgrade ctxlab")
        asked = "SELECT * FROM chat_sessions ORDER BY created_at, rowid"
        for number, row in enumerate(connection.execute(asked).fetchall()):
            recording = None
            with source.handle_errors(number, "session"):
                recording = _read_session(connection, dict(row), source, version)
            if recording is not None:
                yield recording


FORMAT = Format(
    "session-db",
    "ctxlab: sessions of a workspace (SqliteStore)",
    sniff,
    read,
    versions="database versions 1 to 3",
    not_read=(
        "not in databases of version 1: all but the newest messages; left out: summaries, "
        "plans and earlier titles of sessions"
    ),
)


def _read_session(
    connection: sqlite3.Connection, row: dict[str, Any], source: Source, version: int
) -> Recording:
    id = str(row["session_id"])
    said = _parse_column(row.get("meta"), dict, f"meta of session {id}", source)
    said |= {key: value for key in SESSION_META_KEYS if (value := get_text(row, key))}
    if row.get("system"):
        said["system"] = True
    if isinstance(created := row["created_at"], (int, float)):
        said["created"] = created / 1000
    if "meta" not in row:  # version 1
        rows = _parse_column(row["recent_messages"], list, f"recent messages of {id}", source)
        messages = list(_parse_messages(enumerate(rows), source))
    else:
        asked = "SELECT position, row FROM messages WHERE session_id = ? ORDER BY position"
        messages = list(_parse_messages(map(tuple, connection.execute(asked, (id,))), source))
        asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
        lines = dict(connection.execute(asked, (id,)).fetchall())
        if version < 3:
            lines = renumber_summaries(lines, [message.role for message in messages])
        if lines:
            said["lines"] = {str(turn): line for turn, line in lines.items()}
    tools = _parse_column(row.get("tools"), list, f"tools of session {id}", source)
    model = row["model"] if isinstance(row["model"], str) else None
    cluster, known = get_text(said, COPIED_FROM_KEY), tuple(tools)
    return Recording(id or source.name, tuple(messages), known, model, cluster=cluster, meta=said)


def _parse_messages(rows: Iterator[tuple[Any, ...]], source: Source) -> Iterator[Message]:
    for position, row in rows:
        message = None
        with source.handle_errors(position, "message"):
            message = message_from_row(parse_json(row) if isinstance(row, (str, bytes)) else row)
        if message is not None:
            yield message


def _parse_column(text: Any, kind: type, label: str, source: Source) -> Any:
    """Parse a JSON column. If it is malformed, report the error and return an empty value."""
    try:
        value = kind() if text is None else parse_json(text)
        if isinstance(value, kind):
            return value
        reason = f"must be a {kind.__name__}, got {type(value).__name__}"
    except (TypeError, ValueError) as error:
        reason = str(error)
    source.report_error(f"{label}: {reason}", 1, "column")
    return kind()

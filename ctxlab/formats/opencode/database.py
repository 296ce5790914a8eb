"""Read the database in which opencode stores its sessions since version 1.2.

The database is ``~/.local/share/opencode/opencode.db``. Each row of the table ``session`` becomes one
recording. The tables ``message`` and ``part`` contain the same JSON objects as an export, without
their ids; ``session`` describes how they are converted. The database can be read while opencode uses
it.

- A subagent's session names its parent (``parent_id``), and a copied session the original
  (``fork_session_id``). All sessions that descend from one session have the id of this session as
  their cluster.
- opencode 2 stores messages in the table ``session_message``. They are not read, but counted. In
  version 1, this table contains only notes about a change of the agent or the model.

References
----------
github.com/sst/opencode (now github.com/anomalyco/opencode), versions 1.2 to 1.18,
``packages/opencode/src/session/session.sql.ts`` and ``packages/core/src/session/sql.ts``. The reader
follows this code, because the database for the tests is written by hand.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_text, parse_json_or_none, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.sqlite_file import SQLITE_MAGIC, open_sqlite
from ctxlab.formats.opencode.session import StoredMessage, build_recording
from ctxlab.messages.types import Recording

_TABLES = re.compile(rb"CREATE TABLE [`\"']?(session|message|part)[`\"']?\s*\(\s*[`\"']?id\b")
_ORIGINS = ("parent_id", "fork_session_id")
_CONVERSATION_TYPES = ("user", "assistant", "synthetic", "system", "skill", "shell", "compaction")
_INFO_COLUMNS = {
    "id": "id",
    "parentID": "parent_id",
    "version": "version",
    "title": "title",
    "directory": "directory",
    "agent": "agent",
    "cost": "cost",
}


def sniff(head: FileHead) -> bool:
    """Check whether a file is a database of opencode.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True for an SQLite database with the tables ``session``, ``message`` and ``part``.
    """
    start = head.first_bytes
    return start.startswith(SQLITE_MAGIC) and len({*_TABLES.findall(start)}) == 3


def read(source: Source) -> Iterator[Recording]:
    """Read the sessions of a database.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        One recording per session with messages, oldest first.

    Raises
    ------
    ReadError
        If the database is damaged, or if a message is malformed and ``on_error`` is ``"raise"``.
    """
    with open_sqlite(source.path) as connection:
        asked = "SELECT * FROM session ORDER BY time_created, id"
        sessions = {str(row["id"]): dict(row) for row in connection.execute(asked)}
        for id, session in sessions.items():
            info = {key: session.get(column) for key, column in _INFO_COLUMNS.items()}
            info["revert"] = parse_json_or_none(get_text(session, "revert") or "null")
            rows = list(_read_messages(connection, id, source))
            name, cluster = f"{source.name}/{id}", _find_origin(id, sessions)
            if recording := build_recording(source, name, info, rows, cluster):
                yield recording
        _count_unread(connection, source)


_ABOUT = "opencode sessions in its database (~/.local/share/opencode/opencode.db)"
FORMAT = Format("opencode-db", _ABOUT, sniff, read)


def _find_origin(id: str, sessions: dict[str, dict[str, Any]]) -> str:
    """Return the id of the first session from which a session descends. It may be the session itself."""
    seen = {id}
    while True:
        origins = (get_text(sessions.get(id), column) for column in _ORIGINS)
        origin = next(filter(None, origins), None)
        if origin is None or origin in seen:
            return id
        seen.add(origin)
        id = origin


def _read_messages(
    connection: sqlite3.Connection, session: str, source: Source
) -> Iterator[StoredMessage]:
    parts: dict[str, list[dict[str, Any]]] = {}
    asked = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id"
    for number, (id, message, data) in enumerate(connection.execute(asked, (session,))):
        with source.handle_errors(number, f"session {session}, part"):
            parts.setdefault(message, []).append(_parse_data(data) | {"id": id})
    asked = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for number, (id, data) in enumerate(connection.execute(asked, (session,))):
        with source.handle_errors(number, f"session {session}, message"):
            info = _parse_data(data) | {"id": id, "sessionID": session}
            yield StoredMessage(info, parts.pop(id, []), source.path, number)
    for orphans in parts.values():
        source.skip("part without its message", count=len(orphans))


def _parse_data(data: Any) -> dict[str, Any]:
    return require_object(parse_json(data), "data of a row")


def _count_unread(connection: sqlite3.Connection, source: Source) -> None:
    """Count the messages that opencode 2 stored."""
    asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'session_message'"
    if not connection.execute(asked).fetchone():
        return
    for (kind,) in connection.execute("SELECT type FROM session_message"):
        if kind in _CONVERSATION_TYPES:
            source.skip("message of opencode 2 (table session_message)")

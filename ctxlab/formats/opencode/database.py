"""Read the database in which opencode stores its sessions since version 1.2.

The database is ``~/.local/share/opencode/opencode.db``. Each session becomes one recording. The database
can be read while opencode uses it.

- opencode 1 uses the tables ``session``, ``message`` and ``part``. They contain the same JSON objects as
  an export, without their ids; ``session`` describes how they are converted.
- opencode 2 uses the tables ``session_v2`` and ``session_message``; see ``version_2``. The older tables
  remain as they were at the upgrade. opencode copies their messages to the new table with the same
  ids, but leaves out some of them. The reader therefore reads the older tables first, and then the
  messages of the new table with new ids.
- In opencode 1, ``session_message`` contains notes on the agent and the model. They are read only if
  the session has no other messages.
- The session of a subagent names its parent (``parent_id``; see ``subagents``), and a copied session
  the original (``fork_session_id``). All sessions that descend from one session have the id of this
  session as their cluster.

References
----------
github.com/sst/opencode (now github.com/anomalyco/opencode), versions 1.2 to 2.0:
``packages/opencode/src/session/session.sql.ts``, and in ``packages/core/src/session`` ``sql.ts``,
``message.ts`` and ``runner/to-llm-message.ts``. The databases for the tests are written by hand with the
tables and keys of real databases.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_number, get_text, parse_json_or_none, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.sqlite_file import SQLITE_MAGIC, open_sqlite
from ctxlab.formats.opencode.session import StoredMessage, build_recording
from ctxlab.formats.opencode.subagents import list_subagents, tie_to_parent
from ctxlab.formats.opencode.version_2 import convert_row
from ctxlab.messages.types import Recording

_CREATED_TABLE = re.compile(
    rb"CREATE TABLE [`\"']?(session|message|part|session_v2|session_message)[`\"']?\s*\(\s*[`\"']?id\b"
)
_TABLES_1 = frozenset(("session", "message", "part"))
_TABLES_2 = frozenset(("session_v2", "session_message"))
_ORIGINS = ("parent_id", "fork_session_id")
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
        True for an SQLite database with the tables of opencode 1 or 2.
    """
    start = head.first_bytes
    tables = {name.decode() for name in _CREATED_TABLE.findall(start)}
    return start.startswith(SQLITE_MAGIC) and (tables >= _TABLES_1 or tables >= _TABLES_2)


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
        tables = _find_tables(connection)
        sessions: dict[str, dict[str, Any]] = {}
        for table in ("session", "session_v2"):
            asked = f"SELECT * FROM {table}"
            found = connection.execute(asked) if table in tables else ()
            sessions |= {str(row["id"]): dict(row) for row in found}
        subagents: dict[str, dict[str, str]] = {}
        created = {id: get_number(row, "time_created") or 0 for id, row in sessions.items()}
        for id in sorted(sessions, key=lambda id: (created[id], id)):
            session = sessions[id]
            info = {key: session.get(column) for key, column in _INFO_COLUMNS.items()}
            info["revert"] = parse_json_or_none(get_text(session, "revert") or "null")
            rows = list(_read_messages_1(connection, id, source)) if tables >= _TABLES_1 else []
            if tables >= _TABLES_2 or (not rows and "session_message" in tables):
                known = {row.info["id"] for row in rows}
                rows += _read_messages_2(connection, id, source, known)
            name, cluster = f"{source.name}/{id}", _find_origin(id, sessions)
            if recording := build_recording(source, name, info, rows, cluster):
                subagents[id] = list_subagents(recording)
                parent = get_text(session, "parent_id")
                if parent in subagents and parent != id:
                    call = subagents[parent].get(id)
                    recording = tie_to_parent(recording, f"{source.name}/{parent}", call)
                yield recording


_ABOUT = "opencode sessions in its database (~/.local/share/opencode/opencode.db)"
FORMAT = Format(
    "opencode-db",
    _ABOUT,
    sniff,
    read,
    versions="1.2 to 2.0 from source; no real file",
    not_read=(
        "not in the database: tool definitions, most of the system prompt; left out: failed "
        "answers of version 1, patches, files that are neither images nor text, usage of "
        "summaries, notes on the session"
    ),
)


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


def _find_tables(connection: sqlite3.Connection) -> set[str]:
    asked = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return {name for (name,) in connection.execute(asked)}


def _read_messages_1(
    connection: sqlite3.Connection, session: str, source: Source
) -> Iterator[StoredMessage]:
    """Yield the messages that opencode 1 stored."""
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


def _read_messages_2(
    connection: sqlite3.Connection, session: str, source: Source, known: set[str]
) -> Iterator[StoredMessage]:
    """Yield the messages that opencode 2 stored, without those whose ids are known."""
    order = "seq" if "seq" in _find_columns(connection, "session_message") else "time_created, id"
    asked = f"SELECT id, type, data FROM session_message WHERE session_id = ? ORDER BY {order}"
    for number, (id, kind, data) in enumerate(connection.execute(asked, (session,))):
        if id in known:
            continue
        with source.handle_errors(number, f"session {session}, message"):
            row = _parse_data(data) | {"id": id, "sessionID": session}
            for info, parts in convert_row(str(kind), row, source.skip):
                yield StoredMessage(info, parts, source.path, number)


def _find_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}


def _parse_data(data: Any) -> dict[str, Any]:
    return require_object(parse_json(data), "data of a row")

"""Versioned schema of a workspace's database, with migrations from older versions.

The version is stored in ``PRAGMA user_version``. Version 1 has a single table with the newest messages
of each session, as in the design document "Workspace-scoped sessions" (see ``tests/SEEDS.md``).
Version 2 stores all messages of each session, so that the session can be replayed. It also stores the
fields of ``Session`` that version 1 lacks. Version 3 numbers messages by turns and steps; before, each
step counted as a turn. Version 4 has a new full-text index, whose words contain marks. Times are
stored as milliseconds since 1970.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import SessionError
from ctxlab.formats.ctxlab_sessions.step_numbers import renumber_summaries, turns_by_step_number
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message, Role
from ctxlab.sessions.common import interaction_id
from ctxlab.sessions.resume_messages import message_from_window_row, pair_tool_results

APPLICATION_ID = 0x4354584C
"""``PRAGMA application_id`` of ctxlab databases: the letters CTXL."""

_LOG = logging.getLogger("ctxlab.sessions")
_INDEX_IS_OLD = 3  # from this version on, only the full-text index differs

_CREATE_VERSION_1 = """
CREATE TABLE chat_sessions (
    session_id TEXT PRIMARY KEY,
    title TEXT,
    model TEXT,
    status TEXT CHECK(status IN ('active', 'closed', 'archived')),
    created_at INTEGER,
    updated_at INTEGER,
    summary TEXT,
    recent_messages TEXT,
    plan_steps TEXT,
    current_step_index INTEGER,
    awaiting_continuation INTEGER,
    paused INTEGER
);
"""

_UPGRADE_TO_VERSION_2 = """
ALTER TABLE chat_sessions ADD COLUMN agent TEXT;
ALTER TABLE chat_sessions ADD COLUMN file TEXT;
ALTER TABLE chat_sessions ADD COLUMN strategy TEXT;
ALTER TABLE chat_sessions ADD COLUMN system INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chat_sessions ADD COLUMN tools TEXT NOT NULL DEFAULT '[]';
ALTER TABLE chat_sessions ADD COLUMN meta TEXT NOT NULL DEFAULT '{}';
ALTER TABLE chat_sessions ADD COLUMN owner TEXT;
ALTER TABLE chat_sessions ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chat_sessions ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chat_sessions ADD COLUMN replied INTEGER NOT NULL DEFAULT 1;
ALTER TABLE chat_sessions ADD COLUMN window_stop INTEGER NOT NULL DEFAULT 0;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES chat_sessions ON DELETE CASCADE,
    position INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    row TEXT NOT NULL,
    indexed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session_id, position)
);
CREATE INDEX messages_turn ON messages (session_id, turn, position);
CREATE INDEX messages_unindexed ON messages (id) WHERE indexed = 0;
CREATE TABLE lines (
    session_id TEXT NOT NULL REFERENCES chat_sessions ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (session_id, turn)
) WITHOUT ROWID;
CREATE TABLE titles (
    session_id TEXT NOT NULL REFERENCES chat_sessions ON DELETE CASCADE,
    place INTEGER NOT NULL,
    title TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    interaction_id TEXT NOT NULL,
    PRIMARY KEY (session_id, place)
) WITHOUT ROWID;
"""

_UPGRADE_TO_VERSION_3 = """
ALTER TABLE chat_sessions ADD COLUMN steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN step INTEGER NOT NULL DEFAULT 0;
DROP INDEX messages_turn;
CREATE INDEX messages_step ON messages (session_id, turn, step, position);
"""

# System sessions may be active at the same time as the user's session.
_CREATE_ONE_ACTIVE_INDEX = """
UPDATE chat_sessions SET status = 'closed' WHERE status IS NULL OR status = 'active' AND rowid <> (
    SELECT rowid FROM chat_sessions WHERE status = 'active' ORDER BY updated_at DESC, rowid DESC
);
CREATE UNIQUE INDEX one_active ON chat_sessions (status) WHERE status = 'active' AND NOT system;
"""


def migrate_schema(
    connection: sqlite3.Connection, path: Path, *, is_read_only: bool = False
) -> bool:
    """Create the tables of a new database, or migrate an older one, in one transaction.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection without an open transaction.
    path : Path
        Database file, for error messages.
    is_read_only : bool, default False
        True if the database cannot be written. It is then not migrated if only its full-text index is
        old.

    Returns
    -------
    bool
        True if the database now has the newest version, False if its full-text index is old.

    Raises
    ------
    SessionError
        If a newer version of ctxlab wrote the database, or if it is not a database of ctxlab.
    """
    version = _read_version(connection, path)
    if version == SCHEMA_VERSION:
        return True
    if is_read_only and version >= _INDEX_IS_OLD:
        return False
    with connection:  # commits, or rolls back after an error
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have migrated the database while this one waited.
        for number in range(_read_version(connection, path), SCHEMA_VERSION):
            for step in MIGRATIONS[number]:
                if callable(step):
                    step(connection)
                else:  # ``executescript`` would commit the transaction
                    for statement in step.split(";\n"):
                        connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return True


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise SessionError(
            f"{path}: expected a schema version of at most {SCHEMA_VERSION}, got {version}; "
            "upgrade ctxlab"
        )
    if version > 1:
        return int(version)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if tables and "chat_sessions" not in tables:
        raise SessionError(f"{path}: not a ctxlab database: the table chat_sessions is missing")
    return 1 if tables else 0


def _convert_seconds(connection: sqlite3.Connection) -> None:
    """Convert times that were stored in seconds to milliseconds."""
    for column in ("created_at", "updated_at"):
        milliseconds = f"CAST({column} * 1000 AS INTEGER) WHERE {column} < 100000000000"
        connection.execute(f"UPDATE chat_sessions SET {column} = {milliseconds}")


def _create_transcripts(connection: sqlite3.Connection) -> None:
    """Fill the table ``messages`` for sessions that version 1 stored.

    Version 1 stored only the recent messages of a session, in one column.
    """
    kept = connection.execute("SELECT session_id, recent_messages FROM chat_sessions").fetchall()
    for id, text in kept:
        try:
            rows = map(message_from_window_row, parse_json(text or "[]"))
            messages = pair_tool_results(rows)
        except (TypeError, ValueError) as error:
            _LOG.warning("session %r: cannot read its recent messages: %s", id, error)
            continue
        for position, message in enumerate(messages):
            connection.execute(
                "INSERT INTO messages (session_id, position, turn, row) VALUES (?, ?, 0, ?)",
                (id, position, dump_json(row_from_message(message))),
            )
        connection.execute(
            "UPDATE chat_sessions SET messages = ?, window_stop = ? WHERE session_id = ?",
            (len(messages), len(messages), id),
        )


class _Speaker(msgspec.Struct):
    """The field of a stored message that decides where a turn or a step begins."""

    role: Role


def _number_steps(connection: sqlite3.Connection) -> None:
    """Assign turns and steps to the messages, and convert the turns of summaries and titles."""
    decode = msgspec.json.Decoder(_Speaker).decode
    for (id,) in connection.execute("SELECT session_id FROM chat_sessions").fetchall():
        counter, roles, numbers = TurnCounter(), list[str](), list[tuple[int, int, int]]()
        asked = "SELECT id, row FROM messages WHERE session_id = ? ORDER BY position"
        for message_id, text in connection.execute(asked, (id,)):
            role: Role = "tool"  # a malformed message belongs to the step of the message before it
            with suppress(msgspec.DecodeError, TypeError):
                role = decode(text).role
            roles.append(role)
            numbers.append((*counter.add(Message(role)), message_id))
        connection.executemany("UPDATE messages SET turn = ?, step = ? WHERE id = ?", numbers)
        connection.execute(
            "UPDATE chat_sessions SET turns = ?, steps = ?, replied = ? WHERE session_id = ?",
            (counter.turn, counter.step, counter.replied, id),
        )
        asked = "SELECT turn, line FROM lines WHERE session_id = ?"
        lines = renumber_summaries(dict(connection.execute(asked, (id,)).fetchall()), roles)
        connection.execute("DELETE FROM lines WHERE session_id = ?", (id,))
        stored = [(id, turn, line) for turn, line in lines.items()]
        connection.executemany("INSERT INTO lines VALUES (?, ?, ?)", stored)
        turns = turns_by_step_number(roles)
        asked = "SELECT place, turn FROM titles WHERE session_id = ? AND turn > 0"
        for place, number in connection.execute(asked, (id,)).fetchall():
            turn = turns.get(number, 0)  # 0: the turn is unknown
            connection.execute(
                "UPDATE titles SET turn = ?, interaction_id = ? WHERE session_id = ? AND place = ?",
                (turn, interaction_id(id, turn) if turn else "", id, place),
            )


def _drop_index(connection: sqlite3.Connection) -> None:
    """Remove the full-text index, so that the next search creates it again."""
    # Without FTS5, SQLite cannot remove the index, and never reads it either.
    with suppress(sqlite3.OperationalError):
        connection.execute("DROP TABLE IF EXISTS messages_fts")
        connection.execute("UPDATE messages SET indexed = 0")


MIGRATIONS: tuple[tuple[str | Callable[[sqlite3.Connection], None], ...], ...] = (
    (_CREATE_VERSION_1,),
    (_UPGRADE_TO_VERSION_2, _CREATE_ONE_ACTIVE_INDEX, _convert_seconds, _create_transcripts),
    (_UPGRADE_TO_VERSION_3, _number_steps),
    (_drop_index,),
)
"""Migration steps: ``MIGRATIONS[n]`` migrates a database from version ``n`` to ``n + 1``."""

SCHEMA_VERSION = len(MIGRATIONS)
"""Schema version that this version of ctxlab writes."""

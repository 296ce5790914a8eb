"""Check and rebuild the database of a workspace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ctxlab.context.turns import TurnCounter
from ctxlab.errors import SessionError
from ctxlab.messages.openai_format import row_from_message
from ctxlab.sessions.common import encode_json
from ctxlab.sessions.sqlite import full_text as fts
from ctxlab.sessions.sqlite.connection import DamagedDatabase
from ctxlab.sessions.sqlite.rows import StoredSession, from_milliseconds
from ctxlab.sessions.sqlite.salvage import copy_rows, insert_row, salvage_rows
from ctxlab.sessions.sqlite.schema import migrate_schema
from ctxlab.sessions.sqlite.store import SqliteStore, current_process, is_process_alive

_MAX_FINDINGS = 20
_COUNT_UNINDEXED = """
SELECT count(*) FROM messages WHERE indexed AND id NOT IN (SELECT id FROM messages_fts_docsize)
"""


def reopened(store: SqliteStore) -> SqliteStore:
    """Return a store of the same database with empty caches.

    Parameters
    ----------
    store : SqliteStore
        Open store.

    Returns
    -------
    SqliteStore
        Store of the same workspace.
    """
    return SqliteStore.from_database(store.path)


def check_database(store: SqliteStore) -> None:
    """Check the pages, the references, the numbers and the index of a database.

    Parameters
    ----------
    store : SqliteStore
        Store to check. Its ``damage`` is told what is found.
    """
    place = store.path
    try:
        with store._database.read_transaction() as connection:
            if connection is None:
                return
            for (said,) in connection.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})"):
                if said != "ok":
                    store.damage.tell(place, f"integrity check: {said}")
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
            for table, count in _count_tables(broken).items():
                store.damage.tell(place, f"{count:,} rows of {table} belong to no session")
            if store._has_index:
                (missing,) = connection.execute(_COUNT_UNINDEXED).fetchone()
                if missing:
                    store.damage.tell(place, f"the full-text index lacks {missing:,} messages")
    except DamagedDatabase as error:
        store.damage.tell(place, f"integrity check: {error.__cause__}")
    for session in [*store.sessions(), *store.sessions(status="archived")]:
        _check_numbers(store, session.id)
    if store._has_index and not store._database.is_read_only:
        with suppress(_Checked):
            try:
                with store._database.write_transaction() as connection:
                    asked = "INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')"
                    connection.execute(asked)
                    raise _Checked  # rolls back: nothing is written
            except DamagedDatabase as error:
                store.damage.tell(place, f"the full-text index is damaged ({error.__cause__})")


class _Checked(Exception):
    pass


def _count_tables(rows: list[sqlite3.Row]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row[0]] = counts.get(row[0], 0) + 1
    return counts


def _check_numbers(store: SqliteStore, id: str) -> None:
    """Compare the stored turns and steps of a session with those of its messages."""

    def read(session: StoredSession) -> list[tuple[int, int]]:
        asked = "SELECT turn, step FROM messages WHERE session_id = ? ORDER BY position"
        return [tuple(row) for row in session.connection.execute(asked, (id,))]

    stored, counter = store._read_session(id, read), TurnCounter()
    counted = [counter.add(message) for message in store.read_messages(id)]
    if len(stored) == len(counted) and any(a != b for a, b in zip(stored, counted, strict=True)):
        said = "the numbers of turns or steps are wrong"
        store.damage.tell(f"messages, session {id!r}", said, id)


@contextmanager
def locked(store: SqliteStore) -> Iterator[None]:
    """Prevent other processes from writing to a database.

    Parameters
    ----------
    store : SqliteStore
        Store to lock.

    Yields
    ------
    None
        No value; the database is locked inside the ``with`` block.

    Raises
    ------
    SessionError
        If another process writes to the database or has an active session in it.
    """
    owners: tuple[sqlite3.Row, ...] = ()
    with suppress(SessionError):
        asked = "SELECT session_id, owner, updated_at FROM chat_sessions WHERE status = 'active'"
        owners = tuple(store._read(lambda each: each.execute(asked).fetchall()) or ())
    for id, owner, updated in owners:
        if owner != current_process() and is_process_alive(owner, from_milliseconds(updated)):
            raise SessionError(
                f"{store.path}: another process has session {id!r} open; end it first"
            )
    connection = sqlite3.connect(store.path, timeout=1, isolation_level=None)
    with closing(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            said = "another process is writing to the database; end it first"
            raise SessionError(f"{store.path}: {said} ({error})") from None
        except sqlite3.DatabaseError:
            pass  # SQLite cannot open it, so no process writes to it
        yield


def rebuild(store: SqliteStore, folder: Path) -> SqliteStore:
    """Write what can be read of a database to a new one.

    Parameters
    ----------
    store : SqliteStore
        Store with the damaged database.
    folder : Path
        Copy of the folder of the database. The database in it is replaced.

    Returns
    -------
    SqliteStore
        Store of the new database.
    """
    log = store._database.damaged_log
    found = salvage_rows(store.path, extra_log=log if log.exists() else None)
    with closing(sqlite3.connect(":memory:")) as source:
        copy_rows(found, source, store.path)
        for path in folder.glob(f"{store.path.name}*"):
            path.unlink()
        made = SqliteStore.from_database(folder / store.path.name)
        with made._database.write_transaction() as target:
            migrate_schema(target, made.path)
            for (id,) in source.execute("SELECT session_id FROM chat_sessions").fetchall():
                _copy_session(store, source, target, id)
            if fts.has_index(target):
                fts.index_missing(target)
    return made


def _copy_session(
    store: SqliteStore, source: sqlite3.Connection, target: sqlite3.Connection, id: str
) -> None:
    session = store._fetch(source, id)
    counter, count = TurnCounter(), session.row["messages"]
    texts: list[tuple[int, int, str]] = []
    while len(texts) < count:
        texts += [
            (*counter.add(message), encode_json(row_from_message(message), "a message"))
            for message in session.read_messages(len(texts), count)
        ]
    numbers = {"turns": counter.turn, "steps": counter.step, "replied": counter.replied}
    row = {name: _plain(value) for name, value in dict(session.row).items()}
    row["window_stop"] = min(row["window_stop"], count)
    insert_row(target, "chat_sessions", row | numbers)
    for position, (turn, step, text) in enumerate(texts):
        message_row = {"session_id": id, "position": position, "turn": turn, "step": step}
        insert_row(target, "messages", message_row | {"row": text, "indexed": 0})
    for table in ("lines", "titles"):
        for each in source.execute(f"SELECT * FROM {table} WHERE session_id = ?", (id,)):
            insert_row(target, table, {name: _plain(value) for name, value in dict(each).items()})


def _plain(value: object) -> object:
    return str(value) if isinstance(value, str) else value

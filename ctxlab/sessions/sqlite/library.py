"""The sessions of a workspace can be read and searched, whoever writes them meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ctxlab.errors import UnknownSession
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import SearchHit, Session, SessionStatus
from ctxlab.sessions.common import filter_sessions, session_to_recording
from ctxlab.sessions.sqlite import full_text as fts
from ctxlab.sessions.sqlite.connection import Database
from ctxlab.sessions.sqlite.rows import (
    parse_stored_message,
    read_message_rows,
    read_titles,
    session_from_row,
)
from ctxlab.sessions.sqlite.schema import migrate_schema
from ctxlab.sessions.text_search import search_messages

__all__ = ["SqliteLibrary"]

_SELECT_SESSION = "SELECT * FROM chat_sessions WHERE session_id = ?"


class SqliteLibrary:
    """What a ``SqliteStore`` lets be read: a ``SessionLibrary`` over one database.

    ``path``: the database, which need not be there. ``index``: whether words are found by an index.
    """

    def __init__(self, path: Path, *, durable: bool, index: bool) -> None:
        self.path = path
        self._wants_index = index
        self._has_index = False
        self._database = Database(path, self._on_connect, durable=durable)

    def _on_connect(self, connection: sqlite3.Connection) -> None:
        migrate_schema(connection, self.path)
        if self._wants_index and not self._database.is_read_only:
            fts.create_index(connection)
        self._has_index = self._wants_index and fts.has_index(connection)

    def close(self) -> None:
        """See ``SessionStore``."""
        self._database.close()

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: SessionStatus | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """See ``SessionLibrary``."""
        with self._database.read_transaction() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT * FROM chat_sessions WHERE status = :status "
                "OR :status IS NULL AND status <> 'archived' "
                "ORDER BY updated_at DESC, rowid DESC",
                {"status": status},
            ).fetchall()
            titles = read_titles(connection)
        found = (session_from_row(row, titles.get(row["session_id"], ())) for row in rows)
        return list(
            filter_sessions(found, query, since=since, before=before, status=status, agent=agent)
        )

    def get(self, id: str) -> Session:
        """See ``SessionLibrary``."""
        with self._reading_session(id) as (connection, row):
            return self._build_session(connection, row)

    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """See ``SessionLibrary``."""
        with self._reading_session(id) as (_, row):
            end = row["messages"] if stop is None else min(stop, row["messages"])
        return self._read_pages(id, max(0, start), end, row["created_at"])

    def _read_pages(self, id: str, start: int, stop: int, created: int) -> Iterator[Message]:
        # Page by page, so that a reader that takes its time keeps nobody waiting.
        while start < stop:
            with self._reading_session(id) as (connection, row):
                rows = read_message_rows(connection, id, start, stop)
            if not rows or row["created_at"] != created:
                raise UnknownSession(id, self.path)  # another one of that id came in its place
            for position, text in rows:
                yield parse_stored_message(id, position, text)
            start = rows[-1][0] + 1

    def read_turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """See ``SessionLibrary``."""
        with self._reading_session(id) as (connection, row):
            rows = connection.execute(
                "SELECT position, row FROM messages WHERE session_id = ? AND turn = ? "
                "ORDER BY position",
                (id, number if 1 <= number <= row["turns"] else -1),
            ).fetchall()
            first = rows[0]["position"] if rows else row["messages"]
        return first, tuple(
            parse_stored_message(id, each["position"], each["row"]) for each in rows
        )

    def count_turns(self, id: str) -> int:
        """See ``SessionLibrary``."""
        with self._reading_session(id) as (_, row):
            return int(row["turns"])

    def turn_summaries(self, id: str) -> dict[int, str]:
        """See ``SessionLibrary``."""
        with self._reading_session(id) as (connection, _):
            asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
            return {row[0]: row[1] for row in connection.execute(asked, (id,))}

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[SearchHit]:
        """See ``SessionLibrary``; by BM25 where there is an index that holds all, or can be made to."""
        if id is not None:
            self.get(id)
        with self._database.read_transaction() as connection:
            if connection is None:
                return []
            behind = connection.execute("SELECT 1 FROM messages WHERE indexed = 0 LIMIT 1")
            if self._has_index and behind.fetchone() is None:
                return fts.search_index(connection, query, id, limit, offset)
        if self._has_index and not self._database.is_read_only:
            with self._database.write_transaction() as connection:
                fts.index_missing(connection)
                return fts.search_index(connection, query, id, limit, offset)
        ids = [id] if id is not None else [s.id for s in self.sessions() if not s.system]
        return search_messages(
            ((each, self.read_messages(each)) for each in ids), query, limit, offset
        )

    def recording(self, id: str) -> Recording:
        """See ``SessionLibrary``."""
        return session_to_recording(self.get(id), self.read_messages(id), self.turn_summaries(id))

    # --- inside a transaction ------------------------------------------------------------------

    @contextmanager
    def _reading_session(self, id: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        with self._database.read_transaction() as connection:
            if connection is None:
                raise UnknownSession(id, self.path)
            yield connection, self._fetch_row(connection, id)

    def _fetch_row(self, connection: sqlite3.Connection, id: str) -> sqlite3.Row:
        try:
            row = connection.execute(_SELECT_SESSION, (id,)).fetchone()
        except UnicodeEncodeError:
            row = None  # SQLite takes no lone surrogates
        if row is None:
            raise UnknownSession(id, self.path)
        found: sqlite3.Row = row
        return found

    def _build_session(self, connection: sqlite3.Connection, row: sqlite3.Row) -> Session:
        id = row["session_id"]
        return session_from_row(row, read_titles(connection, id).get(id, ()))

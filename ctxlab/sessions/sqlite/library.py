"""The sessions of a workspace can be read and searched, whoever writes them meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ctxlab.errors import UnknownSession
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.sessions.base import (
    Hit,
    Session,
    Status,
)
from ctxlab.sessions.common import (
    chosen,
    recorded,
)
from ctxlab.sessions.sqlite import full_text as fts
from ctxlab.sessions.sqlite.connection import Database
from ctxlab.sessions.sqlite.rows import (
    message_at,
    rows_from,
    session_of,
    titles_of,
)
from ctxlab.sessions.sqlite.schema import migrate
from ctxlab.sessions.text_search import search_words

__all__ = ["WorkspaceLibrary"]

_ROW = "SELECT * FROM chat_sessions WHERE session_id = ?"


class WorkspaceLibrary:
    """What a ``WorkspaceStore`` lets be read: a ``Library`` over one database.

    ``path``: the database, which need not be there. ``index``: whether words are found by an index.
    """

    def __init__(self, path: Path, *, safe: bool, index: bool) -> None:
        self.path = path
        self._wants_index = index
        self._index = False
        self._database = Database(path, self._begin, safe=safe)

    def _begin(self, connection: sqlite3.Connection) -> None:
        migrate(connection, self.path)
        if self._wants_index and not self._database.sealed:
            fts.make_index(connection)
        self._index = self._wants_index and fts.has_index(connection)

    def close(self) -> None:
        """See ``Store``."""
        self._database.close()

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: Status | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """See ``Library``."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT * FROM chat_sessions WHERE status = :status "
                "OR :status IS NULL AND status <> 'archived' "
                "ORDER BY updated_at DESC, rowid DESC",
                {"status": status},
            ).fetchall()
            titles = titles_of(connection)
        found = (session_of(row, titles.get(row["session_id"], ())) for row in rows)
        return list(chosen(found, query, since=since, before=before, status=status, agent=agent))

    def get(self, id: str) -> Session:
        """See ``Library``."""
        with self._found(id) as (connection, row):
            return self._session(connection, row)

    def read(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """See ``Library``."""
        with self._found(id) as (_, row):
            end = row["messages"] if stop is None else min(stop, row["messages"])
        return self._read(id, max(0, start), end, row["created_at"])

    def _read(self, id: str, start: int, stop: int, created: int) -> Iterator[Message]:
        # Page by page, so that a reader that takes its time keeps nobody waiting.
        while start < stop:
            with self._found(id) as (connection, row):
                rows = rows_from(connection, id, start, stop)
            if not rows or row["created_at"] != created:
                raise UnknownSession(id, self.path)  # another one of that id came in its place
            for position, text in rows:
                yield message_at(id, position, text)
            start = rows[-1][0] + 1

    def turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """See ``Library``."""
        with self._found(id) as (connection, row):
            rows = connection.execute(
                "SELECT position, row FROM messages WHERE session_id = ? AND turn = ? "
                "ORDER BY position",
                (id, number if 1 <= number <= row["turns"] else -1),
            ).fetchall()
            first = rows[0]["position"] if rows else row["messages"]
        return first, tuple(message_at(id, each["position"], each["row"]) for each in rows)

    def turns(self, id: str) -> int:
        """See ``Library``."""
        with self._found(id) as (_, row):
            return int(row["turns"])

    def lines(self, id: str) -> dict[int, str]:
        """See ``Library``."""
        with self._found(id) as (connection, _):
            asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
            return {row[0]: row[1] for row in connection.execute(asked, (id,))}

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[Hit]:
        """See ``Library``; by BM25 where there is an index that holds all, or can be made to."""
        if id is not None:
            self.get(id)
        with self._database.reading() as connection:
            if connection is None:
                return []
            behind = connection.execute("SELECT 1 FROM messages WHERE indexed = 0 LIMIT 1")
            if self._index and behind.fetchone() is None:
                return fts.find(connection, query, id, limit, offset)
        if self._index and not self._database.sealed:
            with self._database.writing() as connection:
                fts.catch_up(connection)
                return fts.find(connection, query, id, limit, offset)
        ids = [id] if id is not None else [s.id for s in self.sessions() if not s.system]
        return search_words(((each, self.read(each)) for each in ids), query, limit, offset)

    def recording(self, id: str) -> Recording:
        """See ``Library``."""
        return recorded(self.get(id), self.read(id), self.lines(id))

    # --- inside a transaction ------------------------------------------------------------------

    @contextmanager
    def _found(self, id: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        with self._database.reading() as connection:
            if connection is None:
                raise UnknownSession(id, self.path)
            yield connection, self._row(connection, id)

    def _row(self, connection: sqlite3.Connection, id: str) -> sqlite3.Row:
        try:
            row = connection.execute(_ROW, (id,)).fetchone()
        except UnicodeEncodeError:
            row = None  # SQLite takes no lone surrogates
        if row is None:
            raise UnknownSession(id, self.path)
        found: sqlite3.Row = row
        return found

    def _session(self, connection: sqlite3.Connection, row: sqlite3.Row) -> Session:
        id = row["session_id"]
        return session_of(row, titles_of(connection, id).get(id, ()))

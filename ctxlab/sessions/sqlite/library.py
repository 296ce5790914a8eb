"""Read and search the sessions of a workspace, while others may write them."""

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

_SELECT_SESSION = "SELECT * FROM chat_sessions WHERE session_id = ?"


class SqliteLibrary:
    """Read access to the sessions of one database.

    Parameters
    ----------
    path : Path
        Database file; it need not exist.
    durable : bool
        Commits survive a power failure and not only a kill of the process.
    index : bool
        Search with a full-text index.
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
        """Close the database; the next use opens it again."""
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
        """Return the sessions, most recently updated first.

        Parameters
        ----------
        query : str, optional
            Words that the title must contain, in any case.
        since : float, optional
            Keep sessions that were updated at this time or later, in seconds since 1970.
        before : float, optional
            Keep sessions that were updated at this time or earlier, in seconds since 1970.
        status : {'active', 'closed', 'archived'}, optional
            Keep sessions with this status. By default, archived sessions are left out.
        agent : str, optional
            Keep sessions of this agent.

        Returns
        -------
        list of Session
            The sessions, most recently updated first.
        """
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
        """Return one session.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Session
            The session without its messages.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        with self._reading_session(id) as (connection, row):
            return self._build_session(connection, row)

    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """Return an iterator over the messages at positions ``[start, stop)``.

        Parameters
        ----------
        id : str
            Session id.
        start : int, default 0
            Position of the first message.
        stop : int, optional
            Position after the last message. By default, read to the end.

        Returns
        -------
        iterator of Message
            The messages in order.

        Raises
        ------
        UnknownSession
            If no session has this id.
        SessionError
            If a stored message is broken.
        """
        with self._reading_session(id) as (_, row):
            end = row["messages"] if stop is None else min(stop, row["messages"])
        return self._read_pages(id, max(0, start), end, row["created_at"])

    def _read_pages(self, id: str, start: int, stop: int, created: int) -> Iterator[Message]:
        # Read page by page, so that a slow reader holds no transaction open.
        while start < stop:
            with self._reading_session(id) as (connection, row):
                rows = read_message_rows(connection, id, start, stop)
            if not rows or row["created_at"] != created:
                raise UnknownSession(id, self.path)  # deleted, or replaced by one with the same id
            for position, text in rows:
                yield parse_stored_message(id, position, text)
            start = rows[-1][0] + 1

    def read_turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """Return the messages of a turn and the position of the first one.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Turn number, from 1; see ``ctxlab.context.turns``.

        Returns
        -------
        position : int
            Position of the turn's first message. If the turn does not exist, the number of
            messages.
        messages : tuple of Message
            The turn's messages. Empty if the turn does not exist.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
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
        """Return the number of turns of a session.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        int
            Number of turns.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        with self._reading_session(id) as (_, row):
            return int(row["turns"])

    def turn_summaries(self, id: str) -> dict[int, str]:
        """Return the stored one-line summaries of a session's turns.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        dict of int to str
            One-line summary by turn number.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        with self._reading_session(id) as (connection, _):
            asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
            return {row[0]: row[1] for row in connection.execute(asked, (id,))}

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best first.

        Hits are ranked by BM25 if the index is complete or can be completed. Otherwise all messages
        are read.

        Parameters
        ----------
        query : str
            Words to find. Other characters separate words; there is no query syntax.
        id : str, optional
            Session to search. By default, search all sessions except archived and system sessions.
        limit : int, default 20
            Maximum number of hits.
        offset : int, default 0
            Number of hits to skip.

        Returns
        -------
        list of SearchHit
            The hits, best first.

        Raises
        ------
        UnknownSession
            If no session has the id that was given.
        """
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
        """Return a whole session as a recording, for replay.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Recording
            The session as ``ctxlab.load`` reads it.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
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
            row = None  # SQLite cannot encode lone surrogates
        if row is None:
            raise UnknownSession(id, self.path)
        found: sqlite3.Row = row
        return found

    def _build_session(self, connection: sqlite3.Connection, row: sqlite3.Row) -> Session:
        id = row["session_id"]
        return session_from_row(row, read_titles(connection, id).get(id, ()))

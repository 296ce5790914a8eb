"""Session store in the database ``.ctxlab/sessions.db`` of a workspace.

References
----------
Seed design "Workspace-scoped sessions".
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from ctxlab._utils.jsonio import dump_json
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import SessionActive, SessionConflict, SessionError, UnknownSession
from ctxlab.llm.base import Client
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState, Session, SessionStatus
from ctxlab.sessions.common import (
    Fsync,
    check_choice,
    check_session_id,
    check_status,
    check_title,
    clean_plan,
    clean_text,
)
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow, SummaryWriter
from ctxlab.sessions.sqlite import full_text as fts
from ctxlab.sessions.sqlite.library import SqliteLibrary
from ctxlab.sessions.sqlite.process_identity import current_process, is_process_alive
from ctxlab.sessions.sqlite.rows import (
    from_milliseconds,
    plan_from_row,
    read_window,
    to_milliseconds,
    write_titles,
    write_window,
)
from ctxlab.sessions.titles import single_line, title_from_prompt, titles_after_change

DATABASE_FILE = ".ctxlab/sessions.db"
"""Path of the database, relative to the workspace."""

WhenActive: TypeAlias = Literal["close", "refuse"]
"""Policy for starting or opening a session while another one is active: close the other or refuse."""

_INSERT_SESSION = """
INSERT INTO chat_sessions (
    session_id, title, model, status, created_at, updated_at, summary, recent_messages,
    awaiting_continuation, paused, agent, file, strategy, system, tools, meta, owner
) VALUES (?, ?, ?, 'active', ?, ?, '', '[]', 0, 0, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT_ID = "SELECT 1 FROM chat_sessions WHERE session_id = ?"
_INSERT_MESSAGE = (
    "INSERT INTO messages (session_id, position, turn, row, indexed) VALUES (?, ?, ?, ?, ?)"
)
_UPDATE_COUNTS = (
    "UPDATE chat_sessions SET messages = ?, turns = ?, replied = ?, updated_at = ? "
    "WHERE session_id = ?"
)
_UPDATE_PLAN = (
    "UPDATE chat_sessions SET plan_steps = ?, current_step_index = ?, awaiting_continuation = ?, "
    "paused = ? WHERE session_id = ?"
)
_SELECT_OTHER_ACTIVE = (
    "SELECT session_id, owner, updated_at FROM chat_sessions "
    "WHERE status = 'active' AND NOT system AND session_id <> ?"
)
_UPDATE_STATUS = (
    "UPDATE chat_sessions SET status = ?, updated_at = ?, owner = ? WHERE session_id = ?"
)


class SqliteStore(SqliteLibrary):
    """Sessions of one workspace, safe for several processes and threads at once.

    The first session creates the database. One session of a workspace is active at a time, not
    counting system sessions. An active session whose process has ended never blocks another.

    Parameters
    ----------
    workspace : str or Path
        Folder of the workspace.
    caps : ResumeCaps, optional
        Maximum size of the resume state. By default, ``ResumeCaps()``.
    fsync : {'always', 'never'}, default 'always'
        With ``always``, acknowledged writes survive a power failure; with ``never``, they survive a
        kill of the process only.
    when_active : {'close', 'refuse'}, default 'close'
        If another session is active, close it or raise ``SessionActive``.
    client : Client, optional
        Client that calls ``model``. By default, a ``LiteLLMClient``.
    model : str, optional
        Model that writes the rolling summary at the end of a turn, each time half a window of
        messages was dropped. By default, the summary is extracted without a model.
    index : bool, default True
        Search with a full-text index, if SQLite has FTS5. Without it, a search reads all messages.

    Raises
    ------
    SpecError
        If ``fsync`` or ``when_active`` is invalid.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     store = SqliteStore(folder)
    ...     id = store.create(model="gpt-5-mini").id
    ...     position = store.append(id, Message("user", "Fix the parser"), Message("assistant", "Done."))
    ...     store.save(id)
    ...     store.get(id).title, [m.content for m in store.open(id).recent]
    ...     store.close()
    ('Fix the parser', ['Fix the parser', 'Done.'])
    """

    def __init__(
        self,
        workspace: str | Path,
        *,
        caps: ResumeCaps | None = None,
        fsync: Fsync = "always",
        when_active: WhenActive = "close",
        client: Client | None = None,
        model: str | None = None,
        index: bool = True,
    ) -> None:
        check_choice("fsync", fsync, get_args(Fsync))
        check_choice("when_active", when_active, get_args(WhenActive))
        self.workspace = Path(workspace).expanduser().resolve()
        self.caps = caps or ResumeCaps()
        self._refuse_when_active = when_active == "refuse"
        self._write_summary = None if model is None else _make_summary_writer(client, model)
        super().__init__(self.workspace / DATABASE_FILE, durable=fsync == "always", index=index)

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.workspace)!r})"

    def create(
        self,
        *,
        id: str | None = None,
        title: str = "",
        model: str | None = None,
        agent: str | None = None,
        file: str | None = None,
        strategy: str | None = None,
        system: bool = False,
        tools: tuple[dict[str, Any], ...] = (),
        meta: dict[str, Any] | None = None,
    ) -> Session:
        """Create a session and make it active.

        Parameters
        ----------
        id : str, optional
            Session id. By default, a new UUID.
        title : str, default ''
            Title. If empty, the first user message sets it.
        model : str, optional
            Name of the model.
        agent : str, optional
            Name of the agent that the session belongs to.
        file : str, optional
            File that the session is about.
        strategy : str, optional
            Context strategy, as text.
        system : bool, default False
            Create a system session, which gets no summaries and no titles.
        tools : tuple of dict, optional
            Tool definitions in OpenAI's format.
        meta : dict, optional
            Further JSON values to store with the session.

        Returns
        -------
        Session
            The new session, with status ``active``.

        Raises
        ------
        SessionError
            If the id is invalid or taken, or if a value cannot be stored as JSON.
        SessionActive
            If another session is active and ``when_active`` is ``refuse``.
        """
        id = str(uuid.uuid4()) if id is None else check_session_id(id)
        title, now = single_line(title), time.time()
        model, agent, file, strategy = map(clean_text, (model, agent, file, strategy))
        kept = _encode_json(list(tools), "tools"), _encode_json(meta or {}, "meta")
        with self._database.write_transaction() as connection:
            if connection.execute(_SELECT_ID, (id,)).fetchone() is not None:
                raise SessionError(f"{self.path}: session {id!r} exists already; open it instead")
            if not system:
                self._close_other_active(connection, id)
            said = (
                id,
                title,
                model,
                to_milliseconds(now),
                to_milliseconds(now),
                agent,
                file,
                strategy,
            )
            connection.execute(_INSERT_SESSION, (*said, system, *kept, current_process()))
            if title:
                write_titles(connection, id, titles_after_change(Session(id), title, 0, now))
            return self._build_session(connection, self._fetch_row(connection, id))

    def open(self, id: str) -> ResumeState:
        """Make a session active and return the state to resume it from.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        ResumeState
            The summary, the newest messages and the plan.

        Raises
        ------
        UnknownSession
            If no session has this id.
        SessionActive
            If another session is active and ``when_active`` is ``refuse``.
        """
        with self._writing_session(id) as (connection, row):
            self._activate(connection, row)
            return read_window(connection, row, self.caps).resume_state(plan_from_row(row))

    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        """Add messages to the end of a session, as one atomic write.

        Parameters
        ----------
        id : str
            Session id.
        *messages : Message
            Messages to add.
        expected_position : int, optional
            Position that the first message must get. By default, any position.

        Returns
        -------
        int
            Position of the first new message.

        Raises
        ------
        UnknownSession
            If no session has this id.
        SessionConflict
            If the next position is not ``expected_position``. Nothing is added then.
        """
        texts = [_encode_json(row_from_message(message), "a message") for message in messages]
        with self._writing_session(id) as (connection, row):
            first = int(row["messages"])
            if expected_position not in (None, first):
                raise SessionConflict(id)
            if not messages:
                return first
            self._insert_messages(connection, row, messages, texts)
            # In a long turn without a save, bound the messages that a resume must catch up with.
            if first + len(messages) - row["window_stop"] > 2 * self.caps.messages:
                row = self._fetch_row(connection, id)
                write_window(connection, row, read_window(connection, row, self.caps))
            return first

    def _insert_messages(
        self,
        connection: sqlite3.Connection,
        row: sqlite3.Row,
        messages: Sequence[Message],
        texts: Sequence[str],
    ) -> None:
        id, first = row["session_id"], row["messages"]
        turns, titled = (
            TurnCounter(row["turns"], bool(row["replied"])),
            row["title"] or row["system"],
        )
        for position, (message, text) in enumerate(zip(messages, texts, strict=True), first):
            turn = turns.add(message)
            said = (id, position, turn, text, self._has_index)
            rowid = connection.execute(_INSERT_MESSAGE, said).lastrowid
            if self._has_index and rowid is not None:
                fts.index_message(connection, rowid, message)
            if not titled and message.role == "user" and (title := title_from_prompt(message.text)):
                self._retitle(connection, row, title, turn)
                titled = True
        grown = (first + len(messages), turns.number, turns.replied, _now_milliseconds(), id)
        connection.execute(_UPDATE_COUNTS, grown)

    def save(self, id: str, *, plan: AgentPlan | None = None) -> None:
        """Update the stored resume state at the end of a turn.

        Parameters
        ----------
        id : str
            Session id.
        plan : AgentPlan, optional
            Plan that replaces the stored one. By default, the stored plan is removed.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        plan = clean_plan(plan)
        state, window = self._summarize_window(id)
        with self._writing_session(id) as (connection, row):
            if window is None or state != (row["messages"], row["window_stop"]):
                window = read_window(connection, row, self.caps)
            write_window(connection, row, window)
            connection.execute(
                "UPDATE chat_sessions SET updated_at = ? WHERE session_id = ?",
                (_now_milliseconds(), id),
            )
            plan, listed = plan or AgentPlan(), plan and dump_json(plan.steps)
            said = (listed, plan.current, plan.awaiting_continuation, plan.paused, id)
            connection.execute(_UPDATE_PLAN, said)

    def _summarize_window(self, id: str) -> tuple[tuple[int, int], ResumeWindow | None]:
        """Build a window whose summary a model writes, without holding a write transaction."""
        if self._write_summary is None:
            return (0, 0), None
        with self._reading_session(id) as (connection, row):
            falls = max(1, self.caps.messages // 2)
            window = read_window(connection, row, self.caps, self._write_summary, falls)
        _ = window.summary  # call the model now, outside the write transaction
        return (row["messages"], row["window_stop"]), window

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """Set the title of a session and add it to the title history.

        Parameters
        ----------
        id : str
            Session id.
        title : str
            New title.
        turn : int, default 0
            Turn that the title comes from; 0 if a user set the title.

        Returns
        -------
        Session
            The session with its new title.

        Raises
        ------
        SessionError
            If the title is empty.
        UnknownSession
            If no session has this id.
        """
        title = check_title(id, title)
        with self._writing_session(id) as (connection, row):
            self._retitle(connection, row, title, turn)
            return self._build_session(connection, self._fetch_row(connection, id))

    def _retitle(
        self, connection: sqlite3.Connection, row: sqlite3.Row, title: str, turn: int
    ) -> None:
        session = self._build_session(connection, row)
        if title == session.title:
            return
        now = time.time()
        write_titles(connection, session.id, titles_after_change(session, title, turn, now))
        connection.execute(
            "UPDATE chat_sessions SET title = ?, updated_at = ? WHERE session_id = ?",
            (title, to_milliseconds(now), session.id),
        )

    def set_status(self, id: str, status: SessionStatus) -> Session:
        """Close, archive or reactivate a session.

        Parameters
        ----------
        id : str
            Session id.
        status : {'active', 'closed', 'archived'}
            New status.

        Returns
        -------
        Session
            The session with its new status.

        Raises
        ------
        UnknownName
            If the status does not exist.
        UnknownSession
            If no session has this id.
        SessionActive
            If another session is active and ``when_active`` is ``refuse``.
        """
        check_status(status)
        with self._writing_session(id) as (connection, row):
            if status == "active":
                self._activate(connection, row)
            else:
                connection.execute(_UPDATE_STATUS, (status, _now_milliseconds(), None, id))
            return self._build_session(connection, self._fetch_row(connection, id))

    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        """Store the one-line summary of a turn.

        Parameters
        ----------
        id : str
            Session id.
        turn : int
            Turn number, from 1.
        summary : str
            One-line summary.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        with self._writing_session(id) as (connection, _):
            connection.execute(
                "INSERT OR REPLACE INTO lines VALUES (?, ?, ?)", (id, turn, clean_text(summary))
            )

    def delete(self, id: str) -> None:
        """Delete a session with all its data.

        Parameters
        ----------
        id : str
            Session id.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        with self._writing_session(id) as (connection, _):
            if fts.has_index(connection):
                fts.remove_session(connection, id)
            connection.execute("DELETE FROM chat_sessions WHERE session_id = ?", (id,))
        self._database.truncate_log()

    @contextmanager
    def _writing_session(self, id: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        if not self.path.exists():
            raise UnknownSession(id, self.path)  # before a transaction creates the database
        with self._database.write_transaction() as connection:
            yield connection, self._fetch_row(connection, id)

    def _activate(self, connection: sqlite3.Connection, row: sqlite3.Row) -> None:
        if not row["system"]:
            self._close_other_active(connection, row["session_id"])
        connection.execute(
            _UPDATE_STATUS, ("active", _now_milliseconds(), current_process(), row["session_id"])
        )

    def _close_other_active(self, connection: sqlite3.Connection, id: str) -> None:
        """Close other active sessions, or raise ``SessionActive``."""
        for other in connection.execute(_SELECT_OTHER_ACTIVE, (id,)).fetchall():
            if self._refuse_when_active and is_process_alive(
                other["owner"], from_milliseconds(other["updated_at"])
            ):
                raise SessionActive(other["session_id"])
            connection.execute(
                "UPDATE chat_sessions SET status = 'closed', owner = NULL WHERE session_id = ?",
                (other["session_id"],),
            )


def _make_summary_writer(client: Client | None, model: str) -> SummaryWriter:
    from ctxlab.llm import LiteLLMClient  # lazy: needed with a model only
    from ctxlab.sessions.llm_summary import llm_summary_writer

    return llm_summary_writer(client or LiteLLMClient(), model)


def _now_milliseconds() -> int:
    return to_milliseconds(time.time())


def _encode_json(value: Any, what: str) -> str:
    try:
        return dump_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"{what} cannot be stored as JSON: {error}") from None

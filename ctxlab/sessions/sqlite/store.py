"""The sessions of a workspace live in its ``.ctxlab/sessions.db``, and are resumed from a bounded part.

Source: seed design "Workspace-scoped sessions".
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

__all__ = ["DATABASE_FILE", "SqliteStore", "WhenActive"]

DATABASE_FILE = ".ctxlab/sessions.db"
"""Where the sessions of a workspace are, below its folder."""

WhenActive: TypeAlias = Literal["close", "refuse"]
"""What happens to the active session when another is started or opened: it is closed, or stands."""

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
    """The sessions of one workspace, for any number of processes and threads at once.

    Nothing is made on disk before a session is. ``caps``: how much a resume begins with. ``fsync``:
    ``always``: what is acknowledged survives a power failure; ``never``: a kill of the process.
    ``when_active``: one session of a workspace is active at a time, those of a system apart; another
    one is closed first, or ``refuse`` raises ``SessionActive``. One whose process has gone never stands
    in the way. ``model``: writes the rolling summary at the end of a turn, each time half a window has
    fallen out, asked by ``client`` (None: of its provider); None: the engine writes it. ``index``:
    whether words are found by an index, which needs FTS5 of SQLite; without, a search reads all
    messages.

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
        """See ``SessionStore``."""
        id = str(uuid.uuid4()) if id is None else check_session_id(id)
        title, now = single_line(title), time.time()
        model, agent, file, strategy = map(clean_text, (model, agent, file, strategy))
        kept = _encode_json(list(tools), "tools"), _encode_json(meta or {}, "meta")
        with self._database.write_transaction() as connection:
            if connection.execute(_SELECT_ID, (id,)).fetchone() is not None:
                raise SessionError(f"{self.path}: there is a session {id!r} already")
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
        """See ``SessionStore``."""
        with self._writing_session(id) as (connection, row):
            self._activate(connection, row)
            return read_window(connection, row, self.caps).resume_state(plan_from_row(row))

    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        """See ``SessionStore``."""
        texts = [_encode_json(row_from_message(message), "a message") for message in messages]
        with self._writing_session(id) as (connection, row):
            first = int(row["messages"])
            if expected_position not in (None, first):
                raise SessionConflict(id)
            if not messages:
                return first
            self._insert_messages(connection, row, messages, texts)
            # What a resume has to catch up with is bounded, though no turn may end for long.
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
        """See ``SessionStore``."""
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
        """A window whose summary a model writes, while nobody waits for the database."""
        if self._write_summary is None:
            return (0, 0), None
        with self._reading_session(id) as (connection, row):
            falls = max(1, self.caps.messages // 2)
            window = read_window(connection, row, self.caps, self._write_summary, falls)
        _ = window.summary  # now, and not inside the transaction
        return (row["messages"], row["window_stop"]), window

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """See ``SessionStore``."""
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
        """See ``SessionStore``."""
        check_status(status)
        with self._writing_session(id) as (connection, row):
            if status == "active":
                self._activate(connection, row)
            else:
                connection.execute(_UPDATE_STATUS, (status, _now_milliseconds(), None, id))
            return self._build_session(connection, self._fetch_row(connection, id))

    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        """See ``SessionStore``."""
        with self._writing_session(id) as (connection, _):
            connection.execute(
                "INSERT OR REPLACE INTO lines VALUES (?, ?, ?)", (id, turn, clean_text(summary))
            )

    def delete(self, id: str) -> None:
        """See ``SessionStore``."""
        with self._writing_session(id) as (connection, _):
            if fts.has_index(connection):
                fts.remove_session(connection, id)
            connection.execute("DELETE FROM chat_sessions WHERE session_id = ?", (id,))
        self._database.truncate_log()

    @contextmanager
    def _writing_session(self, id: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        if not self.path.exists():
            raise UnknownSession(id, self.path)  # and none is made
        with self._database.write_transaction() as connection:
            yield connection, self._fetch_row(connection, id)

    def _activate(self, connection: sqlite3.Connection, row: sqlite3.Row) -> None:
        if not row["system"]:
            self._close_other_active(connection, row["session_id"])
        connection.execute(
            _UPDATE_STATUS, ("active", _now_milliseconds(), current_process(), row["session_id"])
        )

    def _close_other_active(self, connection: sqlite3.Connection, id: str) -> None:
        """No other session is active."""
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
    from ctxlab.llm import LiteLLMClient  # only who has a model pays for it
    from ctxlab.sessions.llm_summary import llm_summary_writer

    return llm_summary_writer(client or LiteLLMClient(), model)


def _now_milliseconds() -> int:
    return to_milliseconds(time.time())


def _encode_json(value: Any, what: str) -> str:
    try:
        return dump_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"{what} cannot be stored, for it is no JSON: {error}") from None

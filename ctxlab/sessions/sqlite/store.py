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
from ctxlab.context.turns import Turns
from ctxlab.errors import (
    SessionActive,
    SessionAhead,
    SessionError,
    UnknownSession,
)
from ctxlab.llm.base import Client
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message
from ctxlab.sessions.base import (
    Plan,
    Resume,
    Session,
    Status,
)
from ctxlab.sessions.common import (
    Fsync,
    check_id,
    clean,
    clean_plan,
    known,
    known_status,
    said_title,
)
from ctxlab.sessions.resume_window import (
    Caps,
    Window,
    Write,
)
from ctxlab.sessions.sqlite import full_text as fts
from ctxlab.sessions.sqlite.library import WorkspaceLibrary
from ctxlab.sessions.sqlite.process_lock import (
    is_alive,
    this_process,
)
from ctxlab.sessions.sqlite.rows import (
    keep_titles,
    keep_window,
    milliseconds,
    plan_of,
    seconds,
    window_of,
)
from ctxlab.sessions.titles import (
    changed,
    first_title,
    tidy,
)

__all__ = ["FILE", "WhenActive", "WorkspaceStore"]

FILE = ".ctxlab/sessions.db"
"""Where the sessions of a workspace are, below its folder."""

WhenActive: TypeAlias = Literal["close", "refuse"]
"""What happens to the active session when another is started or opened: it is closed, or stands."""

_CREATE = """
INSERT INTO chat_sessions (
    session_id, title, model, status, created_at, updated_at, summary, recent_messages,
    awaiting_continuation, paused, agent, file, strategy, system, tools, meta, owner
) VALUES (?, ?, ?, 'active', ?, ?, '', '[]', 0, 0, ?, ?, ?, ?, ?, ?, ?)
"""
_TAKEN = "SELECT 1 FROM chat_sessions WHERE session_id = ?"
_MESSAGE = "INSERT INTO messages (session_id, position, turn, row, indexed) VALUES (?, ?, ?, ?, ?)"
_GROWN = (
    "UPDATE chat_sessions SET messages = ?, turns = ?, replied = ?, updated_at = ? "
    "WHERE session_id = ?"
)
_PLAN = (
    "UPDATE chat_sessions SET plan_steps = ?, current_step_index = ?, awaiting_continuation = ?, "
    "paused = ? WHERE session_id = ?"
)
_OTHERS = (
    "SELECT session_id, owner, updated_at FROM chat_sessions "
    "WHERE status = 'active' AND NOT system AND session_id <> ?"
)
_MARK = "UPDATE chat_sessions SET status = ?, updated_at = ?, owner = ? WHERE session_id = ?"


class WorkspaceStore(WorkspaceLibrary):
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
    ...     store = WorkspaceStore(folder)
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
        caps: Caps | None = None,
        fsync: Fsync = "always",
        when_active: WhenActive = "close",
        client: Client | None = None,
        model: str | None = None,
        index: bool = True,
    ) -> None:
        known("fsync", fsync, get_args(Fsync))
        known("when_active", when_active, get_args(WhenActive))
        self.workspace = Path(workspace).expanduser().resolve()
        self.caps = caps or Caps()
        self._refuses = when_active == "refuse"
        self._write = None if model is None else _written_by(client, model)
        super().__init__(self.workspace / FILE, safe=fsync == "always", index=index)

    def __repr__(self) -> str:
        return f"WorkspaceStore({str(self.workspace)!r})"

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
        """See ``Store``."""
        id = str(uuid.uuid4()) if id is None else check_id(id)
        title, now = tidy(title), time.time()
        model, agent, file, strategy = map(clean, (model, agent, file, strategy))
        kept = _json(list(tools), "tools"), _json(meta or {}, "meta")
        with self._database.writing() as connection:
            if connection.execute(_TAKEN, (id,)).fetchone() is not None:
                raise SessionError(f"{self.path}: there is a session {id!r} already")
            if not system:
                self._make_way(connection, id)
            said = (id, title, model, milliseconds(now), milliseconds(now), agent, file, strategy)
            connection.execute(_CREATE, (*said, system, *kept, this_process()))
            if title:
                keep_titles(connection, id, changed(Session(id), title, 0, now))
            return self._session(connection, self._row(connection, id))

    def open(self, id: str) -> Resume:
        """See ``Store``."""
        with self._changing(id) as (connection, row):
            self._activate(connection, row)
            return window_of(connection, row, self.caps).resume(plan_of(row))

    def append(self, id: str, *messages: Message, at: int | None = None) -> int:
        """See ``Store``."""
        texts = [_json(row_from_message(message), "a message") for message in messages]
        with self._changing(id) as (connection, row):
            first = int(row["messages"])
            if at not in (None, first):
                raise SessionAhead(id)
            if not messages:
                return first
            self._add(connection, row, messages, texts)
            # What a resume has to catch up with is bounded, though no turn may end for long.
            if first + len(messages) - row["window_stop"] > 2 * self.caps.messages:
                row = self._row(connection, id)
                keep_window(connection, row, window_of(connection, row, self.caps))
            return first

    def _add(
        self,
        connection: sqlite3.Connection,
        row: sqlite3.Row,
        messages: Sequence[Message],
        texts: Sequence[str],
    ) -> None:
        id, first = row["session_id"], row["messages"]
        turns, titled = Turns(row["turns"], bool(row["replied"])), row["title"] or row["system"]
        for position, (message, text) in enumerate(zip(messages, texts, strict=True), first):
            turn = turns.add(message)
            said = (id, position, turn, text, self._index)
            rowid = connection.execute(_MESSAGE, said).lastrowid
            if self._index and rowid is not None:
                fts.add(connection, rowid, message)
            if not titled and message.role == "user" and (title := first_title(message.text)):
                self._retitle(connection, row, title, turn)
                titled = True
        grown = (first + len(messages), turns.number, turns.replied, _now(), id)
        connection.execute(_GROWN, grown)

    def save(self, id: str, *, plan: Plan | None = None) -> None:
        """See ``Store``."""
        plan = clean_plan(plan)
        state, window = self._ahead(id)
        with self._changing(id) as (connection, row):
            if window is None or state != (row["messages"], row["window_stop"]):
                window = window_of(connection, row, self.caps)
            keep_window(connection, row, window)
            connection.execute(
                "UPDATE chat_sessions SET updated_at = ? WHERE session_id = ?", (_now(), id)
            )
            plan, listed = plan or Plan(), plan and dump_json(plan.steps)
            said = (listed, plan.current, plan.awaiting_continuation, plan.paused, id)
            connection.execute(_PLAN, said)

    def _ahead(self, id: str) -> tuple[tuple[int, int], Window | None]:
        """A window whose summary a model writes, while nobody waits for the database."""
        if self._write is None:
            return (0, 0), None
        with self._found(id) as (connection, row):
            falls = max(1, self.caps.messages // 2)
            window = window_of(connection, row, self.caps, self._write, falls)
        _ = window.summary  # now, and not inside the transaction
        return (row["messages"], row["window_stop"]), window

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """See ``Store``."""
        title = said_title(id, title)
        with self._changing(id) as (connection, row):
            self._retitle(connection, row, title, turn)
            return self._session(connection, self._row(connection, id))

    def _retitle(
        self, connection: sqlite3.Connection, row: sqlite3.Row, title: str, turn: int
    ) -> None:
        session = self._session(connection, row)
        if title == session.title:
            return
        now = time.time()
        keep_titles(connection, session.id, changed(session, title, turn, now))
        connection.execute(
            "UPDATE chat_sessions SET title = ?, updated_at = ? WHERE session_id = ?",
            (title, milliseconds(now), session.id),
        )

    def mark(self, id: str, status: Status) -> Session:
        """See ``Store``."""
        known_status(status)
        with self._changing(id) as (connection, row):
            if status == "active":
                self._activate(connection, row)
            else:
                connection.execute(_MARK, (status, _now(), None, id))
            return self._session(connection, self._row(connection, id))

    def keep_line(self, id: str, turn: int, line: str) -> None:
        """See ``Store``."""
        with self._changing(id) as (connection, _):
            connection.execute(
                "INSERT OR REPLACE INTO lines VALUES (?, ?, ?)", (id, turn, clean(line))
            )

    def delete(self, id: str) -> None:
        """See ``Store``."""
        with self._changing(id) as (connection, _):
            if fts.has_index(connection):
                fts.remove(connection, id)
            connection.execute("DELETE FROM chat_sessions WHERE session_id = ?", (id,))
        self._database.wipe()

    @contextmanager
    def _changing(self, id: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        if not self.path.exists():
            raise UnknownSession(id, self.path)  # and none is made
        with self._database.writing() as connection:
            yield connection, self._row(connection, id)

    def _activate(self, connection: sqlite3.Connection, row: sqlite3.Row) -> None:
        if not row["system"]:
            self._make_way(connection, row["session_id"])
        connection.execute(_MARK, ("active", _now(), this_process(), row["session_id"]))

    def _make_way(self, connection: sqlite3.Connection, id: str) -> None:
        """No other session is active."""
        for other in connection.execute(_OTHERS, (id,)).fetchall():
            if self._refuses and is_alive(other["owner"], seconds(other["updated_at"])):
                raise SessionActive(other["session_id"])
            connection.execute(
                "UPDATE chat_sessions SET status = 'closed', owner = NULL WHERE session_id = ?",
                (other["session_id"],),
            )


def _written_by(client: Client | None, model: str) -> Write:
    from ctxlab.llm import LiteLLMClient  # only who has a model pays for it
    from ctxlab.sessions.llm_summary import written_by

    return written_by(client or LiteLLMClient(), model)


def _now() -> int:
    return milliseconds(time.time())


def _json(value: Any, what: str) -> str:
    try:
        return dump_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"{what} cannot be stored, for it is no JSON: {error}") from None

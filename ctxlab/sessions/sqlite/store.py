"""Session store in a SQLite database, ``.ctxlab/sessions.db`` in the workspace.

References
----------
Design document "Workspace-scoped sessions" (see ``tests/SEEDS.md``).
"""

from __future__ import annotations

import platform
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from typing_extensions import override

from ctxlab._utils.jsonio import dump_json, repair_surrogates
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import SessionActive, SessionConflict, SessionError, UnknownSession
from ctxlab.llm.base import Client
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState, Session, SessionStatus, SessionStore
from ctxlab.sessions.common import Fsync, check_choice, encode_json
from ctxlab.sessions.damage import DamageLog
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow, SummaryWriter
from ctxlab.sessions.sqlite import full_text as fts
from ctxlab.sessions.sqlite.connection import DamagedDatabase, Database, decode_text
from ctxlab.sessions.sqlite.rows import (
    StoredSession,
    from_milliseconds,
    read_titles,
    to_milliseconds,
)
from ctxlab.sessions.sqlite.salvage import copy_rows, missing_session, salvage_rows
from ctxlab.sessions.sqlite.schema import migrate_schema
from ctxlab.sessions.text_search import SearchHit
from ctxlab.sessions.titles import title_from_prompt

DATABASE_FILE = ".ctxlab/sessions.db"
"""Path of the database, relative to the workspace."""

_T = TypeVar("_T")
WhenActive: TypeAlias = Literal["close", "refuse"]
"""Policy for the session that is active when another one is opened: close it, or raise an error."""

_REMOTE_TIMEOUT = 600.0
"""Seconds of inactivity after which a process on another machine counts as ended."""
_SELECT_SESSION = "SELECT * FROM chat_sessions WHERE session_id = ?"
_SELECT_LISTED = """
SELECT * FROM chat_sessions
WHERE status = :status OR :status IS NULL AND status <> 'archived'
ORDER BY updated_at DESC, rowid DESC
"""
_SELECT_OTHER_ACTIVE = """
SELECT session_id, owner, updated_at FROM chat_sessions
WHERE status = 'active' AND NOT system AND session_id <> ?
"""
_INSERT_SESSION = """
INSERT INTO chat_sessions (
    session_id, title, model, status, created_at, updated_at, summary, recent_messages,
    awaiting_continuation, paused, agent, file, strategy, system, tools, meta, owner
) VALUES (
    :id, :title, :model, 'active', :now, :now, '', '[]',
    0, 0, :agent, :file, :strategy, :system, :tools, :meta, :owner
)
"""
_INSERT_MESSAGE = """
INSERT INTO messages (session_id, position, turn, step, row, indexed) VALUES (?, ?, ?, ?, ?, ?)
"""
_SELECT_STEPS = """
SELECT position, turn, step, row FROM messages
WHERE session_id = ? AND turn = ? AND step BETWEEN ? AND ? ORDER BY step, position
"""
_MAX_STEP = 2**63 - 1
_SELECT_ANY = "SELECT 1 FROM messages WHERE session_id = ? LIMIT 1"
_COUNT_BESIDE = """
SELECT count(*) FROM messages WHERE session_id = ? AND position IN (?, ?)
"""
# Sessions of which only messages are left. The ids are found one by one, without reading every row.
_SELECT_ORPHANS = """
WITH RECURSIVE ids (known) AS (
    SELECT min(session_id) FROM messages
    UNION ALL SELECT (SELECT min(session_id) FROM messages WHERE session_id > known) FROM ids
    WHERE known IS NOT NULL
)
SELECT known FROM ids WHERE known IS NOT NULL AND known NOT IN (SELECT session_id FROM chat_sessions)
"""


class SqliteStore(SessionStore):
    """Session store of one workspace, safe for several processes and threads at once.

    The database is created with the first session. Only one session of a workspace is active at a
    time, not counting sessions that programs use internally (``Session.system``).

    Parameters
    ----------
    workspace : str or Path
        Folder of the workspace.
    caps : ResumeCaps, optional
        Maximum size of the resume state. By default, ``ResumeCaps()``.
    fsync : {'always', 'never'}, default 'always'
        With ``always``, finished writes survive a power failure. With ``never``, they survive a
        kill of the process, but not a power failure.
    when_active : {'close', 'refuse'}, default 'close'
        What happens if a session is started or opened while another one is active: ``close`` closes
        the other session, ``refuse`` raises ``SessionActive``. If the process of the other session
        has ended, the other session is closed in both cases.
    client : Client, optional
        Client that calls ``model``. By default, a ``LiteLLMClient``.
    model : str, optional
        Model that summarizes the older messages, which no longer fit into ``caps``. It is called by
        ``save`` if ``caps`` was exceeded. To make these calls rare, each call moves about half of
        the kept messages to the summary. By default, the summary is extracted without a model.
    index : bool, default True
        If True, and if SQLite supports FTS5, a search uses a full-text index. Otherwise it reads all
        messages.

    Raises
    ------
    SpecError
        If ``fsync`` or ``when_active`` is invalid.
    SessionActive
        Raised by ``create``, ``open`` and ``set_status`` if another session is active in a running
        process and ``when_active`` is ``refuse``.

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
        check_choice("fsync", fsync, Fsync)
        check_choice("when_active", when_active, WhenActive)
        self.workspace = Path(workspace).expanduser().resolve()
        self.path = self.workspace / DATABASE_FILE
        self.caps = caps or ResumeCaps()
        self._refuse_when_active = when_active == "refuse"
        self._write_summary: SummaryWriter | None = None
        if model is not None:
            from ctxlab.sessions.background_summaries import (
                llm_summary_writer,  # lazy: loads the clients
            )

            self._write_summary = llm_summary_writer(client, model)
        self._wants_index, self._has_index = index, False
        self.damage = DamageLog(self.workspace)
        "damage that was noticed while the store was read"
        self._salvaged: tuple[object, sqlite3.Connection] | None = None
        self._close_salvaged: Callable[[], object] = int
        self._salvage_lock = threading.RLock()
        self._database = Database(self.path, self._on_connect, durable=fsync == "always")

    def __repr__(self) -> str:
        """Return the class name and the workspace folder."""
        return f"SqliteStore({str(self.workspace)!r})"

    @classmethod
    def from_database(cls, path: Path) -> SqliteStore:
        """Return a store whose database has another path than that of a workspace.

        Parameters
        ----------
        path : Path
            Database file, such as a copy that is not in its place yet.

        Returns
        -------
        SqliteStore
            Store of the database.
        """
        store = cls(path.parent)
        store.path = path
        store._database = Database(path, store._on_connect)
        return store

    def _on_connect(self, connection: sqlite3.Connection) -> None:
        is_read_only = self._database.is_read_only
        is_current = migrate_schema(connection, self.path, is_read_only=is_read_only)
        if self._wants_index and not is_read_only:
            fts.create_index(connection)
        self._has_index = self._wants_index and is_current and fts.has_index(connection)

    @override
    def close(self) -> None:
        self._database.close()
        with self._salvage_lock:
            self._close_salvaged()
            self._salvaged = None

    # --- reading -------------------------------------------------------------------------------

    @override
    def _iter_sessions(self, status: SessionStatus | None) -> Iterable[Session]:
        def read(connection: sqlite3.Connection) -> list[Session]:
            rows = connection.execute(_SELECT_LISTED, {"status": status}).fetchall()
            titles = read_titles(connection)
            found = [StoredSession(connection, row, self.damage).correct_count() for row in rows]
            for (id,) in connection.execute(_SELECT_ORPHANS).fetchall():
                found.append(self._fetch(connection, id))
            return [each.with_titles(titles.get(each.id, ())) for each in found]

        return self._read(read) or ()

    @override
    def get(self, id: str) -> Session:
        return self._read_session(id, StoredSession.to_session)

    @override
    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        row = self._read_session(id, lambda session: session.row)
        end = row["messages"] if stop is None else min(stop, row["messages"])
        return self._iter_pages(id, max(0, start), end, row["created_at"])

    def _iter_pages(self, id: str, start: int, stop: int, created: int) -> Iterator[Message]:
        # Read page by page, so that no transaction stays open while the caller uses a message.
        while start < stop:

            def read(session: StoredSession) -> list[Message]:
                # The session may have been deleted, and replaced by a new one with the same id.
                same = session.row["created_at"] == created and session.row["messages"] >= stop
                return session.read_messages(start, stop) if same else []  # noqa: B023

            messages = self._read_session(id, read)
            if not messages:
                raise UnknownSession(id, self.path)
            yield from messages
            start += len(messages)

    @override
    def read_turn(self, id: str, turn: int, step: int = 0) -> tuple[int, tuple[Message, ...]]:
        steps = (min(step, _MAX_STEP),) * 2 if step else (0, _MAX_STEP)

        def read(session: StoredSession) -> tuple[int, tuple[Message, ...]] | None:
            count = session.row["messages"]
            if not 1 <= turn <= session.row["turns"]:
                return count, ()
            rows = session.connection.execute(_SELECT_STEPS, (id, turn, *steps)).fetchall()
            if not _is_whole(session, rows):
                return None  # rows are missing
            return rows[0]["position"], tuple(map(session.parse, rows))

        found = self._read_session(id, read)
        if found is not None:
            return found
        labels = list(map(TurnCounter().add, messages := tuple(self.read_messages(id))))
        wanted = [n for n, (t, s) in enumerate(labels) if t == turn and step in (0, s)]
        return (wanted or [len(messages)])[0], tuple(messages[n] for n in wanted)

    @override
    def count_turns(self, id: str) -> int:
        return self._read_session(id, lambda session: int(session.row["turns"]))

    @override
    def count_steps(self, id: str, turn: int) -> int:
        def read(session: StoredSession) -> int | None:
            if not 1 <= turn <= session.row["turns"]:
                return 0
            rows = session.connection.execute(_SELECT_STEPS, (id, turn, 0, _MAX_STEP)).fetchall()
            return int(rows[-1]["step"]) if _is_whole(session, rows) else None

        steps = self._read_session(id, read)
        return super().count_steps(id, turn) if steps is None else steps

    @override
    def turn_summaries(self, id: str) -> dict[int, str]:
        def read(session: StoredSession) -> dict[int, str]:
            asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
            return dict(session.connection.execute(asked, (id,)).fetchall())

        return self._read_session(id, read)

    @override
    def _search(self, query: str, id: str | None, limit: int, offset: int) -> list[SearchHit]:
        """Search with the full-text index, or by reading all messages if there is no index.

        Messages that are missing in the index are added first.
        """
        if id is not None:
            self.get(id)
        try:
            with self._database.read_transaction() as connection:
                if connection is None:
                    return []
                behind = connection.execute("SELECT 1 FROM messages WHERE indexed = 0 LIMIT 1")
                if self._has_index and behind.fetchone() is None:
                    return fts.search_index(connection, query, id, limit, offset, self.damage)
            if self._has_index and not self._database.is_read_only:
                with self._database.write_transaction() as connection:
                    fts.index_missing(connection)
                    return fts.search_index(connection, query, id, limit, offset, self.damage)
        except DamagedDatabase as error:
            said = f"the database or its full-text index is damaged ({error.__cause__})"
            self.damage.tell(self.path, f"{said}; every message was searched")
        return super()._search(query, id, limit, offset)

    def _read(self, read: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Call ``read`` with a read transaction, or with what can be read of a damaged database.

        Return None if there is no database yet.
        """
        try:
            with self._database.read_transaction() as connection:
                self._tell_damaged_log()
                # What SQLite still reads and what was salvaged may differ in the numbers of messages.
                if self._salvaged is None or self._salvaged[0] != self._stamps():
                    return None if connection is None else read(connection)
        except DamagedDatabase as error:
            damaged = error
        else:
            damaged = DamagedDatabase(str(self.path))
        with self._salvage_lock:
            return read(self._salvage(damaged))

    def _stamps(self) -> object:
        log = self.path.with_name(f"{self.path.name}-wal")
        return [(p.stat().st_size, p.stat().st_mtime_ns) for p in (self.path, log) if p.exists()]

    def _tell_damaged_log(self) -> None:
        log = self._database.damaged_log
        if log.exists():
            said = f"SQLite could apply only a part of its write-ahead log, which is kept in {log.name}"
            self.damage.tell(self.path, said)

    def _salvage(self, error: DamagedDatabase) -> sqlite3.Connection:
        """Return a database in memory with the intact rows. It is kept until the file changes."""
        stamps = self._stamps()
        if self._salvaged is None or self._salvaged[0] != stamps:
            found = salvage_rows(self.path)
            if not any(found.rows.values()):
                hint = "restore a backup, or rename the file to start anew"
                raise DamagedDatabase(
                    f"{self.path}: damaged database ({error.__cause__}) without any readable row; {hint}"
                )
            said = (
                f"damaged database ({error.__cause__}); only a part of it can be read and written"
            )
            self.damage.tell(self.path, said)
            self._close_salvaged()
            memory = sqlite3.connect(":memory:", check_same_thread=False)
            self._close_salvaged = weakref.finalize(self, memory.close)
            copy_rows(found, memory, self.path)
            memory.text_factory = decode_text
            self._salvaged = stamps, memory
        return self._salvaged[1]

    def _read_session(self, id: str, read: Callable[[StoredSession], _T]) -> _T:
        found = self._read(lambda connection: (read(self._fetch(connection, id)),))
        if found is None:
            raise UnknownSession(id, self.path)
        return found[0]

    def _fetch(self, connection: sqlite3.Connection, id: str) -> StoredSession:
        row: Mapping[str, Any] | None = None
        with suppress(UnicodeEncodeError):  # SQLite cannot encode lone surrogates
            row = connection.execute(_SELECT_SESSION, (id,)).fetchone()
            if row is None and connection.execute(_SELECT_ANY, (id,)).fetchone() is not None:
                said = f"the row of session {id!r} is missing; its title and settings are lost"
                self.damage.tell("chat_sessions", said, id)
                row = missing_session(id)
        if row is None:
            raise UnknownSession(id, self.path)
        return StoredSession(connection, row, self.damage).correct_count()

    # --- writing -------------------------------------------------------------------------------

    @override
    def _create(self, session: Session) -> None:
        id = session.id
        stored = vars(session) | {
            "tools": dump_json(session.tools),
            "meta": dump_json(session.meta),
            "now": to_milliseconds(session.created),
            "owner": current_process(),
        }
        with self._database.write_transaction() as connection:
            if connection.execute(_SELECT_SESSION, (id,)).fetchone() is not None:
                raise SessionError(f"{self.path}: session {id!r} exists already; open it instead")
            if not session.system:
                self._close_other_active(connection, id)
            connection.execute(_INSERT_SESSION, stored)
            self._fetch(connection, id).write_titles(session.titles)

    @override
    def open(self, id: str) -> ResumeState:
        with self._writing_session(id) as session:
            self._activate(session)
            return session.resume_state(self.caps)

    @override
    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        texts = [encode_json(row_from_message(message), "a message") for message in messages]
        try:
            return self._append(id, messages, texts, expected_position)
        except DamagedDatabase as error:
            if not self._has_index:
                raise
            self.damage.tell(self.path, f"{error.__cause__}; new messages are not in the index")
            self._has_index = False  # if only the index is damaged, messages can still be stored
            return self._append(id, messages, texts, expected_position)

    def _append(
        self,
        id: str,
        messages: Sequence[Message],
        texts: Sequence[str],
        expected_position: int | None,
    ) -> int:
        with self._writing_session(id) as session:
            row, connection, first = session.row, session.connection, int(session.row["messages"])
            if expected_position not in (None, first):
                raise SessionConflict(id)
            if not messages:
                return first
            counter = TurnCounter(row["turns"], row["steps"], bool(row["replied"]))
            titled = row["title"] or row["system"]
            for position, (message, text) in enumerate(zip(messages, texts, strict=True), first):
                label = counter.add(message)
                stored = (id, position, *label, text, self._has_index)
                rowid = connection.execute(_INSERT_MESSAGE, stored).lastrowid
                if self._has_index and rowid is not None:
                    fts.index_message(connection, rowid, message)
                if not titled and message.role == "user":
                    titled = title_from_prompt(message.text)
                    if titled:
                        session.retitle(titled, label.turn)
            count, now = first + len(messages), _now_milliseconds()
            numbers = {"turns": counter.turn, "steps": counter.step, "replied": counter.replied}
            session.update(messages=count, **numbers, updated_at=now)
            # In a long turn without a save, update the window, so that a resume reads few messages.
            if count - row["window_stop"] > 2 * self.caps.messages:
                session = self._fetch(connection, id)
                session.write_window(session.read_window(self.caps))
            return first

    @override
    def _save(self, id: str, plan: AgentPlan | None) -> None:
        state, window = self._summarize_window(id)
        with self._writing_session(id) as session:
            if window is None or state != (session.row["messages"], session.row["window_stop"]):
                window = session.read_window(self.caps)
            session.write_window(window)
            steps, plan = plan and dump_json(plan.steps), plan or AgentPlan()
            session.update(
                plan_steps=steps,
                current_step_index=plan.current,
                awaiting_continuation=plan.awaiting_continuation,
                paused=plan.paused,
                updated_at=_now_milliseconds(),
            )

    def _summarize_window(self, id: str) -> tuple[tuple[int, int], ResumeWindow | None]:
        """Build the resume window with a summary that the model writes.

        The model is called outside of a write transaction, so that other writers do not wait. Two
        values are returned. The first is a pair: the number of messages of the session, and how
        many of them the stored window covers. If these numbers have changed when the new window is
        saved, another process has changed the session. The second value is the new window, or None
        if no model is set.
        """
        if self._write_summary is None:
            return (0, 0), None
        falls, write = max(1, self.caps.messages // 2), self._write_summary

        def read(session: StoredSession) -> tuple[tuple[int, int], ResumeWindow]:
            state = session.row["messages"], session.row["window_stop"]
            return state, session.read_window(self.caps, write, falls)

        state, window = self._read_session(id, read)
        _ = window.summary  # call the model now, outside the write transaction
        return state, window

    @override
    def _retitle(self, id: str, title: str, turn: int) -> None:
        with self._writing_session(id) as session:
            if title != session.row["title"] or turn == 0:
                session.retitle(title, turn)

    @override
    def _set_status(self, id: str, status: SessionStatus) -> None:
        with self._writing_session(id) as session:
            if status == "active":
                self._activate(session)
            else:
                session.update(status=status, owner=None, updated_at=_now_milliseconds())

    @override
    def _set_model(self, id: str, model: str) -> None:
        with self._writing_session(id) as session:
            session.update(model=model, updated_at=_now_milliseconds())

    @override
    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        line = (id, turn, repair_surrogates(summary))
        with self._writing_session(id) as session:
            session.connection.execute("INSERT OR REPLACE INTO lines VALUES (?, ?, ?)", line)

    @override
    def delete(self, id: str) -> None:
        with self._writing_session(id) as session:
            if fts.has_index(session.connection):
                fts.remove_session(session.connection, id)
            session.connection.execute("DELETE FROM chat_sessions WHERE session_id = ?", (id,))
        self._database.truncate_log()
        with suppress(OSError):
            self.partial_path(id).unlink(missing_ok=True)

    @override
    def partial_path(self, id: str) -> Path:
        return self.path.with_name(f"partial-{id}.jsonl")

    @contextmanager
    def _writing_session(self, id: str) -> Iterator[StoredSession]:
        if not self.path.exists():
            raise UnknownSession(id, self.path)  # before a transaction creates the database
        with self._database.write_transaction() as connection:
            session = self._fetch(connection, id)
            if connection.execute(_SELECT_SESSION, (id,)).fetchone() is None:
                columns = ", ".join(session.row)
                marks = ", ".join(f":{name}" for name in session.row)
                asked = f"INSERT INTO chat_sessions ({columns}) VALUES ({marks})"
                connection.execute(asked, session.row)
            yield session

    def _activate(self, session: StoredSession) -> None:
        if not session.row["system"]:
            self._close_other_active(session.connection, session.id)
        now = _now_milliseconds()
        session.update(status="active", owner=current_process(), updated_at=now)

    def _close_other_active(self, connection: sqlite3.Connection, id: str) -> None:
        """Close the active sessions other than ``id``, except those for internal use.

        If ``when_active`` is ``refuse`` and the process of such a session is still running, raise
        ``SessionActive``.
        """
        for row in connection.execute(_SELECT_OTHER_ACTIVE, (id,)).fetchall():
            updated = from_milliseconds(row["updated_at"])
            if self._refuse_when_active and is_process_alive(row["owner"], updated):
                raise SessionActive(row["session_id"])
            StoredSession(connection, row, self.damage).update(status="closed", owner=None)


def _is_whole(session: StoredSession, rows: Sequence[sqlite3.Row]) -> bool:
    """Return True if rows of a turn are all that is stored between their neighbors, without a gap."""
    if not rows:
        return False
    first, last, count = rows[0]["position"], rows[-1]["position"], session.row["messages"]
    beside = {place for place in (first - 1, last + 1) if 0 <= place < count}
    (known,) = session.connection.execute(
        _COUNT_BESIDE, (session.id, first - 1, last + 1)
    ).fetchone()
    return last - first + 1 == len(rows) and bool(known == len(beside))


def _now_milliseconds() -> int:
    return to_milliseconds(time.time())


def current_process() -> str:
    """Return an identifier of this process.

    It contains the start time, because operating systems reuse process ids.

    Returns
    -------
    str
        Identifier of the form ``host/pid/start time``.
    """
    import psutil  # lazy: needed for writing only

    me = psutil.Process()
    return f"{platform.node()}/{me.pid}/{me.create_time():.2f}"


def is_process_alive(owner: str | None, last_active: float) -> bool:
    """Return True if the process that owns a session is still running.

    A process on another machine cannot be checked. It counts as running for ten minutes after its
    last activity.

    Parameters
    ----------
    owner : str or None
        Process identifier returned by ``current_process``; None if no process owns the session.
    last_active : float
        Time of the last activity of the process, in seconds since 1970.

    Returns
    -------
    bool
        True if the process is running or counts as running.

    Examples
    --------
    >>> gone = f"{platform.node()}/1/0.00"
    >>> [is_process_alive(owner, 0.0) for owner in (current_process(), gone, None)]
    [True, False, False]
    >>> [is_process_alive("elsewhere!/1/0.00", time.time() - ago) for ago in (0, 601)]
    [True, False]
    """
    import psutil

    try:
        host, number, start = (owner or "").split("/")
        process, began = int(number), float(start)
    except ValueError:
        return False
    if host != platform.node():
        return time.time() - last_active < _REMOTE_TIMEOUT
    try:
        return bool(abs(psutil.Process(process).create_time() - began) < 1)
    except (psutil.Error, ValueError, OverflowError):
        return False

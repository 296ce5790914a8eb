"""Session store of JSONL chunks in a folder.

A session has these files:

- ``session-ID.1.jsonl``, ``session-ID.2.jsonl``, …: the messages, one per line, in the format of
  ``ctxlab.formats.ctxlab_sessions.chunks``
- ``session-ID.meta.json``: the title and other values that change, so that a new title rewrites no
  message
- ``session-ID.window.json``: the state to resume from
- ``session-ID.tools.json``: the tool definitions
- ``lines-ID.jsonl``: the turn summaries

The cost of an append, an open or a save does not grow with the session. ``ctxlab.load`` reads the
folder, one recording per session.

References
----------
Seed designs "Session Chunking" and "Robustness", 10.9 and 10.10.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError, SessionConflict, SessionError, SpecError, UnknownSession
from ctxlab.messages.openai_format import message_from_row, row_from_message
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState, Session, SessionStatus
from ctxlab.sessions.common import (
    Fsync,
    check_session_id,
    check_status,
    check_title,
    clean_plan,
    clean_text,
    is_session_id,
)
from ctxlab.sessions.jsonl.chunk_format import ChunkTail, encode_chunk, encode_rows
from ctxlab.sessions.jsonl.files import encode_first_row, read_first_row
from ctxlab.sessions.jsonl.library import JsonlLibrary
from ctxlab.sessions.jsonl.metadata import SessionMeta, session_from_meta
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow
from ctxlab.sessions.titles import single_line, title_from_prompt, titles_after_change

_LOG = logging.getLogger("ctxlab.sessions")


class JsonlStore(JsonlLibrary):
    """Sessions as JSONL chunks in a folder, safe for several processes at once.

    Messages that are appended together stay in one chunk: if they do not fit into the newest chunk,
    they start another. Only a batch of more than ``max_history`` messages spans several chunks.

    Parameters
    ----------
    folder : str or Path
        Folder of the store.
    max_history : int, default 200
        Maximum number of messages of a chunk.
    fsync : {'always', 'never'}, default 'always'
        ``always`` forces every write to the disk, so that acknowledged writes survive a power
        failure. ``never`` leaves this to the operating system; writes still survive a kill of the
        process.
    caps : ResumeCaps, optional
        Maximum size of the resume state. By default, ``ResumeCaps()`` with at most ``max_history``
        messages.

    Raises
    ------
    SpecError
        If ``max_history`` or ``fsync`` is invalid.

    Examples
    --------
    >>> import tempfile
    >>> store = JsonlStore(tempfile.mkdtemp(), max_history=2, fsync="never")
    >>> id = store.create(model="gpt-5").id
    >>> [store.append(id, Message("user", f"line {n}")) for n in range(3)]
    [0, 1, 2]
    >>> sorted(path.name.removeprefix(f"session-{id}.") for path in store.folder.glob("*.jsonl"))
    ['1.jsonl', '2.jsonl']
    >>> store.get(id).title, [m.content for m in store.read_messages(id, 1)]
    ('line 0', ['line 1', 'line 2'])
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        max_history: int = 200,
        fsync: Fsync = "always",
        caps: ResumeCaps | None = None,
    ) -> None:
        if not isinstance(max_history, int) or max_history < 1:
            raise SpecError(f"max_history must be an integer of at least 1, got {max_history!r}")
        super().__init__(folder, fsync)
        self.max_history = max_history
        self.caps = caps or ResumeCaps(messages=min(ResumeCaps().messages, max_history))
        self._tails: dict[str, tuple[str, ChunkTail]] = {}

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
        """
        id = str(uuid4()) if id is None else check_session_id(id)
        now, title = time.time(), single_line(title)
        made = SessionMeta(
            born=uuid4().hex,
            created=now,
            updated=now,
            title=title,
            model=clean_text(model),
            agent=clean_text(agent),
            file=clean_text(file),
            strategy=clean_text(strategy),
            system=system,
            titles=titles_after_change(Session(id), title, 0, now),
            meta=meta or {},
        )
        self._check_encodable(made)
        said = encode_first_row("session-tools", id, tools=tools)
        with self._session_lock(id, new=True):
            self._ensure_id_free(id)
            if tools:
                self._files.replace(self._files.sidecar_path(id, "tools"), said)
            first = encode_chunk(ChunkTail(1, 0, 0, True), id, made.model)
            self._files.replace(self._files.chunk_path(id, 1), first)
            self._write_meta(id, made)
        return session_from_meta(id, made, 0, now, tools)

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
        """
        with self._session_lock(id):
            meta = self._load_meta(id)
            window = self._update_window(id, meta, self._load_tail(id, meta))
            self._write_meta(id, meta.replace(status="active", updated=time.time()))
            return window.resume_state(meta.plan)

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
        text = self._encode_rows(messages)
        with self._session_lock(id):
            meta = self._load_meta(id)
            tail = self._load_tail(id, meta)
            position = tail.next_position
            if expected_position not in (None, position):
                raise SessionConflict(id)
            if not messages:
                return position
            if not (meta.title or meta.system):
                meta = self._apply_first_title(id, meta, tail, messages)
            if len(messages) <= self.max_history - tail.message_count:
                path = self._files.chunk_path(id, tail.chunk)
                tail.end_offset = self._files.append(
                    path, text if tail.has_newline else f"\n{text}"
                )
                tail.add_roles(*(message.role for message in messages))
                tail.has_newline = True
            else:
                self._start_chunks(id, meta, tail, messages)
        return position

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
        with self._session_lock(id):
            meta = self._load_meta(id)
            tail = self._load_tail(id, meta)
            self._update_window(id, meta, tail)
            self._write_meta(
                id, meta.replace(plan=clean_plan(plan), updated=time.time(), chunk=tail.chunk)
            )

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """Set the title of a session and add it to the title history.

        Only the small meta file is written.

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
        with self._session_lock(id):
            now, meta = time.time(), self._load_meta(id)
            if title != meta.title:
                titles = titles_after_change(
                    Session(id, meta.title, titles=meta.titles), title, turn, now
                )
                self._write_meta(id, meta.replace(title=title, titles=titles, updated=now))
        return self.get(id)

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
        """
        check_status(status)
        with self._session_lock(id):
            self._write_meta(id, self._load_meta(id).replace(status=status, updated=time.time()))
        return self.get(id)

    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        """Store the one-line summary of a turn, at the end of a file of its own.

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
        with self._session_lock(id):
            self._load_meta(id)
            path = self._files.summaries_path(id)
            if not path.exists():
                self._files.replace(path, encode_first_row("session-lines", id))
            self._files.repair_last_line(path, self._files.torn_path(id, 0), id)
            self._files.append(path, dump_json({"turn": turn, "line": clean_text(summary)}) + "\n")

    def delete(self, id: str) -> None:
        """Delete a session with all its files.

        If the process is killed in between, no readable session is left.

        Parameters
        ----------
        id : str
            Session id.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        with self._session_lock(id):
            meta = self._find_meta(id)
            if meta is None or meta.deleted:
                self._remove_files(id)
                raise UnknownSession(id, self.folder)
            self._write_meta(id, meta.replace(deleted=True))
            self._remove_files(id)

    def close(self) -> None:
        """Clear the cached state of sessions; no file is kept open between calls."""
        self._tails.clear()
        self._end_positions.clear()

    @contextmanager
    def _session_lock(self, id: str, *, new: bool = False) -> Iterator[None]:
        """Hold the lock of a session; after an error, its cached state is dropped."""
        if not (new or (is_session_id(id) and self.folder.is_dir())):
            raise UnknownSession(id, self.folder)  # before the lock creates a folder
        with self._files.locked(id):
            try:
                yield
            except BaseException:
                self._tails.pop(id, None)
                raise

    def _ensure_id_free(self, id: str) -> None:
        """Raise ``SessionError`` if an id is taken; remove the remains of a killed create or delete."""
        meta = self._find_meta(id)
        if meta is None and self._files.chunk_path(id, 1).exists():
            chunks = [self._files.chunk_path(id, number) for number in (1, 2)]
            if chunks[1].exists() or ChunkTail.read(chunks[0]).message_count:
                raise SessionError(
                    f"{chunks[0]}: the session has no meta file; run ctxlab sessions migrate to "
                    "restore it"
                )
        elif meta is not None and not meta.deleted:
            raise SessionError(f"session {id!r} exists in {self.folder} already; open it instead")
        self._remove_files(id)

    def _remove_files(self, id: str) -> None:
        """Remove all files of a session, its meta file last."""
        last = self._files.sidecar_path(id, "meta")
        for path in self._files.list_files(id):
            if path != last:
                path.unlink(missing_ok=True)
        last.unlink(missing_ok=True)
        self._files.sync_folder()
        self._tails.pop(id, None)
        self._end_positions.pop(id, None)

    def _write_meta(self, id: str, meta: SessionMeta) -> None:
        said = {"status": meta.status} | msgspec.to_builtins(meta)
        self._files.replace(
            self._files.sidecar_path(id, "meta"), encode_first_row("session-meta", id, **said)
        )

    def _load_tail(self, id: str, meta: SessionMeta) -> ChunkTail:
        """Return the state of the newest chunk on disk, after cutting off an unfinished batch."""
        born, tail = self._tails.get(id, ("", None))
        newest = self._newest_chunk(id, meta)
        path = self._files.chunk_path(id, newest)
        size = path.stat().st_size
        if tail is None or (born, tail.chunk, tail.end_offset) != (meta.born, newest, size):
            tail = ChunkTail.read(path)
            self._tails[id] = meta.born, tail
            if size != tail.end_offset:
                self._files.truncate(path, tail.end_offset, self._files.torn_path(id, newest), id)
        return tail

    def _apply_first_title(
        self, id: str, meta: SessionMeta, tail: ChunkTail, messages: Sequence[Message]
    ) -> SessionMeta:
        """Set the title from the first user message, and store it before the message."""
        turns, now = TurnCounter(tail.turn, tail.replied), time.time()
        for message in messages:
            turn = turns.add(message)
            if message.role == "user" and (title := title_from_prompt(message.text)):
                titles = titles_after_change(Session(id, titles=meta.titles), title, turn, now)
                meta = meta.replace(title=title, titles=titles, updated=now)
                self._write_meta(id, meta)
                break
        return meta

    def _start_chunks(
        self, id: str, meta: SessionMeta, tail: ChunkTail, messages: Sequence[Message]
    ) -> None:
        """Write messages to one or more new chunks.

        Each chunk is renamed into place when it is complete, the last one first. Readers find none
        of them until the first one is in place, so that all messages become visible at once.
        """
        files, first = self._files, tail.chunk + 1
        made: list[tuple[ChunkTail, bytes]] = []
        for start in range(0, len(messages), self.max_history):
            some = messages[start : start + self.max_history]
            batch = first if start else 0
            tail = ChunkTail(tail.chunk + 1, tail.next_position, tail.turn, tail.replied)
            text = encode_chunk(tail, id, meta.model, some, batch)
            tail.add_roles(*(message.role for message in some))
            tail.end_offset = len(text)
            made.append((tail, text))
        for number in range(first, tail.chunk + 2):
            if (path := files.chunk_path(id, number)).exists():
                files.back_up_and_remove(path, files.torn_path(id, number), id)
        for each, text in reversed(made):
            files.replace(files.chunk_path(id, each.chunk), text)
        self._tails[id] = meta.born, tail
        try:
            self._write_meta(id, meta.replace(chunk=tail.chunk, updated=time.time()))
            self._update_window(id, meta, tail)
        except (OSError, ReadError, SessionError) as error:  # the messages are stored already
            _LOG.warning("session %r: %s; the next save will retry", id, error)

    def _update_window(self, id: str, meta: SessionMeta, tail: ChunkTail) -> ResumeWindow:
        """Bring the resume window up to the last message and store it."""
        path = self._files.sidecar_path(id, "window")
        window, position = ResumeWindow(self.caps), 0
        try:
            row = read_first_row(path, "session-window")
            recent = [message_from_row(each) for each in row["recent"]]
            if row["born"] == meta.born and row["position"] <= tail.next_position:
                window = ResumeWindow(self.caps, str(row["summary"]), recent)
                position = row["position"]
        except FileNotFoundError:
            pass
        except (ReadError, KeyError, TypeError, ValueError):
            _LOG.warning("%s: broken; rebuilding it from the messages", path)
        if position < tail.next_position or not path.exists():
            window.extend(self.read_messages(id, position, tail.next_position))
            said: dict[str, Any] = {"born": meta.born, "position": tail.next_position}
            said |= {"summary": window.summary}
            rows = [row_from_message(message) for message in window.recent]
            self._files.replace(path, encode_first_row("session-window", id, **said, recent=rows))
        return window

    def _encode_rows(self, messages: tuple[Message, ...]) -> str:
        try:
            return encode_rows(messages)
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"a message cannot be stored as JSON: {error}") from None

    def _check_encodable(self, meta: SessionMeta) -> None:
        try:
            dump_json(msgspec.to_builtins(meta))
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"the session's meta cannot be stored as JSON: {error}") from None

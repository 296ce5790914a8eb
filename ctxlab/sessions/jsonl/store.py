"""A chunked store keeps a session as files of so many messages each, of which only the newest grows.

``session-ID.1.jsonl``, ``session-ID.2.jsonl``, … hold the messages, one a line
(``ctxlab.formats.ctxlab_sessions.chunks`` says how); ``session-ID.meta.json`` the title and what else
may change, so that a title rewrites no message; ``session-ID.window.json`` what a resume begins with;
``session-ID.tools.json`` the tool definitions; ``lines-ID.jsonl`` the summaries of turns. What an
append, an open or a save costs does not grow with the session. ``ctxlab.load`` reads the folder, one
recording a session.

Source: seed designs "Session Chunking" and "Robustness", 10.9 and 10.10.
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

__all__ = ["JsonlStore"]

_LOG = logging.getLogger("ctxlab.sessions")


class JsonlStore(JsonlLibrary):
    """Sessions as chunks of JSONL in a folder, for any number of processes at once.

    ``max_history``: messages of a chunk at most. Messages that are appended together are never parted:
    where they do not fit into the newest chunk they begin another, and only more than ``max_history`` at
    once take several. ``fsync``: ``"always"`` forces every write to the disk, so that a power
    failure loses nothing that was acknowledged; ``"never"`` leaves it to the system, which keeps it
    through a kill of the process all the same. ``caps``: of what a session is resumed from; None:
    the usual ones, and never more than ``max_history`` messages.

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
            raise SpecError(f"max_history is {max_history!r}; a chunk holds at least one message")
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
        """A new session, see ``SessionStore.create``; ``SessionError`` for an unfit id."""
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
        """What a session is resumed from, see ``SessionStore.open``: a summary and a bounded window."""
        with self._session_lock(id):
            meta = self._load_meta(id)
            window = self._update_window(id, meta, self._load_tail(id, meta))
            self._write_meta(id, meta.replace(status="active", updated=time.time()))
            return window.resume_state(meta.plan)

    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        """Adds messages, all or none of them, see ``SessionStore.append``."""
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
        """A turn is over, see ``SessionStore.save``."""
        with self._session_lock(id):
            meta = self._load_meta(id)
            tail = self._load_tail(id, meta)
            self._update_window(id, meta, tail)
            self._write_meta(
                id, meta.replace(plan=clean_plan(plan), updated=time.time(), chunk=tail.chunk)
            )

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """Another title, see ``SessionStore.retitle``; the small meta file is all that is written."""
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
        """Closes, archives, or makes active again."""
        check_status(status)
        with self._session_lock(id):
            self._write_meta(id, self._load_meta(id).replace(status=status, updated=time.time()))
        return self.get(id)

    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        """Keeps the one-line summary of a turn, at the end of a file of its own."""
        with self._session_lock(id):
            self._load_meta(id)
            path = self._files.summaries_path(id)
            if not path.exists():
                self._files.replace(path, encode_first_row("session-lines", id))
            self._files.repair_last_line(path, self._files.torn_path(id, 0), id)
            self._files.append(path, dump_json({"turn": turn, "line": clean_text(summary)}) + "\n")

    def delete(self, id: str) -> None:
        """Removes a session and everything of it; a kill in the middle leaves none that can be read."""
        with self._session_lock(id):
            meta = self._find_meta(id)
            if meta is None or meta.deleted:
                self._remove_files(id)
                raise UnknownSession(id, self.folder)
            self._write_meta(id, meta.replace(deleted=True))
            self._remove_files(id)

    def close(self) -> None:
        """Forgets what it knows of the sessions; no file is held open between two calls."""
        self._tails.clear()
        self._end_positions.clear()

    @contextmanager
    def _session_lock(self, id: str, *, new: bool = False) -> Iterator[None]:
        """Under the session's lock; whoever is interrupted looks at the disk again the next time."""
        if not (new or (is_session_id(id) and self.folder.is_dir())):
            raise UnknownSession(id, self.folder)  # and no folder is made
        with self._files.locked(id):
            try:
                yield
            except BaseException:
                self._tails.pop(id, None)
                raise

    def _ensure_id_free(self, id: str) -> None:
        """Sees that an id is not taken, and clears away what an unfinished creation or removal left."""
        meta = self._find_meta(id)
        if meta is None and self._files.chunk_path(id, 1).exists():
            chunks = [self._files.chunk_path(id, number) for number in (1, 2)]
            if chunks[1].exists() or ChunkTail.read(chunks[0]).message_count:
                raise SessionError(
                    f"{chunks[0]}: a session without its meta file; ctxlab sessions migrate mends it"
                )
        elif meta is not None and not meta.deleted:
            raise SessionError(f"session {id!r} is in {self.folder} already; open it")
        self._remove_files(id)

    def _remove_files(self, id: str) -> None:
        """Removes all files of a session, its meta last."""
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
        """The newest chunk, whatever others have appended; what they left unfinished is cut off."""
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
        """With the title that the first user message gives; it is kept before the message is."""
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
        """Puts messages into a new chunk, or several.

        Each is complete before it has its name, and the last one gets its name first: until the first
        one has its own, which is the moment at which all of them count, none is found.
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
        except (OSError, ReadError, SessionError) as error:  # the messages are stored
            _LOG.warning("session %r: %s; the next save tries again", id, error)

    def _update_window(self, id: str, meta: SessionMeta, tail: ChunkTail) -> ResumeWindow:
        """The window at the end of the session, and kept so."""
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
            _LOG.warning("%s: is broken and made anew from the messages", path)
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
            raise SessionError(f"a message cannot be stored: {error}") from None

    def _check_encodable(self, meta: SessionMeta) -> None:
        try:
            dump_json(msgspec.to_builtins(meta))
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"the session's meta cannot be stored: {error}") from None

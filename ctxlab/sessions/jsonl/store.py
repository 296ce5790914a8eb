"""A chunked store keeps a session as files of so many messages each, of which only the newest grows.

``session-ID.1.jsonl``, ``session-ID.2.jsonl``, … hold the messages, one a line (``ctxlab.formats.
session_chunks`` says how); ``session-ID.meta.json`` the title and what else may change, so that a title
rewrites no message; ``session-ID.window.json`` what a resume begins with; ``session-ID.tools.json`` the
tool definitions; ``lines-ID.jsonl`` the summaries of turns. What an append, an open or a save costs does
not grow with the session. ``ctxlab.load`` reads the folder, one recording a session.

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
from ctxlab.context.turns import Turns
from ctxlab.errors import (
    ReadError,
    SessionAhead,
    SessionError,
    SpecError,
    UnknownSession,
)
from ctxlab.messages.openai_format import (
    message_from_row,
    row_from_message,
)
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
    is_id,
    known_status,
    said_title,
)
from ctxlab.sessions.jsonl.chunk_format import (
    Tail,
    chunk_text,
    rows_text,
)
from ctxlab.sessions.jsonl.files import (
    first_line,
    mark,
)
from ctxlab.sessions.jsonl.library import ChunkLibrary
from ctxlab.sessions.jsonl.metadata import (
    Meta,
    session_from,
)
from ctxlab.sessions.resume_window import (
    Caps,
    Window,
)
from ctxlab.sessions.titles import (
    changed,
    first_title,
    tidy,
)

__all__ = ["ChunkedStore"]

_LOG = logging.getLogger("ctxlab.sessions")


class ChunkedStore(ChunkLibrary):
    """Sessions as chunks of JSONL in a folder, for any number of processes at once.

    ``max_history``: messages of a chunk at most. Messages that are appended together are never parted:
    where they do not fit into the newest chunk they begin another, and only more than ``max_history`` at
    once take several. ``fsync``: ``"always"`` forces every write to the disk, so that a power failure
    loses nothing that was acknowledged; ``"never"`` leaves it to the system, which keeps it through a
    kill of the process all the same. ``caps``: of what a session is resumed from; None: the usual ones,
    and never more than ``max_history`` messages.

    >>> import tempfile
    >>> store = ChunkedStore(tempfile.mkdtemp(), max_history=2, fsync="never")
    >>> id = store.create(model="gpt-5").id
    >>> [store.append(id, Message("user", f"line {n}")) for n in range(3)]
    [0, 1, 2]
    >>> sorted(path.name.removeprefix(f"session-{id}.") for path in store.folder.glob("*.jsonl"))
    ['1.jsonl', '2.jsonl']
    >>> store.get(id).title, [m.content for m in store.read(id, 1)]
    ('line 0', ['line 1', 'line 2'])
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        max_history: int = 200,
        fsync: Fsync = "always",
        caps: Caps | None = None,
    ) -> None:
        if not isinstance(max_history, int) or max_history < 1:
            raise SpecError(f"max_history is {max_history!r}; a chunk holds at least one message")
        super().__init__(folder, fsync)
        self.max_history = max_history
        self.caps = caps or Caps(messages=min(Caps().messages, max_history))
        self._tails: dict[str, tuple[str, Tail]] = {}

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
        """A new session, see ``Store.create``; ``SessionError`` for an id that cannot name a file."""
        id = str(uuid4()) if id is None else check_id(id)
        now, title = time.time(), tidy(title)
        made = Meta(
            born=uuid4().hex,
            created=now,
            updated=now,
            title=title,
            model=clean(model),
            agent=clean(agent),
            file=clean(file),
            strategy=clean(strategy),
            system=system,
            titles=changed(Session(id), title, 0, now),
            meta=meta or {},
        )
        self._json(made)
        said = mark("session-tools", id, tools=tools)
        with self._alone(id, new=True):
            self._free(id)
            if tools:
                self._files.replace(self._files.beside(id, "tools"), said)
            first = chunk_text(Tail(1, 0, 0, True), id, made.model)
            self._files.replace(self._files.chunk(id, 1), first)
            self._put(id, made)
        return session_from(id, made, 0, now, tools)

    def open(self, id: str) -> Resume:
        """What a session is resumed from, see ``Store.open``: a summary and a bounded window."""
        with self._alone(id):
            meta = self._meta(id)
            window = self._window(id, meta, self._tail(id, meta))
            self._put(id, meta.replace(status="active", updated=time.time()))
            return window.resume(meta.plan)

    def append(self, id: str, *messages: Message, at: int | None = None) -> int:
        """Adds messages, all or none of them, see ``Store.append``."""
        text = self._rows(messages)
        with self._alone(id):
            meta = self._meta(id)
            tail = self._tail(id, meta)
            position = tail.position
            if at not in (None, position):
                raise SessionAhead(id)
            if not messages:
                return position
            if not (meta.title or meta.system):
                meta = self._titled(id, meta, tail, messages)
            if len(messages) <= self.max_history - tail.count:
                path = self._files.chunk(id, tail.chunk)
                tail.end = self._files.append(path, text if tail.newline else f"\n{text}")
                tail.take(*(message.role for message in messages))
                tail.newline = True
            else:
                self._begin(id, meta, tail, messages)
        return position

    def save(self, id: str, *, plan: Plan | None = None) -> None:
        """A turn is over, see ``Store.save``."""
        with self._alone(id):
            meta = self._meta(id)
            tail = self._tail(id, meta)
            self._window(id, meta, tail)
            self._put(
                id, meta.replace(plan=clean_plan(plan), updated=time.time(), chunk=tail.chunk)
            )

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """Another title, see ``Store.retitle``; the small meta file is all that is written."""
        title = said_title(id, title)
        with self._alone(id):
            now, meta = time.time(), self._meta(id)
            if title != meta.title:
                titles = changed(Session(id, meta.title, titles=meta.titles), title, turn, now)
                self._put(id, meta.replace(title=title, titles=titles, updated=now))
        return self.get(id)

    def mark(self, id: str, status: Status) -> Session:
        """Closes, archives, or makes active again."""
        known_status(status)
        with self._alone(id):
            self._put(id, self._meta(id).replace(status=status, updated=time.time()))
        return self.get(id)

    def keep_line(self, id: str, turn: int, line: str) -> None:
        """Keeps the one-line summary of a turn, at the end of a file of its own."""
        with self._alone(id):
            self._meta(id)
            path = self._files.lines(id)
            if not path.exists():
                self._files.replace(path, mark("session-lines", id))
            self._files.mend(path, self._files.torn(id, 0), id)
            self._files.append(path, dump_json({"turn": turn, "line": clean(line)}) + "\n")

    def delete(self, id: str) -> None:
        """Removes a session and everything of it; a kill in the middle leaves none that can be read."""
        with self._alone(id):
            meta = self._stored(id)
            if meta is None or meta.deleted:
                self._remove(id)
                raise UnknownSession(id, self.folder)
            self._put(id, meta.replace(deleted=True))
            self._remove(id)

    def close(self) -> None:
        """Forgets what it knows of the sessions; no file is held open between two calls."""
        self._tails.clear()
        self._ends.clear()

    @contextmanager
    def _alone(self, id: str, *, new: bool = False) -> Iterator[None]:
        """Under the session's lock; whoever is interrupted looks at the disk again the next time."""
        if not (new or (is_id(id) and self.folder.is_dir())):
            raise UnknownSession(id, self.folder)  # and no folder is made
        with self._files.locked(id):
            try:
                yield
            except BaseException:
                self._tails.pop(id, None)
                raise

    def _free(self, id: str) -> None:
        """Sees that an id is not taken, and clears away what an unfinished creation or removal left."""
        meta = self._stored(id)
        if meta is None and self._files.chunk(id, 1).exists():
            chunks = [self._files.chunk(id, number) for number in (1, 2)]
            if chunks[1].exists() or Tail.of(chunks[0]).count:
                raise SessionError(
                    f"{chunks[0]}: a session without its meta file; ctxlab sessions migrate mends it"
                )
        elif meta is not None and not meta.deleted:
            raise SessionError(f"session {id!r} is in {self.folder} already; open it")
        self._remove(id)

    def _remove(self, id: str) -> None:
        """Removes all files of a session, its meta last."""
        last = self._files.beside(id, "meta")
        for path in self._files.all_of(id):
            if path != last:
                path.unlink(missing_ok=True)
        last.unlink(missing_ok=True)
        self._files.settle()
        self._tails.pop(id, None)
        self._ends.pop(id, None)

    def _put(self, id: str, meta: Meta) -> None:
        said = {"status": meta.status} | msgspec.to_builtins(meta)
        self._files.replace(self._files.beside(id, "meta"), mark("session-meta", id, **said))

    def _tail(self, id: str, meta: Meta) -> Tail:
        """The newest chunk, whatever others have appended; what they left unfinished is cut off."""
        born, tail = self._tails.get(id, ("", None))
        newest = self._newest(id, meta)
        path = self._files.chunk(id, newest)
        size = path.stat().st_size
        if tail is None or (born, tail.chunk, tail.end) != (meta.born, newest, size):
            tail = Tail.of(path)
            self._tails[id] = meta.born, tail
            if size != tail.end:
                self._files.cut(path, tail.end, self._files.torn(id, newest), id)
        return tail

    def _titled(self, id: str, meta: Meta, tail: Tail, messages: Sequence[Message]) -> Meta:
        """With the title that the first user message gives; it is kept before the message is."""
        turns, now = Turns(tail.turn, tail.replied), time.time()
        for message in messages:
            turn = turns.add(message)
            if message.role == "user" and (title := first_title(message.text)):
                titles = changed(Session(id, titles=meta.titles), title, turn, now)
                meta = meta.replace(title=title, titles=titles, updated=now)
                self._put(id, meta)
                break
        return meta

    def _begin(self, id: str, meta: Meta, tail: Tail, messages: Sequence[Message]) -> None:
        """Puts messages into a new chunk, or several.

        Each is complete before it has its name, and the last one gets its name first: until the first
        one has its own, which is the moment at which all of them count, none is found.
        """
        files, first = self._files, tail.chunk + 1
        made: list[tuple[Tail, bytes]] = []
        for start in range(0, len(messages), self.max_history):
            some = messages[start : start + self.max_history]
            batch = first if start else 0
            tail = Tail(tail.chunk + 1, tail.position, tail.turn, tail.replied)
            text = chunk_text(tail, id, meta.model, some, batch)
            tail.take(*(message.role for message in some))
            tail.end = len(text)
            made.append((tail, text))
        for number in range(first, tail.chunk + 2):
            if (path := files.chunk(id, number)).exists():
                files.set_aside(path, files.torn(id, number), id)
        for each, text in reversed(made):
            files.replace(files.chunk(id, each.chunk), text)
        self._tails[id] = meta.born, tail
        try:
            self._put(id, meta.replace(chunk=tail.chunk, updated=time.time()))
            self._window(id, meta, tail)
        except (OSError, ReadError, SessionError) as error:  # the messages are stored
            _LOG.warning("session %r: %s; the next save tries again", id, error)

    def _window(self, id: str, meta: Meta, tail: Tail) -> Window:
        """The window at the end of the session, and kept so."""
        path = self._files.beside(id, "window")
        window, position = Window(self.caps), 0
        try:
            row = first_line(path, "session-window")
            recent = [message_from_row(each) for each in row["recent"]]
            if row["born"] == meta.born and row["position"] <= tail.position:
                window = Window(self.caps, str(row["summary"]), recent)
                position = row["position"]
        except FileNotFoundError:
            pass
        except (ReadError, KeyError, TypeError, ValueError):
            _LOG.warning("%s: is broken and made anew from the messages", path)
        if position < tail.position or not path.exists():
            window.extend(self.read(id, position, tail.position))
            said: dict[str, Any] = {"born": meta.born, "position": tail.position}
            said |= {"summary": window.summary}
            rows = [row_from_message(message) for message in window.recent]
            self._files.replace(path, mark("session-window", id, **said, recent=rows))
        return window

    def _rows(self, messages: tuple[Message, ...]) -> str:
        try:
            return rows_text(messages)
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"a message cannot be stored: {error}") from None

    def _json(self, meta: Meta) -> None:
        try:
            dump_json(msgspec.to_builtins(meta))
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"the session's meta cannot be stored: {error}") from None

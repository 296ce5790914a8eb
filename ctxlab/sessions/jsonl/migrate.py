"""Session files of older shapes become chunks; an old file goes once the new ones hold all of it.

Taken are ``session-ID.jsonl`` (one file that grew), ``session-ID.N.jsonl`` without a header (chunks that
were renamed by hand), and any ``*.jsonl`` that begins with a meta line and has rows like ``{"type":
"user", "content": …}``. A session whose meta file was lost gets another. The session is there from the
moment at which its meta file is; a run that was killed is done again by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from ctxlab._utils.humanize import many
from ctxlab.errors import (
    CtxlabError,
    SessionError,
)
from ctxlab.formats.ctxlab_sessions.chunks import sniff
from ctxlab.formats.io.head import Head
from ctxlab.messages.types import Message
from ctxlab.sessions.base import (
    STATUSES,
    Session,
)
from ctxlab.sessions.common import (
    Fsync,
    check_id,
)
from ctxlab.sessions.jsonl.chunk_format import (
    Tail,
    chunk_text,
    header,
)
from ctxlab.sessions.jsonl.files import (
    CHUNK,
    mark,
)
from ctxlab.sessions.jsonl.legacy_format import (
    is_meta,
    moment,
    old_rows,
)
from ctxlab.sessions.jsonl.metadata import Meta
from ctxlab.sessions.jsonl.store import ChunkedStore
from ctxlab.sessions.titles import (
    changed,
    first_title,
    tidy,
)

__all__ = ["Broken", "Left", "Moved", "Report", "migrate"]

_SAID = {"type", "id", "session_id", "title", "model", "agent", "status", "tools",
         "created_at", "updated_at", "created", "updated", "format", "version"}  # fmt: skip


class Moved(NamedTuple):
    """Old files that are a session of the store now."""

    id: str
    files: tuple[str, ...]
    "none where the session was there and only lacked its meta file"
    messages: int
    chunks: int


class Broken(NamedTuple):
    """A line that could not be read; its text is kept beside the session in ``aside``."""

    file: str
    line: int
    reason: str
    aside: str


class Left(NamedTuple):
    """An old file that was left as it is."""

    file: str
    reason: str


@dataclass(frozen=True)
class Report:
    """What a migration did, what it could not read, and what it left."""

    moved: tuple[Moved, ...] = ()
    broken: tuple[Broken, ...] = ()
    left: tuple[Left, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [
                *(
                    f"{' + '.join(m.files) or 'meta file'} → session {m.id}: "
                    f"{many(m.messages, 'message')} in {many(m.chunks, 'chunk')}"
                    for m in self.moved
                ),
                *(f"{b.file}:{b.line}: {b.reason}; kept in {b.aside}" for b in self.broken),
                *(f"{each.file}: left as it is: {each.reason}" for each in self.left),
            ]
            or ["nothing to migrate"]
        )


def migrate(folder: str | Path, *, max_history: int = 200, fsync: Fsync = "always") -> Report:
    """Makes chunks of at most ``max_history`` messages of the old session files right in a folder.

    The id is that of the meta line, else of the name. The old file is removed when the new ones are on
    disk and say the same, message for message; lines that could not be read are kept beside them and
    told with file and line, and so is a file that is left because its id is taken or cannot be used, or
    because what is there of its session is broken. What is neither is not touched. Running it again
    changes nothing. Raises ``SessionError`` where there is no such folder.
    """
    store = ChunkedStore(folder, max_history=max_history, fsync=fsync)
    if not store.folder.is_dir():
        raise SessionError(f"{store.folder}: no such folder")
    moved: list[Moved] = []
    broken: list[Broken] = []
    left: list[Left] = []
    for id, first in _chunked(store.folder).items():
        try:
            if store._stored(check_id(id)) is None:
                moved += _mended(store, id, first)
        except CtxlabError as error:
            left.append(Left(first.name, str(error)))
    for id, paths in _old(store.folder).items():
        try:
            done, unread = _Migration(store, check_id(id), paths).run()
        except CtxlabError as error:
            left += [Left(path.name, str(error)) for path in paths]
        else:
            moved += done
            broken += unread
    return Report(tuple(moved), tuple(broken), tuple(left))


class _Migration:
    """One session that is made of old files."""

    def __init__(self, store: ChunkedStore, id: str, paths: list[Path]) -> None:
        self.store, self.id, self.paths = store, id, paths
        self.files = store._files
        self.meta: dict[str, Any] = {}
        self.title = ""
        self.unread: list[tuple[Path, int, str, str]] = []

    def run(self) -> tuple[list[Moved], list[Broken]]:
        source = {"files": [_first_name(path) for path in self.paths]}
        with self.files.locked(self.id):
            known = self.store._stored(self.id)
            if known is not None and not known.deleted:
                if known.source != source:
                    raise SessionError(f"a session {self.id!r} is in the store already")
                self._drop()  # a run was killed when all was done but this
                return [], []
            times = [path.stat().st_mtime for path in self.paths]
            now = time.time()
            paths = [self._apart(path) for path in self.paths]
            born = Meta(born=uuid4().hex, created=now, updated=now, source=source, deleted=True)
            if known is None:
                self.store._put(self.id, born)
            self._clear(paths)
            self.paths = paths
            tail = self._write(max(times))
            self._compare(tail)
            broken = self._keep_unread()
            self.store._put(self.id, self._meta(born, times))
            self._drop()
        return [Moved(self.id, tuple(source["files"]), tail.position, tail.chunk)], broken

    def _apart(self, path: Path) -> Path:
        """The old file, under a name that no chunk will have."""
        if not CHUNK.fullmatch(path.name):
            return path
        apart = path.with_suffix(".old")
        path.rename(apart)
        self.files.settle()
        return apart

    def _clear(self, paths: list[Path]) -> None:
        """Removes what a run that was killed has written, and nothing old."""
        keep = {*paths, self.files.beside(self.id, "meta")}
        for path in self.files.all_of(self.id):
            if path not in keep:
                path.unlink()

    def _messages(self) -> Iterator[Message]:
        self.unread.clear()
        for row in chain.from_iterable(map(old_rows, self.paths)):
            if row.meta is not None:
                self.meta |= row.meta
            elif row.message is not None:
                yield row.message
            else:
                self.unread.append((row.path, row.line, row.broken or "", row.text))

    def _write(self, modified: float) -> Tail:
        """The chunks; the last one's tail."""
        begin, some = Tail(1, 0, 0, True), list[Message]()
        model = None

        def put() -> Tail:
            path = self.files.chunk(self.id, begin.chunk)
            text = chunk_text(begin, self.id, model, some)
            self.files.replace(path, text, modified=modified)
            begin.take(*(message.role for message in some))
            return begin

        for message in self._messages():
            model = model or _text(self.meta, "model")
            if len(some) == self.store.max_history:
                put()
                begin = Tail(begin.chunk + 1, begin.position, begin.turn, begin.replied)
                some = []
            some.append(message)
            if not self.title and message.role == "user":
                self.title = first_title(message.text)
        return put()

    def _compare(self, tail: Tail) -> None:
        """Sees that the chunks say what the old files say."""
        again = self.store._from(self.id, 1)
        same = all(message == next(again, None) for message in self._messages())
        if not same or next(again, None) is not None:
            raise SessionError("its chunks do not say the same as it; nothing was removed")

    def _keep_unread(self) -> list[Broken]:
        if not self.unread:
            return []
        aside = self.files.torn(self.id, 0)
        rows = [
            mark(
                "session-torn", self.id, file=_first_name(path), line=line, reason=reason, cut=text
            )
            for path, line, reason, text in self.unread
        ]
        self.files.replace(aside, b"".join(rows))
        return [Broken(_first_name(p), line, why, aside.name) for p, line, why, _ in self.unread]

    def _meta(self, born: Meta, times: list[float]) -> Meta:
        said = self.meta
        title = tidy(_text(said, "title") or "") or self.title
        created = moment(said, "created_at", "created") or min(times)
        updated = moment(said, "updated_at", "updated") or max(times)
        tools = said.get("tools")
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            path = self.files.beside(self.id, "tools")
            self.files.replace(path, mark("session-tools", self.id, tools=tools))
        return Meta(
            born=born.born,
            source=born.source,
            created=created,
            updated=updated,
            title=title,
            titles=changed(Session(self.id), title, 0, created),
            model=_text(said, "model"),
            agent=_text(said, "agent"),
            status=said["status"] if said.get("status") in STATUSES else "closed",
            meta={key: value for key, value in said.items() if key not in _SAID},
        )

    def _drop(self) -> None:
        for path in self.paths:
            path.unlink()
        self.files.settle()


def _old(folder: Path) -> dict[str, list[Path]]:
    """The old files of each session, in their order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".jsonl", ".old") or not path.is_file():
            continue
        head = Head.of(path)
        if sniff(head):
            continue
        first: Any = head.value
        meta = first if is_meta(first) and "format" not in first else {}
        chunk = CHUNK.fullmatch(_first_name(path))
        if chunk is not None:
            found.setdefault(chunk["id"], []).append((int(chunk["number"]), path))
        elif path.suffix == ".jsonl" and (meta or path.name.startswith("session-")):
            named = path.stem.removeprefix("session-")
            id = _text(meta, "session_id") or _text(meta, "id") or named
            found.setdefault(id, []).append((0, path))
    return {id: [path for _, path in sorted(each)] for id, each in found.items()}


def _chunked(folder: Path) -> dict[str, Path]:
    """The first chunk of each session of the store."""
    found = ((CHUNK.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    firsts = {chunk["id"]: path for chunk, path in found if chunk and chunk["number"] == "1"}
    return {id: path for id, path in firsts.items() if path.is_file() and sniff(Head.of(path))}


def _mended(store: ChunkedStore, id: str, first: Path) -> list[Moved]:
    """Gives a session another meta file, from what its chunks say, if they hold any message."""
    with store._files.locked(id):
        created, title = first.stat().st_mtime, ""
        meta = Meta(born=uuid4().hex, created=created, updated=created, model=header(first).model)
        tail = Tail.of(store._files.chunk(id, store._newest(id, meta)))
        if not tail.position or store._stored(id) is not None:  # it is only being made
            return []
        for message in store._from(id, 1):
            if message.role == "user" and (title := first_title(message.text)):
                break
        titles = changed(Session(id), title, 1, created)
        store._put(id, meta.replace(title=title, titles=titles))
    return [Moved(id, (), tail.position, tail.chunk)]


def _first_name(path: Path) -> str:
    """What an old file was called at first."""
    return path.with_suffix(".jsonl").name if path.suffix == ".old" else path.name


def _text(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None

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

from ctxlab._utils.humanize import pluralize
from ctxlab.errors import CtxlabError, SessionError
from ctxlab.formats.ctxlab_sessions.chunks import sniff
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message
from ctxlab.sessions.base import STATUSES, Session
from ctxlab.sessions.common import Fsync, check_session_id
from ctxlab.sessions.jsonl.chunk_format import ChunkTail, encode_chunk, read_chunk_header
from ctxlab.sessions.jsonl.files import CHUNK_PATTERN, encode_first_row
from ctxlab.sessions.jsonl.legacy_format import first_timestamp, is_meta_row, read_legacy_rows
from ctxlab.sessions.jsonl.metadata import SessionMeta
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.titles import single_line, title_from_prompt, titles_after_change

__all__ = ["MigratedSession", "MigrationReport", "SkippedFile", "UnreadableLine", "migrate_folder"]

_KNOWN_META_KEYS = {"type", "id", "session_id", "title", "model", "agent", "status", "tools",
         "created_at", "updated_at", "created", "updated", "format", "version"}  # fmt: skip


class MigratedSession(NamedTuple):
    """Old files that are a session of the store now."""

    id: str
    files: tuple[str, ...]
    "none where the session was there and only lacked its meta file"
    messages: int
    chunks: int


class UnreadableLine(NamedTuple):
    """A line that could not be read; its text is kept beside the session in ``kept_in``."""

    file: str
    line: int
    reason: str
    kept_in: str


class SkippedFile(NamedTuple):
    """An old file that was left as it is."""

    file: str
    reason: str


@dataclass(frozen=True)
class MigrationReport:
    """What a migration did, what it could not read, and what it left."""

    migrated: tuple[MigratedSession, ...] = ()
    unreadable: tuple[UnreadableLine, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [
                *(
                    f"{' + '.join(m.files) or 'meta file'} → session {m.id}: "
                    f"{pluralize(m.messages, 'message')} in {pluralize(m.chunks, 'chunk')}"
                    for m in self.migrated
                ),
                *(f"{b.file}:{b.line}: {b.reason}; kept in {b.kept_in}" for b in self.unreadable),
                *(f"{each.file}: left as it is: {each.reason}" for each in self.skipped),
            ]
            or ["nothing to migrate"]
        )


def migrate_folder(
    folder: str | Path, *, max_history: int = 200, fsync: Fsync = "always"
) -> MigrationReport:
    """Makes chunks of at most ``max_history`` messages of the old session files right in a folder.

    The id is that of the meta line, else of the name. The old file is removed when the new ones are on
    disk and say the same, message for message; lines that could not be read are kept beside them and
    told with file and line, and so is a file that is left because its id is taken or cannot be used, or
    because what is there of its session is broken. What is neither is not touched. Running it again
    changes nothing. Raises ``SessionError`` where there is no such folder.
    """
    store = JsonlStore(folder, max_history=max_history, fsync=fsync)
    if not store.folder.is_dir():
        raise SessionError(f"{store.folder}: no such folder")
    moved: list[MigratedSession] = []
    broken: list[UnreadableLine] = []
    left: list[SkippedFile] = []
    for id, first in _find_first_chunks(store.folder).items():
        try:
            if store._find_meta(check_session_id(id)) is None:
                moved += _restore_meta(store, id, first)
        except CtxlabError as error:
            left.append(SkippedFile(first.name, str(error)))
    for id, paths in _find_legacy_files(store.folder).items():
        try:
            done, unread = _Migration(store, check_session_id(id), paths).run()
        except CtxlabError as error:
            left += [SkippedFile(path.name, str(error)) for path in paths]
        else:
            moved += done
            broken += unread
    return MigrationReport(tuple(moved), tuple(broken), tuple(left))


class _Migration:
    """One session that is made of old files."""

    def __init__(self, store: JsonlStore, id: str, paths: list[Path]) -> None:
        self.store, self.id, self.paths = store, id, paths
        self.files = store._files
        self.meta: dict[str, Any] = {}
        self.title = ""
        self.unread: list[tuple[Path, int, str, str]] = []

    def run(self) -> tuple[list[MigratedSession], list[UnreadableLine]]:
        source = {"files": [_original_name(path) for path in self.paths]}
        with self.files.locked(self.id):
            known = self.store._find_meta(self.id)
            if known is not None and not known.deleted:
                if known.source != source:
                    raise SessionError(f"a session {self.id!r} is in the store already")
                self._remove_legacy_files()  # a run was killed when all was done but this
                return [], []
            times = [path.stat().st_mtime for path in self.paths]
            now = time.time()
            paths = [self._rename_legacy_file(path) for path in self.paths]
            born = SessionMeta(
                born=uuid4().hex, created=now, updated=now, source=source, deleted=True
            )
            if known is None:
                self.store._write_meta(self.id, born)
            self._remove_partial_files(paths)
            self.paths = paths
            tail = self._write_chunks(max(times))
            self._verify_chunks(tail)
            broken = self._store_unread()
            self.store._write_meta(self.id, self._build_meta(born, times))
            self._remove_legacy_files()
        return [
            MigratedSession(self.id, tuple(source["files"]), tail.next_position, tail.chunk)
        ], broken

    def _rename_legacy_file(self, path: Path) -> Path:
        """The old file, under a name that no chunk will have."""
        if not CHUNK_PATTERN.fullmatch(path.name):
            return path
        apart = path.with_suffix(".old")
        path.rename(apart)
        self.files.sync_folder()
        return apart

    def _remove_partial_files(self, paths: list[Path]) -> None:
        """Removes what a run that was killed has written, and nothing old."""
        keep = {*paths, self.files.sidecar_path(self.id, "meta")}
        for path in self.files.list_files(self.id):
            if path not in keep:
                path.unlink()

    def _iter_messages(self) -> Iterator[Message]:
        self.unread.clear()
        for row in chain.from_iterable(map(read_legacy_rows, self.paths)):
            if row.meta is not None:
                self.meta |= row.meta
            elif row.message is not None:
                yield row.message
            else:
                self.unread.append((row.path, row.line, row.broken or "", row.text))

    def _write_chunks(self, modified: float) -> ChunkTail:
        """The chunks; the last one's tail."""
        begin, some = ChunkTail(1, 0, 0, True), list[Message]()
        model = None

        def put() -> ChunkTail:
            path = self.files.chunk_path(self.id, begin.chunk)
            text = encode_chunk(begin, self.id, model, some)
            self.files.replace(path, text, modified=modified)
            begin.add_roles(*(message.role for message in some))
            return begin

        for message in self._iter_messages():
            model = model or _text_field(self.meta, "model")
            if len(some) == self.store.max_history:
                put()
                begin = ChunkTail(begin.chunk + 1, begin.next_position, begin.turn, begin.replied)
                some = []
            some.append(message)
            if not self.title and message.role == "user":
                self.title = title_from_prompt(message.text)
        return put()

    def _verify_chunks(self, tail: ChunkTail) -> None:
        """Sees that the chunks say what the old files say."""
        again = self.store._iter_messages_from(self.id, 1)
        same = all(message == next(again, None) for message in self._iter_messages())
        if not same or next(again, None) is not None:
            raise SessionError("its chunks do not say the same as it; nothing was removed")

    def _store_unread(self) -> list[UnreadableLine]:
        if not self.unread:
            return []
        backup = self.files.torn_path(self.id, 0)
        rows = [
            encode_first_row(
                "session-torn",
                self.id,
                file=_original_name(path),
                line=line,
                reason=reason,
                cut=text,
            )
            for path, line, reason, text in self.unread
        ]
        self.files.replace(backup, b"".join(rows))
        return [
            UnreadableLine(_original_name(p), line, why, backup.name)
            for p, line, why, _ in self.unread
        ]

    def _build_meta(self, born: SessionMeta, times: list[float]) -> SessionMeta:
        said = self.meta
        title = single_line(_text_field(said, "title") or "") or self.title
        created = first_timestamp(said, "created_at", "created") or min(times)
        updated = first_timestamp(said, "updated_at", "updated") or max(times)
        tools = said.get("tools")
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            path = self.files.sidecar_path(self.id, "tools")
            self.files.replace(path, encode_first_row("session-tools", self.id, tools=tools))
        return SessionMeta(
            born=born.born,
            source=born.source,
            created=created,
            updated=updated,
            title=title,
            titles=titles_after_change(Session(self.id), title, 0, created),
            model=_text_field(said, "model"),
            agent=_text_field(said, "agent"),
            status=said["status"] if said.get("status") in STATUSES else "closed",
            meta={key: value for key, value in said.items() if key not in _KNOWN_META_KEYS},
        )

    def _remove_legacy_files(self) -> None:
        for path in self.paths:
            path.unlink()
        self.files.sync_folder()


def _find_legacy_files(folder: Path) -> dict[str, list[Path]]:
    """The old files of each session, in their order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".jsonl", ".old") or not path.is_file():
            continue
        head = FileHead.from_file(path)
        if sniff(head):
            continue
        first: Any = head.value
        meta = first if is_meta_row(first) and "format" not in first else {}
        chunk = CHUNK_PATTERN.fullmatch(_original_name(path))
        if chunk is not None:
            found.setdefault(chunk["id"], []).append((int(chunk["number"]), path))
        elif path.suffix == ".jsonl" and (meta or path.name.startswith("session-")):
            named = path.stem.removeprefix("session-")
            id = _text_field(meta, "session_id") or _text_field(meta, "id") or named
            found.setdefault(id, []).append((0, path))
    return {id: [path for _, path in sorted(each)] for id, each in found.items()}


def _find_first_chunks(folder: Path) -> dict[str, Path]:
    """The first chunk of each session of the store."""
    found = ((CHUNK_PATTERN.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    firsts = {chunk["id"]: path for chunk, path in found if chunk and chunk["number"] == "1"}
    return {
        id: path
        for id, path in firsts.items()
        if path.is_file() and sniff(FileHead.from_file(path))
    }


def _restore_meta(store: JsonlStore, id: str, first: Path) -> list[MigratedSession]:
    """Gives a session another meta file, from what its chunks say, if they hold any message."""
    with store._files.locked(id):
        created, title = first.stat().st_mtime, ""
        meta = SessionMeta(
            born=uuid4().hex, created=created, updated=created, model=read_chunk_header(first).model
        )
        tail = ChunkTail.read(store._files.chunk_path(id, store._newest_chunk(id, meta)))
        if not tail.next_position or store._find_meta(id) is not None:  # it is only being made
            return []
        for message in store._iter_messages_from(id, 1):
            if message.role == "user" and (title := title_from_prompt(message.text)):
                break
        titles = titles_after_change(Session(id), title, 1, created)
        store._write_meta(id, meta.replace(title=title, titles=titles))
    return [MigratedSession(id, (), tail.next_position, tail.chunk)]


def _original_name(path: Path) -> str:
    """What an old file was called at first."""
    return path.with_suffix(".jsonl").name if path.suffix == ".old" else path.name


def _text_field(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None

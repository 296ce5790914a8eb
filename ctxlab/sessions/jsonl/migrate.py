"""Migrate session files of older formats to chunks.

Three kinds of old files are migrated:

- ``session-ID.jsonl``: one growing file per session
- ``session-ID.N.jsonl`` without a header: numbered parts of a session that was split by hand
- any ``*.jsonl`` that begins with a line of metadata and has rows like
  ``{"type": "user", "content": …}``

An old file is removed after the new files were written and compared with it. Copies of a session are
never joined: a file with the same messages as another is left as it is, and one with other messages
becomes a session of its own. The headers of chunks of version 1 are rewritten. If a session has chunks
but no metadata file, the file is created again. If a migration is interrupted, the next one
repeats it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import dump_json
from ctxlab.errors import CtxlabError, SessionError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION, sniff
from ctxlab.formats.fields import get_number, get_text, get_time
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message
from ctxlab.sessions.base import STATUSES
from ctxlab.sessions.common import Fsync, check_session_id, file_errors
from ctxlab.sessions.jsonl.chunk_format import ChunkTail, encode_chunk, is_header, parse_row
from ctxlab.sessions.jsonl.files import CHUNK_PATTERN, encode_first_row
from ctxlab.sessions.jsonl.metadata import SessionMeta
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.titles import single_line, title_from_messages, titles_after_change

_ROLES_BY_TYPE = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool",
           "tool_result": "tool", "human": "user", "ai": "assistant"}  # fmt: skip
_TIME_KEYS = ("time", "ts", "timestamp", "created_at")
_KNOWN_META_KEYS = {"type", "id", "session_id", "title", "model", "agent", "status", "tools",
         "created_at", "updated_at", "created", "updated", "format", "version"}  # fmt: skip


class MigratedSession(NamedTuple):
    """Session that was created from old files."""

    id: str
    "session id"
    files: tuple[str, ...]
    "names of the old files; empty if only the metadata file was missing"
    messages: int
    "number of messages"
    chunks: int
    "number of chunks"

    def __str__(self) -> str:
        """Return the old files, the session id and the number of messages, on one line."""
        size = f"{pluralize(self.messages, 'message')} in {pluralize(self.chunks, 'chunk')}"
        return f"{' + '.join(self.files) or 'meta file'} → session {self.id}: {size}"


class UnreadableLine(NamedTuple):
    """Line of an old file that could not be read. Its text is saved in a backup file."""

    file: str
    "name of the old file"
    line: int
    "line number, from 1"
    reason: str
    "why the line could not be read"
    kept_in: str
    "name of the backup file that contains the line's text"

    def __str__(self) -> str:
        """Return the old file, line number, reason and backup file, on one line."""
        return f"{self.file}:{self.line}: {self.reason}; the line was saved to {self.kept_in}"


class UpgradedSession(NamedTuple):
    """Session whose files of version 1 were rewritten."""

    id: str
    "session id"
    chunks: int
    "number of rewritten chunks"

    def __str__(self) -> str:
        """Return the session id and the number of chunks, on one line."""
        return f"session {self.id}: {pluralize(self.chunks, 'chunk')} of version 1 rewritten"


class SkippedFile(NamedTuple):
    """Old file that was not migrated."""

    file: str
    "name of the file"
    reason: str
    "why the file was not migrated"

    def __str__(self) -> str:
        """Return the file name and the reason, on one line."""
        return f"{self.file}: not migrated: {self.reason}"


@dataclass(frozen=True)
class MigrationReport:
    """Result of a migration: new sessions, unreadable lines and skipped files."""

    migrated: tuple[MigratedSession, ...] = ()
    "sessions that were created from old files"
    unreadable: tuple[UnreadableLine, ...] = ()
    "lines of old files that could not be read"
    skipped: tuple[SkippedFile, ...] = ()
    "old files that were not migrated"
    upgraded: tuple[UpgradedSession, ...] = ()
    "sessions whose files of version 1 were rewritten"

    def __str__(self) -> str:
        """Return one line of text per session, unreadable line and skipped file."""
        lines = map(str, (*self.migrated, *self.upgraded, *self.unreadable, *self.skipped))
        return "\n".join(lines) or "nothing to migrate"


def migrate_folder(
    folder: str | Path,
    *,
    max_history: int = 200,
    fsync: Fsync = "always",
    dry_run: bool = False,
) -> MigrationReport:
    """Convert session files of older formats in a folder to chunks. Subfolders are not searched.

    The session id is taken from the metadata line or, if that has no id, from the file name. An old
    file is removed after the new files are on disk and contain the same messages. Lines that cannot
    be read are saved to a backup file and reported. A file is skipped, kept and reported if its
    session id is invalid or in use, or if its session cannot be read. Other files are not changed.
    Running the migration again changes nothing.

    Parameters
    ----------
    folder : str or Path
        Folder with the session files.
    max_history : int, default 200
        Maximum number of messages of a chunk.
    fsync : {'always', 'never'}, default 'always'
        With ``always``, writes survive a power failure; see ``JsonlStore``.
    dry_run : bool, default False
        If True, nothing in the folder is changed. The migration is carried out in a temporary copy.

    Returns
    -------
    MigrationReport
        New sessions, unreadable lines and skipped files.

    Raises
    ------
    SessionError
        If the folder does not exist, or contains the database of a workspace.
    """
    store = JsonlStore(folder, max_history=max_history, fsync=fsync)
    if not store.folder.is_dir():
        raise SessionError(f"{store.folder}: no such folder; pass an existing folder")
    if (database := store.folder / ".ctxlab" / "sessions.db").is_file():
        raise SessionError(
            f"{database}: expected a folder without a database, since ctxlab would open it instead of "
            "the converted sessions; move the session files to a folder of their own"
        )
    if dry_run:
        with TemporaryDirectory(prefix="ctxlab-") as copy, file_errors(store.folder):
            for path in store.folder.iterdir():
                if path.is_file():
                    shutil.copy2(path, copy)
            return migrate_folder(copy, max_history=max_history, fsync="never")
    moved: list[MigratedSession] = []
    broken: list[UnreadableLine] = []
    left: list[SkippedFile] = []
    for id, first in _find_first_chunks(store.folder).items():
        try:
            moved += _restore_meta(store, check_session_id(id))
        except CtxlabError as error:
            left.append(SkippedFile(first.name, str(error)))
    upgraded: list[UpgradedSession] = []
    for id in store._list_ids():
        with suppress(CtxlabError):  # who reads the session is told
            upgraded += _rewrite_version_1(store, id)
    taken = set[str]()
    for wanted, paths in _find_legacy_files(store.folder):
        id, number = wanted, 1
        try:
            if wanted in taken:  # a copy of a session that was migrated before
                _refuse_same_messages(store, wanted, paths)
                while store._find_meta(check_session_id(id)) is not None:
                    id, number = f"{wanted}-{number + 1}", number + 1
            taken.add(wanted)
            done, unread = _Migration(store, check_session_id(id), paths).run()
        except CtxlabError as error:
            kept = [path if path.exists() else path.with_suffix(".old") for path in paths]
            left += [SkippedFile(path.name, str(error)) for path in kept]
        else:
            moved += done
            broken += unread
    return MigrationReport(tuple(moved), tuple(broken), tuple(left), tuple(upgraded))


def _refuse_same_messages(store: JsonlStore, id: str, paths: list[Path]) -> None:
    """Raise ``SessionError`` if old files contain the same messages as a session."""
    rows = chain.from_iterable(map(read_legacy_rows, paths))
    messages = (row.message for row in rows if row.message is not None)
    if all(old == new for old, new in zip_longest(messages, store.read_messages(id))):
        said = f"it has the same messages as session {id!r}; remove it if you do not need it"
        raise SessionError(said)


def _rewrite_version_1(store: JsonlStore, id: str) -> list[UpgradedSession]:
    """Rewrite the files of version 1 of a session, so that they number turns and steps."""
    files = store._files
    with files.locked(id):
        headers = [(n, store._headers.parse(id, n)) for n in files.list_chunks(id)]
        old = [n for n, header in headers if header is not None and header.step is None]
        summaries = files.summaries_path(id)
        version, _ = store._read_summaries(id)
        if not old and version == CHUNK_VERSION:
            return []
        meta, lines = store._load_meta(id), store.turn_summaries(id)
        if version != CHUNK_VERSION:
            rows = [
                f"{dump_json({'turn': n, 'line': line})}\n".encode() for n, line in lines.items()
            ]
            files.replace(summaries, encode_first_row("session-lines", id) + b"".join(rows))
        new = {number: store._headers.count(id, number) for number in old}
        for number, header in new.items():
            path = files.chunk_path(id, number)
            first, newline, rest = path.read_bytes().partition(b"\n")
            text = dump_json(msgspec.to_builtins(replace(header, version=CHUNK_VERSION))).encode()
            if is_header(first):
                files.replace(path, text + newline + rest, modified=path.stat().st_mtime)
        store._write_meta(id, meta)
        store.close()
    return [UpgradedSession(id, len(old))]


class _Migration:
    """Migration of one session from its old files."""

    def __init__(self, store: JsonlStore, id: str, paths: list[Path]) -> None:
        self.store, self.id, self.paths = store, id, paths
        self.files = store._files
        self.meta: dict[str, Any] = {}
        self.title = ""
        self.unread: list[LegacyRow] = []

    def run(self) -> tuple[list[MigratedSession], list[UnreadableLine]]:
        names = [_original_name(path) for path in self.paths]
        source = {"files": names}
        with self.files.locked(self.id):
            known = self.store._find_meta(self.id)
            if known is not None and not known.deleted:
                if known.source != source:
                    _refuse_same_messages(self.store, self.id, self.paths)
                    raise SessionError(f"session {self.id!r} exists already; rename {names[0]}")
                self._remove_legacy_files()  # an earlier migration was killed before this step
                return [], []
            times = [path.stat().st_mtime for path in self.paths]
            self.paths = [self._rename_legacy_file(path) for path in self.paths]
            born = uuid4().hex
            if known is None:
                now = time.time()
                meta = SessionMeta(born=born, created=now, updated=now, source=source, deleted=True)
                self.store._write_meta(self.id, meta)
            self._remove_partial_files()
            tail = self._write_chunks(max(times))
            self._verify_chunks()
            broken = self._store_unread()
            self.store._write_meta(self.id, self._build_meta(born, source, times))
            self._remove_legacy_files()
        return [MigratedSession(self.id, tuple(names), tail.next_position, tail.chunk)], broken

    def _rename_legacy_file(self, path: Path) -> Path:
        """Rename an old file if it has the name of a chunk, and return its path after this step."""
        if not CHUNK_PATTERN.fullmatch(path.name):
            return path
        apart = path.with_suffix(".old")
        path.rename(apart)
        self.files.sync_folder()
        return apart

    def _remove_partial_files(self) -> None:
        """Remove the chunks and other new files of an interrupted migration.

        The old files and the metadata file are kept.
        """
        keep = {*self.paths, self.files.sidecar_path(self.id, "meta")}
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
                self.unread.append(row)

    def _write_chunks(self, modified: float) -> ChunkTail:
        """Write the messages to chunks and return the state of the last chunk."""
        tail, messages = ChunkTail(chunk=0), self._iter_messages()
        while (some := list(islice(messages, self.store.max_history))) or not tail.chunk:
            tail = tail.next_chunk()
            text = encode_chunk(tail, self.id, _text_field(self.meta, "model"), some)
            path = self.files.chunk_path(self.id, tail.chunk)
            self.files.replace(path, text, modified=modified)
            tail.add_roles(*(message.role for message in some))
            self.title = self.title or title_from_messages(some)
        return tail

    def _verify_chunks(self) -> None:
        """Raise ``SessionError`` if the chunks and the old files contain different messages."""
        pairs = zip_longest(self._iter_messages(), self.store._iter_messages_from(self.id))
        if any(old != new for old, new in pairs):
            raise SessionError(
                "the new chunks do not contain the same messages as the old files; close programs "
                "that write to the old files and migrate again"
            )

    def _store_unread(self) -> list[UnreadableLine]:
        backup = self.files.torn_path(self.id, 0)
        lost, rows = list[UnreadableLine](), list[bytes]()
        for path, line, _, _, broken, text in self.unread:
            each = UnreadableLine(_original_name(path), line, broken or "", backup.name)
            about = {"file": each.file, "line": line, "reason": each.reason, "cut": text}
            rows.append(encode_first_row("session-torn", self.id, **about))
            lost.append(each)
        if rows:
            self.files.replace(backup, b"".join(rows))
        return lost

    def _build_meta(self, born: str, source: dict[str, Any], times: list[float]) -> SessionMeta:
        said, tools = self.meta, self.meta.get("tools")
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            self.store._write_sidecar(self.id, "tools", tools=tools)
        title = single_line(_text_field(said, "title") or "") or self.title
        created = first_timestamp(said, "created_at", "created") or min(times)
        return SessionMeta(
            born=born,
            source=source,
            created=created,
            updated=first_timestamp(said, "updated_at", "updated") or max(times),
            title=title,
            titles=titles_after_change(self.id, (), title, 0, created),
            model=_text_field(said, "model"),
            agent=_text_field(said, "agent"),
            status=said["status"] if said.get("status") in STATUSES else "closed",
            meta={key: value for key, value in said.items() if key not in _KNOWN_META_KEYS},
        )

    def _remove_legacy_files(self) -> None:
        for path in self.paths:
            path.unlink()
        self.files.sync_folder()


def _find_legacy_files(folder: Path) -> list[tuple[str, list[Path]]]:
    """Return session id and old files of each session in a folder.

    The files of a session are sorted by the order of the messages that they contain. Several files
    without a number that name the same session are copies: each is returned by itself.
    """
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
    groups: list[tuple[str, list[Path]]] = []
    for id, each in found.items():
        parts = [path for number, path in sorted(each) if number]
        whole = [path for number, path in sorted(each) if not number]
        if whole and parts and not any(number == 1 for number, _ in each):
            parts.insert(0, whole.pop(0))  # it is the part before the second
        # The file that is named after the session comes first, and keeps its id.
        whole.sort(key=lambda path: path.stem.removeprefix("session-") != id)
        groups += [(id, group) for group in (parts, *([path] for path in whole)) if group]
    return groups


def _find_first_chunks(folder: Path) -> dict[str, Path]:
    """Return the path of each session's first chunk in a folder, by session id."""
    return {
        path.name.removeprefix("session-").removesuffix(".1.jsonl"): path
        for path in sorted(folder.glob("session-?*.1.jsonl"))
        if path.is_file() and sniff(FileHead.from_file(path))
    }


def _restore_meta(store: JsonlStore, id: str) -> list[MigratedSession]:
    """Create the metadata file of a session from its chunks, and return the session in a list.

    Return an empty list if the chunks contain no messages or if the metadata file exists.
    """
    with store._files.locked(id):
        if store._files.sidecar_path(id, "meta").exists():
            return []
        meta = store._find_meta(id)
        if meta is None:  # still being created
            return []
        session = store.get(id)
        store._write_meta(id, meta)
    return [MigratedSession(id, (), session.messages, meta.chunk)]


def _original_name(path: Path) -> str:
    """Return the name that an old file had before the migration renamed it."""
    return path.with_suffix(".jsonl").name if path.suffix == ".old" else path.name


def _text_field(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None


class LegacyRow(NamedTuple):
    """Parsed line of an old session file: a message, metadata of the session, or an error."""

    path: Path
    "path of the file"
    line: int
    "line number, from 1"
    message: Message | None = None
    "the message; None if the line contains no message"
    meta: dict[str, Any] | None = None
    "metadata of the session; None if the line contains no metadata"
    broken: str | None = None
    "why the line cannot be read; None if it can be read"
    text: str = ""
    "text of a line that cannot be read"


def read_legacy_rows(path: Path) -> Iterator[LegacyRow]:
    """Parse the lines of an old session file, except blank lines.

    Parameters
    ----------
    path : Path
        File to read.

    Yields
    ------
    LegacyRow
        The next line, parsed. If the line cannot be read, ``broken`` contains the reason.
    """
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                row = parse_row(raw)
                if is_meta_row(row):
                    yield LegacyRow(path, line, meta=dict(row))
                else:
                    yield LegacyRow(path, line, _parse_message(row))
            except (ValueError, TypeError) as error:
                yield LegacyRow(path, line, broken=str(error), text=raw.decode(errors="replace"))


def is_meta_row(row: Any) -> bool:
    """Return True if a line contains metadata of the session instead of a message.

    Parameters
    ----------
    row : object
        Line, parsed as JSON.

    Returns
    -------
    bool
        True if the line is an object whose ``type`` is ``meta`` or ``session_meta``.
    """
    return isinstance(row, Mapping) and row.get("type") in ("meta", "session_meta")


def first_timestamp(row: Mapping[str, Any], *keys: str) -> float | None:
    """Return the time stored under the first of several keys that has a valid time.

    Parameters
    ----------
    row : mapping
        Line, parsed as JSON.
    *keys : str
        Keys to try, in order.

    Returns
    -------
    float or None
        Time in seconds since 1970; None if no key has a valid time.
    """
    for key in keys:
        value = row.get(key)
        seconds = get_number(value) if not isinstance(value, str) else get_time(value)
        if seconds is not None:
            return seconds
    return None


def _parse_message(row: Any) -> Message:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected a message object, got {type(row).__name__}")
    wire = dict(row)
    if "role" not in wire and (spoken := _ROLES_BY_TYPE.get(get_text(wire, "type") or "")):
        wire["role"] = spoken
        del wire["type"]
    if (time := first_timestamp(wire, *_TIME_KEYS)) is not None:
        wire["time"] = time
    return message_from_row(wire)

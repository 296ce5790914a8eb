"""Imported logs are a library of sessions as well: they are listed, shown and searched, not written."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError, UnknownSession
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import SearchHit, Session, SessionStatus
from ctxlab.sessions.common import filter_sessions
from ctxlab.sessions.log_index import LogFile, LogIndex
from ctxlab.sessions.text_search import search_messages
from ctxlab.sessions.titles import single_line, title_from_prompt

__all__ = ["LogLibrary"]

_LOG = logging.getLogger("ctxlab.sessions")
_UNSAFE_CHARS = re.compile(r"[^A-Za-z0-9._]+")
_MAX_ID_CHARS = 80


@dataclass
class _IndexEntry:
    """A recording, as far as it is known without its messages."""

    file: LogFile
    number: int
    "of the recording in its file, from 0"
    session: Session
    turn_starts: list[int] = field(default_factory=list)
    "positions at which turns begin; empty as long as nobody asked"


class LogLibrary:
    """The recordings of whatever ``ctxlab.load`` reads, files, folders or globs, as a library.

    An index is made when it is first used, and is kept in memory: ids, titles and times. Files are read
    again when they have changed; the recordings of some 64 MiB of files are kept. New files are found
    and those that are gone are forgotten whenever sessions are listed or all are searched. What is
    broken in a file is skipped, and a file that holds no recording is named in ``skipped_files``.

    An id is the path below the folder that was asked for, made safe for file names and addresses; where
    that changed it, or where it was taken, a checksum stands behind it. A title is the beginning of what
    the user said first, and where no message has a time, the file's is taken; a recording of a stored
    session says itself how it is titled and when it was created. The status is ``closed``.

    Raises ``ReadError`` for a path that is missing, and for a file named by itself that is no log.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "talk.jsonl").write_text('{"role": "user", "content": "Fix the parser"}')
    ...     logs = LogLibrary(folder)
    ...     [(session.id, session.title) for session in logs.sessions()]
    ...     logs.search("parser")[0].turn
    [('talk', 'Fix the parser')]
    1
    """

    def __init__(self, paths: PathOrUrl | Iterable[PathOrUrl]) -> None:
        path_list = [paths] if isinstance(paths, (str, Path)) else list(paths)
        self._files = LogIndex(path_list)
        self._entries: dict[str, _IndexEntry] | None = None
        self._indexed_files: dict[str, tuple[LogFile, list[str]]] = {}
        self._unreadable_files: dict[LogFile, str] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"LogLibrary({list(map(str, self._files.paths))})"

    @property
    def _location(self) -> str:
        """What an error says of the place."""
        paths = self._files.paths
        return str(paths[0]) if len(paths) == 1 else f"{len(paths):,} paths"

    @property
    def skipped_files(self) -> dict[str, str]:
        """Files that gave no recording, and why."""
        broken = {file.key: reason for file, reason in self._unreadable_files.items()}
        return {**self._files.skipped_files, **broken}

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: SessionStatus | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """See ``SessionLibrary``."""
        entries = (entry.session for entry in self._refresh_index().values())
        found = filter_sessions(
            entries, query, since=since, before=before, status=status, agent=agent
        )
        return sorted(found, key=lambda session: (-session.updated, session.id))

    def get(self, id: str) -> Session:
        """See ``SessionLibrary``."""
        return self._get_entry(id).session

    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """See ``SessionLibrary``."""
        messages = self.recording(id).messages
        return iter(messages[start:stop])

    def read_turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """See ``SessionLibrary``."""
        starts, messages = self._turn_starts(id)
        if not 1 <= number <= len(starts):
            return len(messages), ()
        start = starts[number - 1]
        return start, messages[start : starts[number] if number < len(starts) else None]

    def count_turns(self, id: str) -> int:
        """See ``SessionLibrary``."""
        return len(self._turn_starts(id)[0])

    def turn_summaries(self, id: str) -> dict[int, str]:
        """None are kept: all are extracted."""
        self._get_entry(id)
        return {}

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[SearchHit]:
        """See ``SessionLibrary``; all messages are looked at, newer sessions first."""
        ids = [each.id for each in self.sessions()] if id is None else [self.get(id).id]
        return search_messages(self._iter_messages(ids), query, limit, offset)

    def recording(self, id: str) -> Recording:
        """See ``SessionLibrary``."""
        with self._lock:
            return self._load_recording(self._get_entry(id))

    # --- the index -----------------------------------------------------------------------------

    def _iter_messages(self, ids: Iterable[str]) -> Iterator[tuple[str, Iterable[Message]]]:
        for id in ids:
            try:
                yield id, self.recording(id).messages
            except (UnknownSession, ReadError):  # its file has gone meanwhile
                continue

    def _turn_starts(self, id: str) -> tuple[list[int], tuple[Message, ...]]:
        with self._lock:
            entry = self._get_entry(id)
            messages = self._load_recording(entry).messages
            if not entry.turn_starts:
                turns = TurnCounter()
                numbers = [turns.add(message) for message in messages]
                entry.turn_starts = [bisect_left(numbers, n) for n in range(1, turns.number + 1)]
            return entry.turn_starts, messages

    def _load_recording(self, entry: _IndexEntry) -> Recording:
        id = entry.session.id
        for number, recording in enumerate(self._files.recordings(entry.file)):
            if number == entry.number:
                return msgspec.structs.replace(recording, id=id)
        raise UnknownSession(id, self._location)

    def _get_entry(self, id: str) -> _IndexEntry:
        with self._lock:
            entries = self._entries if self._entries is not None else self._refresh_index()
            if id not in entries or entries[id].file.is_stale:
                entries = self._refresh_index()
            if id not in entries:
                raise UnknownSession(id, self._location)
            return entries[id]

    def _refresh_index(self) -> dict[str, _IndexEntry]:
        """The index as the files are now; only what changed is read."""
        with self._lock:
            files = self._files.scan()
            there = set(files)
            self._unreadable_files = {
                file: why for file, why in self._unreadable_files.items() if file in there
            }
            known, entries = self._entries or {}, dict[str, _IndexEntry]()
            indexed: dict[str, tuple[LogFile, list[str]]] = {}
            new = list[LogFile]()
            for file in files:  # what is known keeps its ids, whatever came before it
                before = self._indexed_files.get(file.key)
                if before is not None and before[0] == file:
                    indexed[file.key] = before
                    entries.update((id, known[id]) for id in before[1])
                elif file not in self._unreadable_files:
                    new.append(file)
            for file in new:
                indexed[file.key] = file, self._index_file(file, entries)
            self._entries, self._indexed_files = entries, indexed
            return entries

    def _index_file(self, file: LogFile, entries: dict[str, _IndexEntry]) -> list[str]:
        """Enters the recordings of a file; the ids that they got."""
        ids = list[str]()
        try:
            for number, recording in enumerate(self._files.recordings(file)):
                id = _make_id(recording.id)
                if id in entries:
                    id = _with_checksum(id, f"{file.key}\n{recording.id}\n{number}")
                entries[id] = _IndexEntry(file, number, _make_session(id, recording, file))
                ids.append(id)
        except ReadError as broken:
            self._unreadable_files[file] = broken.reason
            _LOG.warning("left out: %s", broken)
        return ids


def _make_id(name: str) -> str:
    safe = _UNSAFE_CHARS.sub("-", name).strip("-.")
    return safe if safe == name and len(safe) <= _MAX_ID_CHARS else _with_checksum(safe, name)


def _with_checksum(safe: str, whole: str) -> str:
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    return f"{safe[:_MAX_ID_CHARS] or 'log'}-{digest}"


def _make_session(id: str, recording: Recording, file: LogFile) -> Session:
    times = [m.time for m in recording.messages if m.time] or [file.modified]
    title, created = recording.meta.get("title"), recording.meta.get("created")
    if not isinstance(created, (int, float)) or isinstance(created, bool):
        created = min(times)
    first = next(
        (m for m in recording.messages if m.role == "user" and not m.extra.get("meta") and m.text),
        None,
    )
    about: dict[str, Any] = {
        "format": recording.format,
        "source": recording.source,
        "recording": recording.id,
    }
    if recording.skipped:
        about["skipped"] = recording.skipped
    return Session(
        id,
        (single_line(title) if isinstance(title, str) else "")
        or (title_from_prompt(first.text) if first else ""),
        recording.model,
        "closed",
        created,
        max(created, *times),
        len(recording.messages),
        tools=recording.tools,
        meta=about,
    )

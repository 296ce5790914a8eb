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

from ctxlab.context.turns import Turns
from ctxlab.errors import (
    ReadError,
    UnknownSession,
)
from ctxlab.formats.io.files import Place
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.sessions.base import (
    Hit,
    Session,
    Status,
)
from ctxlab.sessions.common import chosen
from ctxlab.sessions.log_index import (
    LogFile,
    LogFiles,
)
from ctxlab.sessions.text_search import search_words
from ctxlab.sessions.titles import (
    first_title,
    tidy,
)

__all__ = ["Logs"]

_log = logging.getLogger("ctxlab.sessions")
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")
_LONGEST = 80


@dataclass
class _Entry:
    """A recording, as far as it is known without its messages."""

    file: LogFile
    number: int
    "of the recording in its file, from 0"
    session: Session
    starts: list[int] = field(default_factory=list)
    "positions at which turns begin; empty as long as nobody asked"


class Logs:
    """The recordings of files, folders and globs, whatever ``ctxlab.load`` reads, as a ``Library``.

    An index is made when it is first used, and is kept in memory: ids, titles and times. Files are read
    again when they have changed; the recordings of some 64 MiB of files are kept. New files are found
    and those that are gone are forgotten whenever sessions are listed or all are searched. What is
    broken in a file is skipped, and a file that holds no recording is named in ``left_out``.

    An id is the path below the folder that was asked for, made safe for file names and addresses; where
    that changed it, or where it was taken, a checksum stands behind it. A title is the beginning of what
    the user said first, and where no message has a time, the file's is taken; a recording of a stored
    session says itself how it is titled and when it was created. The status is ``closed``.

    Raises ``ReadError`` for a path that is missing, and for a file named by itself that is no log.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "talk.jsonl").write_text('{"role": "user", "content": "Fix the parser"}')
    ...     logs = Logs(folder)
    ...     [(session.id, session.title) for session in logs.sessions()], logs.search("parser")[0].turn
    ([('talk', 'Fix the parser')], 1)
    """

    def __init__(self, paths: Place | Iterable[Place]) -> None:
        given = [paths] if isinstance(paths, (str, Path)) else list(paths)
        self._files = LogFiles(given)
        self._entries: dict[str, _Entry] | None = None
        self._indexed: dict[str, tuple[LogFile, list[str]]] = {}
        self._broken: dict[LogFile, str] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Logs({list(map(str, self._files.paths))})"

    @property
    def _where(self) -> str:
        """What an error says of the place."""
        paths = self._files.paths
        return str(paths[0]) if len(paths) == 1 else f"{len(paths):,} paths"

    @property
    def left_out(self) -> dict[str, str]:
        """Files that gave no recording, and why."""
        broken = {file.key: reason for file, reason in self._broken.items()}
        return {**self._files.left_out, **broken}

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: Status | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """See ``Library``."""
        entries = (entry.session for entry in self._refreshed().values())
        found = chosen(entries, query, since=since, before=before, status=status, agent=agent)
        return sorted(found, key=lambda session: (-session.updated, session.id))

    def get(self, id: str) -> Session:
        """See ``Library``."""
        return self._entry(id).session

    def read(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """See ``Library``."""
        messages = self.recording(id).messages
        return iter(messages[start:stop])

    def turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """See ``Library``."""
        starts, messages = self._turns(id)
        if not 1 <= number <= len(starts):
            return len(messages), ()
        start = starts[number - 1]
        return start, messages[start : starts[number] if number < len(starts) else None]

    def turns(self, id: str) -> int:
        """See ``Library``."""
        return len(self._turns(id)[0])

    def lines(self, id: str) -> dict[int, str]:
        """None are kept: all are extracted."""
        self._entry(id)
        return {}

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[Hit]:
        """See ``Library``; all messages are looked at, newer sessions first."""
        ids = [each.id for each in self.sessions()] if id is None else [self.get(id).id]
        return search_words(self._messages(ids), query, limit, offset)

    def recording(self, id: str) -> Recording:
        """See ``Library``."""
        with self._lock:
            return self._recording(self._entry(id))

    # --- the index -----------------------------------------------------------------------------

    def _messages(self, ids: Iterable[str]) -> Iterator[tuple[str, Iterable[Message]]]:
        for id in ids:
            try:
                yield id, self.recording(id).messages
            except (UnknownSession, ReadError):  # its file has gone meanwhile
                continue

    def _turns(self, id: str) -> tuple[list[int], tuple[Message, ...]]:
        with self._lock:
            entry = self._entry(id)
            messages = self._recording(entry).messages
            if not entry.starts:
                turns = Turns()
                numbers = [turns.add(message) for message in messages]
                entry.starts = [bisect_left(numbers, n) for n in range(1, turns.number + 1)]
            return entry.starts, messages

    def _recording(self, entry: _Entry) -> Recording:
        id = entry.session.id
        for number, recording in enumerate(self._files.recordings(entry.file)):
            if number == entry.number:
                return msgspec.structs.replace(recording, id=id)
        raise UnknownSession(id, self._where)

    def _entry(self, id: str) -> _Entry:
        with self._lock:
            entries = self._entries if self._entries is not None else self._refreshed()
            if id not in entries or entries[id].file.stale:
                entries = self._refreshed()
            if id not in entries:
                raise UnknownSession(id, self._where)
            return entries[id]

    def _refreshed(self) -> dict[str, _Entry]:
        """The index as the files are now; only what changed is read."""
        with self._lock:
            files = self._files.found()
            there = set(files)
            self._broken = {file: why for file, why in self._broken.items() if file in there}
            known, entries = self._entries or {}, dict[str, _Entry]()
            indexed: dict[str, tuple[LogFile, list[str]]] = {}
            new = list[LogFile]()
            for file in files:  # what is known keeps its ids, whatever came before it
                before = self._indexed.get(file.key)
                if before is not None and before[0] == file:
                    indexed[file.key] = before
                    entries.update((id, known[id]) for id in before[1])
                elif file not in self._broken:
                    new.append(file)
            for file in new:
                indexed[file.key] = file, self._index(file, entries)
            self._entries, self._indexed = entries, indexed
            return entries

    def _index(self, file: LogFile, entries: dict[str, _Entry]) -> list[str]:
        """Enters the recordings of a file; the ids that they got."""
        ids = list[str]()
        try:
            for number, recording in enumerate(self._files.recordings(file)):
                id = _id(recording.id)
                if id in entries:
                    id = _marked(id, f"{file.key}\n{recording.id}\n{number}")
                entries[id] = _Entry(file, number, _session(id, recording, file))
                ids.append(id)
        except ReadError as broken:
            self._broken[file] = broken.reason
            _log.warning("left out: %s", broken)
        return ids


def _id(name: str) -> str:
    safe = _UNSAFE.sub("-", name).strip("-.")
    return safe if safe == name and len(safe) <= _LONGEST else _marked(safe, name)


def _marked(safe: str, whole: str) -> str:
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    return f"{safe[:_LONGEST] or 'log'}-{digest}"


def _session(id: str, recording: Recording, file: LogFile) -> Session:
    times = [m.time for m in recording.messages if m.time] or [file.changed]
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
        (tidy(title) if isinstance(title, str) else "")
        or (first_title(first.text) if first else ""),
        recording.model,
        "closed",
        created,
        max(created, *times),
        len(recording.messages),
        tools=recording.tools,
        meta=about,
    )

"""Read-only session library of log files, in which each recording is a session."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from typing_extensions import override

from ctxlab.context.turns import TurnCounter, TurnLabel
from ctxlab.errors import ReadError, UnknownSession
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import Session, SessionLibrary, SessionStatus
from ctxlab.sessions.log_index import LogFile, LogIndex
from ctxlab.sessions.titles import single_line, title_from_messages

_LOG = logging.getLogger("ctxlab.sessions")
_UNSAFE_CHARS = re.compile(r"[^A-Za-z0-9._]+")
_MAX_ID_CHARS = 80


@dataclass
class _IndexEntry:
    """Location and description of a recording, without its messages."""

    file: LogFile
    number: int
    "index of the recording in its file, from 0"
    session: Session
    labels: list[TurnLabel] = field(default_factory=list)
    "label of the step of each message, filled on first use"


class _IndexedFile(NamedTuple):
    ids: list[str]
    "ids of the recordings in the file"
    problem: str = ""
    "why the rest of the file could not be read; empty if the whole file was read"


class LogLibrary(SessionLibrary):
    """Session library of the recordings that ``ctxlab.load`` reads from files, folders or globs.

    On first use, an index of ids, titles and times is built in memory. Changed files are read again.
    The recordings of up to 64 MiB of files are cached. New and removed files are noticed when
    sessions are listed or when all sessions are searched. Malformed lines of a file are skipped.
    Files that could not be read completely are listed in ``skipped_files``.

    The id of a session begins with the path of its file, relative to the given folder and without
    the suffix. Characters that are unsafe in file names and URLs are replaced. A checksum is
    appended if a character was replaced, if the id is too long, or if it is already in use. The
    title is the beginning of the first user message. The times of a session are those of its
    messages, or the modification time of the file if no message has a time. Recordings that store a
    title and a creation time, such as sessions of ctxlab's agent, keep them. The status is always
    ``closed``.

    Parameters
    ----------
    paths : str, Path or iterable of str or Path
        Files, folders, globs or URLs.

    Raises
    ------
    ReadError
        On first use, if a path is missing, or if a file that ``paths`` names directly is not a log.

    Examples
    --------
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
        self._entries: dict[str, _IndexEntry] = {}
        self._indexed_files: dict[LogFile, _IndexedFile] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        """Return the class name and the paths."""
        return f"LogLibrary({list(map(str, self._files.paths))})"

    @property
    def _location(self) -> str:
        """The path of the library for error messages, or the number of paths if there are several."""
        paths = self._files.paths
        return str(paths[0]) if len(paths) == 1 else f"{len(paths):,} paths"

    @property
    def skipped_files(self) -> dict[str, str]:
        """Reason why a file could not be read completely, by path of the file."""
        broken = {file.key: it.problem for file, it in self._indexed_files.items() if it.problem}
        return {**self._files.skipped_files, **broken}

    @override
    def _iter_sessions(self, status: SessionStatus | None) -> Iterator[Session]:
        for _, entry in sorted(self._refresh_index().items()):
            yield entry.session

    @override
    def get(self, id: str) -> Session:
        return self._get_entry(id).session

    @override
    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        return iter(self.recording(id).messages[start:stop])

    @override
    def read_turn(self, id: str, turn: int, step: int = 0) -> tuple[int, tuple[Message, ...]]:
        labels, messages = self._step_labels(id)
        if turn < 1:
            return len(messages), ()
        start = bisect_left(labels, TurnLabel(turn, step))
        after = TurnLabel(turn, step + 1) if step else TurnLabel(turn + 1)
        found = messages[start : bisect_left(labels, after)]
        return (start, found) if found else (len(messages), ())

    @override
    def count_turns(self, id: str) -> int:
        labels, _ = self._step_labels(id)
        return labels[-1].turn if labels else 0

    @override
    def turn_summaries(self, id: str) -> dict[int, str]:
        self._get_entry(id)
        return {}  # logs store no summaries

    @override
    def recording(self, id: str) -> Recording:
        with self._lock:
            return self._load_recording(self._get_entry(id))

    # --- the index -----------------------------------------------------------------------------

    def _step_labels(self, id: str) -> tuple[list[TurnLabel], tuple[Message, ...]]:
        with self._lock:
            entry = self._get_entry(id)
            messages = self._load_recording(entry).messages
            if not entry.labels:
                entry.labels = list(map(TurnCounter().add, messages))
            return entry.labels, messages

    def _load_recording(self, entry: _IndexEntry) -> Recording:
        id = entry.session.id
        for number, recording in enumerate(self._files.recordings(entry.file)):
            if number == entry.number:
                return replace(recording, id=id)
        raise UnknownSession(id, self._location)

    def _get_entry(self, id: str) -> _IndexEntry:
        with self._lock:
            if id not in self._entries or self._entries[id].file.is_stale:
                self._refresh_index()
            if id not in self._entries:
                raise UnknownSession(id, self._location)
            return self._entries[id]

    def _refresh_index(self) -> dict[str, _IndexEntry]:
        """Update the index by reading files that are new or changed, and return its entries."""
        with self._lock:
            files, known = self._files.scan(), self._entries
            entries, indexed = dict[str, _IndexEntry](), dict[LogFile, _IndexedFile]()
            # Process known files first, so that they keep their ids.
            for file in sorted(files, key=lambda file: file not in self._indexed_files):
                if (same := self._indexed_files.get(file)) is None:
                    same = self._index_file(file, entries)
                else:
                    entries.update((id, known[id]) for id in same.ids)
                indexed[file] = same
            self._entries, self._indexed_files = entries, indexed
            return entries

    def _index_file(self, file: LogFile, entries: dict[str, _IndexEntry]) -> _IndexedFile:
        """Add an index entry for each recording of a file to ``entries``.

        Return the ids of the recordings and, if the file could not be read to its end, the reason.
        """
        ids = list[str]()
        try:
            for number, recording in enumerate(self._files.recordings(file)):
                id = _make_id(recording.id)
                if id in entries:
                    id = _with_checksum(id, f"{file.key}\n{recording.id}\n{number}")
                entries[id] = _IndexEntry(file, number, _make_session(id, recording, file))
                ids.append(id)
        except ReadError as broken:
            _LOG.warning("skipped: %s", broken)
            return _IndexedFile(ids, broken.reason)
        return _IndexedFile(ids)


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
    spoken = (m for m in recording.messages if not m.extra.get("meta") and m.text)
    title = single_line(title) if isinstance(title, str) else ""
    about: dict[str, Any] = {"format": recording.format, "source": recording.source}
    about["recording"] = recording.id
    if recording.skipped:
        about["skipped"] = recording.skipped
    return Session(
        id,
        title or title_from_messages(spoken),
        recording.model,
        "closed",
        created,
        max(created, *times),
        len(recording.messages),
        tools=recording.tools,
        meta=about,
    )

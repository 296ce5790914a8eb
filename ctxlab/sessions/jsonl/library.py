"""Read the sessions of a folder of chunks without locks.

The header of a chunk stores the position and the turn at which it begins. A message or a turn is
found by binary search over the headers, and the end of a session by reading its newest chunk.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ctxlab._utils.jsonio import parse_json
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError, SessionError, UnknownSession
from ctxlab.formats.ctxlab_sessions.chunks import ChunkHeader
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import SearchHit, Session, SessionStatus
from ctxlab.sessions.common import Fsync, filter_sessions, is_session_id, session_to_recording
from ctxlab.sessions.jsonl.chunk_format import ChunkTail, read_batches, read_chunk_header
from ctxlab.sessions.jsonl.files import SessionFiles, read_first_row
from ctxlab.sessions.jsonl.metadata import SessionMeta, read_meta, session_from_meta
from ctxlab.sessions.text_search import search_messages

_LOG = logging.getLogger("ctxlab.sessions")


class JsonlLibrary:
    """The methods of ``JsonlStore`` that read.

    Parameters
    ----------
    folder : str or Path
        Folder of the chunks.
    fsync : {'always', 'never'}, default 'always'
        Durability of writes; see ``JsonlStore``.
    """

    def __init__(self, folder: str | Path, fsync: Fsync = "always") -> None:
        self.folder = Path(folder).expanduser()
        self._files = SessionFiles(self.folder, fsync)
        self._end_positions: dict[str, tuple[tuple[int, int, int], int]] = {}

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: SessionStatus | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """Return the sessions, most recently updated first.

        Sessions with broken files are left out and logged as warnings.

        Parameters
        ----------
        query : str, optional
            Words that the title must contain, in any case.
        since : float, optional
            Keep sessions that were updated at this time or later, in seconds since 1970.
        before : float, optional
            Keep sessions that were updated at this time or earlier, in seconds since 1970.
        status : {'active', 'closed', 'archived'}, optional
            Keep sessions with this status. By default, archived sessions are left out.
        agent : str, optional
            Keep sessions of this agent.

        Returns
        -------
        list of Session
            The sessions, most recently updated first.
        """
        all_of = filter_sessions(
            self._iter_sessions(), query, since=since, before=before, status=status, agent=agent
        )
        return sorted(all_of, key=lambda session: (-session.updated, session.id))

    def _iter_sessions(self) -> Iterator[Session]:
        for id in self._list_ids():
            try:
                yield self.get(id)
            except UnknownSession:
                pass  # deleted in the meantime
            except (ReadError, SessionError) as error:
                _LOG.warning("skipped session %r: %s", id, error)

    def get(self, id: str) -> Session:
        """Return one session, reading only its meta file and its newest chunk.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Session
            The session without its messages.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        meta = self._load_meta(id)
        with self._file_errors(id):
            path = self._files.chunk_path(id, self._newest_chunk(id, meta))
            stat = path.stat()
            mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            known = self._end_positions.get(id)
            if known is None or known[0] != mark:
                known = self._end_positions[id] = mark, ChunkTail.read(path).next_position
            return session_from_meta(id, meta, known[1], stat.st_mtime, self._load_tools(id))

    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """Return an iterator over the messages at positions ``[start, stop)``.

        Parameters
        ----------
        id : str
            Session id.
        start : int, default 0
            Position of the first message.
        stop : int, optional
            Position after the last message. By default, read to the end.

        Returns
        -------
        iterator of Message
            The messages in order.

        Raises
        ------
        UnknownSession
            If no session has this id.
        ReadError
            If a line is broken.
        """
        meta = self._load_meta(id)
        start = max(0, start)
        said = self._find_chunk(id, meta, lambda header: header.first <= start)
        end = None if stop is None else max(stop - said.first, 0)
        return islice(self._iter_messages_from(id, said.chunk, meta.born), start - said.first, end)

    def read_turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """Return the messages of a turn and the position of the first one.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Turn number, from 1; see ``ctxlab.context.turns``.

        Returns
        -------
        position : int
            Position of the turn's first message. If the turn does not exist, the number of
            messages.
        messages : tuple of Message
            The turn's messages. Empty if the turn does not exist.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        said = self._find_chunk(id, self._load_meta(id), lambda header: header.turn < number)
        turns, position = TurnCounter(said.turn, said.replied), said.first
        found: list[Message] = []
        for message in self._iter_messages_from(id, said.chunk) if number > 0 else ():
            now = turns.add(message)
            if now > number:
                break
            if now == number:
                found.append(message)
            else:
                position += 1
        return (position, tuple(found)) if found else (self.get(id).messages, ())

    def count_turns(self, id: str) -> int:
        """Return the number of turns of a session.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        int
            Number of turns.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        meta = self._load_meta(id)
        with self._file_errors(id):
            return ChunkTail.read(self._files.chunk_path(id, self._newest_chunk(id, meta))).turn

    def turn_summaries(self, id: str) -> dict[int, str]:
        """Return the stored one-line summaries of a session's turns.

        If a turn has several, the newest one counts.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        dict of int to str
            One-line summary by turn number.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        self._load_meta(id)
        found: dict[int, str] = {}
        path = self._files.summaries_path(id)
        if not path.exists():
            return found
        with self._file_errors(id), path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    break  # an unfinished write
                try:
                    row = parse_json(text)
                    if number > 1:
                        found[int(row["turn"])] = str(row["line"])
                except (ValueError, TypeError, KeyError):
                    raise ReadError(path, number, "invalid turn summary") from None
        return found

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best first.

        Parameters
        ----------
        query : str
            Words to find. Other characters separate words; there is no query syntax.
        id : str, optional
            Session to search. By default, search all sessions except archived and system sessions.
        limit : int, default 20
            Maximum number of hits.
        offset : int, default 0
            Number of hits to skip.

        Returns
        -------
        list of SearchHit
            The hits, best first.

        Raises
        ------
        UnknownSession
            If no session has the id that was given.
        """
        if id is not None:
            return search_messages([(id, self.read_messages(id))], query, limit, offset)
        ids = (session.id for session in self.sessions() if not session.system)
        return search_messages(
            ((each, self._iter_readable(each)) for each in ids), query, limit, offset
        )

    def recording(self, id: str) -> Recording:
        """Return a whole session as a recording, for replay.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Recording
            The session as ``ctxlab.load`` reads it.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        return session_to_recording(self.get(id), self.read_messages(id), self.turn_summaries(id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def _list_ids(self) -> list[str]:
        start, end = "session-", ".meta.json"
        try:
            with os.scandir(self.folder) as entries:
                names = {entry.name for entry in entries}
        except FileNotFoundError:
            return []  # nothing has been stored yet
        except OSError as error:
            raise SessionError(f"{self.folder}: {error.strerror or error}") from None
        ids = (name[len(start) : -len(end)] for name in names if name.endswith(end))
        return sorted(id for id in ids if is_session_id(id) and f"{start}{id}{end}" in names)

    def _load_meta(self, id: str) -> SessionMeta:
        """Return the meta of an existing session."""
        meta = self._find_meta(id)
        if meta is None or meta.deleted:
            raise UnknownSession(id, self.folder)
        return meta

    def _find_meta(self, id: str) -> SessionMeta | None:
        if not is_session_id(id):
            return None
        try:
            return read_meta(self._files.sidecar_path(id, "meta"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SessionError(f"{error.filename}: {error.strerror}") from None

    def _newest_chunk(self, id: str, meta: SessionMeta) -> int:
        """Return the number of the newest chunk."""
        number = meta.chunk
        while self._files.chunk_path(id, number + 1).exists():
            number += 1
        return number

    def _find_chunk(
        self, id: str, meta: SessionMeta, holds: Callable[[ChunkHeader], bool]
    ) -> ChunkHeader:
        """Return the header of the last chunk for which ``holds`` is true, by binary search."""
        with self._file_errors(id):
            low, high = 1, self._newest_chunk(id, meta)
            while low < high:
                middle = (low + high + 1) // 2
                if holds(read_chunk_header(self._files.chunk_path(id, middle))):
                    low = middle
                else:
                    high = middle - 1
            return read_chunk_header(self._files.chunk_path(id, low))

    def _iter_messages_from(self, id: str, number: int, born: str = "") -> Iterator[Message]:
        """Yield all messages from a chunk on, including those appended in the meantime.

        ``born`` identifies the session, in case it is deleted and another one takes its id.
        """
        yielded = 0
        while True:
            path, following = (
                self._files.chunk_path(id, number),
                self._files.chunk_path(id, number + 1),
            )
            sealed = following.exists()
            with self._file_errors(id):
                if born and self._load_meta(id).born != born:
                    raise UnknownSession(id, self.folder)
                read_chunk_header(path)  # raises if the header is missing
                place = 0
                for batch in read_batches(path, sealed=sealed):
                    for line in batch:
                        if place >= yielded:
                            yield line.value
                        place += 1
                yielded = max(yielded, place)
            if sealed:
                number, yielded = number + 1, 0
            elif not following.exists():
                return

    def _iter_readable(self, id: str) -> Iterator[Message]:
        """Yield the messages of a session; if it is broken, log a warning and stop."""
        try:
            yield from self.read_messages(id)
        except UnknownSession:
            return
        except (ReadError, SessionError) as error:
            _LOG.warning("searched session %r only up to a broken line: %s", id, error)

    def _load_tools(self, id: str) -> tuple[dict[str, Any], ...]:
        path = self._files.sidecar_path(id, "tools")
        if not path.exists():
            return ()
        try:
            tools = read_first_row(path, "session-tools")["tools"]
            return msgspec.convert(tools, tuple[dict[str, Any], ...])
        except (KeyError, msgspec.ValidationError):
            raise ReadError(path, 1, "expected tool definitions") from None

    @contextmanager
    def _file_errors(self, id: str) -> Iterator[None]:
        """Convert file errors: a missing file means that the session was deleted."""
        try:
            yield
        except FileNotFoundError as error:
            if not self._files.sidecar_path(id, "meta").exists():
                raise UnknownSession(id, self.folder) from None
            raise ReadError(error.filename, None, "missing file of a session") from None
        except OSError as error:
            raise SessionError(f"{error.filename}: {error.strerror or error}") from None

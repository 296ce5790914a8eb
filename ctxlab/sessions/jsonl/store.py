"""Session store of JSONL chunks in a folder.

A session has these files:

- ``session-ID.1.jsonl``, ``session-ID.2.jsonl``, …: the messages, one per line, in the format of
  ``ctxlab.formats.ctxlab_sessions.chunks``
- ``session-ID.meta.json``: the title and other values that change
- ``session-ID.window.json``: the state to resume from
- ``session-ID.tools.json``: the tool definitions
- ``lines-ID.jsonl``: the one-line summaries of the turns
- ``partial-ID.jsonl``: the text of an answer while it is received

The run time of ``append``, ``open`` and ``save`` does not depend on the length of the session.
Readers take no locks. The header of a chunk stores the position, the turn and the step at which the
chunk begins, so that a message, a turn or a step is found by binary search over the headers. The end
of a session is found by reading its newest chunk. Files of version 1 number each step as a turn. They
are not rewritten; the turns and steps of their messages are counted once when they are needed.
``ctxlab.load`` reads the folder as one recording per session.

A damaged line, a missing chunk or a damaged file of metadata costs only what it contained. Lost messages
are replaced by placeholders (``ctxlab.sessions.damage``), and headers of chunks and metadata are rebuilt
from the other files. Nothing is appended to a damaged chunk. ``damage`` lists what was noticed.

References
----------
Design documents "Session Chunking" and "Robustness", sections 10.9 and 10.10 (see
``tests/SEEDS.md``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from ctxlab._utils.jsonio import dump_json, parse_json, repair_surrogates
from ctxlab.context.turns import TurnCounter, TurnLabel
from ctxlab.errors import (
    CtxlabError,
    ReadError,
    SessionConflict,
    SessionError,
    SpecError,
    UnknownSession,
)
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION, ChunkHeader
from ctxlab.formats.ctxlab_sessions.step_numbers import renumber_summaries, turns_by_step_number
from ctxlab.messages.openai_format import message_from_row, row_from_message
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState, Session, SessionStatus, SessionStore
from ctxlab.sessions.common import Fsync, file_errors, is_session_id
from ctxlab.sessions.damage import DamageLog, is_lost
from ctxlab.sessions.jsonl.chunk_format import (
    ChunkLine,
    ChunkTail,
    encode_chunk,
    encode_rows,
    lost_row,
    parse_message_row,
    read_batches,
    read_chunk_header,
)
from ctxlab.sessions.jsonl.files import (
    CHUNK_PATTERN,
    NewerVersion,
    SessionFiles,
    encode_first_row,
    file_mark,
    read_first_row,
)
from ctxlab.sessions.jsonl.headers import ChunkHeaders, counter_at, make_header
from ctxlab.sessions.jsonl.metadata import SessionMeta, salvage_fields
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow
from ctxlab.sessions.titles import (
    title_at_turn,
    title_from_messages,
    title_from_prompt,
    titles_after_change,
)

_LOG = logging.getLogger("ctxlab.sessions")
_WRITE_SECONDS = 0.05  # a write of another process takes less


class _StoredTools(msgspec.Struct):
    tools: tuple[dict[str, Any], ...]


class StoredWindow(msgspec.Struct):
    """Resume window of a session: the content of ``session-ID.window.json``."""

    born: str
    "``SessionMeta.born`` of the session"
    position: int
    "number of messages that the window covers"
    summary: str
    "summary of the messages before ``recent``"
    recent: list[dict[str, Any]]
    "rows of the newest messages"


class JsonlStore(SessionStore):
    """Session store of JSONL chunks in a folder, safe for several processes at once.

    Messages that are appended together are written to the same chunk. If they do not fit into the
    newest chunk, a new chunk is started. Only a batch of more than ``max_history`` messages is
    written to several chunks.

    Parameters
    ----------
    folder : str or Path
        Folder of the store.
    max_history : int, default 200
        Maximum number of messages of a chunk.
    fsync : {'always', 'never'}, default 'always'
        With ``always``, each write is forced to the disk, so that finished writes survive a power
        failure. With ``never``, they survive a kill of the process, but not a power failure.
    caps : ResumeCaps, optional
        Maximum size of the resume state. By default, ``ResumeCaps()``, with the number of messages
        limited to ``max_history``.

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
        self.folder = Path(folder).expanduser()
        self.max_history = max_history
        self.caps = caps or ResumeCaps(messages=min(ResumeCaps().messages, max_history))
        self._files = SessionFiles(self.folder, fsync)
        self.damage = DamageLog(self.folder)
        "damage that was noticed while the store was read"
        self._damaged_meta: set[str] = set()
        self._other_format: set[str] = set()
        self._headers = ChunkHeaders(self._files, self.damage)
        self._tails: dict[str, tuple[str, ChunkTail]] = {}
        self._end_positions: dict[str, tuple[tuple[int, int, int], int]] = {}
        self._old_turns: dict[str, dict[int, int]] = {}
        "turns by their numbers in files of version 1, by ``SessionMeta.born``"

    def __repr__(self) -> str:
        """Return the class name and the folder."""
        return f"{type(self).__name__}({str(self.folder)!r})"

    # --- reading -------------------------------------------------------------------------------

    @override
    def _iter_sessions(self, status: SessionStatus | None) -> Iterator[Session]:
        for id in self._list_ids():
            try:
                yield self.get(id)
            except UnknownSession:
                pass  # deleted in the meantime
            except (ReadError, SessionError) as error:
                _LOG.warning("skipped session %r: %s", id, error)

    @override
    def get(self, id: str) -> Session:
        meta = self._load_meta(id)
        with self._file_errors(id):
            number = self._headers.newest_chunk(id, meta.chunk)
            mark = file_mark(self._files.chunk_path(id, number))
            known = self._end_positions.get(id)
            if known is None or known[0] != mark:
                self._tell_unfinished(id, number)
                known = self._end_positions[id] = (
                    mark,
                    self._headers.read_tail(id, number).next_position,
                )
            return meta.to_session(id, known[1], mark[2] / 1e9, self._read_tools(id))

    def _read_tools(self, id: str) -> tuple[dict[str, Any], ...]:
        path = self._files.sidecar_path(id, "tools")
        if not path.exists():
            return ()
        try:
            return read_first_row(path, "session-tools", _StoredTools).tools
        except ReadError as error:
            self.damage.tell(path, f"{error.reason}; the tool definitions are lost", id)
            return ()

    @override
    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        meta, start = self._load_meta(id), max(0, start)
        with self._file_errors(id):
            last = self._headers.newest_chunk(id, meta.chunk)
            header = self._headers.find(id, last, lambda header: header.first <= start)
        end = None if stop is None else max(stop - header.first, 0)
        messages = self._iter_messages_from(id, header, meta)
        return islice(messages, start - header.first, end)

    @override
    def read_turn(self, id: str, turn: int, step: int = 0) -> tuple[int, tuple[Message, ...]]:
        found: list[Message] = []
        position = 0
        header = self._find_chunk_before(id, TurnLabel(turn, step or 1))
        for place, label, message in self._iter_steps(id, header) if turn > 0 else ():
            if label.turn > turn or (step and label > (turn, step)):
                break
            if label.turn == turn and (not step or label.step == step):
                position = position if found else place
                found.append(message)
        return (position, tuple(found)) if found else (self.get(id).messages, ())

    @override
    def count_turns(self, id: str) -> int:
        meta = self._load_meta(id)
        with self._file_errors(id):
            return self._headers.read_tail(id, self._headers.newest_chunk(id, meta.chunk)).turn

    @override
    def count_steps(self, id: str, turn: int) -> int:
        header = self._find_chunk_before(id, TurnLabel(turn + 1, 1))
        if turn < 1:
            return 0
        steps = (header.step or 0) if header.turn == turn else 0
        for _, label, _ in self._iter_steps(id, header):
            if label.turn > turn:
                break
            steps = label.step if label.turn == turn else steps
        return steps

    def _find_chunk_before(self, id: str, label: TurnLabel) -> ChunkHeader:
        """Return the header of the last chunk that begins before a step or with it."""

        def begins_before(header: ChunkHeader) -> bool:
            return TurnLabel(header.turn, header.step or 0) < label

        meta = self._load_meta(id)
        with self._file_errors(id):
            last = self._headers.newest_chunk(id, meta.chunk)
            return self._headers.find(id, last, begins_before, numbered=True)

    def _iter_steps(self, id: str, header: ChunkHeader) -> Iterator[tuple[int, TurnLabel, Message]]:
        """Yield position, label and content of the messages of a chunk and of all later chunks."""
        counter = TurnCounter(header.turn, header.step or 0, header.replied)
        for position, message in enumerate(self._iter_messages_from(id, header), header.first):
            yield position, counter.add(message), message

    @override
    def turn_summaries(self, id: str) -> dict[int, str]:
        self._load_meta(id)
        version, found = self._read_summaries(id)
        if version == 1:
            roles = (message.role for message in self._iter_messages_from(id))
            return renumber_summaries(found, roles)
        return found

    def _read_summaries(self, id: str) -> tuple[int, dict[int, str]]:
        """Return the version of the file of summaries, and the summaries by the numbers in the file."""
        version, found = CHUNK_VERSION, dict[int, str]()
        path = self._files.summaries_path(id)
        if not path.exists():
            return version, found
        with self._file_errors(id), path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    break  # an unfinished write
                try:
                    row = parse_json(text)
                    if number == 1:
                        version = row["version"]
                    else:
                        found[int(row["turn"])] = str(row["line"])  # a later summary replaces it
                except (ValueError, TypeError, KeyError):
                    lost = "expected JSON keys turn and line; the summary in this line is lost"
                    said = "the header of this file is damaged" if number == 1 else lost
                    self.damage.tell(f"{path}:{number}", said, id)
        return version, found

    def _list_ids(self) -> list[str]:
        names = list[str]()
        with file_errors(self.folder), suppress(FileNotFoundError):  # nothing has been stored yet
            names = os.listdir(self.folder)
        start, end = "session-", ".meta.json"
        ids = {n[len(start) : -len(end)] for n in names if n.startswith(start) and n.endswith(end)}
        chunks = {found["id"] for name in names if (found := CHUNK_PATTERN.fullmatch(name))}
        ids |= {id for id in chunks - ids if self._find_meta(id) is not None}
        return sorted(filter(is_session_id, ids))

    def _load_meta(self, id: str) -> SessionMeta:
        """Return the metadata of a session. Raise ``UnknownSession`` if the session does not exist."""
        meta = self._find_meta(id)
        if meta is None or meta.deleted:
            raise UnknownSession(id, self.folder)
        return meta

    def _find_meta(self, id: str) -> SessionMeta | None:
        if not is_session_id(id):
            return None
        path = self._files.sidecar_path(id, "meta")
        with file_errors(path):
            try:
                meta = read_first_row(path, "session-meta", SessionMeta)
            except FileNotFoundError:
                return self._rebuild_meta(id, None)
            except NewerVersion:
                raise
            except ReadError:
                return self._rebuild_meta(id, path.read_bytes())
        return meta if meta.version == CHUNK_VERSION else self._upgrade_meta(id, meta)

    def _rebuild_meta(self, id: str, text: bytes | None) -> SessionMeta | None:
        """Build metadata from the chunks and from what is legible of the damaged metadata ``text``.

        ``text`` is None if there is no file. Return None if there is no session either: its chunk has
        no message yet, because it is being created, or it has another format.
        """
        numbers = self._files.list_chunks(id)
        headers = []
        for number in numbers:
            try:
                headers.append(read_chunk_header(self._files.chunk_path(id, number)))
            except NewerVersion:
                raise
            except (FileNotFoundError, ReadError):
                continue
        if text is None and not headers:
            self._tell_other_format(id, numbers)
            return None
        path = self._files.sidecar_path(id, "meta")
        first = self._files.chunk_path(id, numbers[0]) if numbers else path
        title, made = "", 0.0
        with suppress(FileNotFoundError):
            made = first.stat().st_mtime
            batches = read_batches(first, parse_message_row, lost_row) if numbers else ()
            messages = [line.value for batch in batches for line in batch]
            if text is None and not messages and len(numbers) < 2:
                return None
            made = min((m.time for m in messages if m.time), default=made)
            title = title_from_messages(m for m in messages if not is_lost(m))
        fields = {
            "born": f"{id}/{made}",
            "created": made,
            "updated": made,
            "status": "closed",
            "title": title,
            "model": next((header.model for header in headers if header.model), None),
            "chunk": max((header.chunk for header in headers), default=0),
        }
        known = salvage_fields(text or b"")
        meta = msgspec.convert({**fields, **known, "version": CHUNK_VERSION}, SessionMeta)
        if not meta.titles and meta.title:
            titles = titles_after_change(id, (), meta.title, 0, meta.created)
            meta = replace(meta, titles=titles)
        if not meta.deleted:
            missing = "the metadata file is missing" if text is None else "the metadata is damaged"
            kept = ", ".join(sorted({"title", *known} - {"version", "born", "chunk", "updated"}))
            self.damage.tell(path, f"{missing}; rebuilt from the messages: {kept}", id)
            self._damaged_meta.add(id)
        return meta

    def _tell_other_format(self, id: str, numbers: Sequence[int]) -> None:
        """Log once that files named like chunks have another format, for example if renamed by hand."""
        if numbers and id not in self._other_format:
            self._other_format.add(id)
            path = self._files.chunk_path(id, numbers[0])
            _LOG.warning(
                "%s: expected a chunk with a header, got another format; "
                "convert it with: ctxlab sessions migrate %s",
                *(path, self.folder),
            )

    def _upgrade_meta(self, id: str, meta: SessionMeta) -> SessionMeta:
        """Convert metadata of version 1, whose titles have other turn numbers."""
        titles = meta.titles
        if not meta.deleted and any(each.turn for each in titles):
            if meta.born not in self._old_turns:
                roles = list[str]()
                with suppress(CtxlabError):  # a title whose turn is unknown has the number 0
                    roles += (message.role for message in self._iter_messages_from(id))
                self._old_turns[meta.born] = turns_by_step_number(roles)
            turns = self._old_turns[meta.born]
            titles = tuple(title_at_turn(each, id, turns.get(each.turn, 0)) for each in titles)
        return replace(meta, titles=titles, version=CHUNK_VERSION)

    def _tell_unfinished(self, id: str, number: int) -> None:
        """Report an unfinished line at the end of a chunk, unless it is being written now."""
        path = self._files.chunk_path(id, number)
        if number and (torn := _torn_size(path)) and _torn_size(path, wait=True) == torn:
            said = f"the last {torn:,} bytes are those of an unfinished write, and are left out"
            self.damage.tell(path, said, id)

    def _iter_messages_from(
        self, id: str, header: ChunkHeader | None = None, meta: SessionMeta | None = None
    ) -> Iterator[Message]:
        """Yield the messages of a chunk and of all later chunks. By default, begin with the first one.

        Messages appended during the iteration are included. ``meta`` is the metadata of the session. If
        the session is deleted and a new session gets its id, ``SessionMeta.born`` is different and
        ``UnknownSession`` is raised.
        """
        with self._file_errors(id):
            header = header or make_header(id, 0, ChunkTail(0))
        number, yielded = header.chunk, 0
        last = meta.chunk if meta is not None else max(self._files.list_chunks(id), default=0)
        while True:
            following = self._headers.following_chunk(id, number, last)
            counter, place = counter_at(header), 0
            with self._file_errors(id):
                if meta is not None and self._load_meta(id).born != meta.born:
                    raise UnknownSession(id, self.folder)
                for batch in self._read_batches(id, number, sealed=following is not None):
                    for line in batch:
                        counter.add(line.value)
                        if place >= yielded:
                            yield line.value
                        place += 1
                yielded = max(yielded, place)
                if following is not None:
                    before = ChunkTail(number, header.first + place, counter.turn, counter.step)
                    before.replied = counter.replied
                    header = self._headers.read_after(id, following, before, header.step is None)
                    yield from self._headers.lost_messages(id, before, header)
                    number, yielded = following, 0
                elif self._headers.following_chunk(id, number, last) is None:
                    return

    def _read_batches(
        self, id: str, number: int, *, sealed: bool
    ) -> Iterator[list[ChunkLine[Message]]]:
        path = self._files.chunk_path(id, number)
        on_damage = self._headers.damage_of(id, path)
        if number:
            yield from read_batches(
                path, parse_message_row, lost_row, sealed=sealed, on_damage=on_damage
            )

    @contextmanager
    def _file_errors(self, id: str) -> Iterator[None]:
        """Convert file errors of a ``with`` block to errors about a session.

        If a file is missing, raise ``ReadError``. If the metadata file is missing too, the session was
        deleted: raise ``UnknownSession``. For any other ``OSError``, raise ``SessionError``.
        """
        with file_errors(self.folder):
            try:
                yield
            except FileNotFoundError as error:
                if not self._files.list_chunks(id):
                    raise UnknownSession(id, self.folder) from None
                raise ReadError(error.filename, None, "session file missing; restore it") from None

    # --- writing -------------------------------------------------------------------------------

    @override
    def _create(self, session: Session) -> None:
        id, meta = session.id, SessionMeta.from_session(session)
        with self._session_lock(id, new=True):
            self._ensure_id_free(id)
            if session.tools:
                self._write_sidecar(id, "tools", tools=session.tools)
            first = encode_chunk(ChunkTail(), id, meta.model)
            self._files.replace(self._files.chunk_path(id, 1), first)
            self._write_meta(id, meta)

    @override
    def open(self, id: str) -> ResumeState:
        with self._session_lock(id):
            meta = self._load_meta(id)
            window = self._update_window(id, meta, self._load_tail(id, meta))
            self._write_meta(id, replace(meta, status="active", updated=time.time()))
            return window.resume_state(meta.plan)

    @override
    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        text = encode_rows(messages)
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
            if len(messages) <= self.max_history - tail.message_count and not tail.is_damaged:
                path = self._files.chunk_path(id, tail.chunk)
                whole = text if tail.has_newline else f"\n{text}"
                tail.end_offset = self._files.append(path, whole)
                tail.add_roles(*(message.role for message in messages))
                tail.has_newline = True
            else:
                self._start_chunks(id, meta, tail, messages)
        return position

    @override
    def _save(self, id: str, plan: AgentPlan | None) -> None:
        with self._session_lock(id):
            meta = self._load_meta(id)
            tail = self._load_tail(id, meta)
            self._update_window(id, meta, tail)
            self._write_meta(id, replace(meta, plan=plan, updated=time.time(), chunk=tail.chunk))

    @override
    def _retitle(self, id: str, title: str, turn: int) -> None:
        with self._session_lock(id):
            meta = self._load_meta(id)
            if title != meta.title or turn == 0:
                self._write_title(id, meta, title, turn)

    def _write_title(self, id: str, meta: SessionMeta, title: str, turn: int) -> SessionMeta:
        now = time.time()
        titles = titles_after_change(id, meta.titles, title, turn, now)
        meta = replace(meta, title=title, titles=titles, updated=now)
        self._write_meta(id, meta)
        return meta

    @override
    def _set_status(self, id: str, status: SessionStatus) -> None:
        with self._session_lock(id):
            self._write_meta(id, replace(self._load_meta(id), status=status, updated=time.time()))

    @override
    def _set_model(self, id: str, model: str) -> None:
        with self._session_lock(id):
            self._write_meta(id, replace(self._load_meta(id), model=model, updated=time.time()))

    @override
    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        row = dump_json({"turn": turn, "line": repair_surrogates(summary)})
        with self._session_lock(id):
            self._load_meta(id)
            path = self._files.summaries_path(id)
            version, _ = self._read_summaries(id)
            if version != CHUNK_VERSION or not path.exists():
                known = self.turn_summaries(id).items()
                rows = [f"{dump_json({'turn': n, 'line': line})}\n".encode() for n, line in known]
                self._files.replace(path, encode_first_row("session-lines", id) + b"".join(rows))
            self._files.repair_last_line(path, id)
            self._files.append(path, f"{row}\n")

    @override
    def delete(self, id: str) -> None:
        with self._session_lock(id):
            meta = self._find_meta(id)
            if meta is not None and not meta.deleted:
                # If the process is killed after this write, readers already ignore the session.
                self._write_meta(id, replace(meta, deleted=True))
            self._remove_files(id)
            if meta is None or meta.deleted:
                raise UnknownSession(id, self.folder)

    @override
    def partial_path(self, id: str) -> Path | None:
        return self._files.partial_path(id)

    @override
    def close(self) -> None:
        self._tails.clear()
        self._end_positions.clear()
        self._headers.forget()
        self._old_turns.clear()

    @contextmanager
    def _session_lock(self, id: str, *, new: bool = False) -> Iterator[None]:
        """Hold the write lock of a session during a ``with`` block.

        After an error in the block, the cached state of the session is dropped. ``new`` allows
        sessions that do not exist yet.
        """
        if not (new or (is_session_id(id) and self.folder.is_dir())):
            raise UnknownSession(id, self.folder)  # before the lock creates a folder
        with self._files.locked(id):
            try:
                yield
            except BaseException:
                self._tails.pop(id, None)
                raise

    def _ensure_id_free(self, id: str) -> None:
        """Raise ``SessionError`` if a session has this id.

        Otherwise, remove files of this id that were left behind by a killed process.
        """
        meta = self._find_meta(id)
        if meta is not None and not meta.deleted:
            raise SessionError(f"{self.folder}: session {id!r} exists already; open it instead")
        self._remove_files(id)

    def _remove_files(self, id: str) -> None:
        """Remove all files of a session, the metadata file last."""
        last = self._files.sidecar_path(id, "meta")
        for path in sorted(self._files.list_files(id), key=lambda path: path == last):
            path.unlink(missing_ok=True)
        self._files.sync_folder()
        self._tails.pop(id, None)
        self._end_positions.pop(id, None)
        self._headers.forget(id)

    def _write_meta(self, id: str, meta: SessionMeta) -> None:
        if id in self._damaged_meta:
            self._files.keep_damaged(self._files.sidecar_path(id, "meta"), id)
            self._damaged_meta.discard(id)
        self._write_sidecar(id, "meta", **({"status": meta.status} | msgspec.to_builtins(meta)))

    def _write_sidecar(self, id: str, kind: str, **fields: Any) -> None:
        row = encode_first_row(f"session-{kind}", id, **fields)
        self._files.replace(self._files.sidecar_path(id, kind), row)

    def _load_tail(self, id: str, meta: SessionMeta) -> ChunkTail:
        """Return the state of the newest chunk. An unfinished batch at its end is cut off first."""
        born, tail = self._tails.get(id, ("", None))
        newest = self._headers.newest_chunk(id, meta.chunk)
        path = self._files.chunk_path(id, newest)
        size = path.stat().st_size if newest else 0
        if tail is None or (born, tail.chunk, tail.end_offset) != (meta.born, newest, size):
            tail = self._headers.read_tail(id, newest)
            self._tails[id] = meta.born, tail
            if size != tail.end_offset and not tail.is_damaged:
                self._files.truncate(path, tail.end_offset, id, newest)
        return tail

    def _apply_first_title(
        self, id: str, meta: SessionMeta, tail: ChunkTail, messages: Sequence[Message]
    ) -> SessionMeta:
        """Derive a title from the first user message in ``messages``, and store it.

        This is called before the messages are stored. Return the metadata with the title.
        """
        counter = tail.counter()
        for message in messages:
            turn = counter.add(message).turn
            if message.role == "user" and (title := title_from_prompt(message.text)):
                return self._write_title(id, meta, title, turn)
        return meta

    def _start_chunks(
        self, id: str, meta: SessionMeta, tail: ChunkTail, messages: Sequence[Message]
    ) -> None:
        """Write messages to one or more new chunks.

        The chunks are written in reverse order. Readers do not find any of them until the first one
        exists, so all messages become visible at the same time.
        """
        files, first = self._files, tail.chunk + 1
        made: list[tuple[ChunkTail, bytes]] = []
        for start in range(0, len(messages), self.max_history):
            some = messages[start : start + self.max_history]
            batch = first if start else 0
            tail = tail.next_chunk()
            text = encode_chunk(tail, id, meta.model, some, batch)
            tail.add_roles(*(message.role for message in some))
            tail.end_offset = len(text)
            made.append((tail, text))
        for number in range(first, tail.chunk + 2):
            files.remove_chunk(id, number)
        for each, text in reversed(made):
            files.replace(files.chunk_path(id, each.chunk), text)
        self._tails[id] = meta.born, tail
        try:
            self._write_meta(id, replace(meta, chunk=tail.chunk, updated=time.time()))
            self._update_window(id, meta, tail)
        except (OSError, ReadError, SessionError) as error:  # the messages are stored already
            _LOG.warning("session %r: %s; the next save will retry", id, error)

    def _update_window(self, id: str, meta: SessionMeta, tail: ChunkTail) -> ResumeWindow:
        """Update the stored ``ResumeWindow`` with the newest messages, and return it."""
        path, end = self._files.sidecar_path(id, "window"), tail.next_position
        window, position = ResumeWindow(self.caps), -1
        try:
            row = read_first_row(path, "session-window", StoredWindow)
            if row.born == meta.born and row.position <= end:
                recent = [message_from_row(each) for each in row.recent]
                window, position = ResumeWindow(self.caps, row.summary, recent), row.position
        except FileNotFoundError:
            pass
        except (ReadError, TypeError, ValueError):
            _LOG.warning("%s: malformed; rebuilding this file from the messages", path)
        if position < end:
            window.extend(self.read_messages(id, position, end))
            rows = [row_from_message(message) for message in window.recent]
            said = {"born": meta.born, "position": end, "summary": window.summary, "recent": rows}
            self._write_sidecar(id, "window", **said)
        return window


def _torn_size(path: Path, *, wait: bool = False) -> int:
    """Return the number of bytes after the last line break of a file."""
    if wait:
        time.sleep(_WRITE_SECONDS)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read() == b"\n":
            return 0
    return size - path.read_bytes().rfind(b"\n") - 1

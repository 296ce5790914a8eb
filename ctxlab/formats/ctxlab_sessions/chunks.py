"""Read sessions that ``JsonlStore`` stored in chunks.

A session is stored in several files of one folder whose names contain its id. Together they form
one recording. The chunks are ``session-ID.1.jsonl``, ``session-ID.2.jsonl``, …: a header line, then
one message per line in the native format. The header is ``{"type": "session", "format": "ctxlab",
"version": 1, "id": …, "chunk": 2, "first": 200, "turn": 57, "replied": true, …}``. It holds the
position of the first message of the chunk and the number of the turn before it. ``more`` in a row
is the number of rows of its batch that follow. If the last row of a batch is missing, the batch was
not completely written and is not part of the session. Text after the last line break of the newest
chunk is not part of it either. Both are left out and counted.

Further files are ``session-ID.meta.json`` (title, status, …), ``session-ID.tools.json`` and
``lines-ID.jsonl`` (one line per turn). A chunk that is read alone becomes a recording of its
messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_in, get_object, get_objects, get_text
from ctxlab.formats.io.files import PathOrUrl, open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, Recording

CHUNK_VERSION = 1
"""Version of the chunk format that is written and read."""

_SIDE_FILES = ("meta", "tools", "window", "lines", "torn")
FILE_TYPES = ("session", *(f"session-{kind}" for kind in _SIDE_FILES))
"""Values of ``type`` in the first line of the files of a session."""

SESSION_META_KEYS = ("title", "status", "agent", "file", "strategy", "system", "created")
"""Session fields that a recording's ``meta`` holds in addition to the session's own ``meta``."""


class ChunkHeader(msgspec.Struct, kw_only=True, omit_defaults=True):
    """First line of a chunk, with the state of the session before it; no other chunk is needed."""

    type: str
    "``session``"
    format: str
    "``ctxlab``"
    version: int
    "``CHUNK_VERSION`` of the writer"
    id: str
    "id of the session"
    chunk: int
    "number of the chunk, from 1"
    first: int
    "position of its first message in the session, from 0"
    turn: int
    "number of the turn before its first message, see ``ctxlab.context.turns``"
    replied: bool
    "whether the assistant has replied in that turn"
    batch: int = 0
    "number of the chunk in which the batch of its first message begins; 0: this chunk"
    model: str | None = None
    "model of the session"


class ChunkRow(NamedTuple):
    """A message in a chunk."""

    message: Message
    "the message"
    more: int
    "number of messages of the same batch that follow"


def parse_chunk_row(row: Any) -> ChunkRow:
    """Parse one message row of a chunk.

    Parameters
    ----------
    row : Any
        JSON value of the line.

    Returns
    -------
    ChunkRow
        The message.

    Raises
    ------
    ValueError
        If the row is invalid.
    """
    if not isinstance(row, dict):
        raise ValueError(f"a row must be an object, got {type(row).__name__}")
    more = row.get("more", 0)
    if not isinstance(more, int) or isinstance(more, bool) or more < 0:
        raise ValueError(f"more must be the number of rows that follow, got {more!r}")
    return ChunkRow(message_from_row({k: v for k, v in row.items() if k != "more"}), more)


def _get_session_id(head: FileHead) -> str:
    """Return the id of the session that a file belongs to."""
    return get_text(head.value, "id") or ""


def sniff(head: FileHead) -> bool:
    """Return whether a file is part of a stored session.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True for a chunk or for a further file of a session.
    """
    row = head.value
    ours = get_in(row, "format") == "ctxlab" and get_in(row, "type") in FILE_TYPES
    return ours and isinstance(get_in(row, "id"), str)


def read(source: Source) -> Iterator[Recording]:
    """Read a session from the available chunks, in the order of their numbers.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The session, unless it has no chunk or is being removed.

    Raises
    ------
    ReadError
        If a file is broken or a chunk is missing, unless the source skips errors.
    """
    chunks: list[tuple[ChunkHeader, PathOrUrl]] = []
    side_files: dict[str, Any] = {}
    skipped: Counter[str] = Counter()
    for place in (source.path, *source.other_paths):
        if str(place).endswith(".new"):
            skipped["file that was never finished"] += 1
            continue
        part = Source(place, source.name, source.on_error)
        try:
            kind, first = _read_first_line(place)
        except ReadError as error:
            if source.on_error == "raise":
                raise
            skipped[f"broken file: {error.reason}"] += 1
            continue
        if kind == "session":
            try:
                chunks.append((msgspec.convert(first, ChunkHeader), place))
            except (msgspec.ValidationError, ValueError) as error:
                part.report_error(f"invalid header of a chunk: {error}", 1)
        elif kind == "session-lines":
            side_files[kind] = {str(row["turn"]): row["line"] for row in _read_turn_lines(part)}
        elif kind in FILE_TYPES:
            side_files[kind] = first
        else:
            part.report_error("not a file of a session", 1)
        skipped.update(part.pop_skipped())
    chunks.sort(key=lambda chunk: chunk[0].chunk)
    if (side_files.get("session-meta") or {}).get("deleted"):
        source.skip("session that is being removed")
        return
    messages: list[Message] = []
    if chunks and (missing := chunks[0][0].first) > 0:
        skipped["message in an older chunk"] += missing
    for number, (header, place) in enumerate(chunks):
        part = Source(place, source.name, source.on_error)
        if number and (gap := chunks[number - 1][0].chunk + 1) < header.chunk:
            if header.batch and header.batch <= gap:
                skipped["chunk of an unfinished batch"] += len(chunks) - number
                break
            part.report_error(f"chunk {gap} of session {header.id} is missing", 1)
        newest = number == len(chunks) - 1
        messages += _read_messages(part, newest)
        skipped.update(part.pop_skipped())
    if chunks:
        built = _build_recording(chunks[0][0], messages, side_files)
        yield replace(built, skipped=dict(skipped))
    for reason, count in () if chunks else skipped.items():
        source.skip(reason, count=count)


_ABOUT = "ctxlab: chunks of a stored session (JsonlStore)"
FORMAT = Format("session-chunks", _ABOUT, sniff, read, group_key=_get_session_id)


def _read_first_line(path: PathOrUrl) -> tuple[str, Any]:
    """Return the type of a session file and its first line."""
    with open_file(path) as file:
        line = file.readline()
    try:
        row = parse_json(line)
    except ValueError:
        raise ReadError(path, 1, "not JSON") from None
    kind = row.get("type") if isinstance(row, dict) and row.get("format") == "ctxlab" else None
    if kind in FILE_TYPES and row.get("version") != CHUNK_VERSION:
        reason = f"version {row.get('version')!r} of a session; this ctxlab reads {CHUNK_VERSION}"
        raise ReadError(path, 1, reason)
    return str(kind), row


def _read_turn_lines(part: Source) -> Iterator[dict[str, Any]]:
    """Yield complete lines; text after the last line break is ignored."""
    with open_file(part.path) as file:
        for number, line in enumerate(file, start=1):
            try:
                row = parse_json(line)
            except ValueError:
                if line.endswith(b"\n"):
                    part.report_error("not JSON", number)
                continue
            if isinstance(row, dict) and {"turn", "line"} <= row.keys():
                yield row


def _read_messages(part: Source, newest: bool) -> list[Message]:
    """Return the messages of a chunk; an incomplete end of the newest chunk is skipped."""
    messages: list[Message] = []
    batch: list[Message] = []
    broken: tuple[str, int] | None = None
    with open_file(part.path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1 or not line.strip():
                continue
            if broken is not None:
                part.report_error(*broken)
                broken = None
            try:
                row = _parse_line(line)
            except ValueError as error:
                broken = str(error), number
                continue
            batch.append(row.message)
            if not row.more:
                messages += batch
                batch.clear()
    if broken is not None and newest:
        part.skip("unfinished last line")
    elif broken is not None:
        part.report_error(*broken)
    for _ in batch:
        part.skip("message of an unfinished batch")
    return messages


def _parse_line(line: bytes) -> ChunkRow:
    try:
        row = parse_json(line)
    except ValueError:
        raise ValueError("not JSON") from None
    return parse_chunk_row(row)


def _build_recording(first: ChunkHeader, messages: list[Message], beside: Any) -> Recording:
    """Return the recording of a session from its messages and the files beside its chunks."""
    meta = get_object(beside, "session-meta")
    said = get_object(meta, "meta") | {key: meta[key] for key in SESSION_META_KEYS if meta.get(key)}
    if lines := get_object(beside, "session-lines"):
        said["lines"] = lines
    tools = get_objects(beside, "session-tools", "tools")
    model = get_text(meta, "model") or first.model
    return Recording(first.id, tuple(messages), tools, model, meta=said)

"""A stored session is a few files of one folder that name its id; together they are one recording.

``session-ID.1.jsonl``, ``session-ID.2.jsonl``, … are its chunks: a header line, then a message a line
as the native format writes it. The header is ``{"type": "session", "format": "ctxlab", "version": 1,
"id": …, "chunk": 2, "first": 200, "turn": 57, "replied": true, …}``: the position of the chunk's first
message, and the turn that stands before it. ``more`` in a row says how many rows of its batch follow: a
batch whose last row is not there was never finished and is no part of the session. Nor is what stands
behind the last line break of the newest chunk. Both are left out and counted.

Beside them stand ``session-ID.meta.json`` (title, status, …), ``session-ID.tools.json`` and
``lines-ID.jsonl`` (a line for each turn). A chunk that is read by itself is a recording of its messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_nested, objects_in, text_or_none
from ctxlab.formats.io.files import PathOrUrl, open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, Recording

__all__ = [
    "CHUNK_VERSION",
    "FILE_TYPES",
    "FORMAT",
    "SESSION_META_KEYS",
    "ChunkHeader",
    "ChunkRow",
    "get_session_id",
    "parse_chunk_row",
    "read",
    "sniff",
]

CHUNK_VERSION = 1

FILE_TYPES = (
    "session",
    "session-meta",
    "session-tools",
    "session-window",
    "session-lines",
    "session-torn",
)
"""The ``type`` of the first line of each kind of file that belongs to a session."""

SESSION_META_KEYS = ("title", "status", "agent", "file", "strategy", "system", "created")
"""What a recording's ``meta`` says of its session, beside what the session's own ``meta`` holds."""


class ChunkHeader(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The first line of a chunk: what is known of the session before it, so that no other is read."""

    type: str
    format: str
    version: int
    id: str
    chunk: int
    "its number, from 1"
    first: int
    "position of its first message"
    turn: int
    "number of the turn before its first message, see ``ctxlab.context.turns``"
    replied: bool
    "whether the assistant has spoken in that turn"
    batch: int = 0
    "number of the chunk in which the batch begins that its first message is of; 0: with itself"
    model: str | None = None


class ChunkRow(NamedTuple):
    """A message in a chunk, and how many messages that were appended with it follow."""

    message: Message
    more: int


def parse_chunk_row(row: Any) -> ChunkRow:
    """A line of a chunk; ``ValueError`` says what is wrong with it."""
    if not isinstance(row, dict):
        raise ValueError(f"a row is an object, not {type(row).__name__}")
    more = row.get("more", 0)
    if not isinstance(more, int) or isinstance(more, bool) or more < 0:
        raise ValueError(f"more is {more!r}; it counts the rows that follow")
    return ChunkRow(message_from_row({k: v for k, v in row.items() if k != "more"}), more)


def get_session_id(head: FileHead) -> str:
    """The id of the session that a file belongs to."""
    return text_or_none(get_nested(head.value, "id")) or ""


def sniff(head: FileHead) -> bool:
    """Whether a file is a chunk of a session, or stands beside one."""
    row = head.value
    return (
        isinstance(row, dict)
        and row.get("format") == "ctxlab"
        and row.get("type") in FILE_TYPES
        and isinstance(row.get("id"), str)
    )


def read(source: Source) -> Iterator[Recording]:
    """The session, whatever is there of its chunks in the order of their numbers."""
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
                part.report_error(f"no header of a chunk: {error}", 1)
        elif kind == "session-lines":
            side_files[kind] = {str(row["turn"]): row["line"] for row in _read_turn_lines(part)}
        elif kind in FILE_TYPES:
            side_files[kind] = first
        else:
            part.report_error("no file of a session", 1)
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
        yield _build_recording(chunks[0][0], messages, side_files, skipped)
    for reason, count in () if chunks else skipped.items():
        for _ in range(count):
            source.skip(reason)


FORMAT = Format(
    "session-chunks",
    "ctxlab: chunks of a stored session (JsonlStore)",
    sniff,
    read,
    group_key=get_session_id,
)


def _read_first_line(path: PathOrUrl) -> tuple[str, Any]:
    """What kind of file of a session it is, and its first line."""
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
    """The lines that were kept; what stands behind the last line break is none."""
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
    """The messages of a chunk; of the newest one an unfinished end is left out and counted."""
    messages: list[Message] = []
    batch: list[Message] = []
    broken: tuple[int, str] | None = None
    with open_file(part.path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1 or not line.strip():
                continue
            if broken is not None:
                part.report_error(broken[1], broken[0])
                broken = None
            try:
                row = parse_chunk_row(parse_json(line))
            except ValueError as error:
                said = "not JSON" if _is_invalid_json(line) else str(error)
                broken = number, said
                continue
            batch.append(row.message)
            if not row.more:
                messages += batch
                batch.clear()
    if broken is not None:
        if newest:
            part.skip("unfinished last line")
        else:
            part.report_error(broken[1], broken[0])
    for _ in batch:
        part.skip("message of an unfinished batch")
    return messages


def _is_invalid_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return True
    return False


def _build_recording(
    header: ChunkHeader,
    messages: list[Message],
    side_files: Mapping[str, Any],
    skipped: Mapping[str, int],
) -> Recording:
    meta = side_files.get("session-meta") or {}
    said = dict(own) if isinstance(own := meta.get("meta"), dict) else {}
    said |= {key: meta[key] for key in SESSION_META_KEYS if meta.get(key)}
    if lines := side_files.get("session-lines"):
        said["lines"] = lines
    return Recording(
        header.id,
        tuple(messages),
        objects_in(get_nested(side_files, "session-tools", "tools")),
        text_or_none(meta.get("model")) or header.model,
        meta=said,
        skipped=dict(skipped),
    )

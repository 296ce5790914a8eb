"""Read sessions that ``JsonlStore`` stored in chunks.

A session is stored in several files of one folder. Their names contain the id of the session, and
they are read as one recording. The chunks ``session-ID.1.jsonl``, ``session-ID.2.jsonl`` and so on
contain the messages. Each chunk has a header line, followed by one message per line in the native
format. The header is ``{"type": "session", "format": "ctxlab", "version": 2, "id": …, "chunk": 2,
"first": 200, "turn": 57, "step": 4, "replied": true, …}``. ``first`` is the position of the first
message of the chunk, and ``turn`` and ``step`` are the numbers of the message before ``first``. Version
1 has no ``step``, and counts each step as a turn.

Messages are written in batches. In each message row, ``more`` is the number of rows of the same
batch that follow. If the last row of a batch is missing, the writer was interrupted. The messages
of this batch are skipped and counted. An incomplete last line of the newest chunk is also skipped
and counted.

The other files are ``session-ID.meta.json`` (title, status and other metadata),
``session-ID.tools.json`` (tool definitions) and ``lines-ID.jsonl`` (a one-line summary of each turn).
If a chunk is read without the other files, the recording contains only the messages of this chunk.
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
from ctxlab.formats.ctxlab_sessions.step_numbers import renumber_summaries
from ctxlab.formats.fields import get_in, get_object, get_objects, get_text
from ctxlab.formats.io.files import PathOrUrl, open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, Recording

CHUNK_VERSION = 2
"""Version of the chunk format that this version of ctxlab writes."""

READABLE_VERSIONS = (1, CHUNK_VERSION)
"""Versions of the chunk format that this version of ctxlab reads."""

_SIDE_FILES = ("meta", "tools", "window", "lines", "torn", "partial")
FILE_TYPES = ("session", *(f"session-{kind}" for kind in _SIDE_FILES))
"""Values of ``type`` in the first line of a session file."""

COPIED_FROM_KEY = "copied_from"
"""Key of the ``meta`` of a copied session: the id of the session that was copied first.

Copies have messages in common, so their recordings are one cluster."""

SESSION_META_KEYS = ("title", "status", "agent", "file", "strategy", "system", "created")
"""Fields of a session that are stored in ``Recording.meta`` in addition to the session's ``meta``."""


class ChunkHeader(msgspec.Struct, kw_only=True, omit_defaults=True):
    """First line of a chunk. It contains the state of the session before the chunk.

    A chunk can therefore be read without the earlier chunks.
    """

    type: str
    "always ``session``"
    format: str
    "always ``ctxlab``"
    version: int
    "version of the chunk format, see ``CHUNK_VERSION``"
    id: str
    "id of the session"
    chunk: int
    "number of the chunk, counted from 1"
    first: int
    "position of the first message of the chunk in the session, counted from 0"
    turn: int
    "turn of the message before the chunk, see ``ctxlab.context.turns``; in version 1, its step number"
    replied: bool
    "True if the assistant has replied in the step of the message before the chunk"
    step: int | None = None
    "step of the message before the chunk in its turn; None in version 1"
    batch: int = 0
    "number of the chunk in which the batch of the first message begins. 0: this chunk"
    model: str | None = None
    "name of the model"


class ChunkRow(NamedTuple):
    """A row of a chunk, which contains one message."""

    message: Message
    "the parsed message"
    more: int
    "number of rows of the same batch that follow"


def parse_chunk_row(row: Any) -> ChunkRow:
    """Parse a message row of a chunk.

    Parameters
    ----------
    row : Any
        JSON value of the line.

    Returns
    -------
    ChunkRow
        The message, and the number of rows of the same batch that follow.

    Raises
    ------
    ValueError
        If the row or its message is malformed.
    """
    if not isinstance(row, dict):
        raise ValueError(f"a row must be an object, got {type(row).__name__}")
    more = row.get("more", 0)
    if not isinstance(more, int) or isinstance(more, bool) or more < 0:
        raise ValueError(f"expected a non-negative integer under the key more, got {more!r}")
    return ChunkRow(message_from_row({k: v for k, v in row.items() if k != "more"}), more)


def _get_session_id(head: FileHead) -> str:
    """Return the id of the session to which a file belongs, or an empty string if it has none."""
    return get_text(head.value, "id") or ""


def sniff(head: FileHead) -> bool:
    """Check whether a file belongs to a session stored by ctxlab.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file is a chunk or another file of a session.
    """
    row = head.value
    ours = get_in(row, "format") == "ctxlab" and get_in(row, "type") in FILE_TYPES
    return ours and isinstance(get_in(row, "id"), str)


def read(source: Source) -> Iterator[Recording]:
    """Read a session from its files. The chunks are read in the order of their numbers.

    Parameters
    ----------
    source : Source
        A file of the session. ``other_paths`` contains the other files of the same session.

    Yields
    ------
    Recording
        The session. Nothing is yielded if there is no chunk or if the session is being deleted.

    Raises
    ------
    ReadError
        If a file is malformed or a chunk is missing, and ``on_error`` is ``"raise"``.
    """
    chunks: list[tuple[ChunkHeader, PathOrUrl]] = []
    side_files: dict[str, Any] = {}
    has_step_numbers = False
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
            side_files[kind] = {row["turn"]: row["line"] for row in _read_turn_lines(part)}
            has_step_numbers = first["version"] == 1
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
    if has_step_numbers:
        roles = [message.role for message in messages]
        side_files["session-lines"] = renumber_summaries(side_files["session-lines"], roles)
    if chunks:
        built = _build_recording(chunks[0][0], messages, side_files)
        yield replace(built, id=built.id or source.name, skipped=dict(skipped))
    for reason, count in () if chunks else skipped.items():
        source.skip(reason, count=count)


_ABOUT = "ctxlab: chunks of a stored session (JsonlStore)"
FORMAT = Format(
    "session-chunks",
    _ABOUT,
    sniff,
    read,
    group_key=_get_session_id,
    versions="format versions 1 and 2",
    not_read=(
        "left out: messages of a batch that was not written completely, the state from which "
        "a chat continues"
    ),
)


def _read_first_line(path: PathOrUrl) -> tuple[str, Any]:
    """Return the type of a session file and the JSON value of its first line."""
    with open_file(path) as file:
        line = file.readline()
    try:
        row = parse_json(line)
    except ValueError:
        raise ReadError(path, 1, "not JSON") from None
    kind = row.get("type") if isinstance(row, dict) and row.get("format") == "ctxlab" else None
    if kind in FILE_TYPES and row.get("version") not in READABLE_VERSIONS:
        known = f"expected a version of at most {CHUNK_VERSION}"
        reason = f"{known}, got {row.get('version')!r}; upgrade ctxlab"
        raise ReadError(path, 1, reason)
    return str(kind), row


def _read_turn_lines(part: Source) -> Iterator[dict[str, Any]]:
    """Yield the rows of a ``lines-ID.jsonl`` file. An incomplete last line is ignored."""
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
    """Return the messages of a chunk. An incomplete last line of the newest chunk is skipped."""
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
    """Build the recording of a session.

    ``beside`` maps the type of each file without messages, such as ``session-meta``, to its JSON.
    """
    meta = get_object(beside, "session-meta")
    said = get_object(meta, "meta") | {key: meta[key] for key in SESSION_META_KEYS if meta.get(key)}
    if lines := get_object(beside, "session-lines"):
        said["lines"] = {str(turn): line for turn, line in lines.items()}
    tools = get_objects(beside, "session-tools", "tools")
    model = get_text(meta, "model") or first.model
    cluster = get_text(said, COPIED_FROM_KEY)
    return Recording(first.id, tuple(messages), tools, model, cluster=cluster, meta=said)

"""Reader and writer for ctxlab's native format: JSONL with a meta line and one line per message.

The meta line is ``{"type": "meta", "format": "ctxlab", "version": 1, …}``. It also contains the
``id`` of the recording and, if they are set, ``model``, ``cluster``, ``tools``, ``probes``,
``compactions``, ``meta`` and ``skipped``. Each meta line starts a new recording. A message line has
OpenAI's keys and, if known, ``reasoning``, ``usage`` (``input``, ``cache_read``, ``cache_write``,
``output``, ``reasoning``, ``cache_write_1h``), ``time``, ``file`` and ``extra``. If a file has no meta
line, its recording is named after the file. Reading a file that ctxlab wrote and writing it again
gives the same bytes.

A file without a meta line is recognised as native if its first messages have only content parts of
OpenAI's chat format. Messages of other APIs have their own readers (``anthropic``, ``messages``). If
such a message appears later in the file, it is parsed like a message in the ``messages`` format.
After a meta line, only messages with tool calls or tool results as content parts are parsed in this
way; content parts of other messages are kept unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.formats.base import Format, SkipCallback, Source
from ctxlab.formats.common.api_messages import is_control_row, parse_message
from ctxlab.formats.common.chat_format import CHAT_ROLES, has_non_openai_parts, has_tool_parts
from ctxlab.formats.ctxlab_sessions import chunks
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_row, row_from_message
from ctxlab.messages.types import Message, Recording

_VERSION = 1
_TEXT_FIELDS = ("model", "cluster")
_META_FIELDS = (*_TEXT_FIELDS, "tools", "probes", "compactions", "meta", "skipped")

ROW_COLUMNS = ("id", "messages", *_META_FIELDS, "format", "version")
"""Columns of a table of recordings that ctxlab wrote; see ``row_from_recording``."""


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with a meta line or with messages in OpenAI's chat format.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first rows is a meta line, or if the first rows contain messages and none
        has a content part of another API.
    """
    if chunks.sniff(head):
        return False
    rows = [row for row in head.rows if isinstance(row, dict)]
    if any(map(_is_meta, rows)):
        return True
    other = any(is_control_row(row) or has_non_openai_parts(row) for row in rows)
    return any(map(_is_message, rows)) and not other


def read(source: Source) -> Iterator[Recording]:
    """Read the recordings of a native file.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The messages that follow a meta line, as one recording. A file without meta lines is one
        recording.
    """
    recording: Recording | None = None
    messages: list[Message] = []
    headed = False
    for line, row in source.read_jsonl():
        if _is_meta(row):
            if recording is not None:
                yield msgspec.structs.replace(recording, messages=tuple(messages))
            recording, messages, headed = Recording(source.name, ()), [], True
            with source.handle_errors(line):
                recording = _parse_meta(row, source.name)
            continue
        with source.handle_errors(line):
            messages += _parse_message(row, source.skip, headed)
            recording = recording or Recording(source.name, ())
    if recording is not None:
        yield msgspec.structs.replace(recording, messages=tuple(messages))


def dumps(recording: Recording) -> str:
    """Convert a recording to text in the native format.

    Parameters
    ----------
    recording : Recording
        The recording to write.

    Returns
    -------
    str
        A meta line and one line per message, each ending with a newline.

    Examples
    --------
    >>> print(dumps(Recording("a", (Message("user", "hi"),))), end="")
    {"type":"meta","format":"ctxlab","version":1,"id":"a"}
    {"role":"user","content":"hi"}
    """
    rows = _meta_line(recording), *map(row_from_message, recording.messages)
    return "".join(dump_json(row) + "\n" for row in rows)


def row_from_recording(recording: Recording) -> dict[str, Any]:
    """Convert a recording to a row of a table, with the columns ``ROW_COLUMNS``.

    Parameters
    ----------
    recording : Recording
        The recording.

    Returns
    -------
    dict
        The values of the meta line and the messages. Lists and objects are JSON texts, and a column
        without a value is left out.

    Examples
    --------
    >>> row_from_recording(Recording("a", (Message("user", "hi"),)))["messages"]
    '[{"role":"user","content":"hi"}]'
    """
    rows = list(map(row_from_message, recording.messages))
    row = {**_meta_line(recording), "messages": rows}
    del row["type"]
    return {k: dump_json(v) if isinstance(v, (dict, list, tuple)) else v for k, v in row.items()}


def is_recording_row(row: Mapping[str, Any]) -> bool:
    """Check whether a row of a table was made by ``row_from_recording``.

    Parameters
    ----------
    row : mapping
        Column → value.

    Returns
    -------
    bool
        True if the row has the format, the version and messages as JSON text.
    """
    texts = isinstance(row.get("id"), str) and isinstance(row.get("messages"), str)
    return texts and row.get("format") == "ctxlab" and "version" in row


def recording_from_row(row: Mapping[str, Any], name: str, skip: SkipCallback) -> Recording:
    """Convert a row of a table that ``row_from_recording`` made to the recording.

    Parameters
    ----------
    row : mapping
        Column → value. None means that the column has no value.
    name : str
        Id of the recording, if the row has none.
    skip : Callable
        Called with a description of each item that is left out.

    Returns
    -------
    Recording
        The recording.

    Raises
    ------
    ValueError
        If a value is malformed.

    Examples
    --------
    >>> recording = Recording("a", (Message("user", "hi", time=1.0),), cluster="c")
    >>> recording_from_row(row_from_recording(recording), "b", print) == recording
    True
    """
    given = {key: value for key, value in row.items() if value is not None}
    for key in ("messages", *_META_FIELDS):
        if key in given and key not in _TEXT_FIELDS:
            given[key] = parse_json(given[key])
    messages = [m for each in given["messages"] for m in _parse_message(each, skip, True)]
    return msgspec.structs.replace(_parse_meta(given, name), messages=tuple(messages))


_ABOUT = "ctxlab JSONL: a meta line, then one message per line"
FORMAT = Format(
    "native",
    _ABOUT,
    sniff,
    read,
    lambda recording, report: dumps(recording),
    versions="format version 1",
)


def _is_meta(row: Any) -> bool:
    return isinstance(row, dict) and row.get("type") == "meta" and row.get("format") == "ctxlab"


def _meta_line(recording: Recording) -> dict[str, Any]:
    meta: dict[str, Any] = {"type": "meta", "format": "ctxlab", "version": _VERSION}
    meta["id"] = recording.id
    for key in _META_FIELDS:
        if value := getattr(recording, key):
            meta[key] = msgspec.to_builtins(value)
    return meta


def _parse_message(row: Any, skip: SkipCallback, headed: bool) -> list[Message]:
    """Parse a message. ``headed`` is True for rows that ctxlab wrote; their parts are kept unchanged."""
    other = has_tool_parts(row) or (not headed and has_non_openai_parts(row))
    return parse_message(row, skip) if other else [message_from_row(row)]


def _is_message(row: dict[str, Any]) -> bool:
    return row.get("role") in CHAT_ROLES and "type" not in row and "content" in row


def _parse_meta(row: dict[str, Any], name: str) -> Recording:
    version = row.get("version")
    if version != _VERSION:
        raise ValueError(f"expected version {_VERSION} of the native format, got {version!r}")
    fields = {key: row[key] for key in _META_FIELDS if key in row}
    return msgspec.convert({"id": row.get("id") or name, "messages": (), **fields}, Recording)

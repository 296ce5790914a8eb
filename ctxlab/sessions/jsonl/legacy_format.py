"""Read session files of older formats: an optional meta line, then one message per line.

A message has a ``role``, or a ``type`` that implies it.

References
----------
Seed designs "Session Chunking" (files without an index) and "Robustness", 10.9 (a meta line,
``{"type": "user", "content": …}``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ctxlab.formats.fields import get_number, get_text, get_time
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.chunk_format import parse_row

_ROLES_BY_TYPE = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool",
           "tool_result": "tool", "human": "user", "ai": "assistant"}  # fmt: skip
_TIME_KEYS = ("time", "ts", "timestamp", "created_at")


class LegacyRow(NamedTuple):
    """Line of a legacy file: a message, meta or an error."""

    path: Path
    "the file"
    line: int
    "line number, from 1"
    message: Message | None = None
    "the message, if the line holds one"
    meta: dict[str, Any] | None = None
    "the meta row, if the line is one"
    broken: str | None = None
    "why the line cannot be read"
    text: str = ""
    "text of a broken line"


def read_legacy_rows(path: Path) -> Iterator[LegacyRow]:
    """Yield all lines of a legacy file except blank ones.

    Parameters
    ----------
    path : Path
        File to read.

    Yields
    ------
    LegacyRow
        The next line.
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
    """Return True if a row describes the session instead of holding a message.

    Parameters
    ----------
    row : object
        Parsed line.

    Returns
    -------
    bool
        True if the type of the row is ``meta`` or ``session_meta``.
    """
    return isinstance(row, Mapping) and row.get("type") in ("meta", "session_meta")


def first_timestamp(row: Mapping[str, Any], *keys: str) -> float | None:
    """Return the first readable time among some keys of a row.

    Parameters
    ----------
    row : mapping
        Parsed line.
    *keys : str
        Keys to try, in order.

    Returns
    -------
    float or None
        Time in seconds since 1970; None if no key holds a time.
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

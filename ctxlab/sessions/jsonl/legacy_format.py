"""Session files of older shapes are read line by line: a meta line or none, then a message a line.

A message has a ``role``, or its ``type`` says who spoke. Source: seed designs "Session Chunking" (files
without an index) and "Robustness", 10.9 (a meta line, ``{"type": "user", "content": …}``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ctxlab.formats.optional_fields import (
    iso_time,
    number,
    text,
)
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.chunk_format import json_row

__all__ = ["Old", "is_meta", "moment", "old_rows"]

_SPOKEN = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool",
           "tool_result": "tool", "human": "user", "ai": "assistant"}  # fmt: skip
_TIMES = ("time", "ts", "timestamp", "created_at")


class Old(NamedTuple):
    """A line of an old file: a message, or meta, or why it is neither."""

    path: Path
    line: int
    message: Message | None = None
    meta: dict[str, Any] | None = None
    broken: str | None = None
    text: str = ""
    "of a broken line"


def old_rows(path: Path) -> Iterator[Old]:
    """The lines of an old file, none left out but blank ones."""
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                row = json_row(raw)
                if is_meta(row):
                    yield Old(path, line, meta=dict(row))
                else:
                    yield Old(path, line, _message(row))
            except (ValueError, TypeError) as error:
                yield Old(path, line, broken=str(error), text=raw.decode(errors="replace"))


def is_meta(row: Any) -> bool:
    """Whether a line says what a session is and not what was said in it."""
    return isinstance(row, Mapping) and row.get("type") in ("meta", "session_meta")


def moment(row: Mapping[str, Any], *keys: str) -> float | None:
    """The first of some times that a row gives, in seconds since 1970."""
    for key in keys:
        value = row.get(key)
        seconds = number(value) if not isinstance(value, str) else iso_time(value)
        if seconds is not None:
            return seconds
    return None


def _message(row: Any) -> Message:
    if not isinstance(row, Mapping):
        raise ValueError(f"a message is an object, not {type(row).__name__}")
    wire = dict(row)
    if "role" not in wire and (spoken := _SPOKEN.get(text(wire.get("type")) or "")):
        wire["role"] = spoken
        del wire["type"]
    if (time := moment(wire, *_TIMES)) is not None:
        wire["time"] = time
    return message_from_row(wire)

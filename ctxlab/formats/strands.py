"""A session of Strands Agents is a file a message; the files of a folder are one conversation.

``session_ID/agents/agent_ID/messages/message_0.json`` holds ``{"message": {"role", "content"},
"message_id": 0, "redact_message": null, "created_at", "updated_at"}``. The content is Bedrock's blocks;
bytes are ``{"__bytes_encoded__": true, "data": base64}``. A list of such objects, or JSONL of them, is
read too. ``session.json`` and ``agent.json`` beside the folder hold no messages and are not read.

- Messages are ordered by ``message_id``: names sort as text.
- A message that was redacted is the one that stands in its place, as Strands reads it; it is counted.

Source: github.com/strands-agents/sdk-python ``session/file_session_manager.py`` at 01e6dbf and
``types/session.py`` at 1a7732e.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.api_messages import read_row
from ctxlab.formats.common.json_files import values
from ctxlab.formats.io.head import Head
from ctxlab.formats.messages import PartCount
from ctxlab.formats.optional_fields import (
    iso_time,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "read", "sniff"]


def sniff(head: Head) -> bool:
    """Whether a file begins with a message as Strands stores it."""
    first = head.value
    rows = first if isinstance(first, list) else [first]
    return bool(rows) and _is_stored(rows[0])


def read(source: Source) -> Iterator[Recording]:
    """Return the one conversation of a folder's files.

    Parameters
    ----------
    source : Source
        The first file; ``others`` are the rest of its folder.

    Yields
    ------
    Recording
        The conversation, called after the folder.

    Raises
    ------
    ReadError
        Where most of its content parts are of unknown types.
    """
    found: list[tuple[int, list[Message]]] = []
    parts = PartCount()
    for place in (source.path, *source.others):
        file = Source(place, source.name, source.on_error)
        for where, value in values(file):
            with file.guard(*(where or (1, "message"))):
                stored = an_object(value, "a stored message")
                if stored.get("redact_message") is not None:
                    file.skip("message that was redacted")
                row = stored.get("redact_message") or stored["message"]
                messages = read_row(an_object(row, "a message"), file.skip)
                parts.add(row)
                time = iso_time(stored.get("created_at"))
                found.append((_number(stored), [each.replace(time=time) for each in messages]))
        for reason, count in file.take().items():
            for _ in range(count):
                source.skip(reason)
    found.sort(key=lambda each: each[0])
    messages = [message for _, held in found for message in held]
    if (refused := parts.refusal()) is not None:
        raise ReadError(source.path, None, refused)
    if messages:
        yield Recording(source.name, tuple(messages))


def _as_one(head: Head) -> str:
    """All messages of a folder have the same key."""
    return ""


FORMAT = Format(
    "strands", "Strands Agents session: a file a message", sniff, read, together=_as_one
)


def _is_stored(value: Any) -> bool:
    return (
        isinstance(within(value, "message", "role"), str)
        and isinstance(within(value, "message", "content"), list)
        and isinstance(value.get("message_id"), int)
    )


def _number(stored: dict[str, Any]) -> int:
    number = stored.get("message_id")
    if not isinstance(number, int):
        raise ValueError(f"message_id is a number, not {type(number).__name__}")
    return number

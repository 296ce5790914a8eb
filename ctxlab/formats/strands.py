"""Reader for sessions of Strands Agents, which stores each message in a separate file.

The message files of a folder form one conversation. Their paths have the form
``session_ID/agents/agent_ID/messages/message_0.json``. Each file contains ``{"message": {"role",
"content"}, "message_id": 0, "redact_message": null, "created_at", "updated_at"}``. The content is a
list of Bedrock blocks, in which bytes are written as ``{"__bytes_encoded__": true, "data":
base64}``. A JSON list or JSONL file of such objects is also read. The files ``session.json`` and
``agent.json`` in the parent folders contain no messages and are not read.

- Messages are sorted by ``message_id``, because sorting by file name would put ``message_10``
  before ``message_2``.
- A redacted message is replaced by ``redact_message``, as Strands does, and is counted.

References
----------
github.com/strands-agents/sdk-python ``session/file_session_manager.py`` at 01e6dbf and
``types/session.py`` at 1a7732e.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source, whole_folder
from ctxlab.formats.common.api_messages import parse_message
from ctxlab.formats.fields import get_object, get_time, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.messages import PartCount
from ctxlab.messages.types import Message, Recording


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with a message stored by Strands.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if the first object has a ``message`` and a ``message_id``.
    """
    first = head.value
    rows = first if isinstance(first, list) else [first]
    return bool(rows) and _is_stored_message(rows[0])


def read(source: Source) -> Iterator[Recording]:
    """Read all message files of a folder as one conversation.

    Parameters
    ----------
    source : Source
        The first file of the folder. The other files are in ``source.other_paths``.

    Yields
    ------
    Recording
        The conversation, named after the folder.

    Raises
    ------
    ReadError
        If most content parts of the conversation have unknown types.
    """
    found: list[tuple[int, list[Message]]] = []
    parts = PartCount()
    for place in (source.path, *source.other_paths):
        file = Source(place, source.name, source.on_error)
        for where, value in file.read_json_values():
            with file.handle_errors(*(where or (1, "message"))):
                stored = require_object(value, "a stored message")
                if stored.get("redact_message") is not None:
                    file.skip("message that was redacted")
                row = stored.get("redact_message") or stored["message"]
                messages = parse_message(require_object(row, "a message"), file.skip)
                parts.add(row)
                number, time = _message_number(stored), get_time(stored, "created_at")
                found.append((number, [each.replace(time=time) for each in messages]))
        for reason, count in file.pop_skipped().items():
            source.skip(reason, count=count)
    found.sort(key=lambda each: each[0])
    messages = [message for _, held in found for message in held]
    if (refused := parts.refusal_reason()) is not None:
        raise ReadError(source.path, None, refused)
    if messages:
        yield Recording(source.name, tuple(messages))


_ABOUT = "Strands Agents sessions: one file per message"
FORMAT = Format(
    "strands",
    _ABOUT,
    sniff,
    read,
    group_key=whole_folder,
    versions="from source: sdk-python at 01e6dbf; no real file",
    not_read=(
        "not in the message files: system prompt, tool definitions, model, usage; left out: "
        "session.json, agent.json, redacted texts, documents and video"
    ),
)


def _is_stored_message(value: Any) -> bool:
    message = get_object(value, "message")
    held = isinstance(message.get("role"), str) and isinstance(message.get("content"), list)
    return held and isinstance(value.get("message_id"), int)


def _message_number(stored: dict[str, Any]) -> int:
    number = stored.get("message_id")
    if not isinstance(number, int):
        raise ValueError(f"message_id must be an integer, got {type(number).__name__}")
    return number

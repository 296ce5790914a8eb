"""Gemini CLI writes a session as one JSON object, or as a log of its messages and their changes.

Both begin with ``{sessionId, projectHash, startTime, lastUpdated, …}``. Until early 2026 the object
holds ``messages`` too; since then a message is a line, and ``gemini_cli_log`` tells what the lines say.

- A ``gemini`` message holds text, thoughts, the tokens billed, and ``toolCalls`` with their results;
  it becomes an assistant message and a result for each call. What a model was given of a result stands
  in ``result``; ``resultDisplay`` and ``displayContent`` are copies for people.
- Neither system prompt nor tool definitions are recorded.
- A compression keeps what ``$set.messages`` says again of what was in view. In the one-object files it
  left no trace.

Source: github.com/google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingService.ts``
and ``packages/core/src/utils/sessionUtils.ts`` of 2025 and 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.assistant_message import model_of
from ctxlab.formats.gemini_cli.log import Log
from ctxlab.formats.gemini_cli.messages import (
    Chat,
    joined,
)
from ctxlab.formats.io.files import opened
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.messages.types import (
    Compaction,
    Recording,
)

__all__ = ["FORMAT", "read", "sniff"]


def sniff(head: Head) -> bool:
    """Whether a file begins with what Gemini CLI says of a session."""
    value = head.value
    return isinstance(value, dict) and bool(text(value.get("sessionId")) and "projectHash" in value)


def read(source: Source) -> Iterator[Recording]:
    """The one conversation of the file."""
    log = Log(source.skip)
    for number, unit, record in _records(source):
        with source.guard(number, unit):
            log.take(record)
    recording = _recording(source, log)
    if recording.messages:
        yield recording


FORMAT = Format("gemini-cli", "Gemini CLI sessions (~/.gemini/tmp/*/chats)", sniff, read)


def _recording(source: Source, log: Log) -> Recording:
    chat = Chat(source.skip)
    starts: list[int] = []
    for number, row in enumerate(joined(log.rows)):
        starts.append(len(chat.messages))
        if row is not None:
            with source.guard(number, "message"):
                chat.add(row)
    starts.append(len(chat.messages))
    compactions: list[Compaction] = []
    for mark in log.marks:
        here = starts[mark.row]
        if mark.dropped:
            kept = (p for row in sorted(mark.kept) for p in range(starts[row], starts[row + 1]))
            compactions.append(Compaction(here, summary=mark.summary, kept=tuple(kept)))
        if mark.cleared:
            compactions.append(Compaction(here, "clear", cleared=mark.cleared))
    session, kind = text(log.meta.get("sessionId")), text(log.meta.get("kind"))
    meta: dict[str, Any] = {
        key: said for key, said in (("session", session), ("kind", kind)) if said
    }
    if len(chat.models) > 1:
        meta["models"] = dict(chat.models)
    return Recording(
        source.name,
        tuple(chat.messages),
        model=model_of(chat.models),
        compactions=tuple(compactions),
        cluster=session,
        meta=meta,
    )


def _records(source: Source) -> Iterator[tuple[int, str, Any]]:
    """Each record with its place; the messages of an object that holds them are records too."""
    with opened(source.path) as file:
        first = file.readline()
    # The first line of a pretty-printed object is no value by itself.
    lines = source.rows() if first.rstrip().endswith(b"}") else iter([(1, source.value())])
    for line, record in lines:
        messages = within(record, "messages")
        if not isinstance(messages, list):
            yield line, "line", record
            continue
        yield line, "line", {key: value for key, value in record.items() if key != "messages"}
        for position, message in enumerate(messages):
            yield position, "message", message

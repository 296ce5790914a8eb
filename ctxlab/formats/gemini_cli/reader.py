"""Read session logs of Gemini CLI.

Until early 2026, a file contains one JSON object: ``{sessionId, projectHash, startTime,
lastUpdated, messages, …}``. In newer files, this object is the first line and has no ``messages``.
Each following line is a message or a change; ``gemini_cli/log`` describes these records.

- A ``gemini`` message contains text, thoughts, billed tokens, and ``toolCalls`` with their results.
  It becomes an assistant message and one tool message per result. ``result`` is the result that the
  model received. ``resultDisplay`` and ``displayContent`` are copies for display and are not read.
- The system prompt and the tool definitions are not recorded.
- After a compression, ``$set.messages`` repeats the messages that were kept. The older files do not
  record compressions.

References
----------
github.com/google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingService.ts`` and
``packages/core/src/utils/sessionUtils.ts`` of 2025 and 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.chat_format import build_session
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.fields import get_in, get_text
from ctxlab.formats.gemini_cli.log import SessionLog
from ctxlab.formats.gemini_cli.messages import ChatBuilder, join_split_calls
from ctxlab.formats.io.files import open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with the header of a Gemini CLI session.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the header has a session id and a project hash.
    """
    value = head.value
    return isinstance(value, dict) and bool(get_text(value, "sessionId") and "projectHash" in value)


def read(source: Source) -> Iterator[Recording]:
    """Read the conversation of a session log.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The conversation. Nothing is yielded if it has no messages.
    """
    log = SessionLog(source.skip)
    for number, unit, record in _read_records(source):
        with source.handle_errors(number, unit):
            log.apply_record(record)
    recording = _build_recording(source, log)
    if recording.messages:
        yield recording


FORMAT = Format(
    "gemini-cli",
    "Gemini CLI sessions (~/.gemini/tmp/*/chats)",
    sniff,
    read,
    versions="one session of January 2026; newer files from source of 2026",
    not_read=(
        "not in the file: system prompt, tool definitions, in older files also compressions; "
        "left out: notices, audio, video and other files, messages that were taken back"
    ),
)


def _build_recording(source: Source, log: SessionLog) -> Recording:
    chat = ChatBuilder(source.skip)
    starts: list[int] = []
    for number, row in enumerate(join_split_calls(log.rows)):
        starts.append(len(chat.messages))
        if row is not None:
            with source.handle_errors(number, "message"):
                chat.add(row)
    starts.append(len(chat.messages))
    built = CompactionBuilder(chat.messages, source.skip)
    for change in log.changes:
        here = starts[change.row]
        if change.dropped:
            kept = (p for row in sorted(change.kept) for p in range(starts[row], starts[row + 1]))
            built.add_summary(here, change.summary, kept)
        if change.cleared:
            built.add_clearing(here, change.cleared)
    session, kind = get_text(log.meta, "sessionId"), get_text(log.meta, "kind")
    said = {"session": session, "kind": kind}
    meta: dict[str, Any] = {key: value for key, value in said.items() if value}
    return build_session(
        source.name, (chat.messages, built.compactions), chat.models, session, meta
    )


def _read_records(source: Source) -> Iterator[tuple[int, str, Any]]:
    """Yield the position, kind (line or message) and value of each record.

    If an object contains ``messages``, each of these messages is yielded as a separate record.
    """
    with open_file(source.path) as file:
        first = file.readline()
    # The first line of a pretty-printed object is not a complete value.
    whole = not first.rstrip().endswith(b"}")
    for line, record in [(1, source.read_json())] if whole else source.read_jsonl():
        messages = get_in(record, "messages")
        if not isinstance(messages, list):
            yield line, "line", record
            continue
        yield line, "line", {key: value for key, value in record.items() if key != "messages"}
        for position, message in enumerate(messages):
            yield position, "message", message

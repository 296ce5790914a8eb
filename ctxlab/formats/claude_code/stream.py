"""Reader for the output of ``claude -p --output-format stream-json``, and of the Claude Agent SDK.

Without a terminal, Claude Code writes one row per event to its standard output. With ``--output-format
json --verbose`` it writes the same rows as one list. The rows resemble those of its session files, and
are converted to them (see ``conversation``). If both exist, the session file is more complete.

- ``assistant`` and ``user`` rows contain the messages. Rows with ``parent_tool_use_id`` belong to the
  subagent that this tool call started. Subagents become separate recordings in the cluster of the
  session. ``meta["call_id"]`` is the id of the tool call, and ``meta["parent"]`` the id of the
  recording with this call. If a subagent's prompt is not among its rows, it is taken from the
  arguments of the call.
- The prompt of the user is only recorded with ``--replay-user-messages``. Otherwise the conversation
  starts with the first answer. The system prompt and the tool definitions are never recorded; the
  ``init`` row has only the names of the tools.
- A ``compact_boundary`` row and the next ``user`` row with ``isSynthetic`` become a ``Compaction``. The
  other rows with ``isSynthetic`` are messages of the client, such as the text of a skill. They have
  ``extra["meta"]``.
- ``stream_event`` rows (``--include-partial-messages``) contain the events of the API, which repeat the
  ``assistant`` rows. Their usage is read, because an ``assistant`` row only has the output tokens at
  the beginning of its answer. If an answer was interrupted, its texts are also read from the events.
- ``result`` rows contain the totals of the run, which are stored in ``meta``: ``usage``, ``cost``,
  ``turns`` (the number of turns) and ``end`` (the kind of end). Their text repeats the last answer. If
  the session has only one answer and no subagent, the totals are the usage of this answer.
- All other rows are skipped and counted by type.

References
----------
docs.claude.com, "Agent SDK reference" (``SDKMessage``); github.com/anthropics/claude-agent-sdk-python,
``_internal/message_parser.py`` of 2026; notes of other open-source programs on the output of Claude Code
2.1.226 to 2.1.282. It is assumed that the usage of several ``result`` rows must be added, and that their
costs are totals of the process. No real file was at hand.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import asdict, astuple, replace

from ctxlab.formats.base import Format, Source
from ctxlab.formats.claude_code.conversation import ConversationBuilder
from ctxlab.formats.common.chat_format import assign_only_usage
from ctxlab.formats.common.event_stream import assemble_response
from ctxlab.formats.common.usage import anthropic_usage
from ctxlab.formats.fields import (
    get_in,
    get_list,
    get_object,
    get_objects,
    get_text,
    is_short_value,
    require_object,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording, Usage

_Row: TypeAlias = dict[str, Any]

_BOUNDARIES = {
    "compact_boundary": ("compact_metadata", "compactMetadata"),
    "microcompact_boundary": ("microcompact_metadata", "microcompactMetadata"),
}
_METADATA_KEYS = {
    "pre_tokens": "preTokens",
    "preserved_messages": "preservedMessages",
    "compacted_tool_ids": "compactedToolIds",
}
_RESULT_KEYS = {"subtype": "end", "num_turns": "turns", "total_cost_usd": "cost"}


def sniff(head: FileHead) -> bool:
    """Check whether a file contains rows of Claude Code's streamed output.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if at least one row has a type and keys of this output, and no row has the type
        ``tool_call``, which only similar programs write.
    """
    rows = [row for value in head.rows for row in (value if isinstance(value, list) else [value])]
    return any(map(is_stream_row, rows)) and not any(get_in(r, "type") == "tool_call" for r in rows)


def is_stream_row(row: Any) -> bool:
    """Check whether a row belongs to Claude Code's streamed output, and not to a session file.

    Parameters
    ----------
    row : Any
        A JSON value of the file.

    Returns
    -------
    bool
        True if the row has a ``session_id``, and a type and keys of this output.

    Examples
    --------
    >>> is_stream_row({"type": "system", "subtype": "init", "session_id": "s"})
    True
    >>> is_stream_row({"type": "user", "message": {}, "sessionId": "s", "session_id": "s"})
    False
    """
    if get_text(row, "session_id") is None or "sessionId" in row:
        return False
    kind = row.get("type")
    if kind in ("user", "assistant"):
        return isinstance(row.get("message"), dict)
    if kind == "stream_event":
        return isinstance(row.get("event"), dict)
    return kind in ("system", "result") and get_text(row, "subtype") is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the conversation of each session and of its subagents.

    Parameters
    ----------
    source : Source
        The file to read. Skipped content is reported to ``Source.skip``.

    Yields
    ------
    Recording
        The conversations in the order of their first messages.
    """
    run = _StreamReader(source)
    for where, value in source.read_json_values():
        for row in value if isinstance(value, list) else [value]:
            with source.handle_errors(*(where or (1, "row"))):
                run.add(require_object(row, "a row"))
    yield from run.build_recordings()


_ABOUT = "Claude Code: output of claude -p --output-format stream-json"
FORMAT = Format(
    "claude-code-stream",
    _ABOUT,
    sniff,
    read,
    versions="2.1.226 to 2.1.282 from documentation and notes of other programs; no real file",
    not_read=(
        "not in the output: system prompt, tool definitions, usually also prompts and times; "
        "left out: rate limits, status of the client"
    ),
)


@dataclass
class _Chat:
    """The conversation of a session or of one of its subagents."""

    builder: ConversationBuilder
    block_counts: Counter[str] = field(default_factory=Counter)
    "id of an API message → number of its blocks in ``assistant`` rows"
    events: list[Any] = field(default_factory=list)
    "events of the API message that is being streamed"
    awaits_summary: bool = False
    "True if the summary of a compaction has not followed yet"

    def add_assistant(self, row: _Row) -> None:
        """Add an ``assistant`` row."""
        self.builder.add(row)
        blocks = get_list(row, "message", "content")
        self.block_counts[get_text(row, "message", "id") or ""] += len(blocks)
        self.awaits_summary = False

    def add_user(self, row: _Row) -> None:
        """Add a ``user`` row."""
        blocks = get_objects(row, "message", "content")
        if not any(block.get("type") == "tool_result" for block in blocks):
            self.close_events()
        if row["isMeta"] and self.awaits_summary:
            row |= {"isMeta": False, "isCompactSummary": True}
            self.awaits_summary = False
        self.builder.add(row)

    def add_event(self, event: Any) -> None:
        """Add an event of the API."""
        kind = get_text(event, "type")
        if kind == "message_start":
            self.close_events()
        self.events.append(event)
        if kind == "message_stop":
            self.close_events(complete=True)

    def close_events(self, complete: bool = False) -> None:
        """Read the usage of the streamed message, and the blocks that no ``assistant`` row has.

        ``complete`` is True if all ``assistant`` rows of the message have been added.
        """
        message, self.events = assemble_response(self.events), []
        if message is None:
            return
        seen = self.block_counts[get_text(message, "id") or ""]
        blocks = [] if complete and seen else get_list(message, "content")[seen:]
        message["content"] = [block for block in blocks if self._is_whole(block)]
        if seen or message["content"]:
            self.add_assistant({"type": "assistant", "message": message})

    def _is_whole(self, block: Any) -> bool:
        whole = get_in(block, "type") != "tool_use" or isinstance(block.get("input"), dict)
        if not whole:
            self.builder.skip("interrupted tool call")
        return whole


@dataclass
class _StreamReader:
    """Builder that collects the rows of all sessions and subagents of a file."""

    source: Source
    chats: dict[tuple[str, str], _Chat] = field(default_factory=dict)
    "session id and id of the tool call that started the subagent, or an empty string → conversation"
    prompts: dict[str, str] = field(default_factory=dict)
    "id of a tool call → prompt in its arguments"
    callers: dict[str, str] = field(default_factory=dict)
    "id of a tool call → key of its conversation, which is the second part of the keys of ``chats``"
    meta: dict[str, dict[str, Any]] = field(default_factory=dict)
    "session id → version, folder and totals"
    totals: dict[str, Usage] = field(default_factory=dict)
    "session id → usage in the ``result`` rows"
    seen: set[str] = field(default_factory=set)

    def add(self, row: _Row) -> None:
        """Add the next row."""
        kind, subtype, uuid = (get_text(row, key) for key in ("type", "subtype", "uuid"))
        if uuid in self.seen:
            self.source.skip("row written twice")
            return
        session = get_text(row, "session_id") or ""
        if kind == "stream_event":
            self._find_chat(row, session).add_event(row.get("event"))
        elif kind == "user":
            self._find_chat(row, session).add_user(_to_session_row(row))
        elif kind == "assistant":
            chat = self._find_chat(row, session)
            chat.add_assistant(_to_session_row(row))
            self._add_calls(row)
        elif kind == "system" and subtype in _BOUNDARIES:
            chat = self._find_chat(row, session)
            chat.builder.add(_to_boundary(row, subtype))
            chat.awaits_summary = subtype == "compact_boundary"
        elif kind == "system" and subtype == "init":
            version, folder = get_text(row, "claude_code_version"), get_text(row, "cwd")
            about = {"version": version, "cwd": folder}
            about = {key: value for key, value in about.items() if value}
            self.meta[session] = self.meta.get(session, {}) | about
        elif kind == "result":
            self._add_result(row, session)
        else:
            self.source.skip(f"row of type {kind}/{subtype}" if subtype else f"row of type {kind}")
        if uuid:
            self.seen.add(uuid)

    def build_recordings(self) -> Iterator[Recording]:
        """Yield the recordings of all conversations."""
        sessions = dict.fromkeys(session for session, _ in self.chats)
        for session in self.totals.keys() - sessions.keys():
            del self.totals[session]
            self.source.skip("result without the messages of its run")
        for (session, call), chat in self.chats.items():
            chat.close_events()
            name = f"{self.source.name}/{session}" if len(sessions) > 1 else self.source.name
            id = f"{name}/side-{call}" if call else name
            caller = self.callers.get(call)
            parent = f"{name}/side-{caller}" if caller else name
            for made in chat.builder.build_recordings(id, cluster=session or self.source.name):
                total = None if call else self.totals.get(session)
                about = self.meta.get(session, {})
                if call:
                    about = {"parent": parent} | ({} if caller is None else {"call_id": call})
                if total is not None:
                    about = about | {"usage": asdict(total)}
                if sum(owner == session for owner, _ in self.chats) == 1:
                    made = assign_only_usage(made, total)
                yield replace(made, meta=made.meta | about)

    def _find_chat(self, row: _Row, session: str) -> _Chat:
        call = get_text(row, "parent_tool_use_id") or ""
        if (session, call) not in self.chats:
            chat = self.chats[session, call] = _Chat(ConversationBuilder(self.source.skip))
            prompt = self.prompts.get(call)
            if prompt and row.get("type") != "user":
                message = {"role": "user", "content": prompt}
                chat.builder.add({"type": "user", "message": message, "sessionId": session})
        return self.chats[session, call]

    def _add_calls(self, row: _Row) -> None:
        for block in get_objects(row, "message", "content"):
            id, prompt = get_text(block, "id"), get_text(block, "input", "prompt")
            if id and prompt:
                self.prompts[id] = prompt
                self.callers[id] = get_text(row, "parent_tool_use_id") or ""

    def _add_result(self, row: _Row, session: str) -> None:
        for (owner, _), chat in self.chats.items():
            if owner == session:
                chat.close_events()
        short = {
            _RESULT_KEYS[key]: row[key] for key in _RESULT_KEYS if is_short_value(row.get(key))
        }
        self.meta[session] = self.meta.get(session, {}) | short
        usage = anthropic_usage(row.get("usage")) or Usage()
        counts = map(operator.add, astuple(self.totals.get(session, Usage())), astuple(usage))
        self.totals[session] = Usage(*counts)


def _to_session_row(row: _Row) -> _Row:
    """Convert a row to a row of a session file."""
    keys = ("type", "uuid", "message", "timestamp")
    made = {key: row[key] for key in keys if key in row}
    failed = row.get("error") is not None and row.get("type") == "assistant"
    meta = row.get("isSynthetic") is True or row.get("isMeta") is True
    session = row.get("session_id")
    return made | {"sessionId": session, "isMeta": meta, "isApiErrorMessage": failed}


def _to_boundary(row: _Row, subtype: str) -> _Row:
    """Convert a row about a compaction to a row of a session file."""
    key, name = _BOUNDARIES[subtype]
    metadata = get_object(row, key) or get_object(row, name)
    made = {_METADATA_KEYS.get(key, key): value for key, value in metadata.items()}
    segment = get_object(metadata, "preserved_segment")
    if segment:
        ends = {"headUuid": segment.get("head_uuid"), "tailUuid": segment.get("tail_uuid")}
        made["preservedSegment"] = segment | ends
    return {"type": "system", "subtype": subtype, name: made, "uuid": row.get("uuid")}

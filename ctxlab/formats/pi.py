"""Reader for sessions of the coding agent pi.

pi appends one entry per line. The first entry is the header (``type: session``). The other entries
are messages, compactions, and changes by the user (model, thinking level, labels). Since version 2,
each entry names its parent, so a session is a tree. In version 1, the parent of an entry is the
previous entry. The active branch consists of the entries from the root to the last entry of the
file, and becomes the recording. Entries of other branches and entries that pi never sends to the
model are skipped and counted.

- A compaction takes effect before the next message. It names the first entry that it keeps. This
  entry and the entries between it and the compaction stay in the context. ``firstKeptEntryId`` is
  the id of this entry. In version 1, ``firstKeptEntryIndex`` is its index, counted from 0 and
  including the header. pi cannot parse a line with two objects and does not count it. The reader
  does not count such lines either, but reads their messages.
- ``toolResult`` becomes a tool message. ``bashExecution``, a command that the user ran, becomes a
  user message with the wording that pi uses, unless the user excluded it from the context. Messages
  inserted by an extension and the summary of a branch that the user left also become user messages.
- Since release 0.49, pi does not send an aborted or failed answer again, so such an answer is
  skipped. Older releases sent its text without its calls, as the billed usage of real sessions
  confirms. They wrote the sessions of format version 1, in which the text is therefore kept.
- ``details`` and ``partialJson`` are used for display or repeat other fields, and are not read.
- If the header line is missing, the file is recognised by its messages, and the session id is unknown.
  The format version is 2 or later if an entry names its parent, and 1 otherwise.
- pi does not record the system prompt and the tool definitions.
- A session that was branched or forked from another session starts with a copy of the other session.
  Both sessions are in the same cluster.
- ``meta`` contains the session id, the format version and the agent's folder (``cwd``). If several
  models answered, it also contains the number of answers of each model.

References
----------
github.com/badlogic/pi-mono, session files of versions 1 to 3
(``packages/coding-agent/src/core/session-manager.ts`` and ``docs/session.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from ctxlab.formats.base import Format, SkipCallback, Source
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common.chat_format import build_session
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import (
    get_count,
    get_in,
    get_number,
    get_text,
    get_time,
    require_object,
    require_text,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Compaction, Message, Recording

_Rows: TypeAlias = list[tuple[int, Any]]

_SHAPE = UsageShape("input", "output", "cacheRead", "cacheWrite", includes_cache=False)
_parse_usage = _SHAPE.parse_billed
_SUMMARY_FORM = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\n{}\n</summary>"
)
_USER_ROLES = ("user", "custom", "hookMessage")


def sniff(head: FileHead) -> bool:
    """Check whether a file is a pi session, with or without its header line.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first rows is the header of a session, or an answer or a tool result in the
        form that only pi writes.
    """
    return any(_is_header(row) or _is_own_message(row) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """Read the active branch of a session as one recording.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The recording. Nothing is yielded if the branch has no messages.
    """
    rows = list(source.read_jsonl())
    header: dict[str, Any] = next((row for _, row in rows if get_in(row, "type") == "session"), {})
    path = _active_path([row for _, row in rows])
    active = frozenset(path)
    for index, (_, row) in enumerate(rows):
        if index not in active and row is not header:
            source.skip("entry of another branch")
    version = get_count(header, "version") if header else _guess_version(rows)
    converter = EntryConverter(source.skip, keeps_interrupted_text=version < 2)
    conversation = _read_branch(source, rows, path, converter, has_header=bool(header))
    if conversation[0]:
        cluster, meta = _parent_session_id(header) or get_text(header, "id"), _build_meta(header)
        yield build_session(source.name, conversation, converter.models, cluster, meta)


FORMAT = Format(
    "pi",
    "pi sessions (~/.pi/agent/sessions)",
    sniff,
    read,
    versions="session formats 1 and 3; format 2 from source",
    not_read=(
        "not in the file: system prompt, tool definitions; left out: other branches, "
        "attachments, interrupted answers, changes of the model or the thinking level"
    ),
)


def _is_header(row: Any) -> bool:
    return get_in(row, "type") == "session" and bool(get_text(row, "id")) and "cwd" in row


def _is_own_message(row: Any) -> bool:
    """Check whether a row is an entry with an answer or a tool result in pi's names."""
    body = get_in(row, "message")
    if get_in(row, "type") != "message" or not get_text(row, "timestamp"):
        return False
    role = get_in(body, "role")
    is_answer = role == "assistant" and get_text(body, "stopReason") is not None
    return is_answer or (role == "toolResult" and get_text(body, "toolCallId") is not None)


def _guess_version(rows: _Rows) -> int:
    return 2 if any(isinstance(row, dict) and "parentId" in row for _, row in rows) else 1


def _read_branch(
    source: Source,
    rows: _Rows,
    path: Sequence[int],
    converter: EntryConverter,
    has_header: bool,
) -> tuple[list[Message], list[Compaction]]:
    """Return the messages and compactions of a branch."""
    messages: list[Message] = []
    built = CompactionBuilder(messages)
    starts: dict[int, int] = {}
    places: dict[str, int] = {}
    on_line = Counter(line for line, _ in rows)
    counted = [index for index, (line, _) in enumerate(rows) if on_line[line] == 1]
    if not has_header:
        counted = [*counted[:1], *counted]  # pi counted the missing header as entry 0
    for index in path:
        line, row = rows[index]
        starts[index] = len(messages)
        with source.handle_errors(line):
            row = require_object(row, "an entry")
            places[get_text(row, "id") or ""] = index
            kind = row.get("type")
            if kind == "compaction":
                first = starts.get(_first_kept_index(row, places, counted), len(messages))
                kept = range(first, len(messages))
                tokens = get_count(row, "tokensBefore") or None
                summary = get_text(row, "summary")
                summary = summary and _SUMMARY_FORM.format(summary)
                built.add_summary(len(messages), summary, kept, tokens_before=tokens)
            elif kind != "session":
                messages += converter.convert(row)
    return messages, built.compactions


def _active_path(rows: Sequence[Any]) -> list[int]:
    """Return the indices of the entries from the root to the last entry.

    A parent always comes before its children in the file, so there are no cycles. If the parent of
    an entry is missing because a line was lost, the previous entry is used instead. Otherwise, the
    beginning of the conversation would be lost.

    >>> parents = {"a": None, "b": "a", "c": "a"}
    >>> _active_path([{"id": id, "parentId": parent} for id, parent in parents.items()])
    [0, 2]
    """
    places: dict[str, int] = {}
    parents: list[int] = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or "parentId" not in row:
            parents.append(index - 1)
            continue
        parent = row["parentId"]
        parents.append(-1 if parent is None else places.get(get_text(parent) or "", index - 1))
        if id := get_text(row, "id"):
            places[id] = index
    path, index = [], len(rows) - 1
    while index >= 0:
        path.append(index)
        index = parents[index]
    return path[::-1]


def _first_kept_index(row: dict[str, Any], places: dict[str, int], counted: list[int]) -> int:
    """Return the index of the first entry that a compaction kept, or -1 if it is not found.

    ``places`` maps the ids of earlier entries to their indices. ``counted`` are the indices of the
    entries that ``firstKeptEntryIndex`` counts.
    """
    if id := get_text(row, "firstKeptEntryId"):
        return places.get(id, -1)
    number = row.get("firstKeptEntryIndex")
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(counted):
        return counted[number]
    return -1


def _parent_session_id(header: dict[str, Any]) -> str | None:
    """Return the id of the session from which a session was forked, or None.

    The id is taken from the name of the parent's file, ``<time>_<id>.jsonl``.
    """
    file = get_text(header, "branchedFrom") or get_text(header, "parentSession")
    return PurePosixPath(file.replace("\\", "/")).stem.rpartition("_")[2] or None if file else None


def _build_meta(header: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = {"session": header["id"]} if get_text(header, "id") else {}
    if version := get_count(header, "version"):
        meta["version"] = version
    if folder := get_text(header, "cwd"):
        meta["cwd"] = folder
    return meta


@dataclass
class EntryConverter:
    """Converter from session entries to messages. The entries of a branch are passed in order."""

    skip: SkipCallback
    "called with a description of each entry or block that is skipped"
    keeps_interrupted_text: bool
    "True if the pi release that wrote the session sends the text of interrupted answers again"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of messages that the model wrote"
    _interrupted_calls: set[str] = field(default_factory=set, init=False)

    def convert(self, row: dict[str, Any]) -> list[Message]:
        """Convert one entry to messages.

        Parameters
        ----------
        row : dict
            The next entry of the branch.

        Returns
        -------
        list of Message
            The message of the entry. Empty if the entry contains no message for the model.

        Raises
        ------
        ValueError
            If the entry is malformed.
        """
        kind = row.get("type")
        if kind == "message":
            return self._convert_message(row)
        if kind == "custom_message":
            return self._convert_user(row.get("content"), _message_time(row))
        if kind == "branch_summary":
            summary = get_text(row, "summary") or ""
            return self._convert_user(summary, _message_time(row), branch_summary=True)
        self.skip(f"entry of type {kind}")
        return []

    def _convert_message(self, row: dict[str, Any]) -> list[Message]:
        body = require_object(row.get("message"), "message")
        role, time = body.get("role"), _message_time(row, body)
        if role == "assistant":
            return self._convert_assistant(body, time)
        if role == "toolResult":
            return self._convert_result(body, time)
        if role in _USER_ROLES:
            for _ in body.get("attachments") or ():
                self.skip("attachment")
            return self._convert_user(body.get("content"), time)
        if role == "bashExecution" and not body.get("excludeFromContext"):
            return [Message("user", _command_text(body), time=time)]
        self.skip(f"message of role {role}")
        return []

    def _convert_user(self, content: Any, time: float | None, **extra: Any) -> list[Message]:
        said = blocks.parse_content(_to_anthropic_blocks(content), self.skip)
        if not said:
            self.skip("message without content")
            return []
        return [Message("user", said, time=time, extra=extra)]

    def _convert_assistant(self, body: dict[str, Any], time: float | None) -> list[Message]:
        said = blocks.parse_assistant_blocks(_to_anthropic_blocks(body.get("content")), self.skip)
        if body.get("stopReason") in ("error", "aborted"):
            self._interrupted_calls |= {call.id for call in said.calls}
            if not self.keeps_interrupted_text or not any(said.texts):
                self.skip("interrupted answer")
                return []
            for _ in said.calls:
                self.skip("call of an interrupted answer")
            said.calls.clear()
        if model := get_text(body, "model"):
            self.models[model] += 1
        said.usage, said.time = _parse_usage(body.get("usage")), time
        return [said.message]

    def _convert_result(self, body: dict[str, Any], time: float | None) -> list[Message]:
        id = require_text(body.get("toolCallId"), "toolCallId")
        if id in self._interrupted_calls:
            self.skip("result of an interrupted call")
            return []
        said = blocks.parse_content(_to_anthropic_blocks(body.get("content")), self.skip)
        extra = {"is_error": True} if body.get("isError") is True else {}
        name = get_text(body, "toolName")
        return [Message("tool", said or "", tool_call_id=id, name=name, time=time, extra=extra)]


def _to_anthropic_blocks(content: Any) -> Iterator[dict[str, Any]]:
    """Convert the content of a pi message to Anthropic's blocks.

    Only calls and images have a different format. Other blocks are returned unchanged.
    """
    return map(_to_anthropic_block, blocks.to_blocks(content))


def _to_anthropic_block(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "toolCall":
        call = {"type": "tool_use", "id": block.get("id"), "name": block.get("name")}
        return call | {"input": block.get("arguments")}
    if block.get("type") == "image" and "data" in block:
        source = {"media_type": block.get("mimeType"), "data": block["data"]}
        return {"type": "image", "source": source}
    return block


def _command_text(body: dict[str, Any]) -> str:
    """Return the text that pi sends to the model for a command and its output.

    It is the same as the result of ``bashExecutionToText`` in pi's
    ``packages/coding-agent/src/core/messages.ts``.
    """
    command, output = require_text(body.get("command"), "command"), body.get("output")
    shown = f"```\n{output}\n```" if get_text(output) else "(no output)"
    lines = [f"Ran `{command}`\n{shown}"]
    if body.get("cancelled"):
        lines.append("(command cancelled)")
    elif body.get("exitCode"):
        lines.append(f"Command exited with code {body['exitCode']}")
    if body.get("truncated") and get_text(body, "fullOutputPath"):
        lines.append(f"[Output truncated. Full output: {body['fullOutputPath']}]")
    return "\n\n".join(lines)


def _message_time(row: dict[str, Any], body: dict[str, Any] | None = None) -> float | None:
    """Return the time of a message, or the time of its entry if the message has none.

    The time of the message is preferred, because pi may write a later time into a copied entry.
    """
    milliseconds = get_number(body, "timestamp") if body else None
    return get_time(row, "timestamp") if milliseconds is None else milliseconds / 1000

"""Reader for the output of ``codex exec --json``.

Without a terminal, Codex CLI writes one event per line to its standard output: ``thread.started``,
``turn.started``, ``item.started``, ``item.updated``, ``item.completed``, ``turn.completed``,
``turn.failed`` and ``error``. If the rollout of the session exists (see ``rollout``), it is more
complete.

- ``agent_message`` and ``reasoning`` items are parts of answers. Commands (``command_execution``), file
  changes, calls of MCP tools and calls of other agents (``collab_tool_call``) are tool calls with
  their results. An item that was started, but not completed, is a call without a result.
- The limits of answers are not recorded. It is assumed that an answer ends with the first result of
  its calls. If calls of one answer are run one after the other, they are read as several answers.
- The prompt of the user, the system prompt, the tool definitions and the name of the model are not
  recorded. The conversation starts with the first answer.
- The arguments and results are those of the events, which differ from what the model wrote and
  received: a file change has paths, but no patch. Its result is the status of the change.
- ``turn.completed`` contains the tokens of the whole thread so far. The last of these counts is stored
  in ``meta["usage"]``. If the thread has only one answer, it is the usage of this answer.
- Searches of the provider, to-do lists and errors are skipped and counted.

References
----------
github.com/openai/codex, ``codex-rs/exec/src/exec_events.rs`` and
``codex-rs/exec/src/event_processor_with_jsonl_output.rs`` of 2025 and 2026. No real file was at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import asdict

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import Format, SkipCallback, Source
from ctxlab.formats.codex.items import parse_usage
from ctxlab.formats.common.api_content import parse_tool_result
from ctxlab.formats.common.chat_format import MessageBuilder, assign_only_usage, make_call
from ctxlab.formats.fields import (
    get_in,
    get_list,
    get_object,
    get_text,
    require_object,
    require_text,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording, ToolCall, Usage

_Json: TypeAlias = dict[str, Any]

_ITEM_EVENTS = ("item.started", "item.updated", "item.completed")
_TURN_EVENTS = ("turn.started", "turn.completed", "turn.failed")
_TEXT_TYPES = ("agent_message", "reasoning")
_CALL_TYPES = ("command_execution", "file_change", "mcp_tool_call", "collab_tool_call")
_FAILED = ("failed", "declined")


def sniff(head: FileHead) -> bool:
    """Check whether a file contains events of ``codex exec --json``.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if an event starts a thread or contains an item.
    """
    return any(isinstance(row, dict) and _is_event(row) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """Read the conversation of each thread.

    Parameters
    ----------
    source : Source
        The file to read. Skipped content is reported to ``Source.skip``.

    Yields
    ------
    Recording
        One recording per thread with messages.
    """
    threads: dict[str, _ThreadBuilder] = {}
    current = ""
    for line, value in source.read_jsonl():
        with source.handle_errors(line):
            event = require_object(value, "an event")
            if event.get("type") == "thread.started":
                current = require_text(event.get("thread_id"), "thread_id")
            threads.setdefault(current, _ThreadBuilder(source.skip)).add(event)
    several = sum(bool(thread.answers) for thread in threads.values()) > 1
    for id, thread in threads.items():
        messages = thread.build_messages()
        if messages:
            meta: _Json = {"session": id} if id else {}
            if thread.usage is not None:
                meta["usage"] = asdict(thread.usage)
            name = f"{source.name}/{id}" if several and id else source.name
            made = Recording(name, messages, cluster=id or None, meta=meta)
            yield assign_only_usage(made, thread.usage)


_ABOUT = "Codex CLI: output of codex exec --json"
FORMAT = Format(
    "codex-exec",
    _ABOUT,
    sniff,
    read,
    versions="from source of 2025 and 2026; no real file",
    not_read=(
        "not in the output: prompts, tool definitions, model, times, patches, usage of "
        "single answers if there are several; left out: web searches, to-do lists, errors"
    ),
)


def _is_event(row: _Json) -> bool:
    kind = row.get("type")
    if kind == "thread.started":
        return get_text(row, "thread_id") is not None
    return kind in _ITEM_EVENTS and get_text(row, "item", "type") is not None


@dataclass
class _ThreadBuilder:
    """Builder that converts the events of one thread to messages."""

    skip: SkipCallback
    answers: list[MessageBuilder] = field(default_factory=list)
    usage: Usage | None = None
    "tokens of the whole thread"
    _open: MessageBuilder | None = None
    "answer to which the next item belongs; None if the next item begins an answer"
    _callers: dict[str, MessageBuilder] = field(default_factory=dict)
    "id of an item that was started → answer with its call"

    def add(self, event: _Json) -> None:
        """Add the next event. Raise ``ValueError`` if it is malformed."""
        kind = event.get("type")
        if kind in _ITEM_EVENTS:
            self._add_item(str(kind), require_object(event.get("item"), "item"))
        elif kind in _TURN_EVENTS:
            self._open = None
            self._callers.clear()
            self.usage = parse_usage(event.get("usage")) or self.usage
            if kind == "turn.failed":
                self.skip("turn that failed")
        elif kind != "thread.started":
            self.skip(f"event of type {kind}")

    def build_messages(self) -> tuple[Message, ...]:
        """Return the messages of all answers that have text or calls."""
        messages: list[Message] = []
        for answer in self.answers:
            if answer.texts or answer.calls:
                messages += answer.messages
            else:
                self.skip("reasoning without an answer")
        return tuple(messages)

    def _add_item(self, event: str, item: _Json) -> None:
        kind, completed = get_text(item, "type"), event == "item.completed"
        if kind in _CALL_TYPES:
            id = require_text(item.get("id"), "id of an item")
            call = _parse_call(item, id)
            result = _parse_result(item, call, self.skip) if completed else None
            if id not in self._callers:
                self._callers[id] = self._find_answer()
                self._callers[id].calls.append(call)
            if result is not None:
                caller = self._callers.pop(id)
                caller.results.append(result)
                self._open = None if caller is self._open else self._open
        elif kind not in _TEXT_TYPES:
            # A to-do list is started and updated by calls, and completed by the end of the turn.
            if completed != (kind == "todo_list"):
                self.skip(f"item of type {kind}")
        elif completed and (said := require_text(item.get("text"), "text of an item")):
            answer = self._find_answer()
            (answer.texts if kind == "agent_message" else answer.reasoning).append(said)

    def _find_answer(self) -> MessageBuilder:
        if self._open is None:
            self._open = MessageBuilder()
            self.answers.append(self._open)
        return self._open


def _parse_call(item: _Json, id: str) -> ToolCall:
    kind = item["type"]
    if kind == "command_execution":
        return make_call(id, kind, {"command": require_text(item.get("command"), "command")})
    if kind == "file_change":
        return make_call(id, kind, {"changes": get_list(item, "changes")})
    tool = require_text(item.get("tool"), "tool")
    if kind == "mcp_tool_call":
        name = f"mcp__{require_text(item.get('server'), 'server')}__{tool}"
        return make_call(id, name, item.get("arguments") or {})
    keys = ("prompt", "receiver_thread_ids")
    return make_call(id, tool, {key: item[key] for key in keys if item.get(key)})


def _parse_result(item: _Json, call: ToolCall, skip: SkipCallback) -> Message:
    kind, status, code = item["type"], get_text(item, "status"), item.get("exit_code")
    extra: _Json = {"is_error": True} if status in _FAILED or code not in (None, 0) else {}
    if kind == "mcp_tool_call":
        error = get_text(item, "error", "message")
        said = error if error else get_in(item, "result", "content")
        block = {"tool_use_id": call.id, "content": "" if said is None else said}
        return parse_tool_result(block, skip).replace(name=call.name, extra=extra)
    if kind == "command_execution":
        text = get_text(item, "aggregated_output") or ""
    elif kind == "file_change":
        text = status or ""
    else:
        text = dump_json(get_object(item, "agents_states"))
    return Message("tool", text, tool_call_id=call.id, name=call.name, extra=extra)

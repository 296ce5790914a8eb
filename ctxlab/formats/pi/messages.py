"""Convert entries of a pi session to the messages that pi sends.

- ``toolResult`` becomes a tool message. ``bashExecution``, a command that the user ran, becomes a
  user message with the wording that pi uses, unless the user hid it from the model. Messages
  inserted by an extension and the summary of a branch that the user left also become user messages.
- pi since 0.49 does not send an aborted or failed answer again, so it is left out. Sessions of
  version 1 come from a pi that sent its text without its calls, as the billed usage of the next
  requests of real sessions shows. Their text is kept.
- ``details`` and ``partialJson`` are for display, or repeat other fields, and are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.fields import (
    get_count,
    get_number,
    get_text,
    get_time,
    require_object,
    require_text,
)
from ctxlab.messages.types import Message, Usage

_USER_ROLES = ("user", "custom", "hookMessage")


@dataclass
class EntryConverter:
    """Converter of the entries of one branch, in their order."""

    skip: SkipCallback
    "called with a reason for each entry and block that becomes no message"
    keeps_interrupted_text: bool
    "whether this pi sends the text of an interrupted answer"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of messages that it wrote"
    _interrupted_calls: set[str] = field(default_factory=set, init=False)

    def convert(self, row: dict[str, Any]) -> list[Message]:
        """Convert one entry.

        Parameters
        ----------
        row : dict
            The next entry of the branch.

        Returns
        -------
        list of Message
            The message, or an empty list.

        Raises
        ------
        ValueError
            If the entry is invalid.
        """
        kind = row.get("type")
        if kind == "message":
            return self._convert_message(row)
        if kind == "custom_message":
            return self._convert_user(row.get("content"), _message_time(row))
        if kind == "branch_summary":
            return self._convert_user(
                get_text(row, "summary") or "", _message_time(row), branch_summary=True
            )
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
    """Return blocks in Anthropic's format; only calls and images use other names in pi."""
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
    """Return the text of a command, as in pi's ``bashExecutionToText``.

    It is defined in ``packages/coding-agent/src/core/messages.ts``.
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
    """Return the time of the message; the entry may have the time at which it was copied."""
    milliseconds = get_number(body, "timestamp") if body else None
    return get_time(row, "timestamp") if milliseconds is None else milliseconds / 1000


def _parse_usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    usage = Usage(
        input=get_count(value, "input"),
        cache_read=get_count(value, "cacheRead"),
        cache_write=get_count(value, "cacheWrite"),
        output=get_count(value, "output"),
    )
    return usage if usage != Usage() else None

"""An entry of a pi session becomes the message that pi sends of it; ``pi`` says which are in view.

- ``toolResult`` is a result, and ``bashExecution`` (a command that the user ran) a text of the user in
  the words in which pi tells a model of it, unless the user kept it from the model. Messages that an
  extension put in, and the summary of a branch that the user left, are the user's too.
- An answer that was aborted or failed: pi since 0.49 sends nothing of it again, and nothing is kept.
  Sessions of version 1 are of a pi that sent its text without its calls; what the provider billed for
  the next requests of real ones shows it. Their text is kept.
- ``details`` and ``partialJson`` say for people, or say again, what stands beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.optional_fields import (
    iso_time,
    number,
    text,
    whole_number,
)
from ctxlab.formats.required_fields import (
    a_text,
    an_object,
)
from ctxlab.messages.types import (
    Message,
    Usage,
)

__all__ = ["Speaker"]

_BY_THE_USER = ("user", "custom", "hookMessage")


@dataclass
class Speaker:
    """Turns the entries of one branch into messages, in their order."""

    leave_out: LeaveOut
    "told of each entry and block that becomes no message"
    sends_again: bool
    "whether this pi sends the text of an answer that was broken off"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → how many of the messages it wrote"
    _broken_off: set[str] = field(default_factory=set, init=False)

    def said(self, row: dict[str, Any]) -> list[Message]:
        """The message of an entry, or none; ``ValueError`` says what is wrong with it."""
        kind = row.get("type")
        if kind == "message":
            return self._message(row)
        if kind == "custom_message":
            return self._user(row.get("content"), _time(row))
        if kind == "branch_summary":
            return self._user(text(row.get("summary")) or "", _time(row), branch_summary=True)
        self.leave_out(f"entry of type {kind}")
        return []

    def _message(self, row: dict[str, Any]) -> list[Message]:
        body = an_object(row.get("message"), "message")
        role, time = body.get("role"), _time(row, body)
        if role == "assistant":
            return self._assistant(body, time)
        if role == "toolResult":
            return self._result(body, time)
        if role in _BY_THE_USER:
            for _ in body.get("attachments") or ():
                self.leave_out("attachment")
            return self._user(body.get("content"), time)
        if role == "bashExecution" and not body.get("excludeFromContext"):
            return [Message("user", _command(body), time=time)]
        self.leave_out(f"message of role {role}")
        return []

    def _user(self, content: Any, time: float | None, **extra: Any) -> list[Message]:
        said = blocks.content(_blocks_of(content), self.leave_out)
        if not said:
            self.leave_out("message without content")
            return []
        return [Message("user", said, time=time, extra=extra)]

    def _assistant(self, body: dict[str, Any], time: float | None) -> list[Message]:
        said = blocks.answer(_blocks_of(body.get("content")), self.leave_out)
        if body.get("stopReason") in ("error", "aborted"):
            self._broken_off |= {call.id for call in said.calls}
            if not self.sends_again or not any(said.texts):
                self.leave_out("answer that was broken off")
                return []
            for _ in said.calls:
                self.leave_out("call of an answer that was broken off")
            said.calls.clear()
        if model := text(body.get("model")):
            self.models[model] += 1
        said.usage, said.time = _usage(body.get("usage")), time
        return [said.message]

    def _result(self, body: dict[str, Any], time: float | None) -> list[Message]:
        id = a_text(body.get("toolCallId"), "toolCallId")
        if id in self._broken_off:
            self.leave_out("result of a call that was broken off")
            return []
        said = blocks.content(_blocks_of(body.get("content")), self.leave_out)
        extra = {"is_error": True} if body.get("isError") is True else {}
        name = text(body.get("toolName"))
        return [Message("tool", said or "", tool_call_id=id, name=name, time=time, extra=extra)]


def _blocks_of(content: Any) -> Iterator[dict[str, Any]]:
    """The blocks, which are Anthropic's but for the names in calls and images."""
    return map(_anthropic, blocks.blocks_of(content))


def _anthropic(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "toolCall":
        call = {"type": "tool_use", "id": block.get("id"), "name": block.get("name")}
        return call | {"input": block.get("arguments")}
    if block.get("type") == "image" and "data" in block:
        source = {"media_type": block.get("mimeType"), "data": block["data"]}
        return {"type": "image", "source": source}
    return block


def _command(body: dict[str, Any]) -> str:
    """Source: ``bashExecutionToText`` in ``packages/coding-agent/src/core/messages.ts``."""
    command, output = a_text(body.get("command"), "command"), body.get("output")
    shown = f"```\n{output}\n```" if text(output) else "(no output)"
    lines = [f"Ran `{command}`\n{shown}"]
    if body.get("cancelled"):
        lines.append("(command cancelled)")
    elif body.get("exitCode"):
        lines.append(f"Command exited with code {body['exitCode']}")
    if body.get("truncated") and text(body.get("fullOutputPath")):
        lines.append(f"[Output truncated. Full output: {body['fullOutputPath']}]")
    return "\n\n".join(lines)


def _time(row: dict[str, Any], body: dict[str, Any] | None = None) -> float | None:
    """That of the message; an entry that was copied to another session has the time of the copy."""
    milliseconds = number(body.get("timestamp")) if body else None
    return iso_time(row.get("timestamp")) if milliseconds is None else milliseconds / 1000


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    usage = Usage(
        input=whole_number(value.get("input")),
        cache_read=whole_number(value.get("cacheRead")),
        cache_write=whole_number(value.get("cacheWrite")),
        output=whole_number(value.get("output")),
    )
    return usage if usage != Usage() else None

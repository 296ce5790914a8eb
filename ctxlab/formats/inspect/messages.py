"""A message of an Inspect log becomes a message in OpenAI's shape, attachments put back.

Reasoning parts are the hidden reasoning. A tool that the provider ran itself (part ``tool_use``) is
text of the answer that holds it: name, arguments, result. The result of a tool call that failed is
the error's message, which is what a model is sent in place of the content.
"""

from __future__ import annotations

import re
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import (
    LeaveOut,
    silent,
)
from ctxlab.formats.common.chat_format import (
    Content,
    content_of,
    text_part,
)
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.formats.required_fields import (
    a_text,
    an_object,
    objects,
)
from ctxlab.messages.types import (
    Message,
    Part,
)

__all__ = ["Attachments", "message", "tool_definition"]

_REFERENCE = re.compile(r'"(?:attachment|tc)://([^"\\]+)"')


class Attachments:
    """Long texts and pictures that a sample holds once and refers to by ``attachment://<hash>``."""

    def __init__(self, held: Any, leave_out: LeaveOut = silent) -> None:
        self._held = held if isinstance(held, dict) else {}
        self._leave_out = leave_out

    def whole(self, value: Any) -> str:
        """A text, or the attachment that it names; ``ValueError`` where it is no text."""
        said = a_text(value, "content")
        if not said.startswith(("attachment://", "tc://")):  # the second until Inspect 0.3.47
            return said
        return self._found(said.partition("://")[2]) or said

    def arguments(self, value: Any) -> str:
        """The arguments of a call as JSON text."""
        written = value if isinstance(value, str) else dump_json({} if value is None else value)
        return _REFERENCE.sub(self._quoted, written) if "://" in written else written

    def _quoted(self, reference: re.Match[str]) -> str:
        found = self._found(reference[1])
        return reference[0] if found is None else dump_json(found)

    def _found(self, key: str) -> str | None:
        found = self._held.get(key)
        if isinstance(found, str):
            return found
        self._leave_out("attachment that the log does not hold")
        return None


def message(row: Any, attachments: Attachments, leave_out: LeaveOut) -> Message:
    """One message; ``ValueError`` says what is wrong with it, ``leave_out`` is told of odd parts."""
    row = an_object(row, "a message")
    content, reasoning = _content(row.get("content"), attachments, leave_out)
    wire: dict[str, Any] = {"role": row.get("role"), "content": content, "extra": _extra(row)}
    wire["reasoning"] = "\n".join(filter(None, [text(row.get("reasoning")), *reasoning]))
    wire["tool_calls"] = [
        {
            "id": call.get("id"),
            "name": call.get("function"),
            "arguments": attachments.arguments(call.get("arguments")),
        }
        for call in objects(row.get("tool_calls") or [], "tool_calls")
    ]
    if row.get("role") == "tool":
        wire["tool_call_id"], wire["name"] = row.get("tool_call_id"), row.get("function")
        if said := _error(row):
            wire["content"] = said
            if content and content != said:
                leave_out("content of a tool call that failed, which is not sent")
    return Message.from_dict(wire)


def tool_definition(tool: Any, attachments: Attachments) -> dict[str, Any]:
    """A tool in OpenAI's shape; ``ValueError`` where it has no name."""
    name = text(within(tool, "name"))
    if name is None:
        raise ValueError("a tool has a name")
    function = {"name": name, "description": attachments.whole(tool.get("description") or "")}
    if isinstance(tool.get("parameters"), dict):
        function["parameters"] = tool["parameters"]
    return {"type": "function", "function": function}


def _content(
    value: Any, attachments: Attachments, leave_out: LeaveOut
) -> tuple[Content | None, list[str]]:
    """What is said, and the reasoning beside it."""
    if not isinstance(value, list):
        return attachments.whole("" if value is None else value), []
    parts: list[Part] = []
    thoughts: list[str] = []
    for part in value:
        kind = within(part, "type")
        if kind == "text":
            parts.append(text_part(attachments.whole(part.get("text"))))
        elif kind == "reasoning":
            # What is redacted stands there encrypted.
            key = "summary" if part.get("redacted") is True else "reasoning"
            thoughts.append(attachments.whole(part.get(key) or part.get("summary") or ""))
        elif kind == "image":
            image = {"url": attachments.whole(part.get("image"))}
            if part.get("detail") in ("low", "high"):
                image["detail"] = part["detail"]
            parts.append({"type": "image_url", "image_url": image})
        elif kind == "tool_use":
            parts.append(text_part(_tool_use(part, attachments)))
        else:
            leave_out(f"part of type {kind}")
    return content_of(parts), thoughts


def _tool_use(part: dict[str, Any], attachments: Attachments) -> str:
    said = (part.get(key) for key in ("name", "arguments", "result", "error"))
    return "\n".join(attachments.whole(each) for each in said if isinstance(each, str) and each)


def _error(row: dict[str, Any]) -> str | None:
    """What the model is told of a tool call that failed."""
    return text(within(row.get("error"), "message")) or text(row.get("tool_error"))


def _extra(row: dict[str, Any]) -> dict[str, Any]:
    extra = {key: row[key] for key in ("source", "metadata") if row.get(key)}
    if _error(row):
        extra["error"] = text(within(row.get("error"), "type")) or "unknown"
    return extra

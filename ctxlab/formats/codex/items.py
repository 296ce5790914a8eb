"""An item of OpenAI's Responses API, as Codex writes it, becomes what the chat shape has for it.

``codex_turns`` puts the items of one answer together; ``codex_compaction`` finds them again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.chat_format import (
    Content,
    content_of,
    image_part,
    text_part,
)
from ctxlab.formats.optional_fields import (
    text,
    whole_number,
    within,
)
from ctxlab.formats.required_fields import a_text
from ctxlab.messages.openai_format import tool_call_from_dict
from ctxlab.messages.types import (
    Message,
    Part,
    ToolCall,
    Usage,
)

__all__ = [
    "CALLS",
    "OUTPUTS",
    "call",
    "content",
    "is_context",
    "key",
    "keys",
    "output",
    "texts",
    "usage",
]

CALLS = ("function_call", "custom_tool_call", "local_shell_call")
"""Kinds of items that are calls whose results the log holds."""

OUTPUTS = ("function_call_output", "custom_tool_call_output")
"""Kinds of items that are results."""

_CONTEXT = (
    "# agents.md instructions for",
    "<user_instructions>",
    "<environment_context>",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
)


def call(item: dict[str, Any]) -> ToolCall:
    """A call; the free text of a custom tool stands under ``input``, since arguments are JSON."""
    kind, name, arguments = item.get("type"), item.get("name"), item.get("arguments")
    if kind == "local_shell_call":
        name, arguments = "local_shell", item.get("action")
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif space := text(item.get("namespace")):
        name = f"{space}{name}"
    id = text(item.get("call_id")) or text(item.get("id"))
    return tool_call_from_dict({"id": id, "name": name, "arguments": arguments})


def output(item: dict[str, Any], leave_out: LeaveOut) -> Message:
    """The tool message of a result; its output is text, parts, or an object around either."""
    id = a_text(item.get("call_id"), "call_id")
    said, extra = item.get("output"), {}
    if isinstance(said, dict):
        extra = {"is_error": True} if said.get("success") is False else {}
        said = said["content"] if "content" in said else dump_json(said)
    return Message("tool", content(said, leave_out) or "", tool_call_id=id, extra=extra)


def content(value: Any, leave_out: LeaveOut) -> Content | None:
    """Texts and images, as ``content_of`` puts them together."""
    if value is None or isinstance(value, str):
        return value
    parts: list[Part] = []
    for part in _parts(value):
        if isinstance(part.get("text"), str):
            parts.append(text_part(part["text"]))
        elif url := text(part.get("image_url")):
            parts.append(image_part(url))
        else:
            leave_out(f"part of type {part.get('type')}")
    return content_of(parts)


def texts(value: Any) -> list[str]:
    """The texts of a content, a reasoning or its summary that are not empty."""
    if isinstance(value, str):
        return [value] if value else []
    return [said for part in _parts(value) if (said := text(part.get("text")))]


def usage(value: Any) -> Usage | None:
    """From a ``TokenUsage``: its input holds what a cache served, its output the reasoning."""
    if not isinstance(value, dict):
        return None
    cached = whole_number(value.get("cached_input_tokens"))
    billed = Usage(
        input=max(whole_number(value.get("input_tokens")) - cached, 0),
        cache_read=cached,
        output=whole_number(value.get("output_tokens")),
        reasoning=whole_number(value.get("reasoning_output_tokens")),
    )
    return billed if billed != Usage() else None


def is_context(said: str) -> bool:
    """Whether a text of the user is one that Codex says itself, and begins no turn.

    >>> is_context("<environment_context>\\n<cwd>/a</cwd>"), is_context("fix it")
    (True, False)
    """
    return said[:80].lstrip().lower().startswith(_CONTEXT)


def keys(message: Message) -> list[Hashable]:
    """What stays the same of a message when a history says it again, item by item."""
    if message.role == "tool":
        return [("output", message.tool_call_id)]
    calls: list[Hashable] = [("call", call.id) for call in message.tool_calls]
    if calls and not message.text:
        return calls
    return [(_role(message.extra.get("role", message.role)), message.text), *calls]


def key(item: Any) -> Hashable:
    """The same, of an item in a history."""
    kind = within(item, "type")
    if kind == "message":
        return _role(item.get("role")), "\n".join(texts(item.get("content")))
    return "output" if kind in OUTPUTS else "call", text(within(item, "call_id"))


def _role(role: Any) -> str | None:
    return "system" if role == "developer" else text(role)


def _parts(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return value
    raise ValueError(f"content is text or a list of parts, not {type(value).__name__}")

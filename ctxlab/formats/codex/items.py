"""An item of OpenAI's Responses API, as Codex writes it, becomes what the chat shape has for it.

``rollout`` puts the items of one answer together; ``compaction`` finds them again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, text_part
from ctxlab.formats.fields import count_or_zero, get_nested, require_text, text_or_none
from ctxlab.messages.openai_format import tool_call_from_dict
from ctxlab.messages.types import ContentPart, Message, ToolCall, Usage

__all__ = [
    "CALL_TYPES",
    "OUTPUT_TYPES",
    "content_texts",
    "is_context_text",
    "item_key",
    "message_keys",
    "parse_call",
    "parse_content",
    "parse_output",
    "parse_usage",
]

CALL_TYPES = ("function_call", "custom_tool_call", "local_shell_call")
"""Kinds of items that are calls whose results the log holds."""

OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")
"""Kinds of items that are results."""

_CONTEXT_PREFIXES = (
    "# agents.md instructions for",
    "<user_instructions>",
    "<environment_context>",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
)


def parse_call(item: dict[str, Any]) -> ToolCall:
    """A call; the free text of a custom tool stands under ``input``, since arguments are JSON."""
    kind, name, arguments = item.get("type"), item.get("name"), item.get("arguments")
    if kind == "local_shell_call":
        name, arguments = "local_shell", item.get("action")
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif space := text_or_none(item.get("namespace")):
        name = f"{space}{name}"
    id = text_or_none(item.get("call_id")) or text_or_none(item.get("id"))
    return tool_call_from_dict({"id": id, "name": name, "arguments": arguments})


def parse_output(item: dict[str, Any], skip: SkipCallback) -> Message:
    """The tool message of a result; its output is text, parts, or an object around either."""
    id = require_text(item.get("call_id"), "call_id")
    said, extra = item.get("output"), {}
    if isinstance(said, dict):
        extra = {"is_error": True} if said.get("success") is False else {}
        said = said["content"] if "content" in said else dump_json(said)
    return Message("tool", parse_content(said, skip) or "", tool_call_id=id, extra=extra)


def parse_content(value: Any, skip: SkipCallback) -> Content | None:
    """Texts and images, as ``join_parts`` puts them together."""
    if value is None or isinstance(value, str):
        return value
    parts: list[ContentPart] = []
    for part in _require_parts(value):
        if isinstance(part.get("text"), str):
            parts.append(text_part(part["text"]))
        elif url := text_or_none(part.get("image_url")):
            parts.append(image_part(url))
        else:
            skip(f"part of type {part.get('type')}")
    return join_parts(parts)


def content_texts(value: Any) -> list[str]:
    """The texts of a content, a reasoning or its summary that are not empty."""
    if isinstance(value, str):
        return [value] if value else []
    return [said for part in _require_parts(value) if (said := text_or_none(part.get("text")))]


def parse_usage(value: Any) -> Usage | None:
    """From a ``TokenUsage``: its input holds what a cache served, its output the reasoning."""
    if not isinstance(value, dict):
        return None
    cached = count_or_zero(value.get("cached_input_tokens"))
    billed = Usage(
        input=max(count_or_zero(value.get("input_tokens")) - cached, 0),
        cache_read=cached,
        output=count_or_zero(value.get("output_tokens")),
        reasoning=count_or_zero(value.get("reasoning_output_tokens")),
    )
    return billed if billed != Usage() else None


def is_context_text(message_text: str) -> bool:
    """Whether a text of the user is one that Codex says itself, and begins no turn.

    >>> is_context_text("<environment_context>\\n<cwd>/a</cwd>"), is_context_text("fix it")
    (True, False)
    """
    return message_text[:80].lstrip().lower().startswith(_CONTEXT_PREFIXES)


def message_keys(message: Message) -> list[Hashable]:
    """What stays the same of a message when a history says it again, item by item."""
    if message.role == "tool":
        return [("output", message.tool_call_id)]
    calls: list[Hashable] = [("call", call.id) for call in message.tool_calls]
    if calls and not message.text:
        return calls
    return [(_normalize_role(message.extra.get("role", message.role)), message.text), *calls]


def item_key(item: Any) -> Hashable:
    """The same, of an item in a history."""
    kind = get_nested(item, "type")
    if kind == "message":
        return _normalize_role(item.get("role")), "\n".join(content_texts(item.get("content")))
    return "output" if kind in OUTPUT_TYPES else "call", text_or_none(get_nested(item, "call_id"))


def _normalize_role(role: Any) -> str | None:
    return "system" if role == "developer" else text_or_none(role)


def _require_parts(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return value
    raise ValueError(f"content is text or a list of parts, not {type(value).__name__}")

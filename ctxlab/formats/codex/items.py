"""Convert items of OpenAI's Responses API, as written by Codex.

``rollout`` joins the items of one answer and matches those of a replacement history.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, make_call, text_part
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import get_in, get_text, require_text
from ctxlab.messages.types import ContentPart, Message, ToolCall

CALL_TYPES = ("function_call", "custom_tool_call", "local_shell_call")
"""Types of items that are calls with results in the log."""

OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")
"""Types of items that are tool results."""

_CONTEXT_PREFIXES = (
    *("# agents.md instructions for", "<user_instructions>", "<environment_context>", "<skill>"),
    *("<user_shell_command>", "<turn_aborted>", "<subagent_notification>"),
)


parse_usage = UsageShape(
    input="input_tokens",
    output="output_tokens",
    cache_read="cached_input_tokens",
    reasoning="reasoning_output_tokens",
).parse_billed
"""Parse a ``TokenUsage``, whose input includes cached and whose output includes reasoning tokens."""


def parse_call(item: dict[str, Any]) -> ToolCall:
    """Convert an item to a tool call.

    Arguments are JSON, so the free text of a custom tool is stored under ``input``.

    Parameters
    ----------
    item : dict
        An item of one of ``CALL_TYPES``.

    Returns
    -------
    ToolCall
        The call.

    Raises
    ------
    ValueError
        If the item is invalid.
    """
    kind, name, arguments = item.get("type"), item.get("name"), item.get("arguments")
    if kind == "local_shell_call":
        name, arguments = "local_shell", item.get("action")
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif space := get_text(item, "namespace"):
        name = f"{space}{name}"
    id = get_text(item, "call_id") or get_text(item, "id")
    return make_call(id, name, arguments)


def parse_output(item: dict[str, Any], skip: SkipCallback) -> Message:
    """Convert an item to a tool result.

    The output is text, a list of parts, or an object that holds either.

    Parameters
    ----------
    item : dict
        An item of one of ``OUTPUT_TYPES``.
    skip : callable
        Called with a reason for each part that is left out.

    Returns
    -------
    Message
        The tool message.

    Raises
    ------
    ValueError
        If the item is invalid.
    """
    id = require_text(item.get("call_id"), "call_id")
    said, extra = item.get("output"), {}
    if isinstance(said, dict):
        extra = {"is_error": True} if said.get("success") is False else {}
        said = said["content"] if "content" in said else dump_json(said)
    return Message("tool", parse_content(said, skip) or "", tool_call_id=id, extra=extra)


def parse_content(value: Any, skip: SkipCallback) -> Content | None:
    """Convert text and images of a content.

    Parameters
    ----------
    value : Any
        Text or a list of parts.
    skip : callable
        Called with a reason for each part that is left out.

    Returns
    -------
    str, tuple of dict or None
        The content, joined by ``join_parts``.

    Raises
    ------
    ValueError
        If ``value`` is neither text nor a list of parts.
    """
    if value is None or isinstance(value, str):
        return value
    parts: list[ContentPart] = []
    for part in _require_parts(value):
        if isinstance(part.get("text"), str):
            parts.append(text_part(part["text"]))
        elif url := get_text(part, "image_url"):
            parts.append(image_part(url))
        else:
            skip(f"part of type {part.get('type')}")
    return join_parts(parts)


def content_texts(value: Any) -> list[str]:
    """Return the non-empty texts of a content, a reasoning or its summary.

    Parameters
    ----------
    value : Any
        Text or a list of parts.

    Returns
    -------
    list of str
        The texts, in order.

    Raises
    ------
    ValueError
        If ``value`` is neither text nor a list of parts.
    """
    if isinstance(value, str):
        return [value] if value else []
    return [said for part in _require_parts(value) if (said := get_text(part, "text"))]


def is_context_text(message_text: str) -> bool:
    r"""Return whether Codex, not the user, wrote a user text; such a text begins no turn.

    Parameters
    ----------
    message_text : str
        Text of a user message.

    Returns
    -------
    bool
        True if the text begins like a text of Codex.

    Examples
    --------
    >>> is_context_text("<environment_context>\n<cwd>/a</cwd>"), is_context_text("fix it")
    (True, False)
    """
    return message_text[:80].lstrip().lower().startswith(_CONTEXT_PREFIXES)


def message_keys(message: Message) -> list[Hashable]:
    """Return keys that identify a message when a history repeats it.

    Parameters
    ----------
    message : Message
        The message.

    Returns
    -------
    list of hashable
        One key per item of the message.
    """
    if message.role == "tool":
        return [("output", message.tool_call_id)]
    calls: list[Hashable] = [("call", call.id) for call in message.tool_calls]
    if calls and not message.text:
        return calls
    return [(_normalize_role(message.extra.get("role", message.role)), message.text), *calls]


def item_key(item: Any) -> Hashable:
    """Return the key of an item of a history, comparable to ``message_keys``.

    Parameters
    ----------
    item : Any
        The item.

    Returns
    -------
    hashable
        The key.
    """
    kind = get_in(item, "type")
    if kind == "message":
        return _normalize_role(item.get("role")), "\n".join(content_texts(item.get("content")))
    return "output" if kind in OUTPUT_TYPES else "call", get_text(item, "call_id")


def _normalize_role(role: Any) -> str | None:
    return "system" if role == "developer" else get_text(role)


def _require_parts(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return value
    raise ValueError(f"content must be a string or a list of parts, got {type(value).__name__}")

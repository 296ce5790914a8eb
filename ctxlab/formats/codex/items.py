"""Convert items of OpenAI's Responses API, as Codex logs them, to messages and tool calls.

``codex/rollout`` joins the items of one answer into a message. At a compaction, Codex may log a
replacement history: the list of items with which the conversation continues. It repeats some of the
earlier items. This module computes the keys by which repeated items are found.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, make_call, text_part
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import get_in, get_list, get_text, require_text
from ctxlab.messages.types import ContentPart, Message, ToolCall

CALL_TYPES = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
"""Types of items that are tool calls with a logged result."""

OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output", "tool_search_output")
"""Types of items that are tool results."""

_PROVIDER_CALL_TYPES = ("web_search_call", "image_generation_call")

_CONTEXT_PREFIXES = (
    *("# agents.md instructions for", "<user_instructions>", "<environment_context>", "<skill>"),
    *("<user_shell_command>", "<turn_aborted>", "<subagent_notification>"),
)


def is_provider_call(item: dict[str, Any]) -> bool:
    """Check whether an item is a call that the provider ran, or its result.

    Such an item is a part of an answer of the model. No result is logged that Codex sent to the model.

    Parameters
    ----------
    item : dict
        An item of any type.

    Returns
    -------
    bool
        True for a search of the web, a generated image, and a search for tools without a call id.
    """
    kind = item.get("type")
    searched = kind in ("tool_search_call", "tool_search_output")
    return kind in _PROVIDER_CALL_TYPES or (searched and get_text(item, "call_id") is None)


parse_usage = UsageShape(
    input="input_tokens",
    output="output_tokens",
    cache_read="cached_input_tokens",
    cache_write="cache_write_input_tokens",
    reasoning="reasoning_output_tokens",
).parse_billed
"""Parse a ``TokenUsage`` object.

Its input includes the tokens read from and written to the cache, and its output includes reasoning.
"""


def parse_call(item: dict[str, Any]) -> ToolCall:
    """Convert a logged item to a tool call.

    The arguments of a ``ToolCall`` are a JSON object. If a custom tool receives text instead, the
    text is stored under the key ``input``.

    Parameters
    ----------
    item : dict
        An item whose type is in ``CALL_TYPES``.

    Returns
    -------
    ToolCall
        The tool call.

    Raises
    ------
    ValueError
        If the name of the tool is not a string.
    """
    kind, name, arguments = item.get("type"), item.get("name"), item.get("arguments")
    if kind == "local_shell_call":
        name, arguments = "local_shell", item.get("action")
    elif kind == "tool_search_call":
        name = "tool_search"
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif space := get_text(item, "namespace"):
        name = f"{space}{name}"
    id = get_text(item, "call_id") or get_text(item, "id")
    return make_call(id, name, arguments)


def parse_output(item: dict[str, Any], skip: SkipCallback) -> Message:
    """Convert a logged item to a tool result.

    The logged output is a string, a list of content parts, or an object with a string or a list of
    parts under ``content``. That of a search for tools is the list of their definitions.

    Parameters
    ----------
    item : dict
        An item whose type is in ``OUTPUT_TYPES``.
    skip : Callable
        Called with a description of each skipped content part.

    Returns
    -------
    Message
        The tool message.

    Raises
    ------
    ValueError
        If the item has no call id or if its output is malformed.
    """
    id = require_text(item.get("call_id"), "call_id")
    said, extra = item.get("output"), {}
    if item.get("type") == "tool_search_output":
        said = dump_json(get_list(item, "tools"))
    if isinstance(said, dict):
        extra = {"is_error": True} if said.get("success") is False else {}
        said = said["content"] if "content" in said else dump_json(said)
    return Message("tool", parse_content(said, skip) or "", tool_call_id=id, extra=extra)


def parse_content(value: Any, skip: SkipCallback) -> Content | None:
    """Convert the logged content of a message. Parts that are neither text nor images are skipped.

    Parameters
    ----------
    value : Any
        A string, a list of content parts, or None.
    skip : Callable
        Called with a description of each skipped content part.

    Returns
    -------
    str, tuple of dict, or None
        One string if all parts are text parts, otherwise the text and image parts. None if there is
        no content.

    Raises
    ------
    ValueError
        If ``value`` is not a string, a list of objects, or None.
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
    """Return the non-empty strings in logged content or in logged reasoning.

    Parameters
    ----------
    value : Any
        A string, a list of parts, or None.

    Returns
    -------
    list of str
        The string itself, or the text of each part in the original order.

    Raises
    ------
    ValueError
        If ``value`` is not a string, a list of objects, or None.
    """
    if isinstance(value, str):
        return [value] if value else []
    return [said for part in _require_parts(value) if (said := get_text(part, "text"))]


def is_context_text(message_text: str) -> bool:
    r"""Check whether Codex, and not the user, wrote the text of a user message.

    Codex sends instructions and descriptions of the environment as user messages. They do not begin
    a turn.

    Parameters
    ----------
    message_text : str
        Text of a user message.

    Returns
    -------
    bool
        True if the text starts with a marker of Codex, such as ``<environment_context>``.

    Examples
    --------
    >>> is_context_text("<environment_context>\n<cwd>/a</cwd>"), is_context_text("fix it")
    (True, False)
    """
    return message_text[:80].lstrip().lower().startswith(_CONTEXT_PREFIXES)


def message_keys(message: Message) -> list[Hashable]:
    """Return the keys of the items from which a message was built.

    After a compaction, these keys are compared with the ``item_key`` of each item in the replacement
    history, to find the messages that Codex kept.

    Parameters
    ----------
    message : Message
        A message of the conversation.

    Returns
    -------
    list of hashable
        One key per item of the message: one for its text and one for each tool call, or one for a
        tool result.
    """
    if message.role == "tool":
        return [("output", message.tool_call_id)]
    calls: list[Hashable] = [("call", call.id) for call in message.tool_calls]
    if calls and not message.text:
        return calls
    return [(_normalize_role(message.extra.get("role", message.role)), message.text), *calls]


def item_key(item: Any) -> Hashable:
    """Return a key that identifies an item of a replacement history.

    A replacement history is the list of items with which Codex continues after a compaction. If a
    message was built from an equal item, the ``message_keys`` of this message contain the same key.

    Parameters
    ----------
    item : Any
        JSON value of the item.

    Returns
    -------
    hashable
        Role and text of a message, or kind and call id of a tool call or tool result.
    """
    kind = get_in(item, "type")
    if kind in ("message", "agent_message"):
        role = "user" if kind == "agent_message" else item.get("role")
        return _normalize_role(role), "\n".join(content_texts(item.get("content")))
    return "output" if kind in OUTPUT_TYPES else "call", get_text(item, "call_id")


def _normalize_role(role: Any) -> str | None:
    return "system" if role == "developer" else get_text(role)


def _require_parts(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return value
    raise ValueError(f"content must be a string or a list of parts, got {type(value).__name__}")

"""OpenAI's chat shape, in which many logs are written and every reader ends, is handled here alone.

Readers of logs in that shape take messages (``parse_chat_messages``, ``select_chat_fields``,
``first_choice``) and content (``normalize_content``); readers of other shapes make parts and put
them together (``join_parts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ctxlab.formats.fields import first_or_none, get_nested, list_or_empty, require_object
from ctxlab.messages.content_parts import (
    CALL_TYPES,
    REASONING_TYPES,
    RESULT_TYPES,
    describe_type,
    is_chat_part,
    part_type,
)
from ctxlab.messages.openai_format import message_from_dict, parse_content, reject_tool_parts
from ctxlab.messages.types import ContentPart, Message

__all__ = [
    "CHAT_ROLES",
    "Content",
    "first_choice",
    "has_non_openai_parts",
    "has_reasoning_parts",
    "has_tool_parts",
    "image_part",
    "join_parts",
    "normalize_content",
    "parse_chat_messages",
    "select_chat_fields",
    "text_part",
    "unknown_part_types",
]

Content: TypeAlias = str | tuple[ContentPart, ...]

CHAT_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""What ``role`` may be in a logged message."""

_CHAT_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def has_non_openai_parts(row: Any) -> bool:
    """Whether a logged message holds parts that OpenAI's chat shape does not have.

    >>> has_non_openai_parts({"role": "user", "content": [{"type": "text", "text": "hi"}]})
    False
    >>> has_non_openai_parts({"role": "assistant", "content": [{"type": "think", "think": "hm"}]})
    True
    """
    if not isinstance(row, dict):
        return False
    if isinstance(row.get("parts"), list) or list_or_empty(row.get("toolInvocations")):
        return True
    return not all(map(is_chat_part, list_or_empty(row.get("content"))))


def has_tool_parts(row: Any) -> bool:
    """Whether the content of a logged message holds calls or results of tools as parts."""
    return any(kind in CALL_TYPES or kind in RESULT_TYPES for kind in _part_types(row))


def has_reasoning_parts(row: Any) -> bool:
    """Whether the content of a logged message holds reasoning as parts."""
    return any(kind in REASONING_TYPES for kind in _part_types(row))


def unknown_part_types(row: Any) -> list[str]:
    """Return the types of a message's parts that OpenAI's chat shape does not have.

    >>> unknown_part_types({"content": ["hi", {"type": "hologram"}]})
    ['hologram']
    """
    parts = [each for each in list_or_empty(get_nested(row, "content")) if isinstance(each, dict)]
    return [describe_type(each) for each in parts if not is_chat_part(each)]


def _part_types(row: Any) -> list[str | None]:
    return [
        part_type(each)
        for each in list_or_empty(get_nested(row, "content"))
        if isinstance(each, dict)
    ]


def parse_chat_messages(rows: Iterable[Any]) -> tuple[Message, ...]:
    """The messages of a list in OpenAI's chat shape; ``ValueError`` names a broken one."""
    messages = []
    for position, row in enumerate(rows):
        try:
            message = message_from_dict(row)
            reject_tool_parts(message.content)
            messages.append(message)
        except ValueError as error:
            raise ValueError(f"message {position}: {error}") from None
    return tuple(messages)


def select_chat_fields(row: Any) -> dict[str, Any]:
    """Of a logged message what a provider was sent, without an agent's own keys beside it."""
    row = require_object(row, "a message")
    reject_tool_parts(row.get("content"))
    return {key: row[key] for key in _CHAT_FIELDS if key in row}


def first_choice(response: Any) -> Any:
    """The message of a response's first choice; None where there is none.

    >>> first_choice({"choices": [{"message": {"content": "hi"}}]}), first_choice({"choices": []})
    ({'content': 'hi'}, None)
    """
    return get_nested(first_or_none(get_nested(response, "choices")), "message")


def text_part(text: str) -> ContentPart:
    """A text as a part of content."""
    return {"type": "text", "text": text}


def image_part(url: str) -> ContentPart:
    """A picture as a part of content, by its address or as a data URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def join_parts(parts: Sequence[ContentPart]) -> Content | None:
    """One text where there are only texts, joined by line ends; else the parts; None for none.

    >>> join_parts([text_part("a"), text_part("b")])
    'a\\nb'
    """
    texts = [part["text"] for part in parts if _is_text_part(part)]
    if len(texts) < len(parts):
        return tuple(parts)
    return "\n".join(texts) if texts else None


def normalize_content(value: Any) -> Content | None:
    """Content without marks for a prompt cache; one text where all parts are text.

    Agents split a text into parts only to put such a mark on the last one. Raises ``ValueError``
    where it is no content.

    >>> normalize_content([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])
    'hi'
    """
    reject_tool_parts(value)
    content = parse_content(value)
    if content is None or isinstance(content, str):
        return content
    return join_parts([{k: v for k, v in part.items() if k != "cache_control"} for part in content])


def _is_text_part(part: ContentPart) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)

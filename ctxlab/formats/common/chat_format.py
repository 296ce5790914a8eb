"""OpenAI's chat shape, in which many logs are written and every reader ends, is handled here alone.

Readers of logs in that shape take messages (``chat``, ``sent``, ``first_choice``) and content
(``plain_content``); readers of other shapes make parts and put them together (``content_of``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ctxlab.formats.optional_fields import (
    first_of,
    listed,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.content_parts import (
    CALLS,
    RESULTS,
    THOUGHTS,
    is_chat_part,
    part_type,
    short_type,
)
from ctxlab.messages.openai_format import (
    content_from,
    refuse_tool_parts,
)
from ctxlab.messages.types import (
    Message,
    Part,
)

__all__ = [
    "CHAT_ROLES",
    "Content",
    "chat",
    "content_of",
    "first_choice",
    "has_other_parts",
    "has_reasoning_parts",
    "has_tool_parts",
    "image_part",
    "plain_content",
    "sent",
    "text_part",
    "unknown_parts",
]

Content: TypeAlias = str | tuple[Part, ...]

CHAT_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""What ``role`` may be in a logged message."""

_SENT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def has_other_parts(row: Any) -> bool:
    """Whether a logged message holds parts that OpenAI's chat shape does not have.

    >>> has_other_parts({"role": "user", "content": [{"type": "text", "text": "hi"}]})
    False
    >>> has_other_parts({"role": "assistant", "content": [{"type": "think", "think": "hm"}]})
    True
    """
    if not isinstance(row, dict):
        return False
    if isinstance(row.get("parts"), list) or listed(row.get("toolInvocations")):
        return True
    return not all(map(is_chat_part, listed(row.get("content"))))


def has_tool_parts(row: Any) -> bool:
    """Whether the content of a logged message holds calls or results of tools as parts."""
    return any(kind in CALLS or kind in RESULTS for kind in _kinds(row))


def has_reasoning_parts(row: Any) -> bool:
    """Whether the content of a logged message holds reasoning as parts."""
    return any(kind in THOUGHTS for kind in _kinds(row))


def unknown_parts(row: Any) -> list[str]:
    """Return the types of a message's parts that OpenAI's chat shape does not have.

    >>> unknown_parts({"content": ["hi", {"type": "hologram"}]})
    ['hologram']
    """
    parts = [each for each in listed(within(row, "content")) if isinstance(each, dict)]
    return [short_type(each) for each in parts if not is_chat_part(each)]


def _kinds(row: Any) -> list[str | None]:
    return [part_type(each) for each in listed(within(row, "content")) if isinstance(each, dict)]


def chat(rows: Iterable[Any]) -> tuple[Message, ...]:
    """The messages of a list in OpenAI's chat shape; ``ValueError`` names a broken one."""
    messages = []
    for position, row in enumerate(rows):
        try:
            message = Message.from_dict(row)
            refuse_tool_parts(message.content)
            messages.append(message)
        except ValueError as error:
            raise ValueError(f"message {position}: {error}") from None
    return tuple(messages)


def sent(row: Any) -> dict[str, Any]:
    """Of a logged message what a provider was sent, without an agent's own keys beside it."""
    row = an_object(row, "a message")
    refuse_tool_parts(row.get("content"))
    return {key: row[key] for key in _SENT if key in row}


def first_choice(response: Any) -> Any:
    """The message of a response's first choice; None where there is none.

    >>> first_choice({"choices": [{"message": {"content": "hi"}}]}), first_choice({"choices": []})
    ({'content': 'hi'}, None)
    """
    return within(first_of(within(response, "choices")), "message")


def text_part(said: str) -> Part:
    """A text as a part of content."""
    return {"type": "text", "text": said}


def image_part(url: str) -> Part:
    """A picture as a part of content, by its address or as a data URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def content_of(parts: Sequence[Part]) -> Content | None:
    """One text where there are only texts, joined by line ends; else the parts; None for none.

    >>> content_of([text_part("a"), text_part("b")])
    'a\\nb'
    """
    texts = [part["text"] for part in parts if _is_text(part)]
    if len(texts) < len(parts):
        return tuple(parts)
    return "\n".join(texts) if texts else None


def plain_content(value: Any) -> Content | None:
    """Content without marks for a prompt cache; one text where all parts are text.

    Agents split a text into parts only to put such a mark on the last one. Raises ``ValueError``
    where it is no content.

    >>> plain_content([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])
    'hi'
    """
    refuse_tool_parts(value)
    content = content_from(value)
    if content is None or isinstance(content, str):
        return content
    return content_of([{k: v for k, v in part.items() if k != "cache_control"} for part in content])


def _is_text(part: Part) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)

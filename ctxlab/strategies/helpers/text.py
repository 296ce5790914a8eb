"""Shortening text at a marker, for every strategy that cuts the content of a message."""

from __future__ import annotations

from ctxlab.messages.types import Message

__all__ = ["clip_text", "is_text_only", "with_text"]


def clip_text(text: str, max_chars: int, ellipsis: str = "…") -> str:
    """The first ``max_chars`` characters of a text, the ellipsis included where something was cut.

    >>> clip_text("abcdef", 4), clip_text("abc", 4)
    ('abc…', 'abc')
    """
    return text if len(text) <= max_chars else text[: max(0, max_chars - len(ellipsis))] + ellipsis


def with_text(message: Message, text: str) -> Message:
    """The message with another text as its content; images and other parts go."""
    return message.replace(content=text)


def is_text_only(message: Message) -> bool:
    """Whether the content is text alone, so that its length says what it costs; an image costs more."""
    return not isinstance(message.content, tuple) or all(
        part.get("type") == "text" for part in message.content
    )

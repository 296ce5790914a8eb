"""Shortening text at a marker, for every strategy that cuts the content of a message."""

from __future__ import annotations

from ctxlab.messages.types import Message

__all__ = ["clip", "is_text", "with_text"]


def clip(text: str, limit: int, mark: str = "…") -> str:
    """The first ``limit`` characters of a text, the mark included where something was cut.

    >>> clip("abcdef", 4), clip("abc", 4)
    ('abc…', 'abc')
    """
    return text if len(text) <= limit else text[: max(0, limit - len(mark))] + mark


def with_text(message: Message, text: str) -> Message:
    """The message with another text as its content; images and other parts go."""
    return message.replace(content=text)


def is_text(message: Message) -> bool:
    """Whether the content is text alone, so that its length says what it costs; an image costs more."""
    return not isinstance(message.content, tuple) or all(
        part.get("type") == "text" for part in message.content
    )

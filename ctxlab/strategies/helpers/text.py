"""Helpers that shorten or replace the text and tool calls of messages."""

from __future__ import annotations

from collections.abc import Callable

from ctxlab.messages.types import Message, ToolCall


def clip_text(text: str, max_chars: int, ellipsis: str = "…") -> str:
    """Return the beginning of a text, with an ellipsis if something was cut.

    Parameters
    ----------
    text : str
        The text.
    max_chars : int
        Maximum length, the ellipsis included.
    ellipsis : str, default "…"
        Mark for the part that was cut.

    Returns
    -------
    str
        The clipped text.

    Examples
    --------
    >>> clip_text("abcdef", 4), clip_text("abc", 4)
    ('abc…', 'abc')
    """
    return text if len(text) <= max_chars else text[: max(0, max_chars - len(ellipsis))] + ellipsis


def single_line(text: str, max_chars: int) -> str:
    """Return the beginning of a text on one line, without scanning the rest.

    Parameters
    ----------
    text : str
        The text.
    max_chars : int
        Maximum length, the ellipsis included.

    Returns
    -------
    str
        The line.
    """
    return clip_text(" ".join(text[: 8 * max_chars].split()), max_chars)


def with_text(message: Message, text: str) -> Message:
    """Return a message with new text as its whole content; images and other parts are dropped.

    Parameters
    ----------
    message : Message
        The message.
    text : str
        The new content.

    Returns
    -------
    Message
        The new message.
    """
    return message.replace(content=text)


def shorten_to(message: Message, text: str) -> Message | None:
    """Return a message with a shorter text, or None if the text would not be shorter.

    Parameters
    ----------
    message : Message
        The message.
    text : str
        The new content.

    Returns
    -------
    Message or None
        The new message.
    """
    if len(message.text) <= len(text) and is_text_only(message):
        return None
    return with_text(message, text)


def rewrite_calls(message: Message, function: Callable[[ToolCall], ToolCall]) -> Message | None:
    """Return a message with each of its tool calls replaced by the result of a function.

    Parameters
    ----------
    message : Message
        A message with tool calls.
    function : callable
        Returns the new call, or the same object to keep the old one.

    Returns
    -------
    Message or None
        The changed message; None if the function kept all calls.
    """
    calls = tuple(map(function, message.tool_calls))
    if all(new is old for new, old in zip(calls, message.tool_calls, strict=True)):
        return None
    return message.replace(tool_calls=calls)


def is_text_only(message: Message) -> bool:
    """Return True if a message has no content but text.

    Only then does the length of the text tell what the message costs.

    Parameters
    ----------
    message : Message
        The message.

    Returns
    -------
    bool
        False if a part of the content is an image or another kind.
    """
    content = message.content
    return not isinstance(content, tuple) or all(part.get("type") == "text" for part in content)

"""Helpers that shorten or replace the text and tool calls of messages."""

from __future__ import annotations

import re
from collections.abc import Callable

from ctxlab.messages.types import Message, ToolCall

_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_DECISION_PHRASES = (
    *("i'll", "i will", "let's", "we'll", "we should", "decide", "decided", "instead of"),
    *("rather than", "turns out", "must", "need to", "root cause"),
    *(f"the {noun} is" for noun in ("issue", "problem", "bug", "cause", "fix")),
)
_DECISION_PATTERN = re.compile(rf"\b({'|'.join(_DECISION_PHRASES)})\b", re.IGNORECASE)


def clip_text(text: str, max_chars: int, ellipsis: str = "…") -> str:
    """Truncate a string to a maximum length and append an ellipsis if it was truncated.

    Parameters
    ----------
    text : str
        String to truncate.
    max_chars : int
        Maximum length in characters, including the ellipsis.
    ellipsis : str, default "…"
        Suffix of a truncated string.

    Returns
    -------
    str
        The truncated string; unchanged if it is short enough.

    Examples
    --------
    >>> clip_text("abcdef", 4), clip_text("abc", 4)
    ('abc…', 'abc')
    """
    return text if len(text) <= max_chars else text[: max(0, max_chars - len(ellipsis))] + ellipsis


def single_line(text: str, max_chars: int) -> str:
    """Collapse the whitespace of a string to single spaces and truncate it.

    Only the beginning of a long string is processed, so that the call is fast.

    Parameters
    ----------
    text : str
        String with any number of lines.
    max_chars : int
        Maximum length in characters, including the ellipsis.

    Returns
    -------
    str
        The string on a single line, with an ellipsis if it was truncated.
    """
    line = " ".join(text[: 2 * max_chars].split())  # usually enough
    if len(line) <= max_chars < len(text):
        line = " ".join(text[: 8 * max_chars].split())
    return clip_text(line, max_chars)


def find_decision(text: str) -> str:
    """Return the first sentence that states a decision, a cause or an obligation.

    Parameters
    ----------
    text : str
        Text of an agent's message.

    Returns
    -------
    str
        The sentence; empty if there is none.

    Examples
    --------
    >>> find_decision("The test fails. I'll fix the parser. Then I run it.")
    "I'll fix the parser."
    """
    if text.isascii():
        lower = text.lower()
        if not any(phrase in lower for phrase in _DECISION_PHRASES):
            return ""  # most texts; the pattern is slow
    if not _DECISION_PATTERN.search(text):
        return ""  # most of the others; splitting them into sentences is slow
    return next(filter(_DECISION_PATTERN.search, _SENTENCE_BREAK.split(text)), "")


def with_text(message: Message, text: str) -> Message:
    """Replace the whole content of a message by text. Images and other parts are dropped.

    Parameters
    ----------
    message : Message
        Message to copy. It is not changed.
    text : str
        New content of the message.

    Returns
    -------
    Message
        Copy of the message with the new content.
    """
    return message.replace(content=text)


def shorten_to(message: Message, text: str) -> Message | None:
    """Replace the content of a message by text if that makes the message smaller.

    A message with images or other non-text parts always counts as larger than the text.

    Parameters
    ----------
    message : Message
        Message to copy. It is not changed.
    text : str
        New content of the message.

    Returns
    -------
    Message or None
        Copy of the message with the new content; None if the message would not become smaller.
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
        Function that returns the new call, or its argument to keep the call unchanged.

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
    """Return True if the content of a message consists of text only.

    The size of such a message can be judged by the length of its text.

    Parameters
    ----------
    message : Message
        Message to check. Its tool calls are ignored.

    Returns
    -------
    bool
        False if the content has an image or another part that is not text.
    """
    content = message.content
    return not isinstance(content, tuple) or all(part.get("type") == "text" for part in content)

"""A message is kept for a later resume as text, calls and results, each no longer than it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxlab._utils.jsonio import (
    dump_json,
    parse_json,
)
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import (
    Message,
    ToolCall,
)
from ctxlab.strategies.helpers.text import clip

__all__ = ["MARK", "message_of", "row_of", "trimmed"]

MARK = "\n\n[truncated]"
"""What a text that was cut ends with."""


def trimmed(message: Message, limit: int) -> Message:
    """The message in at most ``limit`` characters of content and arguments together.

    The content becomes text: an image or another part is named in brackets. Arguments stay JSON.
    What is never sent goes, but for the file that it was said about.

    >>> long = ToolCall("c1", "write", '{"path": "a.py", "text": "' + "x" * 500 + '"}')
    >>> kept = trimmed(Message("assistant", "I write it.", tool_calls=(long,)), 100)
    >>> kept.tool_calls[0].arguments
    '{"path":"a.py","text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"}'
    """
    text = message.content if isinstance(message.content, str) else _text(message)
    calls = message.tool_calls
    if len(text) + sum(len(call.arguments) for call in calls) > limit:
        given = sum(len(call.arguments) for call in calls)
        text = clip(text, max(limit - given, limit // 2 if calls else limit), MARK)
        share = (limit - len(text)) // max(len(calls), 1)
        calls = tuple(ToolCall(c.id, c.name, _cut(c.arguments, share)) for c in calls)
    return Message(
        message.role,
        text or (None if calls else ""),
        calls,
        message.tool_call_id,
        message.name,
        file=message.file,
    )


def row_of(message: Message) -> dict[str, Any]:
    """A trimmed message in OpenAI's chat shape; its content is always a text."""
    row = message.to_dict()
    row["content"] = row["content"] or ""
    if message.file is not None:
        row["file"] = message.file
    return row


def message_of(row: Mapping[str, Any]) -> Message:
    """The message that ``row_of`` gave, or somebody wrote; raises ``ValueError``."""
    message = message_from_dict(row)
    return message.replace(content=None) if message.tool_calls and not message.content else message


def _text(message: Message) -> str:
    parts = message.content if isinstance(message.content, tuple) else ()
    kinds = (str(p.get("type") or "part") for p in parts if p.get("type") != "text")
    return "\n".join([*filter(None, [message.text]), *(f"[{kind}]" for kind in kinds)])


def _cut(arguments: str, limit: int) -> str:
    """Arguments as JSON of at most ``limit`` characters; an empty object where that is too few."""
    if len(arguments) <= limit:
        return arguments
    try:
        value = parse_json(arguments)
    except ValueError:
        value = None
    # What is no object, or has too many values, keeps its beginning as one text.
    for shorter in (lambda n: _shorter(value, n), lambda n: {"truncated": clip(arguments, n)}):
        chars = limit // 2
        while chars > 8:
            if isinstance(each := shorter(chars), dict) and len(cut := dump_json(each)) <= limit:
                return cut
            chars //= 2
    return "{}"


def _shorter(value: Any, chars: int) -> Any:
    if isinstance(value, str):
        return clip(value, chars)
    if isinstance(value, dict):
        return {key: _shorter(item, chars) for key, item in value.items()}
    return [_shorter(item, chars) for item in value] if isinstance(value, list) else value

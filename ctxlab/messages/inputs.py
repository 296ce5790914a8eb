"""What a caller hands over is copied as plain data, so that a later edit of it changes nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from ctxlab.messages.openai_format import refuse_tool_parts
from ctxlab.messages.types import Message

__all__ = ["Dumps", "Given", "copied", "plain", "same"]


class Dumps(Protocol):
    """An object of a provider's library, such as ``response.choices[0].message``."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Its fields as plain data: that of pydantic."""
        ...


Given: TypeAlias = Message | Mapping[str, Any] | Dumps
"""A message as a caller has it: OpenAI's chat shape, as a dict or as an object of its library."""


def copied(message: Given) -> Message | dict[str, Any]:
    """The message, sharing nothing with the caller that could be edited.

    Raises ``ValueError`` for what is no message, and for one whose content holds calls or results as
    Anthropic, Bedrock and others write them: a strategy that does not see its calls would part them
    from their results.

    >>> parts = [{"type": "text", "text": "Hi"}]
    >>> copy = copied({"role": "user", "content": parts})
    >>> parts[0]["cache_control"] = {"type": "ephemeral"}
    >>> copy
    {'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}
    """
    if isinstance(message, Message):
        copy: Message | dict[str, Any] = message
        content: Any = message.content
        if isinstance(content, tuple) or message.extra:
            content = plain(content)
            copy = message.replace(content=content, extra=plain(message.extra))
    else:
        copy = plain(message)
        if not isinstance(copy, dict):
            raise ValueError(f"a message is an object, not {type(message).__name__}")
        content = copy.get("content")
    refuse_tool_parts(content)
    return copy


def plain(value: Any) -> Any:
    """A copy of JSON data, objects with ``model_dump`` as their data; texts and numbers are shared."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (dict, Mapping)):  # the first is quick to see
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, tuple):
        return tuple([plain(each) for each in value])
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def same(given: Given, known: Message | dict[str, Any]) -> bool:
    """Whether a message says what a copy of an earlier one does."""
    return given == known or (not isinstance(given, Message) and plain(given) == known)

"""What a caller hands over is copied as plain data, so that a later edit of it changes nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from ctxlab.messages.openai_format import reject_tool_parts
from ctxlab.messages.types import Message

__all__ = ["MessageInput", "SupportsModelDump", "copy_message", "is_same_message", "to_plain_data"]


class SupportsModelDump(Protocol):
    """An object of a provider's library, such as ``response.choices[0].message``."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Its fields as plain data: that of pydantic."""
        ...


MessageInput: TypeAlias = Message | Mapping[str, Any] | SupportsModelDump
"""A message as a caller has it: OpenAI's chat shape, as a dict or as an object of its library."""


def copy_message(message: MessageInput) -> Message | dict[str, Any]:
    """The message, sharing nothing with the caller that could be edited.

    Raises ``ValueError`` for what is no message, and for one whose content holds calls or results as
    Anthropic, Bedrock and others write them: a strategy that does not see its calls would part them
    from their results.

    >>> parts = [{"type": "text", "text": "Hi"}]
    >>> copy = copy_message({"role": "user", "content": parts})
    >>> parts[0]["cache_control"] = {"type": "ephemeral"}
    >>> copy
    {'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}
    """
    if isinstance(message, Message):
        copy: Message | dict[str, Any] = message
        content: Any = message.content
        if isinstance(content, tuple) or message.extra:
            content = to_plain_data(content)
            copy = message.replace(content=content, extra=to_plain_data(message.extra))
    else:
        copy = to_plain_data(message)
        if not isinstance(copy, dict):
            raise ValueError(f"a message is an object, not {type(message).__name__}")
        content = copy.get("content")
    reject_tool_parts(content)
    return copy


def to_plain_data(value: Any) -> Any:
    """A copy of JSON data, objects with ``model_dump`` as their data; texts and numbers are shared."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (dict, Mapping)):  # the first is quick to see
        return {key: to_plain_data(each) for key, each in value.items()}
    if isinstance(value, list):
        return [to_plain_data(each) for each in value]
    if isinstance(value, tuple):
        return tuple([to_plain_data(each) for each in value])
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def is_same_message(message: MessageInput, earlier: Message | dict[str, Any]) -> bool:
    """Whether a message says what a copy of an earlier one does."""
    return message == earlier or (
        not isinstance(message, Message) and to_plain_data(message) == earlier
    )

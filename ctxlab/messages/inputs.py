"""Copy the messages that callers pass, so that later changes by the caller do not affect the copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from ctxlab.messages.openai_format import reject_tool_parts
from ctxlab.messages.types import Message


class SupportsModelDump(Protocol):
    """A message object of a provider's library, such as ``response.choices[0].message``."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return the fields of the object as JSON data, as pydantic models do.

        Parameters
        ----------
        exclude_none : bool, optional
            Leave out fields that are None.

        Returns
        -------
        dict
            Field name → value.
        """
        ...


MessageInput: TypeAlias = Message | Mapping[str, Any] | SupportsModelDump
"""A message as a caller may pass it.

Either a ``Message``, or a message in OpenAI's chat format as a dict or as an object of a library.
"""


def copy_message(message: MessageInput) -> Message | dict[str, Any]:
    """Return a copy of a message that shares no mutable data with the caller.

    Parameters
    ----------
    message : Message, mapping or SupportsModelDump
        Message to copy.

    Returns
    -------
    Message or dict
        A ``Message`` if the input is a ``Message``, otherwise a dict.

    Raises
    ------
    ValueError
        If the input is not a message, or if its content has tool calls or tool results as parts.
        Strategies do not recognise such calls, which the APIs of Anthropic, Bedrock and others use,
        and could separate a call from its result.

    Examples
    --------
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
            raise ValueError(f"a message must be an object, got {type(message).__name__}")
        content = copy.get("content")
    reject_tool_parts(content)
    return copy


def to_plain_data(value: Any) -> Any:
    """Copy JSON data and replace objects that have a method ``model_dump`` by dicts of their fields.

    Parameters
    ----------
    value : Any
        JSON data, which may contain such objects at any depth.

    Returns
    -------
    Any
        The copy. Strings, numbers and None are returned as they are.

    Examples
    --------
    >>> to_plain_data({"role": "user", "content": [{"type": "text"}]})
    {'role': 'user', 'content': [{'type': 'text'}]}
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (dict, Mapping)):  # checking for dict first is faster
        return {key: to_plain_data(each) for key, each in value.items()}
    if isinstance(value, list):
        return [to_plain_data(each) for each in value]
    if isinstance(value, tuple):
        return tuple([to_plain_data(each) for each in value])
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def is_same_message(message: MessageInput, earlier: Message | dict[str, Any]) -> bool:
    """Return whether a message from a caller equals a message that was copied earlier.

    Parameters
    ----------
    message : Message, mapping or SupportsModelDump
        The message to compare.
    earlier : Message or dict
        The earlier message, as returned by ``copy_message``.

    Returns
    -------
    bool
        True if the two messages have the same data.
    """
    return message == earlier or (
        not isinstance(message, Message) and to_plain_data(message) == earlier
    )

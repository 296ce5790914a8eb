"""Copy messages from callers as plain data, so that later changes by the caller have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from ctxlab.messages.openai_format import reject_tool_parts
from ctxlab.messages.types import Message


class SupportsModelDump(Protocol):
    """An object of a provider's library, such as ``response.choices[0].message``."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return the fields as plain data, as pydantic does.

        Parameters
        ----------
        exclude_none : bool, optional
            Leave out fields that are None.

        Returns
        -------
        dict
            The fields.
        """
        ...


MessageInput: TypeAlias = Message | Mapping[str, Any] | SupportsModelDump
"""A message from a caller: a ``Message``, or OpenAI's chat format as a dict or a library object."""


def copy_message(message: MessageInput) -> Message | dict[str, Any]:
    """Return a copy of a message that shares no mutable data with the caller.

    Parameters
    ----------
    message : Message, mapping or SupportsModelDump
        The message.

    Returns
    -------
    Message or dict
        A ``Message`` stays one; everything else becomes a dict.

    Raises
    ------
    ValueError
        If the input is no message, or if its content holds tool calls or tool results as parts, as
        the APIs of Anthropic, Bedrock and others do. A strategy does not see such calls and would
        separate them from their results.

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
    """Return a copy of JSON data in which objects with ``model_dump`` are replaced by their fields.

    Parameters
    ----------
    value : Any
        The data. Immutable values are not copied.

    Returns
    -------
    Any
        The copy.

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
    """Return whether a message equals an earlier copy of a message.

    Parameters
    ----------
    message : Message, mapping or SupportsModelDump
        The message.
    earlier : Message or dict
        A message that ``copy_message`` returned.

    Returns
    -------
    bool
        True if both have the same data.
    """
    return message == earlier or (
        not isinstance(message, Message) and to_plain_data(message) == earlier
    )

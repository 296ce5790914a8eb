"""Convert messages from and to OpenAI's chat format.

The values that ctxlab uses are checked for their types. Variations of the format that occur in
recordings are accepted, such as tool arguments that are an object instead of a JSON string.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.content_parts import CALL_TYPES, RESULT_TYPES, guess_api, part_type
from ctxlab.messages.types import ROLES, Message, Role, ToolCall, Usage

_ROLE_ALIASES = {"developer": "system", "function": "tool", "model": "assistant"}
_TOOL_TYPES = frozenset((*CALL_TYPES, *RESULT_TYPES))
_KNOWN_KEYS = frozenset(Message.__struct_fields__) | {"refusal", "function_call"}


def message_from_dict(data: Mapping[str, Any]) -> Message:
    """Convert a dict in OpenAI's chat format to a message.

    The role ``developer`` becomes ``system``, ``function`` becomes ``tool`` and ``model`` becomes
    ``assistant``. Tool arguments that are an object are converted to a JSON string. Unknown keys are
    stored in ``extra``. Content parts of any type are accepted. Call ``reject_tool_parts`` to reject
    content parts that are tool calls or tool results.

    Parameters
    ----------
    data : mapping
        The message as sent to or received from a provider.

    Returns
    -------
    Message
        Message with the same data.

    Raises
    ------
    ValueError
        If a key has an invalid value. The error message names the key.

    Examples
    --------
    >>> message_from_dict({"role": "user", "content": "hi"}).content
    'hi'
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a message must be an object, got {type(data).__name__}")
    role = data.get("role")
    role = _ROLE_ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; choose from {', '.join(ROLES)}")
    calls = data.get("tool_calls") or ()
    if not isinstance(calls, (list, tuple)):
        raise ValueError(f"tool_calls must be a list, got {type(calls).__name__}")
    extra = {k: v for k, v in data.items() if k not in _KNOWN_KEYS}
    if isinstance(data.get("extra"), Mapping):
        extra.update(data["extra"])
    reasoning = data.get("reasoning") or extra.pop("reasoning_content", None)
    try:
        usage = msgspec.convert(data["usage"], Usage) if data.get("usage") else None
    except msgspec.ValidationError as error:
        raise ValueError(f"usage: {error}") from None
    return Message(
        role=cast(Role, role),
        content=parse_content(data.get("content")),
        tool_calls=tuple(tool_call_from_dict(c) for c in calls),
        tool_call_id=_get(data, "tool_call_id", "a string", str),
        name=_get(data, "name", "a string", str),
        reasoning=reasoning if isinstance(reasoning, str) else None,
        usage=usage,
        time=_get(data, "time", "a number", int, float),
        file=_get(data, "file", "a string", str),
        extra=extra,
    )


def message_from_row(row: Any) -> Message:
    """Convert a stored row to a message: the inverse of ``row_from_message``.

    Parameters
    ----------
    row : Any
        The row, as JSON data read from a file.

    Returns
    -------
    Message
        Message with all fields of the row.

    Raises
    ------
    ValueError
        If the row is not an object, or if a key has an invalid value. The error message names the
        key.

    Examples
    --------
    >>> message_from_row({"role": "user", "content": "hi", "file": "a.py"}).file
    'a.py'
    """
    if not isinstance(row, dict) or not isinstance(row.get("extra"), dict):
        return message_from_dict(row)
    # Add "extra" last, so that message_from_dict does not read its keys as fields of the message.
    message = message_from_dict({key: value for key, value in row.items() if key != "extra"})
    return message.replace(extra=message.extra | row["extra"])


def row_from_message(message: Message) -> dict[str, Any]:
    """Convert a message to a row, that is, a JSON object to store.

    The row is in OpenAI's chat format, with additional keys for the other fields of the message.
    ``message_from_row`` converts the row back.

    Parameters
    ----------
    message : Message
        Message to store.

    Returns
    -------
    dict
        All fields of the message that are not empty, as JSON data.

    Examples
    --------
    >>> row_from_message(Message("user", "hi", file="a.py"))
    {'role': 'user', 'content': 'hi', 'file': 'a.py'}
    """
    row = message.to_dict()
    if message.reasoning:
        row["reasoning"] = message.reasoning
    if (usage := message.usage) is not None:
        # Few providers report these counts, so a count of zero is left out.
        counts = {key: getattr(usage, key) for key in usage.__struct_fields__}
        rare = ("reasoning", "cache_write_1h")
        row["usage"] = {k: count for k, count in counts.items() if count or k not in rare}
    time = message.time
    if isinstance(time, float) and not math.isfinite(time):  # JSON has neither infinity nor NaN
        time = None
    beside = {"time": time, "file": message.file, "extra": message.extra or None}
    return row | {key: value for key, value in beside.items() if value is not None}


def parse_content(content: Any) -> str | tuple[dict[str, Any], ...] | None:
    """Check the content of a message and convert a list of parts to a tuple.

    Parameters
    ----------
    content : Any
        A string, a list of content parts, or None. Strings in a list are converted to text parts.

    Returns
    -------
    str, tuple of dict or None
        Value for the field ``content`` of ``Message``.

    Raises
    ------
    ValueError
        If the content has another type.

    Examples
    --------
    >>> parse_content(["hi"])
    ({'type': 'text', 'text': 'hi'},)
    """
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        parts = [{"type": "text", "text": p} if isinstance(p, str) else p for p in content]
        if all(isinstance(p, dict) for p in parts):
            return tuple(parts)
    raise ValueError(f"content must be a string or a list of parts, got {type(content).__name__}")


def reject_tool_parts(content: Any) -> None:
    """Raise ValueError if content parts of a message are tool calls or tool results.

    In OpenAI's chat format, tool calls are in ``tool_calls`` and results are messages of their own.
    Other APIs store both as content parts. If a message of such an API were read as a chat message,
    its tool calls would be lost, and a strategy could separate calls from their results.

    Parameters
    ----------
    content : Any
        The content of a message: a string, a list of parts, or None.

    Raises
    ------
    ValueError
        If a part is a tool call or a tool result in the format of Anthropic, Bedrock or another
        API.

    Examples
    --------
    >>> reject_tool_parts([{"toolUse": {"toolUseId": "1", "name": "ls"}}])
    Traceback (most recent call last):
    ValueError: expected OpenAI's chat format, got a content part of type toolUse \
(Bedrock Converse messages); give calls in tool_calls, and each result in a message of role tool
    """
    for part in content if isinstance(content, (list, tuple)) else ():
        kind = part_type(part) if isinstance(part, Mapping) else None
        if kind and (kind in _TOOL_TYPES or kind.endswith(("tool_use", "tool_result"))):
            whose = f" ({api})" if (api := guess_api([kind])) else ""
            raise ValueError(
                f"expected OpenAI's chat format, got a content part of type {kind}{whose}; "
                "give calls in tool_calls, and each result in a message of role tool"
            )


def tool_call_from_dict(data: Any) -> ToolCall:
    """Convert a dict to a tool call.

    Name and arguments may be nested under ``function``, as in OpenAI's format, or be keys of the dict
    itself.

    Parameters
    ----------
    data : ToolCall or mapping
        The tool call. A ``ToolCall`` is returned unchanged. Arguments that are not a string are
        converted to a JSON string.

    Returns
    -------
    ToolCall
        Tool call with id, name and arguments.

    Raises
    ------
    ValueError
        If the data is not an object, or if it has no name.

    Examples
    --------
    >>> tool_call_from_dict({"id": "c1", "name": "ls", "arguments": {"path": "."}})
    ToolCall(id='c1', name='ls', arguments='{"path":"."}')
    """
    if isinstance(data, ToolCall):
        return data
    if not isinstance(data, Mapping):
        raise ValueError(f"a tool call must be an object, got {type(data).__name__}")
    function = data.get("function")
    body = function if isinstance(function, Mapping) else data
    name = body.get("name")
    if not isinstance(name, str):
        raise ValueError(f"the name of a tool call must be a string, got {name!r}")
    arguments = body.get("arguments")
    if not isinstance(arguments, str):
        arguments = dump_json({} if arguments is None else arguments)
    return ToolCall(str(data.get("id") or ""), name, arguments)


def _get(data: Mapping[str, Any], key: str, what: str, *types: type) -> Any:
    """Return the value of an optional key after checking its type. ``what`` describes the types."""
    value = data.get(key)
    if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
        raise ValueError(f"{key} must be {what}, got {type(value).__name__}")
    return value

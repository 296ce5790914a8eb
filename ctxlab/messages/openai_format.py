"""A message on the wire is read strictly in what matters and forgivingly in what recordings vary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.content_parts import CALL_TYPES, RESULT_TYPES, guess_api, part_type
from ctxlab.messages.types import ROLES, Message, Role, ToolCall, Usage

__all__ = [
    "message_from_dict",
    "message_from_row",
    "parse_content",
    "reject_tool_parts",
    "row_from_message",
    "tool_call_from_dict",
]

_ROLE_ALIASES = {"developer": "system", "function": "tool", "model": "assistant"}
_KNOWN_KEYS = frozenset(Message.__struct_fields__) | {"refusal", "function_call"}


def message_from_dict(data: Mapping[str, Any]) -> Message:
    """Return the message that a dict in OpenAI's chat shape holds.

    ``developer`` is read as ``system`` and ``function`` as ``tool``; arguments that are an object
    become JSON text; unknown keys go to ``extra``. Content parts of any type are taken as they are,
    so that a live conversation goes on; readers of files and the live manager refuse what
    ``reject_tool_parts`` refuses.

    Parameters
    ----------
    data : Mapping[str, Any]
        The message as a provider takes it or gives it.

    Returns
    -------
    Message

    Raises
    ------
    ValueError
        Where a key is wrong; the text says which and why.

    Examples
    --------
    >>> message_from_dict({"role": "user", "content": "hi"}).content
    'hi'
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a message is an object, not {type(data).__name__}")
    role = data.get("role")
    role = _ROLE_ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise ValueError(f"role is {role!r}; expected one of {', '.join(ROLES)}")
    calls = data.get("tool_calls") or ()
    if not isinstance(calls, (list, tuple)):
        raise ValueError(f"tool_calls is a list, not {type(calls).__name__}")
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
        tool_call_id=_get_text(data, "tool_call_id"),
        name=_get_text(data, "name"),
        reasoning=reasoning if isinstance(reasoning, str) else None,
        usage=usage,
        time=_get_number(data, "time"),
        file=_get_text(data, "file"),
        extra=extra,
    )


def message_from_row(row: Any) -> Message:
    """A message as it was written to a file; ``ValueError`` says which key is wrong and why."""
    if not isinstance(row, dict) or not isinstance(row.get("extra"), dict):
        return message_from_dict(row)
    # Taken apart, so that a key in "extra" is never taken for one of the message's own.
    message = message_from_dict({key: value for key, value in row.items() if key != "extra"})
    return message.replace(extra=message.extra | row["extra"])


def row_from_message(message: Message) -> dict[str, Any]:
    """All of a message, as a row of a file; ``message_from_row`` gives it again.

    >>> row_from_message(Message("user", "hi", file="a.py"))
    {'role': 'user', 'content': 'hi', 'file': 'a.py'}
    """
    row = message.to_dict()
    if message.reasoning:
        row["reasoning"] = message.reasoning
    if (usage := message.usage) is not None:
        # The four that every provider gives, and the one that few do.
        counts = {key: getattr(usage, key) for key in usage.__struct_fields__}
        row["usage"] = {k: count for k, count in counts.items() if count or k != "reasoning"}
    if message.time is not None and (isinstance(message.time, int) or math.isfinite(message.time)):
        row["time"] = message.time
    if message.file is not None:
        row["file"] = message.file
    if message.extra:
        row["extra"] = message.extra
    return row


def parse_content(content: Any) -> str | tuple[dict[str, Any], ...] | None:
    """A message's content: text, parts, or nothing."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        parts = [{"type": "text", "text": p} if isinstance(p, str) else p for p in content]
        if all(isinstance(p, dict) for p in parts):
            return tuple(parts)
    raise ValueError(f"content is text or a list of parts, not {type(content).__name__}")


def reject_tool_parts(content: Any) -> None:
    """Refuse content that holds calls or results of tools as parts.

    Other APIs write them so. Read as a chat message, such a message would lose its calls: what
    replays or manages it would part calls from results.

    Parameters
    ----------
    content : Any
        The content of a message: text, parts or nothing.

    Raises
    ------
    ValueError
        Where a part is a call or a result in the shape of Anthropic, Bedrock or another API.

    Examples
    --------
    >>> reject_tool_parts([{"toolUse": {"toolUseId": "1", "name": "ls"}}])
    Traceback (most recent call last):
    ValueError: Expected OpenAI's chat shape, got a block of type toolUse (Bedrock Converse messages); \
give calls in tool_calls, and each result in a message of role tool
    """
    for part in content if isinstance(content, (list, tuple)) else ():
        kind = part_type(part) if isinstance(part, Mapping) else None
        if kind is not None and (
            kind in CALL_TYPES or kind in RESULT_TYPES or kind.endswith(("tool_use", "tool_result"))
        ):
            whose = f" ({api})" if (api := guess_api([kind])) else ""
            raise ValueError(
                f"Expected OpenAI's chat shape, got a block of type {kind}{whose}; give calls in "
                "tool_calls, and each result in a message of role tool"
            )


def tool_call_from_dict(data: Any) -> ToolCall:
    """A tool call, wrapped in ``function`` as OpenAI writes it or bare as others do."""
    if isinstance(data, ToolCall):
        return data
    if not isinstance(data, Mapping):
        raise ValueError(f"a tool call is an object, not {type(data).__name__}")
    function = data.get("function")
    body = function if isinstance(function, Mapping) else data
    name = body.get("name")
    if not isinstance(name, str):
        raise ValueError(f"a tool call has a name, not {name!r}")
    arguments = body.get("arguments")
    if not isinstance(arguments, str):
        arguments = dump_json({} if arguments is None else arguments)
    return ToolCall(str(data.get("id") or ""), name, arguments)


def _get_text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{key} is text, not {type(value).__name__}")


def _get_number(data: Mapping[str, Any], key: str) -> float | None:
    value = data.get(key)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{key} is a number, not {type(value).__name__}")

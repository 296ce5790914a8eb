"""Derive tool definitions from the tool calls of a recording that contains no definitions.

A model cannot call tools without definitions. The derived definitions contain what the calls show:
names of tools, names of arguments, and types of values. An argument is required if every recorded
call of the tool has it. There are no descriptions. Tools that were never called are missing, so the
model has fewer tools to choose from than the recorded agent had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ctxlab.messages.types import Message

_JSON_TYPES: dict[type, str] = {str: "string", list: "array", dict: "object"}
_JSON_TYPES |= {type(None): "null", bool: "boolean", int: "integer", float: "number"}
_MAX_DEPTH = 4
"maximum depth of nested values in a schema; deeper values may have any type"
_MAX_KEYS = 32
"if a nested object has more keys than this, the keys are treated as data, not as field names"


def infer_tool_definitions(messages: Iterable[Message]) -> tuple[dict[str, Any], ...]:
    """Derive a tool definition for each tool that the messages call.

    Parameters
    ----------
    messages : iterable of Message
        Messages of a recording; those without tool calls are ignored.

    Returns
    -------
    tuple of dict
        Definitions in OpenAI's format, in the order in which the tools were first called.

    Examples
    --------
    >>> from ctxlab.messages.types import ToolCall
    >>> texts = '{"path": "a.py"}', '{"path": "b.py", "lines": [1, 2]}'
    >>> calls = tuple(ToolCall("c", "read", text) for text in texts)
    >>> (tool,) = infer_tool_definitions([Message("assistant", tool_calls=calls)])
    >>> tool["function"]["name"], tool["function"]["parameters"]["required"]
    ('read', ['path'])
    >>> tool["function"]["parameters"]["properties"]["lines"]
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    seen: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        for call in message.tool_calls:
            found = call.parse_arguments()  # other JSON values count as no arguments
            seen.setdefault(call.name, []).append(found if isinstance(found, dict) else {})
    return tuple(
        {
            "type": "function",
            "function": {"name": name, "parameters": _object_schema(arguments, _MAX_DEPTH)},
        }
        for name, arguments in seen.items()
    )


def _object_schema(objects: Sequence[dict[str, Any]], depth: int) -> dict[str, Any]:
    keys = dict.fromkeys(key for each in objects for key in each)
    found = {k: _value_schema([each[k] for each in objects if k in each], depth) for k in keys}
    required = [key for key in keys if all(key in each for each in objects)]
    return {"type": "object", "properties": found, "required": required}


def _value_schema(values: Sequence[Any], depth: int) -> dict[str, Any]:
    """Return a JSON schema that accepts all of the given values."""
    if depth == 0 or not values:
        return {}
    types = list(dict.fromkeys(_JSON_TYPES[type(value)] for value in values))
    if "number" in types and "integer" in types:
        types.remove("integer")
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    if "array" in types:  # OpenAI rejects an array without items
        inner = [item for value in values if isinstance(value, list) for item in value]
        schema["items"] = _value_schema(inner, depth - 1)
    if "object" in types:
        objects = [value for value in values if isinstance(value, dict)]
        if len({key for each in objects for key in each}) <= _MAX_KEYS:
            schema |= {k: v for k, v in _object_schema(objects, depth - 1).items() if k != "type"}
    return schema

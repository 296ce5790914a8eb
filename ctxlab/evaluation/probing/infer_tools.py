"""Where a log holds no tool definitions, the calls in it say which tools there were and what they take.

A model that is given no definitions can call no tool. What is derived is the least that the calls show:
names, arguments, and the types of their values; an argument is required that every call of the tool has.
There are no descriptions, and a tool that was never called is not among them, so that the choice is
easier than the recorded agent's was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.types import Message

__all__ = ["infer_tool_definitions"]

_MAX_DEPTH = 4
"levels of a value that are described; what is deeper may be anything"
_MAX_KEYS = 32
"keys of a nested object, above which they are data and not the names of fields"


def infer_tool_definitions(messages: Iterable[Message]) -> tuple[dict[str, Any], ...]:
    """Definitions in OpenAI's shape of every tool that is called, in the order of first calls.

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
            seen.setdefault(call.name, []).append(_parse_arguments(call.arguments))
    return tuple(
        {
            "type": "function",
            "function": {"name": name, "parameters": _object_schema(arguments, _MAX_DEPTH)},
        }
        for name, arguments in seen.items()
    )


def _parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call; those that are no JSON object show nothing of what the tool takes."""
    try:
        value = parse_json(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _object_schema(objects: Sequence[dict[str, Any]], depth: int) -> dict[str, Any]:
    keys = dict.fromkeys(key for each in objects for key in each)
    found = {
        key: _value_schema([each[key] for each in objects if key in each], depth) for key in keys
    }
    required = [key for key in keys if all(key in each for each in objects)]
    return {"type": "object", "properties": found, "required": required}


def _value_schema(values: Sequence[Any], depth: int) -> dict[str, Any]:
    """What all of the values are."""
    if depth == 0 or not values:
        return {}
    types = list(dict.fromkeys(_json_type(value) for value in values))
    if "number" in types and "integer" in types:
        types.remove("integer")
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    if "array" in types:  # OpenAI refuses one that does not say what is in it
        inner = [item for value in values if isinstance(value, list) for item in value]
        schema["items"] = _value_schema(inner, depth - 1)
    if "object" in types:
        objects = [value for value in values if isinstance(value, dict)]
        if len({key for each in objects for key in each}) <= _MAX_KEYS:
            schema |= {k: v for k, v in _object_schema(objects, depth - 1).items() if k != "type"}
    return schema


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = ((int, "integer"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")

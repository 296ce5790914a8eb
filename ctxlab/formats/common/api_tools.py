"""Conversion of tool definitions of any API to OpenAI's shape.

Definitions may be OpenAI's (wrapped in ``function``, or flat as in Responses), Anthropic's,
Bedrock's (``toolSpec``), or those of Strands and MCP (``inputSchema``). A tool that the provider
runs itself has a type and no schema, and is kept unchanged. The readers of traces use this module.

References
----------
The documentation of these APIs, docs.langchain.com/langsmith and
github.com/strands-agents/sdk-python, 2026.
"""

from __future__ import annotations

from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_messages import parse_if_json
from ctxlab.formats.fields import get_in, get_text

_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")


def parse_tools(value: Any, skip: SkipCallback) -> tuple[dict[str, Any], ...]:
    """Parse a list of tool definitions.

    Parameters
    ----------
    value : Any
        A list of definitions, or its JSON text.
    skip : Callable
        Called with a description of each element that is left out.

    Returns
    -------
    tuple of dict
        The definitions in OpenAI's shape. Empty if the value is not a list.

    Examples
    --------
    >>> parse_tools('[{"name": "ls", "input_schema": {"type": "object"}}]', print)
    ({'type': 'function', 'function': {'name': 'ls', 'parameters': {'type': 'object'}}},)
    """
    listed = parse_if_json(value)
    if not isinstance(listed, list):
        return ()
    tools = []
    for each in map(parse_if_json, listed):
        if isinstance(each, dict):
            tools.append(_to_openai_tool(each))
        else:
            skip("tool definition that is not an object")
    return tuple(tools)


def _to_openai_tool(definition: dict[str, Any]) -> dict[str, Any]:
    if isinstance(definition.get("function"), dict):
        return {"type": "function", "function": definition["function"]}
    body = definition.get("toolSpec", definition)
    if not get_text(body, "name"):
        return definition
    key = next((key for key in _SCHEMA_KEYS if body.get(key) is not None), None)
    if key is None and get_text(definition, "type") not in (None, "function"):
        return definition
    function = {key: body[key] for key in ("name", "description", "strict") if body.get(key)}
    if key is not None:
        schema = parse_if_json(body[key])
        # Bedrock wraps the schema in an object with the key json.
        inner = get_in(schema, "json") if key == "inputSchema" else None
        function["parameters"] = inner if isinstance(inner, dict) else schema
    return {"type": "function", "function": function}

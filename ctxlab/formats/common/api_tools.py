"""Definitions of tools become OpenAI's shape, whichever API they were written for.

They are OpenAI's (wrapped in ``function``, or flat as Responses has them), Anthropic's, Bedrock's
(``toolSpec``), or those of Strands and MCP (``inputSchema``). A tool that the provider runs itself has
a type and no schema, and stays as it is. The readers of traces use it.

Source: the APIs named, and docs.langchain.com/langsmith, github.com/strands-agents/sdk-python, 2026.
"""

from __future__ import annotations

from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_messages import parse_if_json
from ctxlab.formats.fields import get_nested, text_or_none

__all__ = ["parse_tools"]

_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")


def parse_tools(value: Any, skip: SkipCallback) -> tuple[dict[str, Any], ...]:
    """The definitions in a list, or in a JSON text of one; none where it is neither.

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
            skip("tool definition that is no object")
    return tuple(tools)


def _to_openai_tool(definition: dict[str, Any]) -> dict[str, Any]:
    if isinstance(definition.get("function"), dict):
        return {"type": "function", "function": definition["function"]}
    body = definition.get("toolSpec", definition)
    if not text_or_none(get_nested(body, "name")):
        return definition
    key = next((key for key in _SCHEMA_KEYS if body.get(key) is not None), None)
    if key is None and text_or_none(definition.get("type")) not in (None, "function"):
        return definition
    function = {key: body[key] for key in ("name", "description", "strict") if body.get(key)}
    if key is not None:
        schema = parse_if_json(body[key])
        # Bedrock wraps the schema once more.
        inner = get_nested(schema, "json") if key == "inputSchema" else None
        function["parameters"] = inner if isinstance(inner, dict) else schema
    return {"type": "function", "function": function}

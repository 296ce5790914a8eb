"""Definitions of tools become OpenAI's shape, whichever API they were written for.

They are OpenAI's (wrapped in ``function``, or flat as Responses has them), Anthropic's, Bedrock's
(``toolSpec``), or those of Strands and MCP (``inputSchema``). A tool that the provider runs itself has
a type and no schema, and stays as it is. The readers of traces use it.

Source: the APIs named, and docs.langchain.com/langsmith, github.com/strands-agents/sdk-python, 2026.
"""

from __future__ import annotations

from typing import Any

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.api_messages import unpacked
from ctxlab.formats.optional_fields import (
    text,
    within,
)

__all__ = ["tools_of"]

_SCHEMAS = ("parameters", "input_schema", "inputSchema")


def tools_of(value: Any, leave_out: LeaveOut) -> tuple[dict[str, Any], ...]:
    """The definitions in a list, or in a JSON text of one; none where it is neither.

    >>> tools_of('[{"name": "ls", "input_schema": {"type": "object"}}]', print)
    ({'type': 'function', 'function': {'name': 'ls', 'parameters': {'type': 'object'}}},)
    """
    listed = unpacked(value)
    if not isinstance(listed, list):
        return ()
    tools = []
    for each in map(unpacked, listed):
        if isinstance(each, dict):
            tools.append(_tool(each))
        else:
            leave_out("tool definition that is no object")
    return tuple(tools)


def _tool(definition: dict[str, Any]) -> dict[str, Any]:
    if isinstance(definition.get("function"), dict):
        return {"type": "function", "function": definition["function"]}
    body = definition.get("toolSpec", definition)
    if not text(within(body, "name")):
        return definition
    key = next((key for key in _SCHEMAS if body.get(key) is not None), None)
    if key is None and text(definition.get("type")) not in (None, "function"):
        return definition
    function = {key: body[key] for key in ("name", "description", "strict") if body.get(key)}
    if key is not None:
        schema = unpacked(body[key])
        # Bedrock wraps the schema once more.
        inner = within(schema, "json") if key == "inputSchema" else None
        function["parameters"] = inner if isinstance(inner, dict) else schema
    return {"type": "function", "function": function}

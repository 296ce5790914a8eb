"""Render tool definitions as the text that a provider writes into the prompt, to count its tokens.

OpenAI writes tool definitions as TypeScript. This format is published for OpenAI's open-weight
models. For OpenAI's other models, the format was inferred from billed tokens: the rendered text has
three tokens fewer than OpenAI bills, and ``TokenCounter.count_tools`` adds these three. Anthropic and
Google do not publish their formats. For their models and all others, each tool is rendered as one
line of JSON.

References
----------
- OpenAI, "OpenAI Harmony response format", section "Function calling"
- github.com/hmarr/openai-chat-tokens
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxlab._utils.jsonio import dump_json

# Deeper levels become "any"; real tools are not that deep.
_MAX_DEPTH = 16
_SAME_TYPES = ("string", "number", "boolean", "null", "object")
_TYPESCRIPT_TYPES = dict(zip(_SAME_TYPES, _SAME_TYPES, strict=True)) | {"integer": "number"}


def render_tools(tools: Sequence[Mapping[str, Any]], family: str = "openai") -> str:
    """Return tool definitions as the text that a provider writes into the prompt.

    A definition may be nested (``{"type": "function", "function": {…}}``) or flat, with its schema
    under ``parameters`` or ``input_schema``. Every schema is accepted. Parts of a schema that have no
    TypeScript type become ``any``.

    Parameters
    ----------
    tools : sequence of mapping
        Tool definitions in OpenAI's or Anthropic's format.
    family : str, optional
        Family of the model, as returned by ``model_family``. The text is TypeScript for ``"openai"``
        and JSON for all other families.

    Returns
    -------
    str
        Text of all definitions; an empty string if there are no tools.

    Examples
    --------
    >>> parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    >>> tool = {"name": "read", "description": "Reads a file", "parameters": parameters}
    >>> print(render_tools([tool]))
    # Tools
    <BLANKLINE>
    ## functions
    <BLANKLINE>
    namespace functions {
    <BLANKLINE>
    // Reads a file
    type read = (_: {
    path?: string,
    }) => any;
    <BLANKLINE>
    } // namespace functions
    >>> render_tools([tool], "anthropic")[:45]
    '{"name":"read","description":"Reads a file","'
    """
    bare = [_unwrap_tool(tool) for tool in tools]
    if not bare:
        return ""
    if family != "openai":
        return "\n".join(map(dump_json, bare))
    head = ("# Tools", "## functions", "namespace functions {")
    return "\n\n".join((*head, *map(_render_function, bare), "} // namespace functions"))


def _unwrap_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool definition in Anthropic's format: name, description, input_schema."""
    function = tool.get("function")
    body = function if isinstance(function, Mapping) else tool
    schema = body.get("parameters") or body.get("input_schema") or {}
    about = {"description": str(body["description"])} if body.get("description") else {}
    # Built-in tools of a provider, such as {"type": "web_search"}, have a type but no name.
    name = str(body.get("name") or body.get("type") or "")
    return {"name": name, **about, "input_schema": schema}


def _render_function(tool: dict[str, Any]) -> str:
    root = tool["input_schema"]
    schema = _resolve_reference(root, root)
    parameters = f"_: {_render_object(root, schema, '', ())}" if _get_properties(schema) else ""
    return "\n".join([*_render_comment(tool), f"type {tool['name']} = ({parameters}) => any;"])


def _render_type(root: Any, schema: Any, indent: str, path: tuple[str, ...]) -> str:
    """Return a JSON schema as a TypeScript type.

    ``path`` contains the references that have been followed to reach the schema, so that recursive
    schemas end with ``any``.
    """
    reference = str(schema.get("$ref") or "") if isinstance(schema, Mapping) else ""
    if len(path) > _MAX_DEPTH or (reference and reference in path):
        return "any"
    path = (*path, reference)
    schema = _resolve_reference(root, schema)
    kind = schema.get("type")
    if "const" in schema:
        return dump_json(schema["const"])
    if values := _get_list(schema, "enum"):
        return _render_union(map(dump_json, values))
    if members := _get_list(schema, "anyOf") or _get_list(schema, "oneOf"):
        return _render_union(_render_type(root, member, indent, path) for member in members)
    if members := _get_list(schema, "allOf"):
        return " & ".join(_render_type(root, member, indent, path) for member in members)
    if kinds := _get_list(schema, "type"):
        variants = ({**schema, "type": one} for one in kinds)
        return _render_union(_render_type(root, one, indent, path) for one in variants)
    if kind == "array":
        item = _render_type(root, schema.get("items"), indent, path)
        return f"({item})[]" if " | " in item and "{" not in item else f"{item}[]"
    if _get_properties(schema):
        return _render_object(root, schema, indent + "  ", path)
    return _TYPESCRIPT_TYPES.get(kind, "any") if isinstance(kind, str) else "any"


def _render_object(root: Any, schema: Mapping[str, Any], indent: str, path: tuple[str, ...]) -> str:
    required = _get_list(schema, "required")
    lines = ["{"]
    for name, value in _get_properties(schema).items():
        about = _resolve_reference(root, value)
        default = about.get("default")
        shown = default if isinstance(default, str) else dump_json(default)
        note = "" if default is None else f" // default: {shown}"
        optional = "" if name in required else "?"
        lines.extend(indent + line for line in _render_comment(about))
        lines.append(f"{indent}{name}{optional}: {_render_type(root, value, indent, path)},{note}")
    return "\n".join([*lines, "}"])


def _resolve_reference(root: Any, schema: Any) -> Mapping[str, Any]:
    """Return the schema that the ``$ref`` of a schema refers to, within the document ``root``.

    All other keys of ``schema`` are added to the result and replace equal keys. A schema without
    ``$ref`` is returned unchanged.
    """
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        if not isinstance(reference := schema.get("$ref"), str):
            return schema
        target = root
        for step in filter(None, reference.removeprefix("#").split("/")):
            target = target.get(step) if isinstance(target, Mapping) else None
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside} if isinstance(target, Mapping) else beside
    return {}


def _get_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _get_list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _render_comment(about: Mapping[str, Any]) -> list[str]:
    return [f"// {line}" for line in str(about.get("description") or "").splitlines()]


def _render_union(members: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(members))

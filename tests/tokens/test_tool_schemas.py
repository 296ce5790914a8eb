"""Tests of ``ctxlab.tokens.tool_schemas``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.tokens.encodings import load_encoding
from ctxlab.tokens.tool_schemas import render_tools

TEXT = {"type": "string"}
KEYS = (
    *("type", "properties", "items", "enum", "anyOf", "allOf", "$ref", "$defs", "a"),
    *("required", "description", "default", "const"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            children,
            max_size=4,
        )
        | st.sampled_from(
            ["object", "array", "string", ["string", "null"], {"$ref": "#"}, {"$ref": "#/$defs/a"}]
        )
    ),
    max_leaves=25,
)


def obj(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def body(parameters: Any) -> str:
    """Return the TypeScript of one parameter schema without the surrounding text."""
    text = render_tools([{"name": "f", "parameters": parameters}])
    return text.split("namespace functions {\n\n")[1].split("\n\n} // namespace")[0]


@pytest.mark.parametrize(
    ("tool", "billed"),
    [
        ({"name": "foo", "parameters": obj()}, 23),
        ({"name": "foo", "description": "Do a foo", "parameters": obj()}, 28),
        ({"name": "bing_bong", "description": "Do a bing bong", "parameters": obj(foo=TEXT)}, 41),
        (
            {
                "name": "bing_bong",
                "description": "Do a bing bong",
                "parameters": obj(foo=TEXT, bar={"type": "number", "description": "A number"}),
            },
            49,
        ),
        (
            {
                "name": "bing_bong",
                "description": "Do a bing bong",
                "parameters": obj(
                    foo=obj(
                        bar={"type": "string", "enum": ["a", "b", "c"]}, baz={"type": "boolean"}
                    )
                ),
            },
            60,
        ),
    ],
)
def test_the_text_is_three_tokens_less_than_gpt_3_5_turbo_billed(
    tool: dict[str, Any], billed: int
) -> None:
    # Measured by openai-chat-tokens (tests/token-counts.test.ts), less the 8 tokens of its message.
    assert len(load_encoding("cl100k_base").encode(render_tools([tool]))) + 3 == billed


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        (TEXT, "string"),
        ({"type": "integer"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "enum": ["a", "b"]}, '"a" | "b"'),
        ({"enum": [1, None, "x"]}, '1 | null | "x"'),
        ({"const": "x"}, '"x"'),
        ({"type": "array", "items": TEXT}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array"}, "any[]"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [TEXT, {"type": "null"}]}, "string | null"),
        ({"oneOf": [TEXT, TEXT]}, "string"),
        ({"allOf": [{"$ref": "#/$defs/name"}]}, "string"),
        ({"type": "object"}, "object"),
        ({"type": "object", "additionalProperties": TEXT}, "object"),
        ({"$ref": "#/$defs/name"}, "string"),
        ({"$ref": "#/$defs/absent"}, "any"),
        ({}, "any"),
        ({"type": "strange"}, "any"),
        (None, "any"),
        (obj(b=TEXT), "{\n  b?: string,\n}"),
    ],
)
def test_a_schema_becomes_a_typescript_type(schema: Any, type_: str) -> None:
    parameters = obj(("a",), a=schema) | {"$defs": {"name": TEXT}}
    assert body(parameters) == f"type f = (_: {{\na: {type_},\n}}) => any;"


def test_a_required_parameter_has_no_question_mark() -> None:
    assert (
        body(obj(("a",), a=TEXT, b=TEXT)) == "type f = (_: {\na: string,\nb?: string,\n}) => any;"
    )


def test_descriptions_and_defaults_are_comments() -> None:
    limit = {"type": "integer", "description": "How many\nat most", "default": 10}
    assert "// How many\n// at most\nlimit?: number, // default: 10" in body(obj(limit=limit))


def test_no_parameters_is_an_empty_list() -> None:
    assert body(obj()) == body(None) == body({}) == "type f = () => any;"


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = obj(left={"$ref": "#/$defs/node"}, right={"$ref": "#/$defs/node"}, name=TEXT)
    text = body({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert "left?: any" in text
    assert len(text) < 500


def test_deep_schemas_are_cut_off() -> None:
    schema: dict[str, Any] = TEXT
    for _ in range(200):
        schema = obj(a=schema)
    assert "a?: any" in body(schema)


def test_wrapped_and_bare_definitions_are_one() -> None:
    bare = {"name": "f", "description": "d", "parameters": obj(a=TEXT)}
    wrapped = {"type": "function", "function": bare}
    anthropic = {"name": "f", "description": "d", "input_schema": obj(a=TEXT)}
    for family in ("openai", "anthropic", "gemini", "other"):
        assert len({render_tools([tool], family) for tool in (bare, wrapped, anthropic)}) == 1


def test_other_families_get_one_line_of_json_a_tool() -> None:
    tools: list[dict[str, Any]] = [
        {"name": "a", "parameters": obj(x=TEXT)},
        {"name": "b", "description": "B"},
    ]
    lines = [json.loads(line) for line in render_tools(tools, "anthropic").splitlines()]
    assert lines == [
        {"name": "a", "input_schema": obj(x=TEXT)},
        {"name": "b", "description": "B", "input_schema": {}},
    ]


@pytest.mark.parametrize("family", ["openai", "anthropic"])
def test_no_tools_is_no_text(family: str) -> None:
    assert render_tools([], family) == ""


def test_a_tool_of_the_provider_goes_by_its_type() -> None:
    assert "type web_search = () => any;" in render_tools([{"type": "web_search"}])


@given(JSON, st.sampled_from(["openai", "anthropic"]))
def test_no_schema_is_refused(schema: Any, family: str) -> None:
    text = render_tools([{"name": "some_tool", "parameters": schema}], family)
    assert "some_tool" in text


@given(JSON)
def test_no_definition_is_refused(value: Any) -> None:
    for tool in ({"function": value}, {"name": value, "description": value, "input_schema": value}):
        assert render_tools([tool]) == render_tools([tool])

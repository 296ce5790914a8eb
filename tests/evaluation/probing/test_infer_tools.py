"""Tests of tool definitions inferred from recorded calls: they accept all of these calls."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.probing.infer_tools import infer_tool_definitions
from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.tool_schemas import render_tools

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.lists(
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=1, max_size=4
)
TYPES: dict[str, Any] = {
    "null": type(None), "boolean": bool, "integer": int, "number": (int, float), "string": str,
    "array": list, "object": dict,
}  # fmt: skip


def admits(schema: dict[str, Any], value: Any) -> bool:
    """Return True if an inferred schema accepts a value."""
    types = schema.get("type")
    if types is None:
        return True
    names = [types] if isinstance(types, str) else types
    if not any(
        isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        for name in names
    ):
        return False
    if isinstance(value, list):
        return all(admits(schema["items"], item) for item in value)
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return set(schema["required"]) <= set(value) and all(
            key in known and admits(known[key], inner) for key, inner in value.items()
        )
    return True


def said(*texts: str, name: str = "read") -> list[Message]:
    return [Message("assistant", tool_calls=(ToolCall("c", name, text),)) for text in texts]


@given(ARGUMENTS)
def test_every_call_is_admitted_by_the_definition_derived_from_it(given: list[Any]) -> None:
    (tool,) = infer_tool_definitions(said(*map(json.dumps, given)))
    assert all(admits(tool["function"]["parameters"], each) for each in given)


@given(ARGUMENTS)
def test_what_is_required_is_what_every_call_has(given: list[Any]) -> None:
    (tool,) = infer_tool_definitions(said(*map(json.dumps, given)))
    parameters = tool["function"]["parameters"]
    assert set(parameters["required"]) == set.intersection(*(set(each) for each in given))
    assert set(parameters["properties"]) == set().union(*given)


@given(ARGUMENTS)
def test_every_array_says_what_is_in_it(given: list[Any]) -> None:
    def arrays(schema: Any) -> bool:
        types = schema.get("type", [])
        inner = [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
        return ("array" not in types or "items" in schema) and all(map(arrays, inner))

    (tool,) = infer_tool_definitions(said(*map(json.dumps, given)))
    assert arrays(tool["function"]["parameters"])
    json.dumps(tool)
    assert "type read = " in render_tools([tool])


def test_tools_stand_in_the_order_of_their_first_calls() -> None:
    messages = [
        *said("{}", name="b"),
        Message("user", "hi"),
        *said("{}", "{}", name="a"),
        *said("", name="b"),
    ]
    assert [tool["function"]["name"] for tool in infer_tool_definitions(messages)] == ["b", "a"]


def test_types_that_were_seen_are_joined_and_whole_numbers_are_numbers() -> None:
    (tool,) = infer_tool_definitions(
        said('{"a": 1, "b": 1, "c": true}', '{"a": 1.5, "b": "x", "c": false}')
    )
    assert tool["function"]["parameters"]["properties"] == {
        "a": {"type": "number"},
        "b": {"type": ["integer", "string"]},
        "c": {"type": "boolean"},
    }


def test_an_object_of_many_keys_is_data_and_not_spelt_out() -> None:
    many = json.dumps({"map": {f"key{i}": i for i in range(40)}})
    (tool,) = infer_tool_definitions(said(many))
    assert tool["function"]["parameters"]["properties"]["map"] == {"type": "object"}


def test_calls_that_are_no_json_object_show_the_name_alone() -> None:
    (tool,) = infer_tool_definitions(said("{broken", "[1]"))
    assert tool["function"] == {
        "name": "read",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }

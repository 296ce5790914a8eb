"""Tests of tools: schemas from type hints, checks of arguments, and errors as results."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from ctxlab.agent.tools.result import ERROR_TYPES, ToolResult
from ctxlab.agent.tools.tool import Tool, call_tool, tool_from_function, tools_by_name
from ctxlab.context.turns import GET_TURN_TOOL
from ctxlab.errors import SpecError


class Edit(BaseModel):
    line: int = Field(description="counted from 1")
    text: str = ""


def edit_file(
    path: str,
    edits: list[Edit],
    mode: Literal["keep", "drop"] = "keep",
    copy: bool = False,
    limit: Annotated[int, Field(ge=1, le=9, description="edits at most")] = 5,
    encoding: str | None = None,
) -> str:
    """Edits a file in place.

    All edits are made, or none.

    Args:
        path: from the root
            of the workspace
        mode (str): of what was there
        edits: in order

    Returns:
        what was done
    """
    return f"{path} {[e.line for e in edits]} {mode} {copy} {limit} {encoding}"


def test_types_defaults_and_docstring_are_the_schema() -> None:
    tool = tool_from_function(edit_file)
    assert tool.definition["function"] | {"parameters": 0} == {
        "name": "edit_file",
        "description": "Edits a file in place.\n\nAll edits are made, or none.",
        "parameters": 0,
    }
    schema = tool.parameters
    assert schema["required"] == ["path", "edits"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["path"] == {
        "type": "string", "description": "from the root of the workspace",
    }  # fmt: skip
    assert properties["mode"]["enum"] == ["keep", "drop"]
    assert (properties["mode"]["default"], properties["mode"]["description"]) == (
        "keep", "of what was there",
    )  # fmt: skip
    assert properties["limit"] == {
        "type": "integer", "minimum": 1, "maximum": 9, "default": 5, "description": "edits at most",
    }  # fmt: skip
    assert properties["edits"]["items"] == {"$ref": "#/$defs/Edit"}
    assert schema["$defs"]["Edit"]["properties"]["line"]["description"] == "counted from 1"
    assert "title" not in json.dumps(tool.definition)


def test_the_function_is_given_what_its_types_say() -> None:
    given_ = {"path": "a.py", "edits": [{"line": "3"}], "copy": True}
    result = call_tool(tool_from_function(edit_file), json.dumps(given_))
    assert isinstance(result, ToolResult)
    assert (result.ok, result.data) == (True, "a.py [3] keep True 5 None")
    assert result.tool_name == "edit_file"
    assert result.duration_ms is not None


def test_wrong_arguments_are_told_one_line_a_fault() -> None:
    """Seed 002, section 10.1: invalid_args says what to correct."""
    given_ = {"edits": [{"line": "x"}], "limit": 10, "mode": "all", "paht": "a.py"}
    result = call_tool(tool_from_function(edit_file), json.dumps(given_))
    assert (result.ok, result.error_type) == (False, "invalid_args")
    assert result.error is not None
    begin, *lines = result.error.splitlines()
    assert begin == "edit_file was not called, because its arguments are not valid:"
    assert [line.split(":")[0] for line in lines] == [
        "- path", "- edits.0.line", "- mode", "- limit", "- paht",
    ]  # fmt: skip
    assert lines[0] == "- path: Field required"
    assert '(given: "x")' in lines[1]
    assert "available: path, edits, mode, copy, limit, encoding" in lines[-1]


@pytest.mark.parametrize("text", ['{"path": ', "[1]", "null", '"a"', "NaN", "{" * 50_000, "{}}"])
def test_arguments_that_are_no_json_object_are_refused(text: str) -> None:
    result = call_tool(tool_from_function(edit_file), text)
    assert (result.ok, result.error_type) == (False, "invalid_args")
    assert "JSON" in str(result.error)
    assert len(str(result.error)) < 300


def test_no_arguments_at_all_are_none() -> None:
    def now() -> str:
        """The time."""
        return "noon"

    assert (
        call_tool(tool_from_function(now), "").data
        == call_tool(tool_from_function(now), "{}").data
        == "noon"
    )
    assert call_tool(tool_from_function(now), '{"zone": "UTC"}').error_type == "invalid_args"


def fails(error: BaseException) -> Tool:
    def run() -> None:
        raise error

    return tool_from_function(run)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("too long"), "timeout"),
        (socket.timeout("read"), "timeout"),  # noqa: UP041
        (subprocess.TimeoutExpired("sleep 9", 1), "timeout"),
        (requests.exceptions.ReadTimeout("slow"), "timeout"),
        (httpx.ConnectTimeout("slow"), "timeout"),
        (PermissionError(13, "denied"), "permission_denied"),
        (ConnectionRefusedError("no"), "network_error"),
        (socket.gaierror("unknown host"), "network_error"),
        (urllib.error.URLError("no route"), "network_error"),
        (http.client.RemoteDisconnected("gone"), "network_error"),
        (requests.exceptions.ConnectionError("gone"), "network_error"),
        (httpx.ConnectError("gone"), "network_error"),
        (OSError(101, "Network is unreachable"), "network_error"),
        (FileNotFoundError(2, "no such file"), "execution_error"),
        (ValueError("bad"), "execution_error"),
        (RecursionError(), "execution_error"),
        (GeneratorExit(), "execution_error"),
    ],
)
def test_every_failure_is_a_result_of_its_kind(error: BaseException, kind: str) -> None:
    """Seed 002, criterion 1: all tool execution returns a ToolResult instance."""
    result = call_tool(fails(error), "{}")
    assert isinstance(result, ToolResult)
    assert (result.ok, result.error_type) == (False, kind)
    assert result.error_type in ERROR_TYPES
    assert str(result.error).startswith(type(error).__name__)
    assert set(result.model_dump()) >= {"ok", "error"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_only_what_ends_the_program_goes_on(error: BaseException) -> None:
    with pytest.raises(type(error)):
        call_tool(fails(error), "{}")


def test_a_result_that_a_tool_makes_itself_is_kept_and_completed() -> None:
    def run(ok: bool) -> ToolResult:
        return ToolResult(ok=ok, data=1, process_id="p7", duration_ms=5)

    result = call_tool(tool_from_function(run), '{"ok": true}')
    assert (result.process_id, result.duration_ms, result.tool_name) == ("p7", 5, "run")


@dataclass
class Counter:
    n: int = 0

    def add(self, by: int) -> int:
        """Adds."""
        self.n += by
        return self.n

    def __call__(self, by: int) -> int:
        return self.add(by)


def test_methods_and_callable_objects_are_tools_too() -> None:
    counter = Counter()
    assert call_tool(tool_from_function(counter.add), '{"by": 2}').data == 2
    assert call_tool(tool_from_function(counter, name="count"), '{"by": 3}').data == 5
    assert call_tool(tool_from_function(partial(counter.add), name="part"), '{"by": 1}').data == 6


def test_parameters_may_be_called_as_they_like() -> None:
    def odd(schema: str, model_config: int, json: bool = True, self_: str = "") -> str:
        return f"{schema}{model_config}{json}"

    assert call_tool(tool_from_function(odd), '{"schema": "a", "model_config": 1}').data == "a1True"


def no_type(path) -> None: ...  # type: ignore[no-untyped-def]
def many(*paths: str) -> None: ...
def any_key(**options: str) -> None: ...
def by_place(path: str, /) -> None: ...
async def later(path: str) -> None: ...


class Later:
    async def __call__(self, path: str) -> None: ...


def strange(path: socket.socket) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        *(no_type, many, any_key, by_place, later, strange, lambda: 1, partial(no_type)),
        *(partial(later), Later, None, 42, "now"),
    ],
)
def test_what_cannot_be_told_to_a_model_is_no_tool(function: Callable[..., Any]) -> None:
    with pytest.raises(SpecError, match="tool"):
        tool_from_function(function)


def test_a_callable_object_that_is_async_is_no_tool() -> None:
    with pytest.raises(SpecError, match="tool later is async"):
        tool_from_function(Later(), name="later")


def test_a_single_function_is_no_list_of_tools() -> None:
    for one in (edit_file, tool_from_function(edit_file), "edit_file"):
        with pytest.raises(SpecError, match="Expected a list of tools"):
            tools_by_name(one)  # type: ignore[arg-type]


def test_a_text_beside_a_type_describes_the_parameter_unless_the_docstring_does() -> None:
    def find(words: Annotated[str, "what to look for"], limit: Annotated[int, "unsaid"] = 3) -> str:
        """Finds.

        Args:
            limit: lines at most
        """
        return words * limit

    properties = tool_from_function(find).parameters["properties"]
    assert properties["words"]["description"] == "what to look for"
    assert properties["limit"]["description"] == "lines at most"


def test_two_tools_of_one_name_are_refused() -> None:
    def now() -> str:
        return ""

    assert list(tools_by_name([now, tool_from_function(now, name="then")])) == ["now", "then"]
    with pytest.raises(SpecError, match="two tools have the name 'now'"):
        tools_by_name([now, tool_from_function(now)])


def test_a_tool_with_a_schema_of_its_own_is_held_to_its_signature() -> None:
    about = GET_TURN_TOOL["function"]
    tool = Tool("get_turn", about["description"], about["parameters"], lambda number: number + 1)
    assert tool.definition == GET_TURN_TOOL
    assert call_tool(tool, '{"number": 3}').data == 4
    assert call_tool(tool, '{"turn": 3}').error_type == "invalid_args"


@given(st.text() | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each) | st.dictionaries(
        st.sampled_from(["path", "edits", "line", "mode", "x"]), each
    ),
    max_leaves=8,
).map(json.dumps))  # fmt: skip
def test_whatever_a_model_writes_is_answered(arguments: str) -> None:
    result = call_tool(tool_from_function(edit_file), arguments)
    assert result.ok or result.error_type == "invalid_args"
    result.to_llm_content().encode()


@pytest.mark.parametrize(
    "layout",
    [
        "Parameters\n----------\npath : str\n    The file,\n    whole.\nn\n    How many.",
        ":param str path: The file,\n    whole.\n:param n: How many.\n:return: x",
        "Args:\n  path: The file,\n    whole.\n  n (int): How many.\nRaises:\n  No: x",
    ],
)
def test_three_layouts_of_docstrings_are_understood(layout: str) -> None:
    def act(path: str, n: int) -> None: ...

    act.__doc__ = f"Does it.\n\n{layout}\n"
    tool = tool_from_function(act)
    assert tool.description == "Does it."
    known = {name: each["description"] for name, each in tool.parameters["properties"].items()}
    assert known == {"path": "The file, whole.", "n": "How many."}


def test_a_tool_needs_no_docstring() -> None:
    def act(path: str) -> None: ...

    tool = tool_from_function(act)
    assert tool.description == ""
    assert "description" not in tool.parameters["properties"]["path"]

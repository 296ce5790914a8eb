"""Tests of what a tool call fetches: known tools by name, others by a general rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctxlab.messages.tool_lookups import parse_fetch_target
from ctxlab.messages.types import ToolCall


def fetched(tool: str, /, **arguments: Any) -> tuple[str, str] | None:
    return parse_fetch_target(ToolCall("c1", tool, json.dumps(arguments)))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "./src/io.py", "offset": 40, "limit": 10}),
        ("read", {"path": "src/io.py"}),
        ("mcp__files__readFile", {"path": "src//io.py"}),
        ("str_replace_editor", {"command": "view", "path": "src/io.py"}),
        ("bash", {"command": "cat src/io.py"}),
        ("shell", {"command": ["bash", "-lc", "sed -n 1,9p src/io.py"]}),
    ],
)
def test_a_file_is_its_path_however_it_is_read(tool: str, arguments: dict[str, Any]) -> None:
    assert fetched(tool, **arguments) == ("file", "src/io.py")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Edit", {"file_path": "a.py", "old_string": "x"}),
        ("Write", {"file_path": "a.py", "content": "x"}),
        ("str_replace_editor", {"command": "create", "path": "a.py", "file_text": ""}),
        ("bash", {"command": "cat > a.py <<'EOF'\nx\nEOF"}),
        ("TodoWrite", {"todos": []}),
        ("cancel_order", {"id": 7}),
        ("bash", {}),
    ],
)
def test_what_writes_or_acts_fetches_nothing(tool: str, arguments: dict[str, Any]) -> None:
    assert fetched(tool, **arguments) is None


def test_a_search_is_what_is_looked_for_and_where() -> None:
    here = fetched("Grep", pattern="def read", path="src", output_mode="content")
    assert here == fetched("Grep", path="src", pattern="def  read")
    assert here != fetched("Grep", pattern="def read", path="tests")
    assert here is not None
    assert here[0] == "search"
    assert fetched("ls", path="src/") == fetched("list_dir", path="./src")
    assert fetched("ls", path="src") != fetched("ls", path="tests")


def test_a_command_is_the_same_whatever_its_white_space() -> None:
    assert fetched("bash", command="make  test\n") == fetched("Bash", command="make test")
    assert fetched("bash", command="make test") != fetched("bash", command="make tests")


def test_a_tool_of_ones_own_fetches_if_its_name_says_so() -> None:
    assert fetched("get_order", id=7) == fetched("get_order", id=7)
    assert fetched("get_order", id=7) != fetched("get_order", id=8)
    assert fetched("getOrder", id=7) == ("lookup", 'get_order: {"id":7}')
    assert fetched("getaway", id=7) is None


def test_arguments_that_are_no_json_are_no_command() -> None:
    assert parse_fetch_target(ToolCall("c1", "bash", "{broken")) is None

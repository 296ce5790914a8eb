"""Tests of ``parse_file_access``, which finds the file of a tool call for known agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.file_access import FileAccess, is_tool_error, parse_file_access
from ctxlab.messages.types import Message, ToolCall


def call(name: str, arguments: Any) -> ToolCall:
    return ToolCall("c1", name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def of_shell(command: Any) -> FileAccess | None:
    return parse_file_access(call("bash", {"command": command}))


PATCH = "*** Begin Patch\n*** Update File: src/io.py\n@@\n-a\n+b\n*** Add File: b.py\n*** End Patch"


@pytest.mark.parametrize(
    ("name", "arguments", "path", "verb"),
    [
        ("Read", {"file_path": "/r/a.py"}, "/r/a.py", "read"),
        ("Edit", {"file_path": "/r/a.py", "old_string": "a", "new_string": "b"}, "/r/a.py", "edit"),
        ("MultiEdit", {"file_path": "/r/a.py", "edits": []}, "/r/a.py", "edit"),
        ("Write", {"file_path": "/r/a.py", "content": "x"}, "/r/a.py", "write"),
        ("NotebookEdit", {"notebook_path": "/r/a.ipynb", "new_source": ""}, "/r/a.ipynb", "edit"),
        ("LS", {"path": "/r/"}, "/r", "list"),
        ("read", {"path": "./src//a.py"}, "src/a.py", "read"),
        ("write", {"path": "src/a.py", "content": ""}, "src/a.py", "write"),
        ("str_replace_editor", {"command": "view", "path": "/w/a.py"}, "/w/a.py", "read"),
        ("str_replace_editor", {"command": "view", "path": "/w/"}, "/w", "list"),
        ("str_replace_editor", {"command": "create", "path": "/w/a.py"}, "/w/a.py", "write"),
        ("str_replace_based_edit_tool", {"command": "insert", "path": "a.py"}, "a.py", "edit"),
        ("file_editor", {"command": "str_replace", "path": "/w/a.py"}, "/w/a.py", "edit"),
        ("open", {"path": "src/a.py"}, "src/a.py", "read"),
        ("create", {"filename": "reproduce.py"}, "reproduce.py", "write"),
        ("read_file", {"absolute_path": "/r/a.py"}, "/r/a.py", "read"),
        ("replace", {"file_path": "a.py", "old_string": "", "new_string": ""}, "a.py", "edit"),
        ("list_directory", {"dir_path": "src"}, "src", "list"),
        ("mcp__files__readFile", {"path": "C:\\src\\a.py"}, "C:/src/a.py", "read"),
        ("edit_file", {"target_file": "a.py"}, "a.py", "edit"),
        ("apply_patch", {"input": PATCH}, "src/io.py", "edit"),
        ("apply_patch", PATCH, "src/io.py", "edit"),
        ("shell", {"command": ["apply_patch", PATCH]}, "src/io.py", "edit"),
        ("shell", {"command": ["bash", "-lc", "cat a.py"], "workdir": "/r"}, "/r/a.py", "read"),
        ("run_shell_command", {"command": "cat a.py", "directory": "src"}, "src/a.py", "read"),
    ],
)
def test_the_tools_of_agents_say_which_file_they_are_about(
    name: str, arguments: Any, path: str, verb: str
) -> None:
    touch = parse_file_access(call(name, arguments))
    assert touch is not None
    assert (touch.path, touch.operation) == (path, verb)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat a.py", FileAccess("a.py", "read")),
        ("cat -n 'my file.py'", FileAccess("my file.py", "read")),
        ("cd /r && cat src/a.py", FileAccess("/r/src/a.py", "read")),
        ("cd /r && cd src && cat ../a.py", FileAccess("/r/a.py", "read")),
        ("cat a.py 2>/dev/null", FileAccess("a.py", "read")),
        ("sed -n '10,20p' a.py", FileAccess("a.py", "read", (10, 20))),
        ("nl -ba a.py | sed -n 1,80p", FileAccess("a.py", "read", (1, 80))),
        ("cat a.py | head -40", FileAccess("a.py", "read", (1, 40))),
        ("head -n 5 a.py", FileAccess("a.py", "read", (1, 5))),
        ("tail a.py", FileAccess("a.py", "read", (-10, None))),
        ("open src/a.py 30", FileAccess("src/a.py", "read", (30, None))),
        ("create a.py", FileAccess("a.py", "write")),
        ("ls -la", FileAccess(".", "list")),
        ("ls -F src", FileAccess("src", "list")),
        ("sed -i 's/a|b/c/' a.py", FileAccess("a.py", "edit")),
        ("sed -i '' 's/a/b/' a.py", FileAccess("a.py", "edit")),
        ("cat > a.py << 'EOF'\nx = 1; y | z\nEOF", FileAccess("a.py", "write")),
        ("cat <<EOF > a.py\nx\nEOF\npython a.py", FileAccess("a.py", "write")),
        ("cd /r && cat >> a.py <<EOF\nx\nEOF", FileAccess("/r/a.py", "edit")),
        ("echo 'x' > a.py", FileAccess("a.py", "write")),
        ("echo 'x' >> a.py", FileAccess("a.py", "edit")),
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF", FileAccess("src/io.py", "edit")),
    ],
)
def test_plain_shell_commands_count(command: str, expected: FileAccess) -> None:
    assert of_shell(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        *(
            "make test",
            "cat a.py b.py",
            "cat a.py | grep x",
            "cat *.py",
            "cat $FILE",
            "cat",
            "head",
        ),
        *(
            "cat a.py; rm a.py",
            "cat a.py && make",
            "cat `which x`",
            "sed 's/a/b/' a.py",
            "ls | head",
        ),
        *(
            "cat a.py > b.py",
            "cat 'unclosed",
            "sed -n /x/p a.py",
            "find . | xargs cat",
            "tail -f a",
        ),
        *("cat a.py\ncat b.py", "", [], 5, ["bash", 3], {"a": 1}, "head -c 5 a.py", "echo a > $F"),
    ],
)
def test_what_is_not_plain_is_not_guessed(command: Any) -> None:
    assert of_shell(command) is None


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, None),
        ({"offset": 10, "limit": 5}, (10, 14)),
        ({"limit": 5}, (1, 5)),
        ({"offset": "10"}, (10, None)),
        ({"offset": 1}, None),
        ({"view_range": [3, 9]}, (3, 9)),
        ({"view_range": [3, -1]}, (3, None)),
        ({"start_line": 3, "end_line": 9}, (3, 9)),
        ({"line_number": 30}, (30, None)),
        ({"offset": None, "limit": True}, None),
    ],
)
def test_a_read_says_which_lines_it_asks_for(
    arguments: dict[str, Any], part: tuple[int, int | None] | None
) -> None:
    assert parse_file_access(call("read", {"path": "a.py", **arguments})) == FileAccess(
        "a.py", "read", part
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("read", text) for text in ("", "{}", "nonsense", "[1]", "3", '{"path": 3}', '{"path": " "}')),
        ("Grep", {"pattern": "x", "path": "src"}),
        ("edit", {"search": "a", "replace": "b"}),
        ("apply_patch", {"input": "no patch"}),
    ],
)  # fmt: skip
def test_a_call_that_names_no_file_touches_none(name: str, arguments: Any) -> None:
    assert parse_file_access(call(name, arguments)) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)
keys = st.sampled_from(["path", "file", "command", "cmd", "view_range", "offset", "limit", "input"])


@pytest.mark.properties
@given(
    name=st.sampled_from(["read", "bash", "apply_patch", "str_replace_editor"]) | st.text(),
    arguments=st.dictionaries(keys, values).map(json.dumps) | st.text(),
)
def test_odd_arguments_are_survived(name: str, arguments: str) -> None:
    touch = parse_file_access(ToolCall("c1", name, arguments))
    assert touch is None or touch.path


@given(st.text(alphabet="catsedhn -'\"|;&><$\n0123456789,p.py/", max_size=40))
def test_odd_commands_are_survived(command: str) -> None:
    touch = of_shell(command)
    assert touch is None or touch.path


@pytest.mark.parametrize(
    ("text", "extra", "expected"),
    [
        *(
            ("ERROR:\nNo replacement was performed", {}, True),
            ("cat: a.py: No such file", {}, True),
        ),
        *(("fine", {"is_error": True}, True), ("fine", {}, False), ("", {}, False)),
        *(("errors = []\n", {}, False), ("Traceback (most recent call last)", {}, True)),
    ],
)
def test_a_result_says_whether_it_failed(text: str, extra: dict[str, Any], expected: bool) -> None:
    assert is_tool_error(Message("tool", text, tool_call_id="c1", extra=extra)) is expected

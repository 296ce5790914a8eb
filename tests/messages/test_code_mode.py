"""Tests of how tool calls are found in programs that agents run to call tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.code_mode import find_program_calls

NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=3)


@given(st.lists(st.tuples(NAMES, ARGUMENTS), max_size=3))
def test_arguments_written_as_json_are_found(calls: list[tuple[str, dict[str, Any]]]) -> None:
    lines = (f"text(await tools.{name}({json.dumps(argument)}));" for name, argument in calls)
    assert find_program_calls("\n".join(lines)) == calls


def test_the_syntax_of_javascript_literals_is_known() -> None:
    program = r"""const [a, b] = await Promise.all([ // two calls
      tools.exec_command({cmd: 'a "b"\n', "n": 1_000, list: [1, 2.5,], tty: true, /* none */ cwd,}),
      tools . read(`a\`b$`),
    ]); text(a.output);"""
    assert find_program_calls(program) == [
        ("exec_command", {"cmd": 'a "b"\n', "n": 1000, "list": [1, 2.5], "tty": True, "cwd": None}),
        ("read", "a`b$"),
    ]


@pytest.mark.parametrize(
    "program",
    [
        "tools[name]({})",
        "const t = tools; t.rm({})",
        "tools.rm",
        "tools.run({cmd: 'a' + b})",
        "tools.run({cmd: `a ${b}`})",
        "tools.run({...options})",
        "tools.run({cmd: f(x)})",
        "tools.run({cmd: 'a'}, 2)",
        "tools.run({cmd: 'a'",
        "tools.run(" + "[" * 5000,
        r"tools.run('\u{ffffff}')",
    ],
)
def test_other_uses_of_tools_are_unknown(program: str) -> None:
    assert find_program_calls(program) is None


@given(st.text("tools.a({'`\"b:1,}])\\ \n", max_size=40))
def test_no_text_causes_an_error(text: str) -> None:
    find_program_calls("tools.a(" + text)

"""Tests of ``ToolResult``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ctxlab.agent.tools.result import (
    ERROR_TYPES,
    MAX_RESULT_CHARS,
    ToolResult,
    cancelled_result,
    to_json_data,
)


class Place(BaseModel):
    path: str
    line: int = 1


@dataclass
class Size:
    bytes: int


def test_a_success_gives_the_model_its_data_alone() -> None:
    assert ToolResult(ok=True, data="two\nlines").to_llm_content() == "two\nlines"
    assert ToolResult(ok=True).to_llm_content() == ""
    assert json.loads(ToolResult(ok=True, data={"n": [1, None]}).to_llm_content()) == {
        "n": [1, None]
    }


def test_a_failure_gives_the_model_its_error_and_the_kind_of_it() -> None:
    """Seed 002, section 10.1: data or error with its kind, and no metadata."""
    result = ToolResult(
        ok=False,
        error="gone",
        error_type="timeout",
        tool_name="run",
        duration_ms=5,
        process_id="p1",
    )
    assert json.loads(result.to_llm_content()) == {"error": "gone", "error_type": "timeout"}
    assert result.to_dict() == {
        "ok": False, "error": "gone", "error_type": "timeout", "tool_name": "run",
        "duration_ms": 5, "process_id": "p1",
    }  # fmt: skip
    assert result.model_dump() == {
        **result.to_dict(),
        "data": None,
        "outcome": None,
        "images": None,
    }


def test_the_kinds_of_errors_are_those_of_the_design() -> None:
    """Seed 002, section 10.1: the six kinds, the breaker's, and two of ctxlab's own tools.

    A command that ends with an error, and a call that the user refused, need other reactions than a tool
    that failed.
    """
    assert list(ERROR_TYPES) == [
        "invalid_args", "tool_not_found", "execution_error", "timeout", "permission_denied",
        "network_error", "circuit_breaker", "command_failed", "refused",
    ]  # fmt: skip
    assert cancelled_result("run").ok is False


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (Place(path="a.py"), {"path": "a.py", "line": 1}),
        (Size(3), {"bytes": 3}),
        ([PurePosixPath("a/b"), {2}], ["a/b", [2]]),
        (datetime(2026, 11, 22, tzinfo=UTC), "2026-11-22T00:00:00Z"),
        ({1: float("nan")}, {"1": None}),
        (b"\xff\x00", "_wA="),
        (10**30, 10**30),
        ({"text": "\ud83d"}, {"text": "\ud83d"}),
    ],
)
def test_data_of_any_kind_becomes_json(data: Any, shown: Any) -> None:
    text = ToolResult(ok=True, data=[data]).to_llm_content()
    assert json.loads(text) == [shown]
    assert json.loads(json.dumps(ToolResult(ok=True, data=data).to_dict()))["ok"] is True


def test_what_cannot_be_written_stands_as_its_text_and_nothing_raises() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError("no")

    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for data in (Rude(), circle, object(), deep, lambda: 1):
        assert isinstance(ToolResult(ok=True, data=data).to_llm_content(), str)


def test_a_result_beyond_all_measure_is_cut_where_it_is_made_and_says_so() -> None:
    kept = ToolResult(ok=True, data="x" * MAX_RESULT_CHARS).to_llm_content()
    cut = ToolResult(ok=True, data="x" * (MAX_RESULT_CHARS + 1)).to_llm_content()
    assert kept == "x" * MAX_RESULT_CHARS
    assert cut == "x" * MAX_RESULT_CHARS + "\n\n[cut: the result had 200,001 characters]"


@given(st.text(alphabet=st.characters()))
def test_a_result_can_be_sent_whatever_characters_it_holds(text: str) -> None:
    content = ToolResult(ok=True, data=text + "\ud800").to_llm_content()
    content.encode()
    joined = json.loads(json.dumps(text + "\ud800"))
    assert content == re.sub("[\ud800-\udfff]", "\ufffd", joined)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_plain_data_stays_as_it_is(data: Any) -> None:
    assert to_json_data(data) == data

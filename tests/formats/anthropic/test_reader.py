"""Tests of the format of Anthropic's Messages API: bodies and logs, read and written."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load, write
from ctxlab.messages.types import Message, Recording, ToolCall, Usage

USER = {"role": "user", "content": "What is in a.py?"}
USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}}
CALL = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}
TOOL = {"name": "read", "description": "d", "input_schema": {"type": "object"}}
BODY = {"model": "claude-sonnet-4-5", "max_tokens": 10, "system": "Be brief.", "tools": [TOOL]}
USAGE = {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1}


def response(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(content), "usage": USAGE}


def name_of(path: Path) -> str | None:
    known = detect_format(path)
    return known and known.name


def written(*messages: Message, **fields: Any) -> tuple[dict[str, Any], Counter[str]]:
    out = io.StringIO()
    lost = write([Recording("r", messages, **fields)], out, "anthropic")
    return json.loads(out.getvalue()), lost


def test_a_body_is_a_conversation_with_its_system_prompt_and_tools(
    write_lines: Callable[..., Path],
) -> None:
    path = write_lines(BODY | {"messages": [USER, CALL, {"role": "user", "content": [RESULT]}]})
    assert name_of(path) == "anthropic"
    (recording,) = load(path)
    assert [m.role for m in recording.messages] == ["system", "user", "assistant", "tool"]
    assert recording.messages[2].tool_calls == (ToolCall("t1", "read", '{"path":"a.py"}'),)
    assert recording.messages[3].tool_call_id == "t1"
    (tool,) = recording.tools
    assert tool["function"] == {
        "name": "read",
        "description": "d",
        "parameters": {"type": "object"},
    }
    assert (recording.model, recording.meta) == ("claude-sonnet-4-5", {"max_tokens": 10})


def test_text_beside_results_comes_after_them(write_lines: Callable[..., Path]) -> None:
    both = {"role": "user", "content": [{"type": "text", "text": "Go on."}, RESULT]}
    (recording,) = load(write_lines({"messages": [USER, CALL, both]}))
    assert [m.role for m in recording.messages] == ["user", "assistant", "tool", "user"]


def test_thinking_is_reasoning_and_what_has_no_place_is_counted(
    write_lines: Callable[..., Path],
) -> None:
    said = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "One."},
    ]
    (recording,) = load(write_lines({"messages": [USER, {"role": "assistant", "content": said}]}))
    assert (recording.messages[1].reasoning, recording.messages[1].text) == ("hm", "One.")
    assert recording.skipped == {"block of type redacted_thinking": 1}


def test_a_log_becomes_the_conversation_said_once(write_lines: Callable[..., Path]) -> None:
    asked = [USER, CALL, {"role": "user", "content": [RESULT]}]
    path = write_lines(
        {"request": BODY | {"messages": asked[:1]}, "response": response(*CALL["content"])},  # type: ignore[misc]
        {"request": BODY | {"messages": asked}, "response": {"type": "error"}},
        {
            "request": BODY | {"messages": asked},
            "response": response({"type": "text", "text": "."}),
        },
    )
    assert name_of(path) == "anthropic"
    (recording,) = load(path)
    assert [m.role for m in recording.messages] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    assert recording.messages[2].usage == Usage(input=3, cache_read=2, output=1)
    assert recording.skipped == {"response without a message": 1, "request made again": 1}


@pytest.mark.parametrize(
    "mark",
    [
        {"messages": [USER], "system": "Be brief."},
        {"messages": [USER], "system": [{"type": "text", "text": "Be brief."}]},
        {"messages": [USER], "tools": [TOOL]},
        {"messages": [USER, CALL]},
        {"messages": [USER], "stop_sequences": ["."]},
        {"messages": [USER], "response": response()},
        [USER, CALL],
    ],
)
def test_a_shape_of_its_own_tells_it_from_openai(tmp_path: Path, mark: Any) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps(mark))
    assert name_of(path) == "anthropic"


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [USER], "max_tokens": 10},
        {"messages": [{"role": "system", "content": "s"}, USER, {"role": "tool", "content": ""}]},
        {"messages": [USER, {"role": "assistant", "tool_calls": []}], "system": "s"},
    ],
)
def test_without_one_or_with_one_of_openais_it_is_openai(tmp_path: Path, other: Any) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps(other))
    assert name_of(path) == "openai"


def test_a_broken_message_is_named_by_its_place(write_lines: Callable[..., Path]) -> None:
    path = write_lines(BODY | {"messages": [USER, {"role": "assistant", "content": 1}, USER]})
    with pytest.raises(
        ReadError, match="jsonl: message 1: content must be a string or a list of objects"
    ):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert [m.role for m in recording.messages] == ["system", "user", "user"]


def test_results_that_follow_one_another_are_one_message_of_the_users() -> None:
    calls = (ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"x":1}'))
    body, lost = written(
        Message("user", "go"),
        Message("assistant", "both", tool_calls=calls),
        Message("tool", "one", tool_call_id="b"),
        Message("tool", "two", tool_call_id="a", extra={"is_error": True}),
        Message("user", "well?"),
    )
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user", "user"]
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "both"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {"x": 1}},
    ]
    assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == ["b", "a"]
    assert body["messages"][2]["content"][1]["is_error"] is True
    assert not lost


def test_a_late_system_message_stays_where_it_is_and_is_told() -> None:
    body, lost = written(
        Message("system", "a"), Message("system", "b"), Message("user", "c"), Message("system", "d")
    )
    assert body["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert body["messages"] == [{"role": "user", "content": text} for text in "cd"]
    assert lost == {"boundary between system messages": 1, "role of a late system message": 1}


@pytest.mark.parametrize(
    ("arguments", "made", "told"),
    [
        ('{"a":1}', {"a": 1}, None),
        ('{"a": 1}', {"a": 1}, "JSON formatting of the arguments of a call"),
        ("", {}, "JSON formatting of the arguments of a call"),
        ("[1]", {"arguments": [1]}, "arguments of a call that are not an object"),
        ('{"a":', {"arguments": '{"a":'}, "arguments of a call that are not an object"),
    ],
)
def test_arguments_are_an_object(arguments: str, made: dict[str, Any], told: str | None) -> None:
    body, lost = written(Message("assistant", None, tool_calls=(ToolCall("a", "f", arguments),)))
    assert body["messages"][0]["content"][0]["input"] == made
    assert lost == ({told: 1} if told else {})


def test_an_id_that_its_shape_forbids_is_replaced_in_call_and_result() -> None:
    calls = tuple(ToolCall(id, "f") for id in ("a.b", "call_1", ""))
    results = (Message("tool", "x", tool_call_id=id) for id in ("a.b", "call_1", ""))
    body, lost = written(Message("assistant", None, tool_calls=calls), *results)
    made = [block["id"] for block in body["messages"][0]["content"]]
    assert made == [block["tool_use_id"] for block in body["messages"][1]["content"]]
    assert made[1] == "call_1"
    assert len(set(made)) == 3
    assert lost == {"id of a call": 2}


def test_images_are_data_or_addresses_and_nothing_else() -> None:
    urls = ("data:image/png;base64,AA==", "https://ex.org/a.png", "file-7")
    parts = tuple({"type": "image_url", "image_url": {"url": url}} for url in urls)
    body, lost = written(Message("user", parts))
    assert [block["source"] for block in body["messages"][0]["content"]] == [
        {"type": "base64", "media_type": "image/png", "data": "AA=="},
        {"type": "url", "url": "https://ex.org/a.png"},
    ]
    assert lost == {"part of type image_url": 1}


def test_tools_are_written_in_its_shape_and_those_it_runs_itself_as_they_are() -> None:
    function = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    own = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    body, lost = written(tools=({"type": "function", "function": function}, own))
    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object"}}, own]
    assert lost["detail of a tool definition"] == 1

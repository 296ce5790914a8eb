"""Tests of OpenAI's chat format: fine-tuning rows, bodies, lists of messages, and logs with answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import ToolCall, Usage

USER = {"role": "user", "content": "What is in a.py?"}
FUNCTION = {"name": "read", "arguments": '{"path": "a.py"}'}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": FUNCTION}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x = 1"}
DONE = {"role": "assistant", "content": "One line."}
WHOLE = [USER, CALL, RESULT, DONE]
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 2}


def answered(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": message}
    return {"object": "chat.completion", "created": 17, "choices": [choice], "usage": USAGE}


def name_of(path: Path) -> str | None:
    known = detect_format(path)
    return known and known.name


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"messages": WHOLE}),
        json.dumps({"messages": WHOLE}, indent=2),
        json.dumps([{"messages": WHOLE}], indent=2),
        json.dumps([{"messages": WHOLE}]),
        json.dumps(WHOLE),
        json.dumps(WHOLE, indent=2),
        json.dumps([WHOLE]),
        "[\n" + ",\n".join(map(json.dumps, WHOLE)) + "\n]\n",
    ],
)
def test_every_form_in_which_it_is_kept_is_the_same_conversation(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chat.any"
    path.write_text(text)
    assert name_of(path) == "openai"
    (recording,) = load(path)
    assert recording.id == "chat"
    assert [m.role for m in recording.messages] == ["user", "assistant", "tool", "assistant"]
    assert recording.messages[1].tool_calls == (ToolCall("c1", "read", '{"path": "a.py"}'),)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_body_that_is_longer_than_the_head_is_read_whole(
    tmp_path: Path, indent: int | None
) -> None:
    long = {"role": "user", "content": "x" * 300_000}
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"messages": [USER, DONE, long, DONE]}, indent=indent) + "\n")
    assert name_of(path) == "openai"
    assert [len(r.messages) for r in load(path)] == [4]


def test_rows_are_conversations_of_their_own_whatever_they_share(
    write_lines: Callable[..., Path],
) -> None:
    row = {"messages": WHOLE[:3], "model": "gpt-4o"}
    longer = {"messages": WHOLE, "model": "gpt-4o", "tools": [TOOL], "id": "a7", "score": 0.5}
    recordings = list(load(write_lines(row, row, longer)))
    assert [len(r.messages) for r in recordings] == [3, 3, 4]
    assert [r.model for r in recordings] == ["gpt-4o"] * 3
    assert recordings[2].tools == (TOOL,)
    assert recordings[2].meta == {"id": "a7", "score": 0.5}


def test_functions_are_tools_and_their_results_answer_the_call_before(
    write_lines: Callable[..., Path],
) -> None:
    call = {"role": "assistant", "content": None, "function_call": FUNCTION}
    result = {"role": "function", "name": "read", "content": "x = 1"}
    row = {"messages": [USER, call, result, DONE], "functions": [TOOL["function"]]}
    (recording,) = load(write_lines(row))
    assert recording.tools == (TOOL,)
    assert recording.messages[1].tool_calls == (ToolCall("read", "read", '{"path": "a.py"}'),)
    assert recording.messages[2].tool_call_id == "read"
    assert recording.messages[2].role == "tool"


def test_what_a_message_says_beyond_the_shape_is_kept_and_what_it_says_not_is_none(
    write_lines: Callable[..., Path],
) -> None:
    said = {"role": "assistant", "content": None, "refusal": "No.", "weight": 0, "audio": None}
    more = DONE | {"annotations": [], "reasoning_content": "hm", "timestamp": 1.7e12}
    (recording,) = load(write_lines({"messages": [USER, said, more]}))
    _, refused, thought = recording.messages
    assert (refused.text, refused.extra) == ("No.", {"weight": 0, "refusal": True})
    assert (thought.reasoning, thought.time, thought.extra) == ("hm", 1.7e9, {})


def test_a_call_of_a_tool_that_takes_any_text_keeps_it(write_lines: Callable[..., Path]) -> None:
    custom = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    row = {"messages": [USER, {"role": "assistant", "tool_calls": [custom]}]}
    (recording,) = load(write_lines(row))
    assert recording.messages[1].tool_calls == (ToolCall("c2", "patch", "*** Begin"),)


@pytest.mark.parametrize(
    "beside",
    [
        lambda sent, message: {"request": {"messages": sent}, "response": answered(message)},
        lambda sent, message: {"messages": sent, "response": answered(message)},
        lambda sent, message: {"messages": sent, **answered(message)},
        lambda sent, message: {
            "messages": sent,
            "response": message,
            "usage": USAGE,
            "created": 17,
        },
    ],
)
def test_a_log_becomes_the_conversation_said_once(
    write_lines: Callable[..., Path], beside: Callable[..., dict[str, Any]]
) -> None:
    path = write_lines(beside(WHOLE[:1], CALL), beside(WHOLE[:3], DONE))
    assert name_of(path) == "openai"
    (recording,) = load(path)
    assert [m.role for m in recording.messages] == ["user", "assistant", "tool", "assistant"]
    for answer in (recording.messages[1], recording.messages[3]):
        assert (answer.usage, answer.time) == (Usage(input=9, output=2), 17)
    assert not recording.compactions
    assert recording.skipped == {}


def test_an_answer_may_be_kept_as_text_and_a_failed_call_holds_none(
    write_lines: Callable[..., Path],
) -> None:
    path = write_lines(
        {"messages": [USER], "response": None},
        {"messages": [USER], "response": {"error": "overloaded"}},
        {"messages": [USER], "response": "One line."},
    )
    (recording,) = load(path)
    assert [m.text for m in recording.messages] == [USER["content"], "One line."]
    assert recording.skipped == {"request made again": 2, "response without a message": 1}


def test_further_choices_are_counted(write_lines: Callable[..., Path]) -> None:
    response = answered(DONE)
    response["choices"] *= 3
    (recording,) = load(write_lines({"messages": [USER], "response": response}))
    assert len(recording.messages) == 2
    assert recording.skipped == {"further choice": 2}


def test_usage_beside_whole_messages_is_that_of_the_last_answer(
    write_lines: Callable[..., Path],
) -> None:
    (recording,) = load(write_lines({"messages": WHOLE, "usage": USAGE}))
    assert [m.usage for m in recording.messages] == [None] * 3 + [Usage(input=9, output=2)]


def test_a_broken_message_costs_only_itself_and_is_named_by_its_place(
    write_lines: Callable[..., Path], tmp_path: Path
) -> None:
    bad = {"messages": [USER, {"role": "judge", "content": ""}, DONE]}
    path = write_lines({"messages": WHOLE}, bad)
    with pytest.raises(ReadError, match=r"jsonl:2: message 1: unknown role 'judge'"):
        list(load(path))
    _, recording = load(path, on_error="skip")
    assert len(recording.messages) == 2
    assert sum(recording.skipped.values()) == 1
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps(bad, indent=1))
    with pytest.raises(ReadError, match=r"alone.json: message 1: unknown role 'judge'"):
        list(load(alone))


@pytest.mark.parametrize(
    "value",
    [
        {"messages": []},
        {"messages": [{"type": "human", "content": "hi"}]},
        {"messages": [{"role": "user", "parts": ["hi"]}]},
        {"messages": [{"role": "user", "content": "hi", "type": "message"}]},
        {"conversations": [{"role": "user", "content": "hi"}]},
        {"messages": WHOLE, "trajectory_format": "mini-swe-agent-1.1"},
        {"messages": WHOLE, "response": answered(DONE), "args": [], "kwargs": {}, "timestamp": 1.0},
        {"messages": [USER], "system": "Be brief."},
        [[]],
        [1],
    ],
)
def test_what_only_looks_alike_is_left_to_others(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(value))
    assert name_of(path) != "openai"


def test_messages_a_line_are_native(write_lines: Callable[..., Path]) -> None:
    assert name_of(write_lines(*WHOLE)) == "native"

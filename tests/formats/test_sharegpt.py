"""Tests of the ShareGPT format, including tool calls and results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, ToolCall

HERE = Path(__file__).parent / "samples"


def test_calls_are_numbered_and_results_answer_them_in_order() -> None:
    first, _ = load(HERE / "sharegpt.json")
    assert first.messages[0] == Message("system", "You are terse.")
    assert first.messages[2].tool_calls == (
        ToolCall("call-1", "ls", '{"path":"."}'),
        ToolCall("call-2", "count", '{"path":"."}'),
    )
    results = [(m.tool_call_id, m.text) for m in first.messages if m.role == "tool"]
    assert results == [("call-1", '{"files":["a.txt"]}'), ("call-2", "1"), ("call-3", "one line")]
    assert (first.messages[5].text, first.messages[5].reasoning) == ("One file.", "Done.")
    assert [tool["function"]["name"] for tool in first.tools] == ["ls"]


def test_of_a_preference_pair_the_chosen_answer_is_read() -> None:
    _, second = load(HERE / "sharegpt.json")
    assert [message.text for message in second.messages] == ["Pick.", "This."]
    assert second.skipped == {"rejected answer": 1, "image beside a conversation": 1}


def test_calls_that_hermes_writes_into_the_text_are_calls() -> None:
    first, second = load(HERE / "sharegpt.hermes.jsonl")
    assert first.messages[2:4] == (
        Message("assistant", "I look.", tool_calls=(ToolCall("call-1", "ls", '{"path":"."}'),)),
        Message("tool", '{"files": 1}', tool_call_id="call-1"),
    )
    assert second.skipped == {"function call that is not JSON": 1}


def test_turns_that_stand_alone_are_one_conversation() -> None:
    (found,) = load(HERE / "sharegpt.turns.jsonl")
    assert [(m.role, m.text) for m in found.messages] == [
        ("user", "What is here?"),
        ("assistant", "One file."),
    ]


def test_conversations_of_role_and_content_are_read_too(
    read: Callable[..., list[Recording]],
) -> None:
    (found,) = read({"conversations": [{"role": "user", "content": "hi"}]})
    assert (found.format, found.messages) == ("sharegpt", (Message("user", "hi"),))


def test_an_unknown_speaker_is_named(write_lines: Callable[..., Path]) -> None:
    turns = [{"from": "human", "value": "hi"}, {"from": "narrator", "value": "x"}]
    path = write_lines({"conversations": turns[:1]}, {"conversations": turns})
    with pytest.raises(ReadError, match=r":2: expected a speaker such as .*, got 'narrator'"):
        list(load(path))

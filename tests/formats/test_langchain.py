"""Tests of the LangChain format: all dumped forms read the same, and no objects are loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Message, ToolCall, Usage

CALLS = (ToolCall("c1", "read", '{"path":"a.py"}'), ToolCall("c2", "read", "{bad"))
USAGE = Usage(input=10, cache_read=8, cache_write=2, output=5, reasoning=1)
EXPECTED = (
    Message("system", "Be brief."),
    Message("user", "What is in a.py?", name="mia"),
    Message("assistant", "I look.", tool_calls=CALLS, reasoning="hm", usage=USAGE),
    Message("tool", "x = 1", tool_call_id="c1", name="read"),
    Message("tool", "no JSON", tool_call_id="c2", extra={"is_error": True}),
    Message("user", "Sure?"),
    Message("assistant", "Yes."),
)


def conversation() -> list[Any]:
    messages = pytest.importorskip("langchain_core.messages")
    details = {"cache_read": 8, "cache_creation": 2}
    return [
        messages.SystemMessage("Be brief."),
        messages.HumanMessage("What is in a.py?", name="mia", id="h1"),
        messages.AIMessage(
            [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}},
            ],
            tool_calls=[{"name": "read", "args": {"path": "a.py"}, "id": "c1"}],
            invalid_tool_calls=[{"name": "read", "args": "{bad", "id": "c2", "error": "no JSON"}],
            additional_kwargs={"tool_calls": [{"id": "c1", "function": {"name": "read"}}]},
            usage_metadata={
                "input_tokens": 20,
                "output_tokens": 5,
                "total_tokens": 25,
                "input_token_details": details,
                "output_token_details": {"reasoning": 1},
            },
            response_metadata={"model_name": "claude-sonnet-4-5"},
        ),
        messages.ToolMessage("x = 1", tool_call_id="c1", name="read"),
        messages.ToolMessage("no JSON", tool_call_id="c2", status="error"),
        messages.RemoveMessage(id="h0"),
        messages.ChatMessage(role="user", content="Sure?"),
        messages.AIMessage("Yes.", response_metadata={"model_name": "claude-sonnet-4-5"}),
    ]


def one_by_one(messages: list[Any]) -> list[str]:
    return [json.dumps(message.model_dump()) for message in messages]


def as_dicts(messages: list[Any], indent: int | None = None) -> str:
    core = pytest.importorskip("langchain_core.messages")
    return json.dumps(core.messages_to_dict(messages), indent=indent)


def as_constructors(messages: Any, pretty: bool = False) -> str:
    text: str = pytest.importorskip("langchain_core.load").dumps(messages, pretty=pretty)
    return text


DUMPS: dict[str, Callable[[list[Any]], str]] = {
    "messages_to_dict": as_dicts,
    "messages_to_dict, indented": lambda some: as_dicts(some, 2),
    "dumps": as_constructors,
    "dumps, pretty": lambda some: as_constructors(some, pretty=True),
    "dumps of a state": lambda some: as_constructors({"messages": some, "next": "agent"}),
    "dumps, a message a line": lambda some: "\n".join(as_constructors(each) for each in some),
    "model_dump": lambda some: "[" + ", ".join(one_by_one(some)) + "]",
    "model_dump, a message a line": lambda some: "\n".join(one_by_one(some)),
    "a state": lambda some: '{"messages": [' + ", ".join(one_by_one(some)) + "]}",
    "a state a line": lambda some: '{"messages": [' + ", ".join(one_by_one(some)) + "]}\n",
    "a list a line": lambda some: as_dicts(some) + "\n",
    "a list of lists": lambda some: f"[{as_dicts(some)}]",
}


@pytest.mark.parametrize("form", DUMPS)
def test_every_form_is_the_same_conversation(form: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(DUMPS[form](conversation()))
    known = detect_format(path)
    assert known is not None
    assert known.name == "langchain"
    (recording,) = load(path)
    assert recording.messages == EXPECTED
    assert recording.model == "claude-sonnet-4-5"
    assert [reason.partition(" (")[0] for reason in recording.skipped] == ["message of type remove"]


def test_rows_that_are_conversations_stay_apart(write_lines: Callable[..., Path]) -> None:
    rows = [
        {
            "messages": [{"type": "human", "content": text}, {"type": "ai", "content": "hm"}],
            "id": text,
        }
        for text in "ab"
    ]
    first, second = load(write_lines(*rows))
    assert [first.messages[0].text, second.messages[0].text] == ["a", "b"]
    assert (first.meta, first.model) == ({"id": "a"}, None)


def test_what_a_file_names_is_never_loaded(write_lines: Callable[..., Path]) -> None:
    """Not even a class that exists is looked for."""
    named = {"lc": 1, "type": "constructor", "id": ["os", "HumanMessage"]}
    (recording,) = load(write_lines(named | {"kwargs": {"content": "hi"}}))
    assert recording.messages == (Message("user", "hi"),)


def test_a_broken_message_costs_only_itself(write_lines: Callable[..., Path]) -> None:
    good = {"type": "human", "data": {"content": "hi"}}
    path = write_lines(good, {"type": "ai", "data": {"content": [7]}}, {"type": "alien"}, good)
    with pytest.raises(ReadError, match=":2: "):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert recording.messages == (Message("user", "hi"),) * 2
    assert sum(recording.skipped.values()) == 2


@pytest.mark.parametrize(
    "value",
    [
        {"type": "system", "content": "Conversation compacted", "subtype": "compact_boundary"},
        {"type": "user", "content": "hi"},
        {"type": "system", "data": {"content": "hi"}},
        {"messages": [{"type": "user", "content": "hi"}]},
        {"lc": 1, "type": "constructor", "id": ["langchain", "ChatOpenAI"], "kwargs": {}},
    ],
)
def test_what_others_write_is_left_to_them(write_lines: Callable[..., Path], value: Any) -> None:
    known = detect_format(write_lines(value))
    assert known is None or known.name != "langchain"

"""Tests of ``ctxlab.messages.subagents``: an agent alone, and with forked subagents."""

from __future__ import annotations

import msgspec
import pytest

from ctxlab.errors import SpecError
from ctxlab.messages.subagents import (
    SUBAGENT,
    find_subagents,
    fork_subagent,
    inline_subagents,
)
from ctxlab.messages.types import Compaction, Message, Recording, ToolCall, Usage
from ctxlab.messages.validation import is_valid


def tool(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)


def reply(text: str, *calls: str) -> Message:
    made = tuple(ToolCall(id, "run") for id in calls)
    return Message("assistant", text or None, made, usage=Usage(input=9))


def child(name: str, call: str, *work: Message) -> Recording:
    messages = (Message("system", "You help"), Message("user", f"prompt {name}"), *work)
    return Recording(name, messages, meta={"parent": "main", "call_id": call})


MAIN = Recording(
    "main",
    (
        Message("user", "task"),
        reply("look", "r1", "c1", "c2"),
        tool("c1", "answer one\nagentId: 1"),
        tool("r1", "text"),
        tool("c2", "answer two"),
        reply("both known"),
    ),
    tools=({"name": "run"},),
    model="claude-opus-4-5",
    cluster="k",
    compactions=(Compaction(5, (0,)),),
)
ONE = child("one", "c1", reply("", "w"), tool("w", "found"), reply("answer one"))
TWO = child("two", "c2", reply("answer two"))


def texts(recording: Recording) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in recording.messages]


def test_an_agent_alone_does_the_work_in_the_order_of_the_calls() -> None:
    alone = inline_subagents(MAIN, [TWO, ONE])
    assert texts(alone) == [
        ("user", "task"),
        ("assistant", "look\n\nprompt one\n\nprompt two"),
        ("tool", "text"),
        ("assistant", ""),
        ("tool", "found"),
        ("assistant", "answer one\nagentId: 1"),
        ("assistant", "answer two"),
        ("assistant", "both known"),
    ]
    assert [call.id for call in alone.messages[1].tool_calls] == ["r1"]
    assert [m.extra.get(SUBAGENT) for m in alone.messages[3:]] == ["one"] * 3 + ["two", None]
    assert is_valid(alone.messages)
    replies = sum(len(each.request_positions) for each in (MAIN, ONE, TWO))
    assert len(alone.request_positions) == replies
    assert not alone.compactions
    assert not any(m.usage for m in alone.messages)


def test_a_fork_has_the_messages_before_the_call_and_the_work_of_one_subagent() -> None:
    fork = fork_subagent(MAIN, ONE)
    assert texts(fork) == [
        ("user", "task"),
        ("assistant", "look\n\nprompt one"),
        ("assistant", ""),
        ("tool", "found"),
        ("assistant", "answer one"),
    ]
    assert fork.messages[: fork.meta["forked_at"]] == (
        MAIN.messages[0],
        reply("look\n\nprompt one").replace(usage=None),
    )
    assert (fork.id, fork.tools, fork.model, fork.cluster) == ("one", MAIN.tools, MAIN.model, "k")
    assert is_valid(fork.messages)


def test_an_answer_that_the_agent_did_not_get_is_kept_beside_the_result() -> None:
    started = msgspec.structs.replace(
        MAIN, messages=(*MAIN.messages[:4], tool("c2", "started in the background"))
    )
    alone = inline_subagents(started, [TWO])
    assert [m.text for m in alone.messages[-2:]] == ["answer two", "started in the background"]


def test_a_call_that_was_cut_off_is_left_out_and_the_result_is_the_answer() -> None:
    stopped = child("one", "c1", reply("", "w"), tool("w", "found"), reply("", "cut"))
    alone = inline_subagents(MAIN, [stopped])
    assert [m.text for m in alone.messages if SUBAGENT in m.extra] == [
        "",
        "found",
        "answer one\nagentId: 1",
    ]
    assert is_valid(alone.messages)


def test_subagents_belong_to_the_recording_with_their_call() -> None:
    lost = child("lost", "c9", reply("x"))
    nested = msgspec.structs.replace(TWO, id="nested", meta={"parent": "one", "call_id": "w"})
    found = find_subagents([lost, TWO, nested, ONE, MAIN])
    assert {id: [each.id for each in children] for id, children in found.items()} == {
        "main": ["one", "two"],
        "one": ["nested"],
    }
    with pytest.raises(SpecError, match="Expected the tool call 'c9' that started lost in main"):
        inline_subagents(MAIN, [lost])

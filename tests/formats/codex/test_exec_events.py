"""Tests of the output of ``codex exec --json``: items of a thread become answers and results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Recording, Usage

START = {"type": "thread.started", "thread_id": "t1"}
TURN = {"type": "turn.started"}


def started(id: str, kind: str, **values: Any) -> dict[str, Any]:
    item = {"id": id, "type": kind, "status": "in_progress"} | values
    return {"type": "item.started", "item": item}


def completed(id: str, kind: str, **values: Any) -> dict[str, Any]:
    item = {"id": id, "type": kind, "status": "completed"} | values
    return {"type": "item.completed", "item": item}


def said(id: str, text: str, kind: str = "agent_message") -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": id, "type": kind, "text": text}}


def done(**usage: int) -> dict[str, Any]:
    return {"type": "turn.completed", "usage": usage}


LS = {"command": "ls", "aggregated_output": "a.py\n", "exit_code": 0}


def test_reasoning_text_and_calls_are_one_answer_until_a_result(
    read: Callable[..., list[Recording]],
) -> None:
    (found,) = read(
        *(START, TURN, said("i0", "hm", "reasoning"), said("i1", "I look.")),
        started("i2", "command_execution", command="ls"),
        started("i3", "command_execution", command="pwd"),
        completed("i3", "command_execution", command="pwd", aggregated_output="/a"),
        completed("i2", "command_execution", **LS),
        said("i4", "Done."),
    )
    first, *results, last = found.messages
    assert (first.content, first.reasoning) == ("I look.", "hm")
    assert [(c.id, c.arguments) for c in first.tool_calls] == [
        ("i2", '{"command":"ls"}'),
        ("i3", '{"command":"pwd"}'),
    ]
    assert [(m.tool_call_id, m.content) for m in results] == [("i3", "/a"), ("i2", "a.py\n")]
    assert last.content == "Done."
    assert (found.cluster, found.meta, found.skipped) == ("t1", {"session": "t1"}, {})


@pytest.mark.parametrize(
    ("item", "name", "arguments", "content"),
    [
        (("command_execution", LS), "command_execution", '{"command":"ls"}', "a.py\n"),
        (
            ("file_change", {"changes": [{"path": "a"}]}),
            "file_change",
            '{"changes":[{"path":"a"}]}',
            "completed",
        ),
        (
            (
                "mcp_tool_call",
                {
                    "server": "s",
                    "tool": "f",
                    "arguments": {"x": 1},
                    "result": {"content": [{"type": "text", "text": "2"}]},
                },
            ),
            "mcp__s__f",
            '{"x":1}',
            "2",
        ),
        (
            (
                "mcp_tool_call",
                {"server": "s", "tool": "f", "arguments": None, "error": {"message": "No."}},
            ),
            "mcp__s__f",
            "{}",
            "No.",
        ),
        (
            (
                "collab_tool_call",
                {
                    "tool": "wait",
                    "receiver_thread_ids": ["t2"],
                    "agents_states": {"t2": {"status": "running"}},
                },
            ),
            "wait",
            '{"receiver_thread_ids":["t2"]}',
            '{"t2":{"status":"running"}}',
        ),
    ],
)
def test_an_item_that_was_only_completed_is_a_call_with_its_result(
    read: Callable[..., list[Recording]],
    item: tuple[str, dict[str, Any]],
    name: str,
    arguments: str,
    content: str,
) -> None:
    (found,) = read(START, completed("i0", item[0], **item[1]))
    (call,), result = found.messages[0].tool_calls, found.messages[1]
    assert (call.name, call.arguments) == (name, arguments)
    assert (result.name, result.content, result.extra) == (name, content, {})


@pytest.mark.parametrize(
    "failure", [{"exit_code": 2}, {"status": "failed"}, {"status": "declined"}]
)
def test_a_failed_command_is_an_error(
    read: Callable[..., list[Recording]], failure: dict[str, Any]
) -> None:
    (found,) = read(START, completed("i0", "command_execution", **LS | failure))
    assert found.messages[1].extra == {"is_error": True}


def test_a_call_that_was_not_completed_has_no_result(read: Callable[..., list[Recording]]) -> None:
    update = started("i0", "command_execution", command="ls", aggregated_output="a") | {
        "type": "item.updated"
    }
    (found,) = read(START, started("i0", "command_execution", command="ls"), update)
    (message,) = found.messages
    assert [call.id for call in message.tool_calls] == ["i0"]


def test_the_tokens_of_a_thread_are_those_of_its_last_turn(
    read: Callable[..., list[Recording]],
) -> None:
    first = done(input_tokens=10, cached_input_tokens=4, output_tokens=2)
    (found,) = read(
        START, TURN, said("i0", "a"), first, TURN, said("i1", "b"), done(input_tokens=30)
    )
    assert found.meta["usage"]["input"] == 30
    assert [m.content for m in found.messages] == ["a", "b"]
    assert [m.usage for m in found.messages] == [None, None]


def test_the_tokens_of_a_thread_are_the_usage_of_its_only_answer(
    read: Callable[..., list[Recording]],
) -> None:
    (found,) = read(
        START, said("i0", "a"), done(input_tokens=10, cached_input_tokens=4, output_tokens=2)
    )
    assert found.messages[0].usage == Usage(input=6, cache_read=4, output=2)


def test_threads_are_recordings_of_their_own(read: Callable[..., list[Recording]]) -> None:
    found = read(START, said("i0", "a"), START | {"thread_id": "t2"}, said("i0", "b"))
    assert [(r.id, r.cluster) for r in found] == [("session/t1", "t1"), ("session/t2", "t2")]


def test_what_is_no_message_is_counted(read: Callable[..., list[Recording]]) -> None:
    todo = {"items": [{"text": "x", "completed": False}]}
    (found,) = read(
        *(START, said("i0", "a"), started("i1", "todo_list", **todo)),
        started("i1", "todo_list", **todo) | {"type": "item.updated"},
        *(completed("i1", "todo_list", **todo), completed("i2", "web_search", query="x")),
        completed("i3", "error", message="slow"),
        {"type": "error", "message": "retrying"},
        *(TURN, said("i4", "hm", "reasoning")),
        {"type": "turn.failed", "error": {"message": "No."}},
    )
    assert found.skipped == {
        "item of type todo_list": 2,
        "item of type web_search": 1,
        "item of type error": 1,
        "event of type error": 1,
        "turn that failed": 1,
        "reasoning without an answer": 1,
    }


def test_a_malformed_item_is_named_with_its_line(write_lines: Callable[..., Path]) -> None:
    path = write_lines(START, said("i0", "a"), completed("i1", "command_execution", command=3))
    with pytest.raises(ReadError, match="command must be a string, got int") as caught:
        list(load(path))
    assert caught.value.line == 3
    (found,) = load(path, on_error="skip")
    assert [m.content for m in found.messages] == ["a"]

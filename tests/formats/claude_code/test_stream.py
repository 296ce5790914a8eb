"""Tests of Claude Code's streamed output: rows with session_id and parent_tool_use_id."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Recording, Usage

NUMBERS = count()
BILLED = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 1}


def row(kind: str, parent: str | None = None, **values: Any) -> dict[str, Any]:
    ids = {"session_id": "s1", "parent_tool_use_id": parent, "uuid": f"u{next(NUMBERS)}"}
    return {"type": kind} | ids | values


def said(id: str, *blocks: Any, parent: str | None = None, **values: Any) -> dict[str, Any]:
    message = {"id": id, "model": "claude-x", "content": list(blocks), "usage": BILLED}
    return row("assistant", parent, message=message, **values)


def user(content: Any, parent: str | None = None, **values: Any) -> dict[str, Any]:
    return row("user", parent, message={"role": "user", "content": content}, **values)


def event(kind: str, **values: Any) -> dict[str, Any]:
    return row("stream_event", event={"type": kind} | values)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": arguments}


def result(id: str, value: str = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": value}


def total(**values: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 30}
    return row("result", subtype="success", usage=usage, num_turns=1) | values


INIT = row("system", subtype="init", model="claude-x", claude_code_version="2.1", cwd="/work/a")


def test_blocks_of_an_answer_are_joined_and_followed_by_their_results(
    read: Callable[..., list[Recording]],
) -> None:
    rows = [said("m1", text("I look.")), said("m1", call("c1")), said("m1", call("c2"))]
    (found,) = read(
        INIT, *rows, user([result("c1")]), user([result("c2")]), said("m2", text("Done."))
    )
    assert [m.role for m in found.messages] == ["assistant", "tool", "tool", "assistant"]
    assert [c.id for c in found.messages[0].tool_calls] == ["c1", "c2"]
    assert found.messages[0].usage == Usage(input=5, cache_read=90, output=1)
    assert (found.model, found.cluster) == ("claude-x", "s1")
    assert found.meta == {"sessionId": "s1", "version": "2.1", "cwd": "/work/a"}


def test_the_output_may_be_one_list(write_lines: Callable[..., Path], tmp_path: Path) -> None:
    rows = [INIT, user("hi", isReplay=True), said("m1", text("Hello!"))]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(rows, indent=2))
    (found,) = load(path)
    assert [m.text for m in found.messages] == ["hi", "Hello!"]
    assert found.format == "claude-code-stream"


def test_a_session_file_is_not_mistaken_for_the_output(write_lines: Callable[..., Path]) -> None:
    stored = [each | {"sessionId": "s1"} for each in (user("hi"), said("m1", text("Hello!")))]
    kind = detect_format(write_lines(*stored))
    assert kind is not None
    assert kind.name == "claude-code"


def test_output_with_rows_of_tool_calls_is_of_another_program(
    write_lines: Callable[..., Path],
) -> None:
    other = row("tool_call", subtype="started", call_id="c1", tool_call={})
    assert detect_format(write_lines(INIT, said("m1", text("Hello!")), other)) is None


def test_a_subagent_is_a_recording_with_the_prompt_of_its_call(
    read: Callable[..., list[Recording]],
) -> None:
    main, side = read(
        said("m1", call("c1", prompt="Count them.")),
        said("m2", call("c2"), parent="c1"),
        user([result("c2")], parent="c1"),
        said("m3", text("Seven."), parent="c1"),
        user([result("c1", "Seven.")]),
    )
    assert [m.text for m in main.messages] == ["", "Seven."]
    assert [m.text for m in side.messages] == ["Count them.", "", "ok", "Seven."]
    assert side.messages[0].role == "user"
    assert (side.id, side.cluster) == ("session/side-c1", main.cluster)
    assert (side.meta["parent"], side.meta["call_id"]) == (main.id, "c1")


def test_the_parent_of_a_nested_subagent_is_the_subagent_that_called_it(
    read: Callable[..., list[Recording]],
) -> None:
    _, outer, inner = read(
        said("m1", call("c1", prompt="Count them.")),
        said("m2", call("c2", prompt="List them."), parent="c1"),
        said("m3", text("a, b"), parent="c2"),
    )
    assert (inner.meta["parent"], inner.meta["call_id"]) == (outer.id, "c2")


def test_the_prompt_of_a_subagent_is_read_once(read: Callable[..., list[Recording]]) -> None:
    prompt = "Count them."
    _, side = read(
        said("m1", call("c1", prompt=prompt)),
        user([text(prompt)], parent="c1"),
        said("m2", text("Seven."), parent="c1"),
    )
    assert [m.text for m in side.messages] == [prompt, "Seven."]


def test_sessions_are_recordings_and_clusters_of_their_own(
    read: Callable[..., list[Recording]],
) -> None:
    found = read(said("m1", text("a")), said("m2", text("b")) | {"session_id": "s2"})
    assert [(r.id, r.cluster) for r in found] == [("session/s1", "s1"), ("session/s2", "s2")]


def test_a_compaction_has_the_summary_that_follows(read: Callable[..., list[Recording]]) -> None:
    metadata = {"trigger": "auto", "pre_tokens": 900}
    (found,) = read(
        said("m1", text("a")),
        row("system", subtype="compact_boundary", compact_metadata=metadata),
        user("In short: a.", isSynthetic=True),
        user([text("The text of a skill.")], isSynthetic=True),
        said("m2", text("b")),
    )
    assert described(found) == (
        Summary(1, summary="In short: a.", trigger="auto", tokens_before=900),
    )
    assert [m.text for m in found.messages] == ["a", "The text of a skill.", "b"]
    assert found.messages[1].extra == {"meta": True}


def test_a_compaction_keeps_the_messages_between_the_named_rows(
    read: Callable[..., list[Recording]],
) -> None:
    rows = [said("m1", text("a")), said("m2", text("b")), said("m3", text("c"))]
    segment = {"head_uuid": rows[1]["uuid"], "tail_uuid": rows[2]["uuid"]}
    metadata = {"trigger": "manual", "preserved_segment": segment}
    (found,) = read(*rows, row("system", subtype="compact_boundary", compact_metadata=metadata))
    assert found.compactions[0].kept == (1, 2)


START = {"id": "m1", "model": "claude-x", "usage": BILLED}


def deltas(index: int, *pieces: str) -> list[dict[str, Any]]:
    parts = [{"type": "text_delta", "text": piece} for piece in pieces]
    return [
        event("content_block_start", index=index, content_block=text("")),
        *(event("content_block_delta", index=index, delta=part) for part in parts),
    ]


def test_events_repeat_the_rows_and_correct_their_usage(
    read: Callable[..., list[Recording]],
) -> None:
    (found,) = read(
        event("message_start", message=START),
        *deltas(0, "I ", "look."),
        said("m1", text("I look.")),
        event("message_delta", delta={}, usage={"output_tokens": 40}),
        event("message_stop"),
        said("m2", text("Done.")),
    )
    assert [m.text for m in found.messages] == ["I look.", "Done."]
    assert [m.usage and m.usage.output for m in found.messages] == [40, 1]
    assert found.skipped == {}


def test_the_text_of_an_interrupted_answer_is_read_from_its_events(
    read: Callable[..., list[Recording]],
) -> None:
    partial = {"type": "input_json_delta", "partial_json": '{"comm'}
    (found,) = read(
        event("message_start", message=START),
        *deltas(0, "I look."),
        said("m1", text("I look.")),
        *deltas(1, "It ", "seems"),
        event("content_block_start", index=2, content_block=call("c1")),
        event("content_block_delta", index=2, delta=partial),
        user([text("[Request interrupted by user]")]),
    )
    assert [m.text for m in found.messages] == [
        "I look.\nIt seems",
        "[Request interrupted by user]",
    ]
    assert found.messages[0].tool_calls == ()
    assert found.skipped == {"interrupted tool call": 1}


def test_the_totals_of_a_run_are_metadata(read: Callable[..., list[Recording]]) -> None:
    rows = [said("m1", text("a")), total(total_cost_usd=0.5), said("m2", text("b"))]
    (found,) = read(INIT, *rows, total(total_cost_usd=0.7, num_turns=2))
    assert found.meta["usage"]["input"] == 10
    assert found.meta["usage"]["output"] == 60
    assert [found.meta[key] for key in ("cost", "turns", "end")] == [0.7, 2, "success"]
    assert [m.usage and m.usage.output for m in found.messages] == [1, 1]


def test_the_totals_are_the_usage_of_the_only_answer(read: Callable[..., list[Recording]]) -> None:
    (found,) = read(said("m1", text("a")), total())
    assert found.messages[0].usage == Usage(input=5, cache_read=90, output=30)


def test_what_is_no_message_is_counted(read: Callable[..., list[Recording]]) -> None:
    answer = said("m1", text("a"))
    (found,) = read(
        row("system", subtype="hook_started"),
        row("rate_limit_event", rate_limit_info={}),
        answer,
        answer,
        said("m2", text("API Error"), error="server_error"),
    )
    assert [m.text for m in found.messages] == ["a"]
    assert found.skipped == {
        "row of type system/hook_started": 1,
        "row of type rate_limit_event": 1,
        "row written twice": 1,
        "row written by the client, not by a model": 1,
    }


def test_a_result_alone_says_what_is_missing(write_lines: Callable[..., Path]) -> None:
    with pytest.raises(ReadError, match="result without the messages of its run"):
        list(load(write_lines(total(result="Seven."))))


def test_a_malformed_row_is_named_with_its_line(write_lines: Callable[..., Path]) -> None:
    broken = row("assistant", message={"content": [{"type": "text", "text": 1}]})
    path = write_lines(INIT, said("m1", text("a")), broken)
    with pytest.raises(ReadError, match="text of a block must be a string") as caught:
        list(load(path))
    assert caught.value.line == 3
    (found,) = load(path, on_error="skip")
    assert len(found.messages) == 1

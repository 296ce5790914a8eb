"""Tests of the Gemini CLI format, which is one object or a log of changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Cleared, Summary, described
from reading import shape

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Recording, Usage

Row = dict[str, Any]
Read = Callable[..., Recording]

HEADER = {"sessionId": "s1", "projectHash": "h", "startTime": "1970-01-01T00:00:00Z"}
ENV = "<session_context>here</session_context>"


def user(id: str, said: Any = None) -> Row:
    return {"id": id, "type": "user", "content": said or id, "timestamp": "1970-01-01T00:00:09Z"}


def gemini(id: str, said: Any = "", *calls: Row, **fields: Any) -> Row:
    row = {"id": id, "type": "gemini", "content": said, "model": "m"}
    return row | ({"toolCalls": list(calls)} if calls else {}) | fields


def call(id: str, output: Any = "ok", **fields: Any) -> Row:
    row = {"id": id, "name": "run", "args": {"command": id}, "status": "success"}
    return row | {"result": [response(id, output)] if output is not None else None} | fields


def response(id: str, output: Any = "ok") -> Row:
    return {"functionResponse": {"id": id, "name": "run", "response": {"output": output}}}


def turns(*rows: Row) -> Row:
    return {"$set": {"messages": list(rows)}}


@pytest.fixture
def read(write_lines: Callable[..., Path]) -> Read:
    def reading(*rows: Any, **options: Any) -> Recording:
        (recording,) = load(write_lines(HEADER, *rows), **options)
        return recording

    return reading


def test_an_object_in_a_jsonl_is_known_and_read_like_the_lines(
    tmp_path: Path, write_lines: Callable[..., Path]
) -> None:
    rows = [user("hi"), gemini("g1", "a", call("c")), gemini("g2", "done")]
    path = tmp_path / "session.jsonl"
    for text in (
        json.dumps(HEADER | {"messages": rows}, indent=2),
        json.dumps(HEADER | {"messages": rows}),
    ):
        path.write_text(text)
        known = detect_format(path)
        assert known is not None
        assert known.name == "gemini-cli"
        (recording,) = load(path)
        assert [*shape(recording)] == ["u:hi", "a:a+c", "t:ok=c", "a:done"]
    (lines,) = load(write_lines(HEADER, *rows, name="lines.jsonl"))
    assert lines.messages == recording.messages
    assert (recording.model, recording.cluster, recording.meta) == ("m", "s1", {"session": "s1"})


def test_usage_tells_the_cache_apart_and_counts_thoughts_as_output(read: Read) -> None:
    tokens = {"input": 100, "output": 5, "cached": 60, "thoughts": 7, "tool": 3, "total": 115}
    nothing = dict.fromkeys(tokens, 0)
    recording = read(
        gemini("g1", "a", tokens=tokens), user("hi"), gemini("g2", "b", tokens=nothing)
    )
    billed = Usage(input=43, cache_read=60, output=12, reasoning=7)
    assert [m.usage for m in recording.messages] == [billed, None, None]


def test_thoughts_are_reasoning_and_no_content(read: Read) -> None:
    thoughts = [{"subject": "Plan", "description": "look"}, {"description": "again"}]
    hidden = {"text": "deep", "thought": True}
    recording = read(gemini("g", [hidden, {"text": "a"}], thoughts=thoughts), gemini("e", [hidden]))
    (message,) = recording.messages
    assert (message.content, message.reasoning) == ("a", "Plan: look\nagain\ndeep")
    assert recording.skipped == {"answer without content": 1}


def test_a_result_is_what_the_model_saw(read: Read) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "A="}}
    sound = {"inlineData": {"mimeType": "audio/mpeg", "data": "A="}}
    failed = {"functionResponse": {"id": "c2", "response": {"error": "no"}}}
    other = {"functionResponse": {"id": "c3", "response": {"x": 1}, "parts": [picture]}}
    recording = read(
        gemini(
            "g",
            "",
            call("c1", resultDisplay="LONG", timestamp="1970-01-01T00:00:09Z"),
            call("c2", result=[failed], status="error"),
            call("c3", result=[other, sound]),
            call("c4", result="plain"),
            call("c5", None, status="cancelled"),
        )
    )
    _, c1, c2, c3, c4 = recording.messages
    assert (c1.content, c1.name, c1.time) == ("ok", "run", 9.0)
    assert (c2.content, c2.extra) == ("no", {"is_error": True})
    assert c3.content == (
        {"type": "text", "text": '{"x":1}'},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,A="}},
    )
    assert c4.content == "plain"
    assert recording.skipped == {"part of type inlineData": 1}
    assert "LONG" not in repr(recording)


def test_notices_of_the_client_are_counted_and_do_not_part_an_answer_from_its_calls(
    read: Read,
) -> None:
    notice = {"id": "i", "type": "info", "content": "update available"}
    recording = read(gemini("g1", "I will"), notice, gemini("g2", "", call("c")), gemini("g3", "x"))
    assert [*shape(recording)] == ["a:I will+c", "t:ok=c", "a:x"]
    assert recording.skipped == {"message of type info": 1}


def test_a_call_that_came_after_others_were_done_is_of_the_next_answer(read: Read) -> None:
    first = call("run-0000000001000-a", timestamp="1970-01-01T00:00:05Z")
    beside = call("run-0000000001002-b", timestamp="1970-01-01T00:00:06Z")
    later = call("run-0000000009000-c", timestamp="1970-01-01T00:00:09.5Z")
    recording = read(gemini("g", "a", first, beside, later))
    assert [m.role[0] + str(len(m.tool_calls)) for m in recording.messages] == [
        "a2",
        "t0",
        "t0",
        "a1",
        "t0",
    ]


def test_a_message_that_is_written_again_replaces_itself(read: Read) -> None:
    rows = [gemini("g1", "a"), user("go on"), gemini("g1", "a", call("c"))]
    assert [*shape(read(*rows))] == ["a:a+c", "t:ok=c", "u:go on"]


def test_results_that_are_also_sent_as_a_message_are_not_said_twice(read: Read) -> None:
    alone = [{"functionCall": {"id": "f", "name": "run", "args": {}}}]
    recording = read(
        gemini("g1", "", call("c")),
        user("r1", [response("c")]),
        gemini("g2", alone),
        user("r2", [response("f", "late"), {"text": "more"}]),
    )
    assert [*shape(recording)] == ["a:+c", "t:ok=c", "a:+f", "t:late=f", "u:more"]


def test_what_the_user_took_back_is_counted(read: Read) -> None:
    rows = [user("u1"), gemini("g1", "a"), user("u2"), gemini("g2", "b"), {"$rewindTo": "u2"}]
    nothing = user("u4") | {"content": []}
    recording = read(*rows, user("u3"), {"$rewindTo": "nowhere"}, nothing)
    assert [*shape(recording)] == ["u:u1", "a:a", "u:u3"]
    assert recording.skipped == {
        "message taken back": 2,
        "rewind to an unknown message": 1,
        "message without content": 1,
    }


def test_a_compression_keeps_what_is_said_again_under_new_ids(read: Read) -> None:
    recording = read(
        turns(user("env", ENV)),
        user("u1"),
        gemini("g1", "", call("c1")),
        user("r1", [response("c1")]),
        gemini("g2", "one"),
        user("u2"),
        gemini("g3", "two"),
        turns(
            user("env", ENV),
            user("n1", "in short"),
            gemini("n2", "Got it."),
            user("n3", [{"text": "u2"}]),
            gemini("n4", [{"text": "two\n"}]),
        ),
        user("u3"),
    )
    assert [*shape(recording)] == [
        f"u:{ENV}",
        "u:u1",
        "a:+c1",
        "t:ok=c1",
        "a:one",
        "u:u2",
        "a:two",
        "u:u3",
    ]
    assert described(recording) == (Summary(7, summary="in short", kept=(0, 5, 6)),)
    assert recording.skipped == {}


def test_turns_that_are_made_one_are_recognised_part_by_part(read: Read) -> None:
    recording = read(
        turns(user("env", ENV)),
        user("u1"),
        gemini("g1", "one", call("c1")),
        gemini("g2", "two"),
        turns(
            user("n1", [{"text": ENV}, {"text": "u1"}]),
            gemini("n2", ["one", {"functionCall": {"id": "c1", "name": "run"}}]),
            user("n3", [response("c1", "masked")]),
            gemini("n4", ["two"]),
        ),
    )
    assert len(recording.messages) == 5
    assert described(recording) == (Cleared(5, ("c1",)),)


def test_turns_that_are_written_again_before_they_are_set_are_copies(read: Read) -> None:
    again = [user("n1", "u1"), gemini("n2", [{"functionCall": {"id": "c1", "name": "run"}}])]
    again += [user("n3", [response("c1", "masked")]), gemini("n4", ["two"])]
    recording = read(
        user("u1"), gemini("g1", "", call("c1")), gemini("g2", "two"), *again, turns(*again)
    )
    assert [*shape(recording)] == ["u:u1", "a:+c1", "t:ok=c1", "a:two"]
    assert described(recording) == (Cleared(4, ("c1",)),)


def test_a_turn_that_was_rolled_back_was_taken_back(read: Read) -> None:
    kept = [user("u1"), gemini("g1", "one")]
    recording = read(*kept, user("u2"), turns(*kept), user("u3"), gemini("g3", "three"))
    assert [*shape(recording)] == ["u:u1", "a:one", "u:u3", "a:three"]
    assert described(recording) == ()
    assert recording.skipped == {"message taken back": 1}


def test_a_rolled_back_call_goes_with_its_result(read: Read) -> None:
    rows = [user("u2"), gemini("g2", "", call("c")), user("r2", [response("c")]), gemini("g3", "x")]
    recording = read(user("u1"), *rows, turns(user("n1", "u1")), user("u4"))
    assert [*shape(recording)] == ["u:u1", "u:u4"]
    assert described(recording) == ()


def test_of_what_was_said_twice_the_one_with_the_id_is_kept(read: Read) -> None:
    rows = [user("u1", "go"), gemini("g1", "one"), user("u2", "go"), gemini("g2", "two")]
    recording = read(*rows, turns(user("s", "short"), user("u1", "go")))
    assert described(recording) == (Summary(4, summary="short", kept=(0,)),)


def test_a_later_compression_keeps_of_what_the_earlier_left(read: Read) -> None:
    recording = read(
        *(user("u1"), gemini("g1", "one"), user("u2"), gemini("g2", "two")),
        turns(user("s1", "short"), user("k1", "u2"), gemini("k2", "two")),
        *(user("u3"), gemini("g3", "three")),
        turns(user("s2", "shorter"), user("k3", "u3"), gemini("k4", "three"), user("u4")),
    )
    assert described(recording) == (
        Summary(4, summary="short", kept=(2, 3)),
        Summary(6, summary="shorter\n\nu4", kept=(4, 5)),
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"id": "g", "ty', "not JSON"),
        ([1], "a record must be an object, got list"),
        (user("x", [7]), "content must be a string, an object or a list of these"),
        (gemini("g", "", {"id": "c"}), "the name of a tool call must be a string, got None"),
        (gemini("g", "a", "call"), "toolCalls must be a list of objects"),  # type: ignore[arg-type]
        (gemini("g", "", call("c", result=3)), "content must be a string, an object or a list"),
    ],
)
def test_a_broken_record_says_why_and_costs_only_itself(read: Read, row: Any, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        read(user("hi"), row)
    recording = read(user("hi"), row, gemini("g9", "a"), on_error="skip")
    assert [*shape(recording)] == ["u:hi", "a:a"]
    assert sum(recording.skipped.values()) == 1


def test_the_real_session_reads_as_it_happened(data: Path) -> None:
    (recording,) = load(data / "gemini-cli-entireio")
    # 13 rows: a notice, and an answer that the notice parted from its call, which is one message;
    # the other 11, and the results of their 9 calls.
    assert len(recording.messages) == 20
    assert [m.role for m in recording.messages] == ["user", *["assistant", "tool"] * 9, "assistant"]
    for before, message in zip(recording.messages, recording.messages[1:], strict=False):
        if message.role == "tool":
            assert [call.id for call in before.tool_calls] == [message.tool_call_id]
    answers = [recording.messages[i] for i in recording.request_positions]
    assert all(a.usage and a.usage.total_input > 12_000 and a.usage.reasoning for a in answers)
    assert all(a.reasoning and a.time for a in answers)
    assert recording.skipped == {"message of type info": 1}

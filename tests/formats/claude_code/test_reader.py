"""Tests of the Claude Code format: messages, side chains and compactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from claude_rows import Read, Row, boundary, call, result, said, shape, text, user
from compacting import Cleared, Summary, described

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Usage


def test_the_rows_of_one_message_are_one_message(read: Read) -> None:
    thinking = {"type": "thinking", "thinking": "hm"}
    rows = [said("m1", thinking), said("m1", text("a")), said("m1", text("b"), call("c", path="x"))]
    (recording,) = read(user("hi"), *rows, user([result("c")]))
    assert [*shape(recording)] == ["user:hi", "assistant:a\nb+c", "tool:ok=c"]
    merged = recording.messages[1]
    assert (merged.reasoning, merged.tool_calls[0].arguments) == ("hm", '{"path":"x"}')
    assert recording.model == "m"
    assert recording.messages[0].time == 9.0


def test_thinking_is_no_content(read: Read) -> None:
    (recording,) = read(said("m1", {"type": "thinking", "thinking": "hm"}))
    assert recording.messages[0].content is None


def test_an_answer_that_was_broken_off_while_thinking_is_left_out(read: Read) -> None:
    thinking = {"type": "thinking", "thinking": "hm"}
    rows = [said("m1", thinking), user("[Request interrupted by user]"), said("m2", text("a"))]
    (recording,) = read(user("hi"), *rows)
    assert [*shape(recording)] == ["user:hi", "user:[Request interrupted by user]", "assistant:a"]
    assert recording.skipped == {"interrupted answer": 1}
    (merged,) = read(said("m1", thinking), user("wait"), said("m1", text("a")))
    assert [*shape(merged)] == ["assistant:a", "user:wait"]


def test_usage_is_that_of_the_row_with_most_output_and_counted_once(read: Read) -> None:
    (recording,) = read(said("m1", text("a"), output=1), said("m1", text("b"), output=8))
    assert recording.messages[0].usage == Usage(input=3, cache_read=20, cache_write=100, output=8)


def test_results_between_the_rows_of_a_message_come_after_it(read: Read) -> None:
    rows = [said("m1", call("c1")), user([result("c1")]), said("m1", call("c2"))]
    (recording,) = read(*rows, user([result("c2")]), said("m2", text("done")))
    assert [*shape(recording)] == [
        "assistant:+c1+c2",
        "tool:ok=c1",
        "tool:ok=c2",
        "assistant:done",
    ]


def test_what_arrives_between_a_call_and_its_result_comes_after_the_result(read: Read) -> None:
    rows = [said("m1", call("c1")), user("wait"), user([result("c1"), text("also")])]
    (recording,) = read(*rows)
    assert [*shape(recording)] == ["assistant:+c1", "tool:ok=c1", "user:wait", "user:also"]


def test_a_call_that_was_never_answered_and_a_result_without_a_call_stay(read: Read) -> None:
    (recording,) = read(said("m1", call("c1")), user("stop"), user([result("c9")]))
    assert [*shape(recording)] == ["assistant:+c1", "user:stop", "tool:ok=c9"]


def test_a_result_keeps_texts_images_and_its_error(read: Read) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A="}}
    rows = [
        said("m1", call("c1"), call("c2"), call("c3")),
        user([result("c1", [text("a"), text("b")]), result("c2", [text("see"), image])]),
        user([result("c3", None, is_error=True)]),
    ]
    (recording,) = read(*rows)
    _, texts, images, failed = recording.messages
    assert texts.content == "a\nb"
    assert images.content == (
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,A="}},
    )
    assert (failed.content, failed.extra) == ("", {"is_error": True})


def test_the_copy_of_a_result_is_not_read(read: Read) -> None:
    rows = [said("m1", call("c")), user([result("c", "short")], toolUseResult={"stdout": "LONG"})]
    assert "LONG" not in repr(read(*rows))


def test_what_the_client_adds_for_the_model_is_kept_and_marked(read: Read) -> None:
    (recording,) = read(user("caveat", isMeta=True), user("hi"))
    assert [message.extra for message in recording.messages] == [{"meta": True}, {}]


def test_rows_and_blocks_that_are_no_message_are_counted_by_type(read: Read) -> None:
    (recording,) = read(
        user("hi"),
        {"type": "progress", "data": {"type": "bash_progress"}},
        {"type": "progress", "data": {"type": "bash_progress"}},
        {"type": "system", "subtype": "turn_duration"},
        {"type": "summary", "leafUuid": "x"},
        user([{"type": "document", "source": {}}]),
        said("m1", {"type": "redacted_thinking", "data": "x"}, text("a")),
        said("m2", text("API Error"), isApiErrorMessage=True),
        said("m3", text("No response requested."), model="<synthetic>"),
    )
    assert [*shape(recording)] == ["user:hi", "assistant:a"]
    assert recording.model == "m"
    assert recording.skipped == {
        "row of type progress/bash_progress": 2,
        "row of type system/turn_duration": 1,
        "row of type summary": 1,
        "block of type document": 1,
        "block of type redacted_thinking": 1,
        "row written by the client, not by a model": 2,
    }


def test_a_row_that_was_written_twice_is_read_once(read: Read) -> None:
    row = user("hi")
    (recording,) = read(row, row)
    assert len(recording.messages) == 1
    assert recording.skipped == {"row written twice": 1}


def test_a_compaction_is_marked_and_its_summary_is_no_message(read: Read) -> None:
    rows = [user("hi"), said("m1", text("a")), boundary(trigger="auto", preTokens=99)]
    (recording,) = read(*rows, user("In short", isCompactSummary=True), user("go on"))
    assert [*shape(recording)] == ["user:hi", "assistant:a", "user:go on"]
    assert described(recording) == (
        Summary(2, summary="In short", trigger="auto", tokens_before=99),
    )


def test_cleared_results_are_marked_by_their_calls(read: Read) -> None:
    rows = [said("m1", call("c1")), user([result("c1")])]
    cleared = boundary("micro", trigger="auto", preTokens=50, compactedToolIds=["c1"])
    (recording,) = read(*rows, cleared, said("m2", text("a")))
    assert described(recording) == (Cleared(2, ("c1",), trigger="auto", tokens_before=50),)


def test_a_clearing_of_results_before_the_start_of_the_file_is_no_compaction(read: Read) -> None:
    (recording,) = read(user("hi"), boundary("micro", compactedToolIds=["c1"]), user("go on"))
    assert recording.compactions == ()


@pytest.mark.parametrize(
    "metadata",
    [
        {"preservedMessages": {"anchorUuid": "s", "uuids": ["b", "b2"], "allUuids": ["x", "b"]}},
        {"preservedSegment": {"anchorUuid": "s", "headUuid": "x", "tailUuid": "b2"}},
    ],
)
def test_what_a_compaction_kept_is_marked_and_an_answer_stays_with_its_results(
    read: Read, metadata: Row
) -> None:
    rows = [user("hi", uuid="a"), {"type": "progress", "uuid": "x"}, user("do", uuid="b")]
    rows += [said("m1", call("c"), uuid="b2"), user([result("c")], uuid="b3")]
    (recording,) = read(*rows, boundary(**metadata), user("In short", isCompactSummary=True))
    assert described(recording) == (Summary(4, summary="In short", kept=(1, 2, 3)),)


@pytest.mark.parametrize(
    "segment",
    [{"headUuid": "a"}, {"headUuid": "a", "tailUuid": "?"}, {"headUuid": "b", "tailUuid": "a"}, 7],
)
def test_a_kept_segment_whose_ends_are_not_known_keeps_nothing(read: Read, segment: Any) -> None:
    rows = [user("hi", uuid="a"), user("do", uuid="b"), boundary(preservedSegment=segment)]
    (recording,) = read(*rows)
    assert described(recording) == (Summary(2),)


def test_a_summary_without_a_boundary_is_a_compaction_too(read: Read) -> None:
    (recording,) = read(user("In short", isCompactSummary=True), user("go on"))
    assert described(recording) == (Summary(0, summary="In short"),)


def test_side_chains_are_recordings_of_their_own_in_the_same_cluster(read: Read) -> None:
    side: Row = {"isSidechain": True, "agentId": "x1"}
    main, other = read(
        user("hi"), user("task", **side), said("m1", text("mine")), said("s1", text("its"), **side)
    )
    assert [*shape(main)] == ["user:hi", "assistant:mine"]
    assert [*shape(other)] == ["user:task", "assistant:its"]
    assert (main.id, other.id) == ("session", "session/side-x1")
    assert main.cluster == other.cluster == "s"


def test_side_chains_without_an_agent_are_told_apart_by_their_parents(read: Read) -> None:
    def side(uuid: str, parent: str | None) -> Row:
        return user(uuid, isSidechain=True, uuid=uuid, parentUuid=parent)

    rows = [side("a", None), side("b", None), side("a2", "a"), side("b2", "b"), side("a3", "a2")]
    first, second = read(*rows)
    assert [*shape(first)] == ["user:a", "user:a2", "user:a3"]
    assert [*shape(second)] == ["user:b", "user:b2"]


def test_a_session_that_goes_on_under_a_new_id_is_one_conversation(read: Read) -> None:
    (recording,) = read(user("1", sessionId="s"), user("2", sessionId="t"))
    assert len(recording.messages) == 2


def test_sessions_that_take_turns_are_several_conversations(read: Read) -> None:
    rows = [user(name, sessionId=name) for name in "stst"]
    first, second = read(*rows)
    assert [*shape(first)] == ["user:s", "user:s"]
    assert (first.id, second.id) == ("session/s", "session/t")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"type": "user", "mess', "not JSON"),
        ("[1, 2]", "a row must be an object, got list"),
        (user("x") | {"message": None}, "message must be an object, got NoneType"),
        (user(7), "content must be a string or a list of objects, got int"),
        (user([result("c") | {"tool_use_id": 4}]), "tool_use_id must be a string, got int"),
        (said("m1", {"type": "text"}), "text of a block must be a string, got NoneType"),
        (
            said("m1", {"type": "tool_use", "id": "c"}),
            "the name of a tool call must be a string, got None",
        ),
    ],
)
def test_a_broken_row_says_where_and_why_and_costs_only_itself(
    read: Read, row: Any, reason: str
) -> None:
    rows = [user("hi"), row, said("m2", text("a"))]
    with pytest.raises(ReadError, match=reason) as caught:
        read(*rows)
    assert caught.value.line == 2
    (recording,) = read(*rows, on_error="skip")
    assert [*shape(recording)] == ["user:hi", "assistant:a"]
    assert recording.skipped == {f"broken line: {reason} (2)": 1}


def test_the_real_sessions_are_merged_paired_and_marked(data: Path) -> None:
    recordings = list(load(data / "claude-code-entireio"))
    mains = [recording for recording in recordings if "parent" not in recording.meta]
    sizes = [len(recording.messages) for recording in mains]
    assert sizes == [262, 113, 70, 38, 131, 64, 169, 282, 420]
    assert len(recordings) == 9 + 4
    marks = Counter(mark.kind for recording in recordings for mark in recording.compactions)
    assert marks == {"summary": 6, "clear": 2}
    for recording in recordings:
        answers = [recording.messages[i] for i in recording.request_positions]
        assert all(answer.usage is not None and answer.usage.total_input > 0 for answer in answers)
        assert all(message.time is not None for message in recording.messages)
        assert all(mark.tokens_before for mark in recording.compactions)
        assert all(mark.summary for mark in recording.compactions if mark.kind == "summary")
    assert all(recording.skipped for recording in mains)


def test_in_the_real_sessions_results_stand_right_behind_their_calls(data: Path) -> None:
    for recording in load(data / "claude-code-entireio"):
        waiting: set[str] = set()
        for message in recording.messages:
            if message.role == "tool":
                waiting.remove(message.tool_call_id or "")
            else:
                assert not waiting
            waiting.update(call.id for call in message.tool_calls)
        assert not waiting

"""Tests of the pi format: messages, the active branch, and compactions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described
from reading import shape

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Recording, Usage

Row = dict[str, Any]
Read = Callable[..., Recording]

HEADER = {"type": "session", "id": "s1", "cwd": "/a", "timestamp": "1970-01-01T00:00:00Z"}
NEWER = HEADER | {"version": 3}
SUMMARY = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\n{}\n</summary>"
)


def entry(role: str, content: Any = None, **message: Any) -> Row:
    body = {"role": role, "timestamp": 9500} | message
    if content is not None:
        body["content"] = content
    return {"type": "message", "timestamp": "1970-01-01T01:00:00Z", "message": body}


def user(text: str) -> Row:
    return entry("user", [{"type": "text", "text": text}])


def said(*content: Any, model: str = "m", **message: Any) -> Row:
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    return entry("assistant", blocks, model=model, **{"stopReason": "stop"} | message)


def call(id: str, **arguments: Any) -> Row:
    return {"type": "toolCall", "id": id, "name": "read", "arguments": arguments}


def result(id: str, text: str = "ok", **message: Any) -> Row:
    blocks = [{"type": "text", "text": text}]
    return entry("toolResult", blocks, toolCallId=id, toolName="read", **message)


def compaction(**fields: Any) -> Row:
    return {"type": "compaction", "summary": "in short", "tokensBefore": 99} | fields


def tree(*rows: tuple[str, str | None, Row]) -> list[Row]:
    """Return entries with the given ids and parent ids."""
    return [row | {"id": id, "parentId": parent} for id, parent, row in rows]


@pytest.fixture
def read(write_lines: Callable[..., Path]) -> Read:
    def reading(*rows: Any, header: Row = HEADER, **options: Any) -> Recording:
        (recording,) = load(write_lines(header, *rows), **options)
        return recording

    return reading


def test_an_answer_has_its_reasoning_usage_and_the_time_of_its_message(read: Read) -> None:
    usage = {"input": 1, "cacheRead": 20, "cacheWrite": 300, "output": 4, "totalTokens": 325}
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "x"}
    recording = read(user("hi"), said(thinking, "a", "b", call("c", path="x"), usage=usage))
    answer = recording.messages[1]
    assert [*shape(recording)] == ["u:hi", "a:a\nb+c"]
    assert (answer.reasoning, answer.tool_calls[0].arguments) == ("hm", '{"path":"x"}')
    assert answer.usage == Usage(input=1, cache_read=20, cache_write=300, output=4)
    assert answer.time == 9.5
    assert (recording.model, recording.cluster) == ("m", "s1")


@pytest.mark.parametrize("role", ["toolResult", "assistant"])
def test_a_session_without_its_header_is_recognised_by_an_answer_or_a_result(
    write_lines: Callable[..., Path], role: str
) -> None:
    own = result("c") if role == "toolResult" else said("b")
    path = write_lines(user("a"), own)
    known = detect_format(path)
    assert known is not None
    assert known.name == "pi"
    (recording,) = load(path)
    assert (len(recording.messages), recording.meta) == (2, {})


def test_the_missing_header_counts_as_an_entry(write_lines: Callable[..., Path]) -> None:
    rows = [user("a"), said("b"), user("c"), said("d")]
    for index, kept in ((3, (2, 3)), (0, (0, 1, 2, 3))):
        (recording,) = load(write_lines(*rows, compaction(firstKeptEntryIndex=index)))
        assert recording.compactions[0].kept == kept


def test_without_a_header_entries_that_name_their_parent_are_of_a_newer_version(
    write_lines: Callable[..., Path],
) -> None:
    broken = said("half", stopReason="aborted")
    old = write_lines(user("a"), said("b"), broken)
    assert [*shape(next(load(old)))] == ["u:a", "a:b", "a:half"]
    rows = tree(("1", None, user("a")), ("2", "1", said("b")), ("3", "2", broken))
    assert [*shape(next(load(write_lines(*rows))))] == ["u:a", "a:b"]


def test_a_result_keeps_its_tool_its_images_and_its_error(read: Read) -> None:
    image = {"type": "image", "data": "A=", "mimeType": "image/png"}
    failed = entry("toolResult", [image], toolCallId="c", toolName="read", isError=True, details={})
    message = read(said(call("c")), failed).messages[1]
    assert message.content == (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,A="}},
    )
    assert (message.name, message.tool_call_id, message.extra) == ("read", "c", {"is_error": True})


def test_a_command_of_the_user_reads_as_the_model_reads_it(read: Read) -> None:
    def ran(**fields: Any) -> Row:
        return entry("bashExecution", command="ls", output="", **fields)

    recording = read(
        entry("bashExecution", command="ls", output="a\n", exitCode=0),
        ran(exitCode=2),
        ran(cancelled=True),
        entry("bashExecution", command="ls", output="a", truncated=True, fullOutputPath="/t"),
        ran(excludeFromContext=True),
    )
    assert [message.text for message in recording.messages] == [
        "Ran `ls`\n```\na\n\n```",
        "Ran `ls`\n(no output)\n\nCommand exited with code 2",
        "Ran `ls`\n(no output)\n\n(command cancelled)",
        "Ran `ls`\n```\na\n```\n\n[Output truncated. Full output: /t]",
    ]
    assert {message.role for message in recording.messages} == {"user"}
    assert recording.skipped == {"message of role bashExecution": 1}


def test_what_extensions_and_branches_tell_the_model_is_kept(read: Read) -> None:
    recording = read(
        entry("custom", "a"),
        entry("hookMessage", [{"type": "text", "text": "b"}]),
        {"type": "custom_message", "content": "c", "timestamp": "1970-01-01T00:00:07Z"},
        {"type": "branch_summary", "summary": "d"},
    )
    assert [*shape(recording)] == ["u:a", "u:b", "u:c", "u:d"]
    assert recording.messages[2].time == 7.0
    assert recording.messages[3].extra == {"branch_summary": True}


def test_entries_that_reach_no_model_are_counted_by_type(read: Read) -> None:
    others = [{"type": kind} for kind in ("model_change", "label", "custom", "label")]
    recording = read(
        *others, entry("user", "hi", attachments=[{}]), entry("odd"), entry("user", [])
    )
    assert recording.skipped == {
        "entry of type model_change": 1,
        "entry of type label": 2,
        "entry of type custom": 1,
        "attachment": 1,
        "message of role odd": 1,
        "message without content": 1,
    }


@pytest.mark.parametrize("reason", ["aborted", "error"])
def test_an_answer_that_was_broken_off_is_what_pi_sends_again(read: Read, reason: str) -> None:
    thinking = {"type": "thinking", "thinking": "hm"}
    rows = [
        said("part", call("c"), stopReason=reason),
        result("c"),
        said(thinking, stopReason=reason),
    ]
    older = read(*rows, user("hi"))
    assert [*shape(older)] == ["a:part", "u:hi"]
    newer = read(*rows, user("hi"), header=NEWER)
    assert [*shape(newer)] == ["u:hi"]
    assert older.skipped == {
        "call of an interrupted answer": 1,
        "result of an interrupted call": 1,
        "interrupted answer": 1,
    }
    assert newer.skipped == {
        "interrupted answer": 2,
        "result of an interrupted call": 1,
    }


def test_a_compaction_kept_the_entries_from_its_index_on_counted_with_the_header(
    read: Read,
) -> None:
    change = {"type": "thinking_level_change"}
    rows = [user("a"), said("b"), change, user("c"), said("d"), compaction(firstKeptEntryIndex=4)]
    recording = read(*rows, user("e"))
    assert [*shape(recording)] == ["u:a", "a:b", "u:c", "a:d", "u:e"]
    assert described(recording) == (
        Summary(4, summary=SUMMARY.format("in short"), kept=(2, 3), tokens_before=99),
    )


def test_a_line_that_pi_cannot_parse_has_no_index(write_lines: Callable[..., Path]) -> None:
    two = json.dumps(user("a")) + json.dumps(said("b"))
    rows = [HEADER, two, user("c"), said("d"), compaction(firstKeptEntryIndex=1)]
    (recording,) = load(write_lines(*rows))
    assert [*shape(recording)] == ["u:a", "a:b", "u:c", "a:d"]
    assert recording.compactions[0].kept == (2, 3)


def test_a_compaction_kept_the_entries_from_its_id_on(read: Read) -> None:
    rows = tree(
        ("1", None, user("a")),
        ("2", "1", said("b")),
        ("3", "2", user("c")),
        ("4", "3", compaction(firstKeptEntryId="3")),
        ("5", "4", said("d")),
        ("6", "5", compaction(firstKeptEntryId="2", summary="later")),
        ("7", "6", user("e")),
    )
    first, second = read(*rows, header=NEWER).compactions
    assert (first.position, first.kept) == (3, (2,))
    assert (second.position, second.kept, second.summary) == (4, (1, 2, 3), SUMMARY.format("later"))


@pytest.mark.parametrize("first", [{}, {"firstKeptEntryIndex": 50}, {"firstKeptEntryId": "no"}])
def test_a_compaction_that_names_no_entry_kept_nothing(read: Read, first: Row) -> None:
    recording = read(user("a"), compaction(**first), user("b"))
    assert recording.compactions[0].kept == ()


def test_the_active_branch_ends_in_the_last_entry_and_others_are_counted(read: Read) -> None:
    rows = tree(
        ("1", None, user("a")),
        ("2", "1", said("left", model="gone")),
        ("3", "2", user("left too")),
        ("4", "1", said("b")),
        ("5", "4", {"type": "label", "targetId": "3"}),
    )
    recording = read(*rows, header=NEWER)
    assert [*shape(recording)] == ["u:a", "a:b"]
    assert recording.skipped == {"entry of another branch": 2, "entry of type label": 1}
    assert recording.model == "m"


def test_a_new_root_begins_anew(read: Read) -> None:
    rows = tree(("1", None, user("a")), ("2", None, user("b")))
    assert [*shape(read(*rows, header=NEWER))] == ["u:b"]


def test_a_lost_line_costs_only_itself(read: Read) -> None:
    rows = tree(("1", None, user("a")), ("2", "1", said("b")), ("4", "3", user("c")))
    recording = read(*rows[:2], '{"type": "mess', rows[2], header=NEWER, on_error="skip")
    assert [*shape(recording)] == ["u:a", "a:b", "u:c"]
    assert recording.skipped == {"broken line: not JSON (4)": 1}


def test_the_model_is_the_most_used_and_several_are_told(read: Read) -> None:
    recording = read(*(said("a", model=name) for name in ("x", "y", "y")))
    assert recording.model == "y"
    assert recording.meta == {"session": "s1", "cwd": "/a", "models": {"x": 1, "y": 2}}


@pytest.mark.parametrize("key", ["branchedFrom", "parentSession"])
def test_a_session_that_begins_as_a_copy_is_in_the_cluster_of_its_origin(
    read: Read, key: str
) -> None:
    recording = read(user("a"), header=NEWER | {key: "/x/2025-12-09T00-52-54-397Z_s0.jsonl"})
    assert recording.cluster == "s0"
    assert recording.meta == {"session": "s1", "cwd": "/a", "version": 3}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("[1, 2]", "an entry must be an object, got list"),
        ({"type": "message"}, "message must be an object, got NoneType"),
        (entry("user", 7), "content must be a string or a list of objects, got int"),
        (entry("toolResult", [], toolCallId=4), "toolCallId must be a string, got int"),
        (entry("bashExecution"), "command must be a string, got NoneType"),
        (
            said({"type": "toolCall", "id": "c"}),
            "the name of a tool call must be a string, got None",
        ),
    ],
)
def test_a_broken_entry_says_where_and_why_and_costs_only_itself(
    read: Read, row: Any, reason: str
) -> None:
    with pytest.raises(ReadError, match=reason) as caught:
        read(user("hi"), row)
    assert caught.value.line == 3
    recording = read(user("hi"), row, said("a"), on_error="skip")
    assert [*shape(recording)] == ["u:hi", "a:a"]
    assert recording.skipped == {f"broken line: {reason} (3)": 1}


def test_a_long_session_is_followed_without_recursion(read: Read) -> None:
    rows = [user("a") | {"id": str(n), "parentId": str(n - 1) if n else None} for n in range(5000)]
    assert len(read(*rows, header=NEWER).messages) == 5000


def test_the_real_sessions_are_read_whole(data: Path) -> None:
    before, large = load(data / "pi-mono")
    # 990 and 914 messages stand in the files; 16 and 15 of them are answers that were broken off
    # before they said a word.
    assert (len(before.messages), len(large.messages)) == (974, 899)
    assert before.skipped["interrupted answer"] == 16
    assert large.skipped["interrupted answer"] == 15
    assert (before.model, large.model) == ("claude-opus-4-5", "claude-sonnet-4-5")
    for recording in (before, large):
        answers = [recording.messages[i] for i in recording.request_positions]
        assert all(answer.usage and answer.usage.total_input > 0 for answer in answers)
        assert all(answer.content or answer.tool_calls for answer in answers)
        times = [message.time for message in recording.messages]
        assert None not in times


def test_in_the_real_sessions_results_stand_right_behind_their_calls(data: Path) -> None:
    unanswered = 0
    for recording in load(data / "pi-mono"):
        waiting: set[str] = set()
        for message in recording.messages:
            if message.role == "tool":
                waiting.remove(message.tool_call_id or "")
                continue
            unanswered += len(waiting)
            waiting = {call.id for call in message.tool_calls}
        assert not waiting
    assert unanswered == 1  # it was running when the user compacted


def test_what_the_real_compactions_kept_begins_with_a_turn_and_is_what_was_billed_next(
    data: Path,
) -> None:
    before, large = load(data / "pi-mono")
    assert described(large) == ()
    assert [(c.position, c.tokens_before) for c in before.compactions] == [
        (351, 175004),
        (611, 185014),
    ]
    for compaction, billed in zip(before.compactions, (25_739, 28_617), strict=True):
        first, *_, last = compaction.kept
        assert compaction.kept == tuple(range(first, compaction.position))
        assert before.messages[first].role == "user"
        assert last == compaction.position - 1
        following = (m.usage.total_input for m in before.messages[compaction.position :] if m.usage)
        assert next(following) == billed
        kept = [before.messages[position] for position in compaction.kept]
        texts = [m.text + "".join(c.arguments for c in m.tool_calls) for m in kept]
        said = sum(map(len, texts)) + len(compaction.summary or "")
        assert 2 < said / billed < 4  # characters a token

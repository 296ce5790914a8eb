"""Tests of the Copilot CLI format: events, subagents and compactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described
from reading import shape

from ctxlab.errors import ReadError
from ctxlab.formats import FORMATS, FileHead, detect_format, load
from ctxlab.messages.types import Compaction, Message, Recording, Usage

Row = dict[str, Any]
Read = Callable[..., list[Recording]]

TIME = "1970-01-01T00:00:09Z"
START = {"sessionId": "s", "copilotVersion": "1.0.74", "context": {"cwd": "/a", "branch": "dev"}}
PNG = {"mimeType": "image/png", "data": "A="}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A="}}


def event(kind: str, agent: str = "", /, **data: Any) -> Row:
    row = {"type": kind, "id": "e", "parentId": None, "timestamp": TIME, "data": data}
    return row | ({"agentId": agent} if agent else {})


def user(content: Any, agent: str = "", /, **data: Any) -> Row:
    return event("user.message", agent, content=content, **data)


def answer(content: Any, *calls: Row, agent: str = "", **data: Any) -> Row:
    requests = {"toolRequests": list(calls)} if calls else {}
    return event("assistant.message", agent, content=content, **requests, **data)


def call(id: Any, arguments: Any = None, **fields: Any) -> Row:
    return {"toolCallId": id, "name": "run", "arguments": arguments} | fields


def result(id: Any, content: Any = "ok", agent: str = "", **data: Any) -> Row:
    done = {"toolCallId": id, "success": True, "result": {"content": content}}
    return event("tool.execution_complete", agent, **done | data)


def compact(summary: str | None = "In short", **data: Any) -> Row:
    return event("session.compaction_complete", success=True, summaryContent=summary, **data)


COMPACTING = event("session.compaction_start")


def only(recordings: list[Recording]) -> Recording:
    (recording,) = recordings
    return recording


def test_a_session_names_its_model_version_folder_and_cluster(read: Read) -> None:
    recording = only(read(event("session.start", **START), user("hi"), answer("a", model="m")))
    assert (recording.model, recording.cluster) == ("m", "s")
    assert recording.meta == {"session": "s", "version": "1.0.74", "cwd": "/a", "branch": "dev"}
    assert [message.time for message in recording.messages] == [9.0, 9.0]


def test_a_session_that_continues_another_is_in_its_cluster(read: Read) -> None:
    start = event("session.start", **START, detachedFromSpawningParentSessionId="p")
    assert only(read(start, user("hi"))).cluster == "p"


def test_the_parts_of_one_model_call_are_one_answer(read: Read) -> None:
    parts = [
        answer("", apiCallId="a1", encryptedContent="?"),
        answer("I look.", apiCallId="a1", reasoningText="hm"),
        answer("", call("c", {"path": "x"}), apiCallId="a1", outputTokens=7),
    ]
    recording = only(read(user("hi"), *parts, result("c"), answer("b", apiCallId="a2")))
    assert [*shape(recording)] == ["u:hi", "a:I look.+c", "t:ok=c", "a:b"]
    said = recording.messages[1]
    assert (said.reasoning, said.usage) == ("hm", Usage(output=7))
    assert said.tool_calls[0].arguments == '{"path":"x"}'
    assert recording.skipped == {"encrypted reasoning": 1}


def test_without_ids_the_parts_of_a_turn_up_to_a_result_are_one_answer(read: Read) -> None:
    turn = [event("assistant.turn_start"), answer("I look."), answer("", call("c1"))]
    recording = only(read(*turn, answer("", call("c2")), result("c1"), result("c2"), answer("b")))
    assert [*shape(recording)] == ["a:I look.+c1+c2", "t:ok=c1", "t:ok=c2", "a:b"]
    assert [*shape(only(read(*turn, turn[0], answer("c"))))] == ["a:I look.+c1", "a:c"]
    assert [*shape(only(read(answer("a"), answer("b"))))] == ["a:a", "a:b"]


def test_results_follow_their_answer_in_the_order_in_which_they_arrived(read: Read) -> None:
    rows = [answer("", call("c1"), call("c2")), user("wait"), result("c2"), result("c1")]
    recording = only(read(*rows, answer("", call("c3")), result("c9")))
    assert [*shape(recording)] == ["a:+c1+c2", "t:ok=c2", "t:ok=c1", "u:wait", "a:+c3", "t:ok=c9"]
    assert [m.name for m in recording.messages if m.role == "tool"] == ["run", "run", None]


def test_a_result_is_what_the_model_received(read: Read) -> None:
    shown = {"content": "short", "detailedContent": "LONG", "contents": [{"text": "LONG"}]}
    images = {
        "content": "seen",
        "binaryResultsForLlm": [{"type": "image"} | PNG, {"type": "resource"}],
    }
    failed: Row = {"success": False, "result": None, "error": {"message": "no such file"}}
    rows = [result("c1", result=shown), result("c2", result=images), result("c3", **failed)]
    rows += [result("c4", result="plain"), result("c5", result=None)]
    recording = only(read(answer("", *(call(f"c{i}") for i in range(1, 6))), *rows))
    _, short, image, error, plain, empty = recording.messages
    assert (plain.content, empty.content) == ("plain", "")
    assert short.content == "short"
    assert image.content == ({"type": "text", "text": "seen"}, PNG_PART)
    assert (error.content, error.extra) == ("no such file", {"is_error": True})
    assert recording.skipped == {"binary result of type resource": 1}
    assert "LONG" not in repr(recording.messages)


def test_the_text_for_a_custom_tool_is_its_input(read: Read) -> None:
    calls = [call("c1", "+x", type="custom"), call("c2", '{"a": 1}'), call("c3")]
    (said,) = only(read(answer("", *calls))).messages
    assert [c.arguments for c in said.tool_calls] == ['{"input":"+x"}', '{"a": 1}', "{}"]


def test_a_prompt_is_read_as_it_was_sent(read: Read) -> None:
    sent = "<current_datetime>now</current_datetime>\n\nhi"
    reminder = user("", transformedContent="<system_reminder>x</system_reminder>", source="system")
    recording = only(read(user("hi", transformedContent=sent), reminder, user("")))
    typed, added = recording.messages
    assert (typed.content, typed.extra) == (sent, {})
    assert (added.content, added.extra) == (
        "<system_reminder>x</system_reminder>",
        {"source": "system"},
    )
    assert recording.skipped == {"message without content": 1}


def test_attached_images_and_files_follow_the_text(read: Read) -> None:
    asset = event("session.binary_asset", assetId="sha256:1", **PNG)
    attachments = [
        {"type": "blob"} | PNG,
        {"type": "file", "path": "/b.png", "assetId": "sha256:1"},
        {"type": "file", "path": "/a.py", "taggedFilesEntry": "* /a.py (2 lines)"},
        {"type": "selection", "text": "x = 1", "filePath": "/a.py"},
        {"type": "file", "path": "/c.png", "assetId": "sha256:2", "mimeType": "image/png"},
        {"type": "directory", "path": "/d"},
    ]
    recording = only(read(asset, user("Why x = 1?", attachments=attachments)))
    text = "Why x = 1?\n\n\n\n<tagged_files>\n* /a.py (2 lines)\n</tagged_files>"
    assert recording.messages[0].content == ({"type": "text", "text": text}, PNG_PART, PNG_PART)
    assert recording.skipped == {"attachment of type file": 1, "attachment of type directory": 1}


def test_a_notification_for_the_model_is_a_user_message(read: Read) -> None:
    told = "<system_notification>\nDone.\n</system_notification>"
    found = event(
        "system.notification", content="Discovered", kind={"type": "instruction_discovered"}
    )
    recording = only(
        read(
            event("system.notification", content=told, kind={"type": "shell_completed"}),
            found,
            event("session.mode_notice_delivered", mode="plan", content="Plan first."),
            event("session.mode_notice_delivered", mode="plan"),
        )
    )
    assert [*shape(recording)] == [f"u:{told}", "u:Plan first."]
    assert recording.skipped == {
        "notification of type instruction_discovered": 1,
        "mode notice without content": 1,
    }


def test_the_first_system_prompt_is_kept_and_others_are_counted(read: Read) -> None:
    prompts = [event("system.message", role="system", content=text) for text in "aab"]
    recording = only(read(prompts[0], user("hi"), prompts[1], prompts[2], prompts[2]))
    assert [*shape(recording)] == ["s:a", "u:hi"]
    assert recording.skipped == {"system prompt written again": 2, "changed system prompt": 1}
    with pytest.raises(ReadError, match="contains no copilot-cli conversation"):
        read(prompts[0])


def test_usage_tells_the_cache_apart_and_is_that_of_the_model_call(read: Read) -> None:
    def usage(**data: Any) -> Row:
        return event("assistant.usage", inputTokens=90, outputTokens=7, **data)

    details = [("input", 2), ("cache_read", 30), ("cache_write", 58), ("output", 7)]
    itemised = [{"tokenType": kind, "tokenCount": count} for kind, count in details]
    recording = only(
        read(
            usage(apiCallId="a1", cacheReadTokens=50, cacheWriteTokens=30, reasoningTokens=4),
            answer("a", apiCallId="a1", outputTokens=7),
            answer("b", apiCallId="a2", outputTokens=7),
            usage(apiCallId="a2", copilotUsage={"tokenDetails": itemised}),
            answer("c", outputTokens=7),
            usage(),
            usage(interactionType="conversation-compaction"),
            usage(apiCallId="a9"),
            event("assistant.usage", inputTokens=0),
            answer("d"),
        )
    )
    assert [m.usage for m in recording.messages] == [
        Usage(input=10, cache_read=50, cache_write=30, output=7, reasoning=4),
        Usage(input=2, cache_read=30, cache_write=58, output=7),
        Usage(input=90, output=7),
        None,
    ]
    assert recording.skipped == {
        "usage of a compaction": 1,
        "usage without tokens": 1,
        "usage without an answer": 1,
    }


def test_the_totals_of_a_shutdown_are_meta(read: Read) -> None:
    used = {"inputTokens": 90, "outputTokens": 7, "cacheReadTokens": 50, "cacheWriteTokens": 30}
    metrics = {"m": {"requests": {"count": 2}, "usage": used}}
    down = event("session.shutdown", shutdownType="routine", currentTokens=99, modelMetrics=metrics)
    recording = only(read(down, user("hi"), down))
    billed = {"requests": 2, "input": 10, "cache_read": 50, "cache_write": 30, "output": 7}
    shutdown = {"shutdownType": "routine", "currentTokens": 99, "models": {"m": billed}}
    assert recording.meta == {"shutdown": shutdown}
    assert recording.skipped == {"earlier row of type session.shutdown": 1}


def test_a_separate_reasoning_event_is_that_of_its_answer_and_counted_once(read: Read) -> None:
    def thought(text: str) -> Row:
        return event("assistant.reasoning", content=text)

    rows = [thought("x"), answer("a"), thought("y"), answer("b", reasoningText="y"), thought("y")]
    recording = only(read(*rows, thought("z")))
    assert [m.reasoning for m in recording.messages] == ["x", "y"]
    assert recording.skipped == {"reasoning without an answer": 1}


def test_an_answer_without_a_model_has_the_selected_one(read: Read) -> None:
    change = event("session.model_change", newModel="m2", previousModel="m1")
    start = event("session.start", **START, selectedModel="m1")
    recording = only(
        read(start, answer("a"), answer("b"), change, answer("c"), answer("d", model="m3"))
    )
    assert recording.model == "m1"
    assert recording.meta["models"] == {"m1": 2, "m2": 1, "m3": 1}


def test_an_empty_answer_and_a_command_of_the_user_are_counted(read: Read) -> None:
    rows = [answer("a"), answer("", outputTokens=1), result("u", isUserRequested=True)]
    recording = only(read(*rows, event("abort", reason="user_initiated")))
    assert [*shape(recording)] == ["a:a"]
    assert recording.skipped == {
        "answer without text or calls": 1,
        "result of a command of the user": 1,
        "row of type abort": 1,
    }


def test_a_subagent_is_a_recording_of_its_own_in_the_same_cluster(read: Read) -> None:
    main, other = read(
        event("session.start", **START),
        user("hi"),
        answer("", call("c")),
        event("subagent.started", "x1", toolCallId="c", agentName="explore", model="m3"),
        user("look", "x1", source="agent-s"),
        answer("", call("c2"), agent="x1"),
        result("c2", agent="x1"),
        event("subagent.completed", "x1", toolCallId="c", totalTokens=30),
        result("c", "seen"),
    )
    assert [*shape(main)] == ["u:hi", "a:+c", "t:seen=c"]
    assert [*shape(other)] == ["u:look", "a:+c2", "t:ok=c2"]
    assert (main.id, other.id, other.model) == ("session", "session/x1", "m3")
    assert main.cluster == other.cluster == "s"
    about = {"agentId": "x1", "agentName": "explore", "totalTokens": 30}
    assert other.meta == main.meta | about | {"parent": "session", "call_id": "c"}


def test_a_subagent_of_an_older_log_is_known_by_the_call_that_started_it(read: Read) -> None:
    rows = [answer("", call("c")), answer("its", parentToolCallId="c"), answer("mine")]
    main, other = read(user("hi"), *rows)
    assert [*shape(main)] == ["u:hi", "a:+c", "a:mine"]
    assert (other.id, [*shape(other)]) == ("session/c", ["a:its"])
    assert other.meta == {"parent": "session", "call_id": "c"}


def test_a_subagent_that_another_subagent_started_is_tied_to_that_one(read: Read) -> None:
    rows = [answer("", call("c1")), answer("", call("c2"), agent="x")]
    started = event("subagent.started", "y", toolCallId="c2")
    *_, inner = read(*rows, started, answer("deep", agent="y"))
    assert (inner.meta["parent"], inner.meta["call_id"]) == ("session/x", "c2")


def test_a_subagent_without_a_known_call_belongs_to_the_main_agent(read: Read) -> None:
    started = event("subagent.started", "x", toolCallId="c9")
    _, other = read(user("hi"), started, answer("a", agent="x"))
    assert other.meta == {"agentId": "x", "parent": "session"}


def test_a_subagent_whose_main_agent_said_nothing_has_no_parent(read: Read) -> None:
    assert "parent" not in only(read(answer("a", agent="x"))).meta


def test_what_came_after_the_start_of_a_compaction_is_kept(read: Read) -> None:
    recording = only(
        read(
            event("system.message", content="sys"),
            user("hi"),
            answer("", call("c1")),
            result("c1"),
            COMPACTING,
            answer("", call("c2")),
            result("c2"),
            compact(preCompactionTokens=99, trigger="manual"),
            answer("done"),
        )
    )
    (mark,) = recording.compactions
    assert (mark.position, mark.kept, mark.tokens_before, mark.trigger) == (
        6,
        (0, 4, 5),
        99,
        "manual",
    )
    assert recording.messages[6].text == "done"


def test_the_summary_contains_the_prompts_that_were_replaced(read: Read) -> None:
    rows = [user("one"), user("<reminder>", source="system"), answer("a"), COMPACTING, user("two")]
    recording = only(read(*rows, compact("S1"), COMPACTING, compact("S2"), answer("b")))
    first, second = (mark.summary or "" for mark in recording.compactions)
    assert "<user_message>\none\n</user_message>\n\nHere is" in first
    assert "<summary>\nS1\n</summary>" in first
    assert "two" not in first
    assert "<reminder>" not in first
    assert "one\n</user_message>\n<user_message>\ntwo\n</user_message>\n\nHere is" in second
    assert "S1" not in second


def test_a_compaction_without_a_start_keeps_only_the_system_message(read: Read) -> None:
    rows = [event("system.message", content="sys"), user("hi"), compact(None), user("go on")]
    assert described(only(read(*rows))) == (Summary(2, kept=(0,)),)


def test_a_compaction_that_failed_is_counted(read: Read) -> None:
    failed = event("session.compaction_complete", success=False, error="too long")
    recording = only(read(user("hi"), COMPACTING, failed, answer("a"), compact(None)))
    assert described(recording) == (Summary(2),)
    assert recording.skipped == {"failed compaction": 1}


def test_a_cleared_context_is_a_compaction_that_keeps_no_message(read: Read) -> None:
    rows = [user("one"), answer("a"), event("session.context_cleared", initialMessage="Start.")]
    recording = only(read(*rows, user("two"), compact("S")))
    clear, summary = described(recording)
    assert clear == Summary(2, summary="Start.", trigger="clear")
    assert "one\n" not in (summary.summary or "")


def test_a_stream_with_other_rows_is_known_and_they_are_counted_by_type(
    read: Read, write_lines: Callable[..., Path]
) -> None:
    rows = [
        event("hook.start", hookType="preToolUse"),
        answer("a"),
        event("assistant.message_delta", deltaContent="a") | {"ephemeral": True},
        {"type": "result", "sessionId": "s", "exitCode": 0},
    ]
    detected = detect_format(write_lines(*rows))
    assert detected is not None
    assert detected.name == "copilot-cli"
    assert only(read(*rows)).skipped == {
        "row of type hook.start": 1,
        "row of type assistant.message_delta": 1,
        "row of type result": 1,
    }


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"type": "user.message", "da', "not JSON"),
        ("[1]", "an event must be an object, got list"),
        (event("user.message") | {"data": 7}, "data must be an object, got int"),
        (user(None), "content must be a string, got NoneType"),
        (user("x", attachments=[1]), "attachments must be a list of objects"),
        (answer("x", call(7)), "toolCallId must be a string, got int"),
        (answer("x", call("c", name=None)), "the name of a tool call must be a string, got None"),
        (result("c", 5), "content of a result must be a string, got int"),
        (event("session.binary_asset"), "assetId must be a string, got NoneType"),
        (event("subagent.started"), "agentId must be a string, got NoneType"),
    ],
)
def test_a_broken_row_says_where_and_why_and_costs_only_itself(
    read: Read, row: Any, reason: str
) -> None:
    rows = [user("hi"), row, answer("a")]
    with pytest.raises(ReadError, match=reason) as caught:
        read(*rows)
    assert caught.value.line == 2
    recording = only(read(*rows, on_error="skip"))
    assert [*shape(recording)] == ["u:hi", "a:a"]
    assert len(recording.skipped) == 1


@pytest.fixture(scope="module")
def corpus(recorded: Path) -> list[Path]:
    """Return the recorded sessions of Copilot CLI, which are beside the folder of real recordings."""
    files = sorted((recorded.parent / "corpus").glob("copilot-cli-*/*.zst"))
    if not files:
        pytest.skip("no sessions of Copilot CLI in the folder corpus beside the real recordings")
    return files


@pytest.mark.recordings(smoke=True)
def test_the_real_sessions_are_known_and_read_in_full(corpus: list[Path]) -> None:
    sizes: dict[str, tuple[int, ...]] = {}
    marks: list[Compaction] = []
    for path in corpus:
        head = FileHead.from_file(path)
        assert [each.name for each in FORMATS.values() if each.sniff(head)] == ["copilot-cli"]
        for recording in load(path):
            said = recording.messages
            counts = [sum(m.role == role for m in said) for role in ("user", "assistant", "tool")]
            calls = sum(len(m.tool_calls) for m in said)
            about = recording.meta.get("agentId", "")[-5:]
            sizes[f"{path.name[:4]} {about}".strip()] = (*counts, calls)
            assert recording.meta.get("totalToolCalls", calls) == calls
            assert all(m.usage and m.usage.output for m in said if m.role == "assistant")
            marks += recording.compactions
    assert sizes == {
        "26_9": (2, 54, 68, 68),
        "d8_8": (4, 56, 61, 61),
        "full": (4, 29, 108, 108),
        "4b_a": (12, 120, 130, 130),
        "4b_a 1RGyp": (1, 35, 41, 41),
        "4b_a Z7mFT": (1, 27, 29, 29),
        "4b_a csQ4b": (1, 2, 6, 6),
        "84_e": (5, 70, 84, 85),
        "84_e L5B5o": (1, 106, 114, 114),
        "84_e 2mDZz": (1, 46, 47, 47),
    }
    assert [(mark.position, len(mark.kept), mark.tokens_before) for mark in marks] == [
        (154, 5, 160540),
        (159, 9, 160095),
    ]


@pytest.mark.recordings(smoke=True)
def test_a_real_shutdown_agrees_with_the_answers_before_it(corpus: list[Path]) -> None:
    mains = [recording for path in corpus for recording in load(path) if "/" not in recording.id]
    (main,) = [recording for recording in mains if "shutdown" in recording.meta]
    ((_, billed),) = main.meta["shutdown"]["models"].items()
    answers: list[Message] = [m for m in main.messages if m.role == "assistant"]
    outputs = [m.usage.output for m in answers if m.usage]
    assert sum(outputs[: billed["requests"]]) == billed["output"]

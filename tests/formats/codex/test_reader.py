"""Tests of the Codex format: items of a rollout, tool calls and compactions."""

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


def row(kind: str, payload: Any) -> Row:
    return {"timestamp": "1970-01-01T00:00:09Z", "type": kind, "payload": payload}


META = row("session_meta", {"id": "s1", "cli_version": "0.77.0", "originator": "cli", "git": {}})


def said(role: str, *texts: str) -> Row:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return row("response_item", {"type": "message", "role": role, "content": content})


def user(text: str) -> Row:
    return said("user", text)


def answer(text: str) -> Row:
    return said("assistant", text)


def item(kind: str, **fields: Any) -> Row:
    return row("response_item", {"type": kind} | fields)


def call(id: str) -> Row:
    return item("function_call", name="shell", arguments='{"command": "ls"}', call_id=id)


def output(id: str, output: Any = "ok") -> Row:
    return item("function_call_output", call_id=id, output=output)


def thought(text: str) -> Row:
    return item("reasoning", summary=[{"type": "summary_text", "text": text}], content=None)


def tokens(input: int, total: int | None = None) -> Row:
    last = {"input_tokens": input, "cached_input_tokens": 4, "output_tokens": 2}
    info = {"last_token_usage": last, "total_token_usage": {"total_tokens": total or input}}
    return row("event_msg", {"type": "token_count", "info": info})


def billed(input: int) -> Usage:
    return Usage(input=input - 4, cache_read=4, output=2)


def turn(model: str = "m") -> Row:
    return row("turn_context", {"model": model})


def compacted(*history: Row, message: str = "in short", bare: bool = False) -> Row:
    payload: Row = {"message": message}
    if not bare:
        payload["replacement_history"] = [each["payload"] for each in history]
    return row("compacted", payload)


@pytest.fixture
def read(write_lines: Callable[..., Path]) -> Read:
    def reading(*rows: Any, **options: Any) -> Recording:
        (recording,) = load(write_lines(*rows), **options)
        return recording

    return reading


def test_the_newest_logged_context_window_is_kept(read: Read) -> None:
    infos = [{"model_context_window": size} for size in (121_600, 258_400, None)]
    counts = [row("event_msg", {"type": "token_count", "info": info}) for info in infos]
    assert read(META, user("hi"), answer("a"), *counts).meta["context_window"] == 258_400


def test_the_items_that_follow_one_another_are_one_answer(read: Read) -> None:
    rows = [thought("hm"), answer("a"), call("c1"), call("c2"), output("c1"), output("c2")]
    recording = read(META, turn(), user("hi"), *rows, answer("done"))
    assert [*shape(recording)] == ["u:hi", "a:a+c1+c2", "t:ok=c1", "t:ok=c2", "a:done"]
    message, result = recording.messages[1:3]
    assert (message.reasoning, message.time) == ("hm", 9.0)
    assert message.tool_calls[0].arguments == '{"command": "ls"}'
    assert result.name == "shell"
    assert (recording.model, recording.cluster) == ("m", "s1")
    assert recording.meta == {"session": "s1", "cli_version": "0.77.0", "originator": "cli"}


def test_what_is_counted_after_the_items_of_an_answer_is_its_usage(read: Read) -> None:
    rows = [call("c1"), call("c2"), tokens(10), output("c1"), output("c2"), answer("a"), tokens(20)]
    recording = read(META, user("hi"), *rows)
    assert [m.usage for m in recording.messages if m.role == "assistant"] == [
        billed(10),
        billed(20),
    ]


def test_what_is_counted_before_the_items_of_an_answer_is_its_usage_where_codex_wrote_them_late(
    read: Read,
) -> None:
    rows = [tokens(10), thought("hm"), call("c1"), output("c1"), call("c2"), output("c2")]
    recording = read(META, user("hi"), *rows, tokens(20), answer("a"), user("ho"), answer("b"))
    assert [*shape(recording)] == [
        "u:hi",
        "a:+c1+c2",
        "t:ok=c1",
        "t:ok=c2",
        "a:a",
        "u:ho",
        "a:b",
    ]
    usages = [m.usage for m in recording.messages if m.role == "assistant"]
    assert usages == [billed(10), billed(20), None]


def test_tokens_counted_when_their_outputs_stand_already_are_those_of_the_call(read: Read) -> None:
    rows = [call("c1"), output("c1"), tokens(10), call("c2"), output("c2"), tokens(20)]
    recording = read(META, user("hi"), *rows)
    assert [m.usage for m in recording.messages if m.role == "assistant"] == [
        billed(10),
        billed(20),
    ]


def test_a_count_that_is_said_again_or_of_no_answer_is_not_taken(read: Read) -> None:
    empty = row("event_msg", {"type": "token_count", "info": None})
    rows = [empty, answer("a"), tokens(10), tokens(10), user("ho"), answer("b"), tokens(20)]
    recording = read(META, user("hi"), *rows, tokens(99), compacted(), answer("c"))
    usages = [m.usage for m in recording.messages if m.role == "assistant"]
    assert usages == [billed(10), billed(20), None]
    assert recording.skipped == {"token count without an answer": 1}


def test_a_count_that_repeats_or_has_no_usage_loses_nothing(read: Read) -> None:
    limits = row("event_msg", {"type": "token_count", "info": None, "rate_limits": {}})
    rows = [limits, answer("a"), tokens(10), limits, tokens(10), user("ho"), tokens(10)]
    assert read(META, user("hi"), *rows, answer("b")).skipped == {}


def test_tokens_written_to_the_cache_are_a_part_of_the_input(read: Read) -> None:
    last = {"input_tokens": 20, "cached_input_tokens": 4, "cache_write_input_tokens": 6}
    usage = last | {"output_tokens": 2, "reasoning_output_tokens": 1}
    count = row("event_msg", {"type": "token_count", "info": {"last_token_usage": usage}})
    recording = read(META, user("hi"), answer("a"), count)
    expected = Usage(input=10, cache_read=4, cache_write=6, output=2, reasoning=1)
    assert recording.messages[-1].usage == expected


def test_an_output_stands_behind_its_call_also_where_the_user_spoke_in_between(read: Read) -> None:
    rows = [call("c1"), user("wait"), output("c1"), output("c9")]
    recording = read(META, user("hi"), *rows)
    assert [*shape(recording)] == ["u:hi", "a:+c1", "t:ok=c1", "u:wait", "t:ok=c9"]


def test_a_call_that_was_never_answered_stays(read: Read) -> None:
    recording = read(META, user("hi"), call("c1"), user("stop"), call("c1"), output("c1"))
    assert [*shape(recording)] == ["u:hi", "a:+c1", "u:stop", "a:+c1", "t:ok=c1"]


def test_every_kind_of_call_is_one(read: Read) -> None:
    recording = read(
        META,
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c1"),
        item("local_shell_call", id="c2", action={"type": "exec", "command": ["ls"]}),
        item("function_call", name="find", namespace="mcp__x__", arguments="{}", call_id="c3"),
        item("custom_tool_call_output", call_id="c1", output="done"),
        output("c2", {"content": "no", "success": False}),
        output(
            "c3", [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]
        ),
    )
    calls = [(c.name, c.arguments) for c in recording.messages[0].tool_calls]
    assert calls == [
        ("apply_patch", '{"input":"*** Begin"}'),
        ("local_shell", '{"type":"exec","command":["ls"]}'),
        ("mcp__x__find", "{}"),
    ]
    first, second, third = recording.messages[1:]
    assert (first.content, second.content, second.extra) == ("done", "no", {"is_error": True})
    assert third.content == (
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "u"}},
    )


def searched(id: str | None, kind: str = "tool_search_call", **fields: Any) -> Row:
    return item(kind, call_id=id, execution="client" if id else "server", **fields)


def test_a_search_for_tools_is_a_call_whose_result_lists_the_tools(read: Read) -> None:
    tools = [{"type": "namespace", "name": "wiki"}]
    search = searched("c1", arguments={"query": "wiki"})
    recording = read(META, user("hi"), search, searched("c1", "tool_search_output", tools=tools))
    (made,) = recording.messages[1].tool_calls
    assert (made.name, made.arguments) == ("tool_search", '{"query":"wiki"}')
    assert recording.messages[2].text == json.dumps(tools, separators=(",", ":"))


@pytest.mark.parametrize(
    "search",
    [searched("c0"), searched(None), item("web_search_call"), item("image_generation_call")],
)
def test_the_tokens_of_an_answer_that_only_searches_are_not_those_of_the_next_one(
    read: Read, search: Row
) -> None:
    rows = [call("c1"), tokens(10), output("c1"), search, tokens(20), call("c2"), tokens(30)]
    recording = read(META, user("hi"), *rows)
    usages = {c.id: m.usage for m in recording.messages for c in m.tool_calls}
    assert (usages["c1"], usages["c2"]) == (billed(10), billed(30))


def from_agent(text: str) -> Row:
    parts = [{"type": "input_text", "text": text}, {"type": "encrypted_content"}]
    return item("agent_message", author="/root/x", recipient="/root", content=parts)


def test_a_message_of_another_agent_is_one_of_a_user_with_an_author(read: Read) -> None:
    recording = read(META, user("hi"), from_agent("found"), answer("good"))
    assert [*shape(recording)] == ["u:hi", "u:found", "a:good"]
    assert recording.messages[1].extra == {"author": "/root/x"}
    assert recording.skipped == {"part of type encrypted_content": 1}


def test_a_message_of_another_agent_begins_no_turn(read: Read) -> None:
    back = row("event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    rows = [user("one"), answer("a"), from_agent("found"), user("two"), answer("b"), back]
    assert [*shape(read(META, *rows))] == ["u:one", "a:a", "u:found"]


def test_a_compaction_keeps_the_message_of_another_agent_that_its_history_repeats(
    read: Read,
) -> None:
    found = from_agent("found")
    recording = read(META, user("hi"), found, answer("a"), compacted(found), answer("b"))
    assert recording.compactions[0].kept == (1,)


def test_what_is_no_message_is_counted(read: Read) -> None:
    recording = read(
        META,
        row("session_meta", {"id": "s0"}),
        row("event_msg", {"type": "user_message", "message": "hi"}),
        user("hi"),
        item("web_search_call", action={"query": "x"}),
        thought("hm"),
        said("critic", "no"),
        row("world_state", {}),
        row("response_item", {"type": "message", "role": "user", "content": [{"type": "audio"}]}),
    )
    assert [*shape(recording)] == ["u:hi"]
    assert recording.skipped == {
        "row of type session_meta": 1,
        "row of type event_msg/user_message": 1,
        "item of type web_search_call": 1,
        "message of role critic": 1,
        "row of type world_state": 1,
        "part of type audio": 1,
        "message without content": 1,
        "answer without text or calls": 1,
    }
    assert recording.cluster == "s1"


def test_instructions_open_the_conversation_and_late_developers_speak_as_users(read: Read) -> None:
    payload = META["payload"] | {"base_instructions": {"text": "base"}, "forked_from_id": "s0"}
    rows = [said("developer", "first"), user("hi"), said("developer", "late"), answer("a")]
    recording = read(row("session_meta", payload), *rows)
    assert [*shape(recording)] == ["s:base", "s:first", "u:hi", "u:late", "a:a"]
    assert recording.messages[3].extra == {"role": "developer"}
    assert recording.cluster == "s0"


def test_the_users_own_instructions_are_not_said_twice(read: Read) -> None:
    meta = row("session_meta", {"id": "s1", "instructions": "be kind"})
    told = user("<user_instructions>be kind</user_instructions>")
    assert (
        next(iter(shape(read(meta, told, answer("a")))))
        == f"u:{told['payload']['content'][0]['text']}"
    )
    assert [*shape(read(meta, user("hi")))] == ["s:be kind", "u:hi"]


def test_older_files_hold_bare_items(read: Read, write_lines: Callable[..., Path]) -> None:
    meta = {"id": "s1", "timestamp": "1970-01-01T00:00:01Z", "instructions": None, "git": {}}
    bare = [each["payload"] for each in (user("hi"), call("c1"), output("c1"), answer("a"))]
    rows = [meta, {"record_type": "state"}, *bare]
    known = detect_format(write_lines(*rows))
    assert known is not None
    assert known.name == "codex"
    recording = read(*rows)
    assert [*shape(recording)] == ["u:hi", "a:+c1", "t:ok=c1", "a:a"]
    assert recording.skipped == {"row of type state": 1}
    assert recording.cluster == "s1"


def test_turns_that_were_rolled_back_are_counted(read: Read) -> None:
    environment = user("<environment_context>now</environment_context>")
    rows = [user("a"), answer("b"), environment, user("c"), call("c1"), output("c1")]
    rolled = row("event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    recording = read(META, environment, *rows, compacted(bare=True), rolled, user("d"))
    assert [*shape(recording)] == [
        "u:<environment_context>now</environment_context>",
        "u:a",
        "a:b",
        "u:d",
    ]
    assert described(recording) == ()
    assert recording.skipped == {"message taken back": 4}
    more = row("event_msg", {"type": "thread_rolled_back", "num_turns": 9})
    assert [*shape(read(META, environment, *rows, more, user("d")))][1:] == ["u:d"]


def test_a_compaction_kept_what_its_history_says_again(read: Read) -> None:
    base = row("session_meta", META["payload"] | {"base_instructions": {"text": "base"}})
    rows = [
        said("developer", "rules"),
        user("one"),
        answer("a"),
        call("c"),
        output("c"),
        user("two"),
    ]
    history = [user("one"), said("developer", "rules"), user("two"), user("in short")]
    recording = read(base, *rows, compacted(*history, message="ignored"), answer("b"))
    assert [*shape(recording)] == ["s:base", "s:rules", "u:one", "a:a+c", "t:ok=c", "u:two", "a:b"]
    assert described(recording) == (Summary(6, summary="in short", kept=(0, 2, 1, 5)),)


def test_the_size_of_an_encrypted_summary_is_what_codex_estimated(read: Read) -> None:
    base = row("session_meta", META["payload"] | {"base_instructions": {"text": "b" * 400}})
    summary = item("compaction", encrypted_content="gAAAA")
    kept = user("two")
    estimate = {"last_token_usage": {"input_tokens": 0, "total_tokens": 1000}}
    said_later = row("event_msg", {"type": "token_count", "info": estimate})
    rows = [user("one"), answer("a"), kept, compacted(kept, summary, message="")]
    (compaction,) = read(base, *rows, said_later, answer("b")).compactions
    shown = -(-len(json.dumps(kept["payload"], separators=(",", ":"))) // 4)
    assert (compaction.kept, compaction.summary) == ((0, 3), None)
    assert compaction.hidden_tokens == 1000 - 100 - shown
    unknown = read(base, *rows, answer("b"))
    assert unknown.compactions[0].hidden_tokens == 0
    assert unknown.skipped == {"encrypted summary of unknown size": 1}


def test_an_answer_stayed_where_all_of_it_is_said_again(read: Read) -> None:
    rows = [user("one"), answer("a"), call("c"), output("c"), answer("b"), call("d"), output("d")]
    history = [answer("a"), call("c"), output("c"), answer("b")]
    recording = read(META, *rows, compacted(*history, message=""), user("two"))
    assert described(recording) == (Summary(5, summary="b", kept=(1, 2)),)


def test_what_is_said_twice_is_kept_once_the_newest_first(read: Read) -> None:
    rows = [user("go"), answer("a"), user("go"), answer("b")]
    recording = read(META, *rows, compacted(user("go")), user("go"), compacted(user("go")))
    assert [c.kept for c in recording.compactions] == [(2,), (4,)]


def test_a_compaction_without_a_history_kept_the_context_and_the_users_newest_turns(
    read: Read,
) -> None:
    context = user("# AGENTS.md instructions for /a\n\nbe kind")
    long, short = "x" * 60_000, "y" * 40_000
    rows = [context, user(long), answer("a"), user(short), answer("b"), user("z")]
    recording = read(META, *rows, compacted(bare=True), user(short), compacted(bare=True))
    # 15,000 and 10,000 tokens do not fit together.
    assert described(recording) == (
        Summary(6, summary="in short", kept=(0, 3, 5)),
        Summary(7, summary="in short", kept=(0, 5, 6)),
    )


def test_the_model_is_the_most_used_and_several_are_told(read: Read) -> None:
    turns = (each for name in ("x", "y", "y") for each in (turn(name), user("hi"), answer("a")))
    recording = read(META, *turns)
    assert recording.model == "y"
    assert recording.meta["models"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("[1, 2]", "a line must be an object, got list"),
        (row("response_item", 7), "payload must be an object, got int"),
        (row("session_meta", 7), "payload of session_meta must be an object, got int"),
        (
            item("message", role="user", content=7),
            "content must be a string or a list of parts, got int",
        ),
        (item("function_call", call_id="c"), "the name of a tool call must be a string, got None"),
        (item("function_call_output", output="x"), "call_id must be a string, got NoneType"),
    ],
)
def test_a_broken_line_says_where_and_why_and_costs_only_itself(
    read: Read, broken: Any, reason: str
) -> None:
    with pytest.raises(ReadError, match=reason) as caught:
        read(META, broken)
    assert caught.value.line == 2
    recording = read(META, user("hi"), broken, answer("a"), on_error="skip")
    assert [*shape(recording)] == ["u:hi", "a:a"]
    assert recording.skipped == {f"broken line: {reason} (3)": 1}


def test_the_samples_of_the_format_are_read_whole(data: Path) -> None:
    golden, compaction, escalation = load(data / "codex-format-samples")
    assert [len(r.messages) for r in (golden, compaction, escalation)] == [5, 12, 14]
    assert {r.model for r in (golden, compaction, escalation)} == {"gpt-4.5-turbo"}
    assert golden.messages[-1].usage == Usage(input=90, cache_read=60, output=75, reasoning=8)
    assert golden.skipped == compaction.skipped == {}
    assert escalation.skipped == {"row of type event_msg/turn_aborted": 1}
    (mark,) = compaction.compactions
    assert (mark.position, mark.kept) == (8, (0, 4, 6))
    assert [compaction.messages[p].role for p in mark.kept] == ["user"] * 3
    texts = json.dumps([m.text for m in compaction.messages])
    assert mark.summary is not None
    assert mark.summary not in texts

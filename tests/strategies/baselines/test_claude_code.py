"""Tests of the Claude Code baselines, as documented and as observed in recorded sessions."""

from __future__ import annotations

import json

import pytest
from small_talk import firsts, last, played, steps, task

from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall


def compacted_at(spec: str, messages: list[Message], limit: int) -> tuple[int, int]:
    """Return the tokens of the whole request at the first compaction, and of the one before it."""
    whole, _ = played("full", messages, 10**6)
    trace, _ = played(spec, messages, limit)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    return whole.tokens[first], whole.tokens[first - 1]


@pytest.mark.parametrize(
    ("spec", "limit", "threshold"),
    [
        (f"claude_code(headroom={10**6 - 900})", 10**6, 900),
        ("claude_code", 1000, 835),
        ("claude_code(trigger=0.5)", 1000, 450),
        ("claude_code(trigger=0.95)", 1000, 835),
        ("claude_code.v2_1_20", 1000, 775),
    ],
)
def test_it_compacts_at_a_number_of_free_tokens_or_earlier_at_a_percentage(
    spec: str, limit: int, threshold: int
) -> None:
    reached, before = compacted_at(spec, task(20), limit)
    assert reached >= threshold > before


def test_the_older_version_leaves_only_a_summary() -> None:
    trace, sent = played("claude_code.v2_1_20", task(18), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert firsts(sent[first].messages) == ["Be brief.", "Summary of"]
    assert max(trace.tokens) < 775


# --- files after a compaction -------------------------------------------------------------------


def use(number: int, tool: str, path: str, result: str, **others: str) -> list[Message]:
    """Return a tool call about a file, with its result."""
    call = ToolCall(f"f{number}", tool, json.dumps({"file_path": path, **others}))
    said = Message("assistant", f"step {number}", tool_calls=(call,))
    return [said, Message("tool", result, tool_call_id=f"f{number}")]


def test_five_files_follow_the_summary_and_the_last_edited_comes_first() -> None:
    work = [use(i, "Read", f"read{i}.py", f"text {i}") for i in range(6)]
    work.append(use(6, "Edit", "read1.py", "edited", old_string="a", new_string="b"))
    work.append(use(7, "Write", "new.py", "written", content="print(1)\n"))
    work.append(use(8, "Read", "gone.py", "Error: file not found"))
    work.append(use(9, "Read", "read3.py", "text 3 again"))
    messages = [
        *task(0),
        *(message for part in work for message in part),
        *steps(30, tool="search"),
    ]
    trace, sent = played("claude_code(keep_results=0)", messages, 3000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    texts = sent[first].texts
    assert texts[1].startswith("Summary of")
    assert [text.split(",")[0].removeprefix("The file ") for text in texts[2:]] == [
        *("new.py", "read1.py"),
        *("read3.py", "read5.py", "read4.py"),
    ]
    assert texts[2].endswith("print(1)\n")
    assert texts[4].endswith("text 3 again")
    assert not any(trace.violation_counts)


def test_a_file_that_is_too_long_or_was_never_read_is_only_named() -> None:
    long = use(0, "Read", "long.py", "a line of text\n" * 30)
    unread = use(1, "Edit", "unread.py", "edited", old_string="a", new_string="b")
    messages = [*task(0), *long, *unread, *steps(30, tool="search")]
    trace, sent = played("claude_code", messages, 2000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert [text.split(" was ")[0] for text in sent[first].texts[2:]] == [
        "The file unread.py",
        "The file long.py",
    ]


def test_the_files_stay_until_the_next_compaction_brings_its_own() -> None:
    messages = [*task(0), *use(0, "Read", "a.py", "text of a"), *steps(60, tool="search")]
    trace, sent = played("claude_code", messages, 1500)
    summaries = [turn for turn, event in trace.context.events if event == "summary"]
    assert len(summaries) > 1
    for request in sent[summaries[0] :]:
        assert sum("text of a" in text for text in request.texts[2:]) == 1


# --- pauses -------------------------------------------------------------------------------------


def paused(messages: list[Message], minutes: float) -> list[Message]:
    """Return messages of which the last one comes after a pause, and a question."""
    start = 1.8e9
    timed = [message.replace(time=start + i) for i, message in enumerate(messages)]
    done = Message("assistant", "Done", time=start + len(messages))
    return [*timed, done, Message("user", "Go on", time=start + len(messages) + 60 * minutes)]


@pytest.mark.parametrize(
    ("minutes", "tokens", "compacts"), [(55, 400, True), (53, 400, False), (55, 4000, False)]
)
def test_a_large_conversation_is_compacted_after_54_idle_minutes(
    minutes: float, tokens: int, compacts: bool
) -> None:
    spec = f"claude_code(idle_tokens={tokens})"
    sent = last(spec, paused(task(12), minutes), 10**6)
    assert any("Summary of" in message.text for message in sent) is compacts
    assert (len(sent) < 28) is compacts


def test_after_an_idle_hour_all_but_the_newest_five_results_are_cleared() -> None:
    for minutes, cleared in ((59, 0), (61, 7)):
        sent = last("claude_code", paused(task(12), minutes), 10**6)
        marks = ["left out" in message.text for message in sent if message.role == "tool"]
        assert marks == [True] * cleared + [False] * (12 - cleared)


# --- long outputs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "argument", "most"),
    [
        ("Bash", "command", 30_000),
        ("Grep", "pattern", 20_000),
        ("mcp__db__query", "sql", 50_000),
        ("Read", "file_path", None),
    ],
)
def test_long_outputs_are_stored_by_the_limit_of_their_tool(
    tool: str, argument: str, most: int | None
) -> None:
    for length in (most or 90_000, (most or 90_000) + 1):
        call = ToolCall("c", tool, json.dumps({argument: "src/io.py"}))
        result = Message("tool", "x" * length, tool_call_id="c")
        messages = [*task(0), Message("assistant", tool_calls=(call,)), result]
        _, sent = played("claude_code", messages, 10**6)
        entry = sent[-1].entries[-1]
        stored = most is not None and length > most
        assert (entry.form is Form.POINTER) is stored
        assert entry.message.text.startswith("x" * 2000)
        assert ("x" * 2001 in entry.message.text) is not stored

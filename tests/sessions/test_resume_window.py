"""Tests of the resume window: it stays within its limits, and older messages are summarised."""

from __future__ import annotations

import json
import time

import pytest
from generated import conversations, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import ModelRequestRejected, SpecError
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.background_summaries import llm_summary_writer
from ctxlab.sessions.resume_messages import (
    INTERRUPTED_RESULT,
    message_from_window_row,
    pair_tool_results,
)
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow

CAPS = st.builds(
    ResumeCaps,
    messages=st.sampled_from([1, 2, 5, 40]),
    message_chars=st.sampled_from([64, 300, 4000]),
    total_chars=st.sampled_from([256, 1000, 60_000]),
    summary_chars=st.sampled_from([0, 40, 500, 6000]),
)


def call(id: str, arguments: str = "{}") -> Message:
    return Message("assistant", tool_calls=(ToolCall(id, "run", arguments),))


def result(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)


def within(window: ResumeWindow) -> None:
    caps, recent = window.caps, window.recent
    assert len(recent) <= caps.messages
    assert len(window.recent_json) <= caps.total_chars
    assert len(window.summary) <= caps.summary_chars
    for message in recent:
        given = sum(len(each.arguments) for each in message.tool_calls)
        # An argument is cut no shorter than an empty object.
        assert len(message.text) + given <= caps.message_chars + 2 * len(message.tool_calls)


@given(strange_conversations(), CAPS, st.integers(1, 40))
def test_all_four_caps_hold_after_every_message_of_any_conversation(
    messages: tuple[Message, ...], caps: ResumeCaps, falls: int
) -> None:
    """Seed 004, summary: caps of count, message, total and summary."""
    window = ResumeWindow(caps, min_dropped=falls)
    for message in messages:
        window.add(message)
        within(window)
        assert pair_tool_results(window.recent) == window.recent


@given(conversations(), CAPS)
def test_a_window_that_was_written_and_read_again_goes_on_the_same(
    messages: tuple[Message, ...], caps: ResumeCaps
) -> None:
    whole, half = ResumeWindow(caps), ResumeWindow(caps)
    half.extend(messages[: len(messages) // 2])
    again = ResumeWindow(
        caps, half.summary, map(message_from_window_row, json.loads(half.recent_json))
    )
    whole.extend(messages)
    again.extend(messages[len(messages) // 2 :])
    assert again.recent == whole.recent
    within(again)


def test_the_newest_messages_stay_and_the_summary_knows_the_first() -> None:
    """Seed 004, window: only the last N messages are kept."""
    window = ResumeWindow(ResumeCaps(messages=20))
    window.add(Message("user", "The launch code word is HERON-42."))
    window.extend(Message("assistant", f"Step {i} is done.") for i in range(500))
    assert [m.content for m in window.recent] == [f"Step {i} is done." for i in range(480, 500)]
    assert "HERON-42" in window.summary
    assert "Step 479" in window.summary


def test_the_system_prompt_takes_no_room_in_the_summary_and_what_a_system_says_later_does() -> None:
    window = ResumeWindow(ResumeCaps(messages=2))
    window.extend([Message("system", "Be careful."), Message("user", "the task")])
    window.extend([Message("system", "A new rule."), *(Message("user", str(i)) for i in range(3))])
    assert window.summary.splitlines() == ["- user: the task", "- system: A new rule.", "- user: 0"]


def test_a_tool_result_is_cut_before_it_is_kept() -> None:
    """Seed 004, window: tool outputs are truncated before persisting."""
    window = ResumeWindow(ResumeCaps(message_chars=100))
    window.extend([call("a"), result("a", "x" * 5000)])
    kept = window.recent[1].text
    assert len(kept) == 100
    assert kept.endswith("x\n\n[truncated]")


def test_the_json_is_the_subset_of_openais_messages_with_texts_for_content() -> None:
    """Seed 004, window: roles, string content, calls before results."""
    picture = ({"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "u"}})
    window = ResumeWindow()
    window.extend([Message("system", "Be brief."), Message("user", picture), call("a")])
    window.add(result("a", "ok").replace(time=3.0, extra={"is_error": False}))
    rows = json.loads(window.recent_json)
    assert [row["role"] for row in rows] == ["system", "user", "assistant", "tool"]
    assert all(isinstance(row["content"], str) for row in rows)
    assert rows[1]["content"] == "Look\n[image_url]"
    assert rows[2]["tool_calls"][0]["id"] == rows[3]["tool_call_id"] == "a"
    assert rows[3].pop("extra") == {"is_error": False}  # a stub says whether the call succeeded
    assert all(row.keys() <= {"role", "content", "tool_calls", "tool_call_id"} for row in rows)


def test_a_call_falls_out_together_with_its_results() -> None:
    window = ResumeWindow(ResumeCaps(messages=3))
    window.extend([call("a"), result("a", "1"), Message("user", "x"), Message("user", "y")])
    assert [m.content for m in window.recent] == ["x", "y"]
    assert "run()" in window.summary
    assert "→ 1" in window.summary


def test_a_call_that_still_runs_is_shown_as_interrupted_until_its_result_comes() -> None:
    window = ResumeWindow()
    window.extend([Message("user", "go"), call("a")])
    assert window.recent[-1].content == INTERRUPTED_RESULT
    stored = ResumeWindow(recent=map(message_from_window_row, json.loads(window.recent_json)))
    for each in (window, stored):
        each.add(result("a", "done"))
        assert [m.content for m in each.recent] == ["go", None, "done"]


def test_a_result_whose_call_has_fallen_goes_into_the_summary() -> None:
    window = ResumeWindow(ResumeCaps(messages=2))
    window.extend([call("a"), *(Message("user", f"u{i}") for i in range(3)), result("a", "late")])
    assert [m.content for m in window.recent] == ["u1", "u2"]
    assert "late" in window.summary


def test_many_large_results_of_one_message_are_kept_shorter_and_not_parted() -> None:
    ids = [f"c{i}" for i in range(20)]
    window = ResumeWindow()
    calls = tuple(ToolCall(id, "run") for id in ids)
    window.extend([Message("assistant", tool_calls=calls), *(result(id, id * 2000) for id in ids)])
    assert len(window.recent) == 21
    assert all(m.text.startswith(m.tool_call_id or "?") for m in window.recent[1:])
    within(window)


def test_long_arguments_stay_json() -> None:
    window = ResumeWindow(ResumeCaps(message_chars=200))
    window.extend(
        [
            call("a", json.dumps({"path": "a.py", "text": "x" * 5000, "n": [1, "y" * 900]})),
            call("b", "no json " * 500),
            call("c", json.dumps(["z" * 5000])),
            call("d", json.dumps({f"k{i}": i for i in range(1000)})),
        ]
    )
    given = [json.loads(m.tool_calls[0].arguments) for m in window.recent if m.tool_calls]
    assert given[0]["path"] == "a.py"
    assert all(isinstance(each, dict) for each in given)


def test_a_summary_beyond_its_cap_keeps_its_beginning_and_its_end() -> None:
    """Seed 004, summary: a summary over its cap is rewritten shorter."""
    lines = "\n".join(f"- user: line {i}" for i in range(1000))
    window = ResumeWindow(ResumeCaps(summary_chars=500), lines)
    assert len(window.summary) <= 500
    assert window.summary.startswith("- user: line 0\n")
    assert window.summary.endswith("- user: line 999")
    prose = ResumeWindow(ResumeCaps(summary_chars=500), "one very long line " * 1000)
    assert prose.summary.startswith("one very long line")
    assert len(prose.summary) <= 500


def test_adding_costs_the_same_however_much_was_said() -> None:
    def seconds(window: ResumeWindow, count: int) -> float:
        start = time.process_time()  # does not include waiting for a busy processor
        window.extend(Message("user", f"line {i} of the talk") for i in range(count))
        return time.process_time() - start

    window = ResumeWindow()
    window.extend(Message("user", f"line {i}") for i in range(200))
    first = min(seconds(window, 500) for _ in range(5))
    seconds(window, 30_000)  # if the cost grew with the length, it would be about ten times as high
    assert min(seconds(window, 500) for _ in range(5)) < 3 * first


def test_a_model_writes_the_summary_and_is_asked_for_many_messages_at_once() -> None:
    said = "Ann wants the parser fixed; HERON-42 is the code word."
    client = ScriptedClient(lambda request: said)
    window = ResumeWindow(
        ResumeCaps(messages=10),
        write_summary=llm_summary_writer(client, "gpt-4o-mini"),
        min_dropped=5,
    )
    for i in range(100):
        window.add(Message("user", f"line {i} " + "of many words " * 20))
        assert window.summary or i < 10
    assert window.summary == said
    assert len(client.requests) == 18


@pytest.mark.parametrize("said", ["", ModelRequestRejected("no such key"), "loop " * 500])
def test_where_the_model_fails_the_engine_writes_it(
    said: str | ModelRequestRejected, caplog: pytest.LogCaptureFixture
) -> None:
    window = ResumeWindow(
        ResumeCaps(messages=1),
        write_summary=llm_summary_writer(ScriptedClient(lambda _: said), "gpt-4o-mini"),
    )
    window.extend([Message("user", "The code word is HERON-42."), Message("user", "Go on.")])
    assert window.summary == "- user: The code word is HERON-42."


def test_caps_that_hold_nothing_are_refused() -> None:
    with pytest.raises(SpecError, match="message_chars must be at least 64, got 3"):
        ResumeCaps(message_chars=3)

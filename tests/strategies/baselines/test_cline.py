"""Tests of the two Cline baselines."""

from __future__ import annotations

from small_talk import firsts, last, played, said, steps, task

from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.cline import build_activity_digest


def test_it_cuts_where_the_user_speaks_and_keeps_the_newest_tokens() -> None:
    messages = [*said(14), Message("user", "next")]
    trace, sent = played("cline(preserve_recent_tokens=100)", messages, 900)
    after = next(s.messages for s in sent if "Summary" in s.messages[0].text)
    assert [m.role for m in after[1::2]] == ["user"] * len(after[1::2])
    assert after[-1].role == "user"
    assert not any(trace.violation_counts)


def test_a_run_after_one_request_is_left_alone_and_overflows() -> None:
    trace, sent = played("cline", task(40), 600)
    assert len(sent[-1].messages) == 82
    assert max(trace.tokens) > 600


def test_the_last_thing_that_the_user_said_is_never_folded() -> None:
    messages = [*said(8), Message("user", "fix it"), *steps(30)]
    sent = last("cline(preserve_recent_tokens=1)", messages, 700)
    assert firsts(sent[:3]) == ["Summary of", "fix it", "step 0"]


def test_it_fires_at_081_of_the_window() -> None:
    messages = [*said(14), Message("user", "next")]
    whole, _ = played("full", messages, 900)
    trace, _ = played("cline(preserve_recent_tokens=9)", messages, 900)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] >= 729 > whole.tokens[first - 1]


def test_basic_keeps_all_that_the_user_said_and_the_newest_steps() -> None:
    messages = [*said(3), Message("user", "fix it"), *steps(9)]
    trace, sent = played("cline.basic", messages, 800)
    after = sent[-1].messages
    users = [text for text in firsts(after) if text.startswith(("user", "fix"))]
    assert users == ["user 0", "user 1", "user 2", "fix it"]
    assert after[-1].text.startswith("result 8")
    assert any("Files: read src/file0.py" in m.text for m in after)
    assert not any(trace.violation_counts)
    assert max(trace.tokens) <= 800


def test_a_digest_names_files_and_commands_and_repeats_the_last_three_texts() -> None:
    calls = (ToolCall("a", "bash", '{"command": "ls"}'), ToolCall("b", "edit", '{"path": "x.py"}'))
    texts = [Message("assistant", f"text {i}") for i in range(5)]
    messages = [Message("assistant", None, tool_calls=calls), *texts]
    entries = [Entry(m, 5, Form.VERBATIM, i, i + 1) for i, m in enumerate(messages)]
    assert build_activity_digest(entries).text.splitlines()[1:] == [
        *("Files: edit x.py", "Commands:", "ls"),
        *("text 2", "text 3", "text 4"),
    ]


def test_what_is_left_out_later_goes_into_the_same_digest() -> None:
    trace, sent = played("cline.basic", task(60), 800)
    assert max(trace.tokens) <= 800
    assert [m.text.startswith("Tool activity") for m in sent[-1].messages].count(True) == 1
    assert (
        sent[-1].messages[2].text.startswith("Tool activity left out here.\nFiles: read src/file")
    )

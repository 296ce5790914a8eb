"""Tests of the goose baseline."""

from __future__ import annotations

from small_talk import firsts, last, played, said, task

from ctxlab.messages.types import Message


def test_when_the_user_speaks_a_summary_a_note_and_his_words_stay() -> None:
    messages = [*said(9), Message("user", "And now?")]
    sent = last("goose", messages, 780)
    assert [m.role for m in sent] == ["user", "assistant", "user"]
    assert firsts(sent)[0] == "Summary of"
    assert sent[-1].text == "And now?"


def test_within_a_turn_it_waits_until_nothing_fits_and_repeats_the_request() -> None:
    whole, _ = played("full", task(20), 1000)
    trace, sent = played("goose", task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] > 1000 >= whole.tokens[first - 1]
    assert [m.role for m in sent[first].messages] == ["system", "user", "assistant", "user"]
    assert sent[first].messages[-1].text == "Fix the bug"
    assert max(trace.tokens) <= 1000
    assert not any(trace.violation_counts)


def test_a_threshold_of_nothing_or_all_turns_it_off() -> None:
    messages = [*said(9), Message("user", "And now?")]
    for threshold in (0, 1):
        assert len(last(f"goose(threshold={threshold})", messages, 780)) == len(messages)


def test_what_the_user_has_just_said_is_not_counted_yet() -> None:
    long = Message("user", "word " * 150)
    messages = [*said(7), long]
    assert len(last("goose", messages, 800)) == len(messages)

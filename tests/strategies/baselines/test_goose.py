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


def test_the_ten_oldest_calls_of_earlier_turns_are_summarised_one_by_one() -> None:
    # The cutoff of a small window is ten calls: 21 calls of earlier turns are one too many.
    for number, summaries in ((20, 0), (21, 10)):
        messages = [*task(number), Message("user", "And now?")]
        sent = last("goose", messages, 50_000)
        assert sum(m.role == "user" for m in sent) == 2 + summaries
        assert sum(m.role == "tool" for m in sent) == number - summaries


def test_calls_of_the_current_turn_are_neither_counted_nor_summarised() -> None:
    assert len(last("goose", task(40), 10**5)) == 82


def test_summaries_of_calls_can_be_turned_off() -> None:
    messages = [*task(30), Message("user", "And now?")]
    assert last("goose(tool_pair_summarization=False)", messages, 10**5) == messages

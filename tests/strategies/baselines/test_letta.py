"""Tests of the Letta baseline."""

from __future__ import annotations

from small_talk import firsts, last, played, said, task

from ctxlab.messages.types import Message


def test_each_version_waits_for_its_own_share_of_the_window() -> None:
    whole, _ = played("full", task(30), 1000)
    # In a large window, the newest version leaves 16,384 tokens free; in this one a fifth.
    for spec, share in (("letta.v0_16_4", 1000), ("letta.v0_16_8", 900), ("letta", 800)):
        trace, _ = played(spec, task(30), 1000)
        first = next(turn for turn, event in trace.context.events if event == "summary")
        assert whole.tokens[first] >= share > whole.tokens[first - 1]


def test_at_least_forty_percent_go_and_an_answer_begins_what_stays() -> None:
    messages = [Message("system", "Be brief."), *said(12), Message("user", "next")]
    trace, sent = played("letta.v0_16_4", messages, 850)
    after = next(s.messages for s in sent if len(s.messages) > 1 and "Summary" in s.texts[1])
    assert after[2].role == "assistant"
    kept = len(after) - 2
    assert kept / (len(messages)) <= 0.6
    assert not any(trace.violation_counts)


def test_what_stays_takes_less_than_the_rest_of_the_window() -> None:
    # The newest half of the messages holds nearly all tokens, so that 40 % are not enough.
    messages = [*said(10, words=2), *said(5, words=90), Message("user", "next")]
    spec = "letta.v0_16_4(sliding_window_percentage=0.5)"
    trace, sent = played(spec, messages, 560)
    turns = [turn for turn, event in trace.context.events if event == "summary"]
    for turn in turns:
        counted = sum(e.tokens for e in sent[turn].entries[1:])
        assert counted < 0.5 * 560
    assert turns


def test_where_no_cut_will_do_everything_goes() -> None:
    huge = task(1, lines=300)
    assert firsts(last("letta", huge, 900)) == ["Be brief.", "Summary of"]


def test_a_summary_is_clipped() -> None:
    sent = last("letta(clip_chars=120)", task(40), 1500)
    summary = next(m.text for m in sent if "Summary of" in m.text)
    assert len(summary) < 60 + 4 * 40

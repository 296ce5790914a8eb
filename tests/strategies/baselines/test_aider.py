"""Tests of the aider baseline."""

from __future__ import annotations

from small_talk import COUNTER, firsts, last, played, said, steps, task

from ctxlab.messages.types import Message


def test_earlier_turns_stay_under_their_budget() -> None:
    messages = [*said(20), Message("user", "next")]
    trace, sent = played("aider(max_chat_history_tokens=300)", messages, 10**6)
    assert all(sum(e.tokens for e in s.entries[:-1]) <= 300 for s in sent)
    assert firsts(sent[-1].messages)[0] == "Summary of"
    assert sent[-1].messages[-1].text == "next"
    assert not any(trace.violation_counts)


def test_the_current_turn_is_never_touched() -> None:
    assert len(last("aider", task(60), 2000)) == 122


def test_the_budget_is_a_sixteenth_of_the_window_within_bounds() -> None:
    messages = [*said(80), Message("user", "next")]
    for limit, budget in ((1000, 1024), (32_000, 2000), (10**6, 8192)):
        _, sent = played("aider", messages, limit)
        sizes = [sum(e.tokens for e in s.entries[:-1]) for s in sent]
        whole = sum(COUNTER.count_message(m) for m in messages)
        assert 0.9 * min(budget, whole) < max(sizes) <= budget


def test_a_cut_never_parts_a_call_from_its_result() -> None:
    messages: list[Message] = []
    for turn in range(5):
        messages += [Message("user", f"user {turn}"), *steps(3, parallel=2)]
        messages.append(Message("assistant", "ok"))
    trace, sent = played(
        "aider(max_chat_history_tokens=200)", [*messages, Message("user", "n")], 9999
    )
    assert not any(trace.violation_counts)
    assert "Summary" in sent[-1].texts[0]


def test_a_summary_of_all_earlier_turns_is_followed_by_a_reply() -> None:
    messages = [*said(2, words=600), Message("user", "next")]
    sent = last("aider", messages, 10**4)
    assert firsts(sent, 3) == ["Summary of the", "Ok.", "next"]

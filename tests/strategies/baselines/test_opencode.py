"""Tests of the opencode baselines: compaction and pruning."""

from __future__ import annotations

from small_talk import firsts, last, played, said, steps, task

from ctxlab.messages.types import CLEARED_RESULT_TEXT, Message


def test_a_newest_part_stays_beside_the_summary_and_it_is_told_to_go_on() -> None:
    trace, sent = played("opencode(preserve_recent_tokens=200)", task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    after = sent[first].messages
    assert firsts(after[:2]) == ["Be brief.", "Summary of"]
    assert after[2].role == "assistant"
    assert after[-1].role == "user"
    assert sum(e.tokens for e in sent[first].entries[2:-1]) <= 200
    assert not any(trace.violation_counts)


def test_it_counts_up_to_the_last_answer_and_leaves_output_and_reserve_free() -> None:
    whole, sent = played("full", task(20), 1000)
    spec = "opencode(output=100, reserved=60, preserve_recent_tokens=200)"
    trace, _ = played(spec, task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    counted = [
        tokens - request.entries[-1].tokens
        for tokens, request in zip(whole.tokens, sent, strict=True)
    ]
    assert counted[first] >= 840 > counted[first - 1]


def test_a_reserve_that_the_user_sets_may_exceed_the_output() -> None:
    whole, sent = played("full", task(20), 1000)
    trace, _ = played("opencode(output=100, reserved=300)", task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    counted = [t - s.entries[-1].tokens for t, s in zip(whole.tokens, sent, strict=True)]
    assert counted[first] >= 600 > counted[first - 1]


def test_where_the_user_has_spoken_it_is_not_told_to_go_on() -> None:
    messages = [*said(12), Message("user", "next")]
    trace, sent = played("opencode(preserve_recent_tokens=100)", messages, 700)
    assert all(s.messages[-1].text.startswith(("user", "next")) for s in sent)
    assert trace.context.events


def test_where_the_newest_step_is_too_large_nothing_is_kept() -> None:
    trace, sent = played("opencode(preserve_recent_tokens=30)", task(9, lines=40), 2000)
    assert trace.context.events
    for turn, _ in trace.context.events:
        assert [m.role for m in sent[turn].messages] == ["system", "user", "user"]


def test_pruning_is_off_and_clears_beyond_the_protected_outputs_of_earlier_turns() -> None:
    messages: list[Message] = []
    for turn in range(4):
        messages += [Message("user", f"user {turn}"), *steps(4, 4 * turn, lines=30)]
        messages.append(Message("assistant", "ok"))
    messages.append(Message("user", "user 4"))
    plain = last("opencode", messages, 10**6)
    assert all(m.text != CLEARED_RESULT_TEXT for m in plain)
    # An output has about 115 tokens; those of the last two turns are not looked at.
    spec = "opencode(prune=True, prune_protect=250, prune_minimum=200)"
    texts = [m.text == CLEARED_RESULT_TEXT for m in last(spec, messages, 10**6) if m.role == "tool"]
    assert texts == [True] * 6 + [False] * 10
    spared = "opencode(prune=True, prune_protect=250, prune_minimum=2000)"
    assert not any(m.text == CLEARED_RESULT_TEXT for m in last(spared, messages, 10**6))

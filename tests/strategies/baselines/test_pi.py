"""Tests of the pi baselines."""

from __future__ import annotations

from small_talk import firsts, last, played, said, steps, task

from ctxlab.messages.types import Message

SPEC = "pi(reserve_tokens=300, keep_recent_tokens=200)"


def test_it_compacts_between_the_steps_when_the_reserve_is_used() -> None:
    whole, _ = played("full", task(20), 1000)
    trace, sent = played(SPEC, task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] > 700 - 10 >= whole.tokens[first - 1]
    kept = sent[first].entries[2:]
    assert kept[0].message.role == "assistant"
    tokens = sum(entry.tokens for entry in kept)
    assert tokens < 200 <= tokens + kept[1].tokens  # it would have been reached by a result
    assert not any(trace.violation_counts)


def test_an_older_version_waits_for_the_user_or_for_an_overflow() -> None:
    spec = SPEC.replace("pi(", "pi.v0_80(")
    whole, _ = played("full", task(20), 1000)
    trace, _ = played(spec, task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] > 1000 >= whole.tokens[first - 1]
    spoken = [*task(11), Message("assistant", "ok"), Message("user", "And now?")]
    assert firsts(last(spec, spoken, 1000))[1] == "Summary of"


def test_what_the_user_has_just_said_is_not_counted_and_stays() -> None:
    long = Message("user", "word " * 250)
    messages = [*said(4), long]
    assert last("pi(reserve_tokens=400, keep_recent_tokens=50)", messages, 1000) == messages


def test_a_call_stays_with_its_results_if_they_are_all_that_is_recent() -> None:
    messages = [*task(3), *steps(1, 3, lines=60, parallel=2)]
    sent = last(SPEC, messages, 1000)
    assert firsts(sent) == ["Be brief.", "Summary of", "step 3", "result 3", "result 3"]


def test_where_everything_is_recent_nothing_is_summarised() -> None:
    trace, sent = played("pi(reserve_tokens=300, keep_recent_tokens=2000)", task(20), 1000)
    assert len(sent[-1].messages) == 42
    assert trace.context.events == []

"""Tests of ``idle``: it edits only at the first request after a pause."""

from __future__ import annotations

from generated import conversations, prepare_messages, with_times
from hypothesis import given
from hypothesis import strategies as st
from replaying import pauses, run

from ctxlab.messages.types import Message
from ctxlab.strategies import idle, observation_mask, parse_strategy
from ctxlab.tokens.counter import TokenCounter

MASK = observation_mask(keep=0)


@given(messages=with_times(conversations(turns=6)), minutes=st.sampled_from([1, 10, 60]))
def test_it_edits_only_after_a_pause_and_then_as_the_strategy_does(
    messages: tuple[Message, ...], minutes: float, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, sent = run(prepared, idle(MASK, minutes), 10**6)
    after = {
        turn
        for turn, pause in enumerate(pauses(messages, sent))
        if pause is not None and pause >= 60 * minutes
    }
    assert {entry.since for entry in trace.context.edited_entries} <= after
    _, masked = run(prepared, MASK, 10**6)
    assert all(sent[turn].messages == masked[turn].messages for turn in after)


def test_without_times_it_never_edits(counter: TokenCounter) -> None:
    said = [Message("user" if i % 2 else "assistant", f"line {i}") for i in range(9)]
    trace, _ = run(prepare_messages(said, counter), "idle(sliding_window(messages=1), 0)", 10**6)
    assert trace.context.edited_entries == []
    assert trace.context.version == 0


def test_it_has_a_text_form() -> None:
    assert parse_strategy("idle(observation_mask(keep=0), minutes=5)") == idle(MASK, 5)

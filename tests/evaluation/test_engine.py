"""Rules of the replay: one request before each recorded call, measured as it would be sent."""

from __future__ import annotations

import pytest
from generated import TOOLS, conversations, strange_conversations, tape_of
from hypothesis import given
from replaying import run

from ctxlab.context.budget import Budget
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import (
    Tape,
    play,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.messages.validation import is_valid
from ctxlab.strategies import (
    full,
    nothing,
    oracle,
    sliding_window,
)
from ctxlab.tokens.counter import TokenCounter

TALK = tuple(
    Message(role, f"{i} word word word") for i in range(9) for role in ("user", "assistant")
)


@given(conversations() | strange_conversations())
def test_before_each_assistant_message_one_request_is_made_of_what_was_said(
    counter: TokenCounter, messages: tuple[Message, ...]
) -> None:
    tape = tape_of(messages, counter, TOOLS)
    trace, requests = run(tape, full(), 10**6)
    begun = next((i for i, m in enumerate(messages) if m.role in ("user", "tool")), len(messages))
    # A greeting, before which nobody had said anything, was written by no model.
    positions = [i for i, m in enumerate(messages) if m.role == "assistant" and i > begun]
    assert [sent.position for sent in requests] == positions == list(tape.requests)
    assert trace.tokens == [counter.request(messages[:p], TOOLS) for p in positions]
    assert trace.messages == positions
    assert tape.length == max(trace.tokens, default=tape.fixed)
    assert trace.context.turn == len(positions)
    last = positions[-1] if positions else 0
    assert tape.valid == (not positions or is_valid(messages[:last], tape.provider))


def test_a_recording_without_a_model_call_makes_no_request(counter: TokenCounter) -> None:
    for messages in ((), (Message("user", "hi"),), (Message("system", "be good"),)):
        tape = tape_of(messages, counter)
        trace = play(tape, nothing() | oracle(), tape.budget(10))
        assert (trace.tokens, trace.unchanged, len(tape.needs)) == ([], [], 0)


def test_a_limit_is_tokens_or_a_fraction_of_the_recordings_own_length(
    counter: TokenCounter,
) -> None:
    tape = Tape(Recording("r", TALK, TOOLS), counter)
    assert tape.budget(700) == Budget(700, 0, tape.fixed)
    assert tape.budget(700.5).limit == 700
    assert tape.budget(0.5, reserve=9) == Budget(tape.length // 2, 9, tape.fixed)
    assert tape.budget(1.0).limit == tape.length
    assert tape.budget(1).limit == 1
    assert tape.budget(0.5).available == tape.length // 2 - tape.fixed
    for nonsense in (0, -5, 0.0, float("nan"), float("inf")):
        with pytest.raises(SpecError):
            tape.budget(nonsense)


def test_a_fraction_of_one_overflows_nowhere(counter: TokenCounter) -> None:
    tape = Tape(Recording("r", TALK), counter)
    assert max(play(tape, full(), tape.budget(1.0)).tokens) == tape.budget(1.0).limit
    assert play(tape, sliding_window(), tape.budget(1.0)).context.edited == []


def test_tool_definitions_take_room_from_the_messages(counter: TokenCounter) -> None:
    """Seed design "Robustness", test 4."""
    many = tuple(
        {**TOOLS[0], "function": {**TOOLS[0]["function"], "name": f"f{i}"}} for i in range(9)
    )
    with_tools, without = (Tape(Recording("r", TALK, t), counter) for t in (many, ()))
    assert with_tools.fixed - without.fixed == counter.tools(many) > 100
    limit = without.length
    kept = [
        play(tape, sliding_window(), tape.budget(limit)).messages[-1]
        for tape in (with_tools, without)
    ]
    assert kept[0] < kept[1] == len(TALK) - 1


def test_the_reserve_is_kept_free(counter: TokenCounter) -> None:
    tape = Tape(Recording("r", TALK), counter)
    trace = play(tape, sliding_window(), tape.budget(80, reserve=20))
    assert max(trace.tokens) <= 60
    assert play(tape, sliding_window(), Budget(10, reserve=50)).messages[-1] == 2

"""Tests of the replay: one request before each recorded reply, with correct measurements."""

from __future__ import annotations

import pandas as pd
import pytest
from generated import TOOLS, conversations, prepare_messages, strange_conversations
from hypothesis import given
from replaying import run

from ctxlab.context.context import Budget
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.messages.types import Message, Recording
from ctxlab.messages.validation import is_valid
from ctxlab.strategies import full, nothing, oracle, sliding_window
from ctxlab.tokens.counter import TokenCounter

TALK = tuple(
    Message(role, f"{i} word word word") for i in range(9) for role in ("user", "assistant")
)


@given(conversations() | strange_conversations())
def test_before_each_assistant_message_one_request_is_made_of_what_was_said(
    counter: TokenCounter, messages: tuple[Message, ...]
) -> None:
    prepared = prepare_messages(messages, counter, TOOLS)
    trace, requests = run(prepared, full(), 10**6)
    begun = next((i for i, m in enumerate(messages) if m.role in ("user", "tool")), len(messages))
    # A greeting, before which nobody had said anything, was written by no model.
    positions = [i for i, m in enumerate(messages) if m.role == "assistant" and i > begun]
    assert [sent.position for sent in requests] == positions == list(prepared.request_positions)
    assert trace.tokens == [counter.count_request(messages[:p], TOOLS) for p in positions]
    assert trace.message_counts == positions
    assert prepared.longest_request_tokens == max(trace.tokens, default=prepared.fixed_tokens)
    assert trace.context.request_index == len(positions)
    last = positions[-1] if positions else 0
    assert prepared.valid == (not positions or is_valid(messages[:last], prepared.provider))


def test_a_recording_without_a_model_call_makes_no_request(counter: TokenCounter) -> None:
    for messages in ((), (Message("user", "hi"),), (Message("system", "be good"),)):
        prepared = prepare_messages(messages, counter)
        trace = replay_trace(prepared, nothing() | oracle(), prepared.make_budget(10))
        assert (trace.tokens, trace.unchanged_prefix_tokens, len(prepared.needs)) == ([], [], 0)


def test_a_limit_is_tokens_or_a_fraction_of_the_recordings_own_length(
    counter: TokenCounter,
) -> None:
    prepared = PreparedRecording(Recording("r", TALK, TOOLS), counter)
    assert prepared.make_budget(700) == Budget(700, 0, prepared.fixed_tokens)
    assert prepared.make_budget(700.5).limit == 700
    assert prepared.make_budget(0.5, reserve=9) == Budget(
        prepared.longest_request_tokens // 2, 9, prepared.fixed_tokens
    )
    assert prepared.make_budget(1.0).limit == prepared.longest_request_tokens
    assert prepared.make_budget(1).limit == 1
    assert (
        prepared.make_budget(0.5).available
        == prepared.longest_request_tokens // 2 - prepared.fixed_tokens
    )
    for nonsense in (0, -5, 0.0, float("nan"), float("inf")):
        with pytest.raises(SpecError):
            prepared.make_budget(nonsense)


def test_unlogged_tokens_in_the_limit_leave_less_room_and_a_share_of_one_still_fits() -> None:
    recording = Recording("r", TALK, TOOLS)
    outside, inside = (
        evaluate([recording], "full", [150, 1.0], "gpt-4o", fixed=60, fixed_in_limit=on).requests
        for on in (False, True)
    )
    pd.testing.assert_series_equal(inside["tokens"], outside["tokens"])
    pd.testing.assert_series_equal(inside["cost_usd"], outside["cost_usd"])
    small = inside["limit"] == 150
    over = (inside["tokens"] + 60 - 150).clip(lower=0)
    assert inside["over"][small].tolist() == over[small].tolist()
    assert 0 < outside["over"][small].max() < inside["over"][small].max()
    assert not inside["overflow"][~small].any()


def test_a_fraction_of_one_overflows_nowhere(counter: TokenCounter) -> None:
    prepared = PreparedRecording(Recording("r", TALK), counter)
    assert (
        max(replay_trace(prepared, full(), prepared.make_budget(1.0)).tokens)
        == prepared.make_budget(1.0).limit
    )
    assert (
        replay_trace(prepared, sliding_window(), prepared.make_budget(1.0)).context.edited_entries
        == []
    )


def test_tool_definitions_take_room_from_the_messages(counter: TokenCounter) -> None:
    """Seed design "Robustness", test 4."""
    many = tuple(
        {**TOOLS[0], "function": {**TOOLS[0]["function"], "name": f"f{i}"}} for i in range(9)
    )
    with_tools, without = (PreparedRecording(Recording("r", TALK, t), counter) for t in (many, ()))
    assert with_tools.fixed_tokens - without.fixed_tokens == counter.count_tools(many) > 100
    limit = without.longest_request_tokens
    kept = [
        replay_trace(prepared, sliding_window(), prepared.make_budget(limit)).message_counts[-1]
        for prepared in (with_tools, without)
    ]
    assert kept[0] < kept[1] == len(TALK) - 1


def test_the_reserve_is_kept_free(counter: TokenCounter) -> None:
    prepared = PreparedRecording(Recording("r", TALK), counter)
    trace = replay_trace(prepared, sliding_window(), prepared.make_budget(80, reserve=20))
    assert max(trace.tokens) <= 60
    assert replay_trace(prepared, sliding_window(), Budget(10, reserve=50)).message_counts[-1] == 2

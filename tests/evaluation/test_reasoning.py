"""Tests of hidden reasoning in the tokens of requests (``CostSettings.reasoning``)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from generated import conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run, strategies

from ctxlab.context.context import Budget
from ctxlab.context.history import NEVER, Entry
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.messages.types import Message, Probe, Recording, ToolCall, Usage
from ctxlab.strategies import Strategy, full, sliding_window
from ctxlab.tokens.cache_timeline import CostSettings
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.reasoning import ReasoningMode

THOUGHT = 100


def think(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages with a bill of hidden reasoning for each reply."""
    return tuple(
        m.replace(usage=Usage(reasoning=THOUGHT)) if m.role == "assistant" else m for m in messages
    )


def prepare(
    messages: tuple[Message, ...], reasoning: ReasoningMode, model: str = "gpt-5.5"
) -> PreparedRecording:
    costs = CostSettings(fixed=0, reasoning=reasoning)
    probe = Probe("p", "What?", evidence=(0,))
    recording = Recording("r", think(messages), probes=(probe,))
    return PreparedRecording(recording, TokenCounter(model), costs=costs)


CALL = Message("assistant", None, (ToolCall("c", "read"),))
TURN = (
    Message("user", "Do it"),
    CALL,
    Message("tool", "text", (), "c"),
    Message("assistant", "Done"),
)
TALK = TURN + TURN
"Four requests, before which 0, 1, 2 and 3 replies were written; the turn changes after the second."


@pytest.mark.parametrize(
    ("reasoning", "model", "replies"),
    [
        ("recorded", "gpt-5.5", (0, 0, 0, 0)),
        ("clear", "gpt-5.5", (0, 0, 0, 0)),
        ("keep", "gpt-5.5", (0, 1, 2, 3)),
        ("current_turn", "gpt-5.6", (0, 1, 0, 1)),
        ("auto", "gpt-5.5", (0, 1, 0, 1)),
        ("auto", "gpt-5.6", (0, 1, 2, 3)),
    ],
)
def test_requests_contain_the_reasoning_that_the_rule_keeps(
    reasoning: ReasoningMode, model: str, replies: tuple[int, ...]
) -> None:
    plain, _ = run(prepare(TALK, "clear", model), full(), 10**6)
    prepared = prepare(TALK, reasoning, model)
    trace, _ = run(prepared, full(), 10**6)
    more = [a - b for a, b in zip(trace.tokens, plain.tokens, strict=True)]
    assert more == [THOUGHT * number for number in replies]
    assert prepared.longest_request_tokens == max(trace.tokens)


def test_reasoning_that_the_provider_drops_breaks_the_cached_prefix_and_no_message_is_lost() -> (
    None
):
    trace, sent = run(prepare(TALK, "current_turn"), full(), 10**6)
    first = sent[0].context.history.full_tokens(1)
    # The third request is the first of a turn. Its prefix ends before the first reply that lost tokens.
    assert trace.unchanged_prefix_tokens[2] == first
    assert trace.unchanged_prefix_tokens[3] == sum(entry.tokens for entry in sent[2].entries)
    assert all(entry.is_verbatim for each in sent for entry in each.entries)
    assert set(trace.context.dropped_at) == {NEVER}


def test_a_limit_leaves_less_room_for_messages_if_reasoning_counts() -> None:
    budget = Budget(250)
    most = {
        reasoning: run(prepare(TALK * 2, reasoning), sliding_window(), budget)[0].message_counts
        for reasoning in ("recorded", "keep")
    }
    assert max(most["keep"]) < max(most["recorded"])


def test_counted_reasoning_is_priced_once() -> None:
    prepared = prepare(TALK, "keep", "claude-opus-4-5")
    trace, _ = run(prepared, full(), 10**6)
    priced = CostMetric().measure(prepared, [trace])["priced_tokens"]
    assert priced.tolist() == [trace.tokens]


@given(
    conversations(), st.sampled_from(("keep", "current_turn")), strategies(), st.integers(80, 900)
)
def test_each_entry_counts_its_reasoning_by_the_rule(
    messages: tuple[Message, ...], reasoning: ReasoningMode, strategy: Strategy, limit: int
) -> None:
    prepared = prepare(messages, reasoning)
    trace, requests = run(prepared, strategy, limit)
    for tokens, sent in zip(trace.tokens, requests, strict=True):
        assert tokens == sum(entry.tokens for entry in sent.entries) + prepared.fixed_tokens
        _check(prepared, reasoning, sent.entries, sent.position)
    for entries in trace.preview_entries:
        _check(prepared, reasoning, entries, len(messages) + 1)


def _check(
    prepared: PreparedRecording, reasoning: str, entries: Sequence[Entry], length: int
) -> None:
    users = [i for i, m in enumerate(prepared.recording.messages[:length]) if m.role == "user"]
    if length > len(
        prepared.recording.messages
    ):  # a preview, which ends with a question of the user
        users.append(length - 1)
    start = users[-1] if users and reasoning == "current_turn" else 0
    for entry in entries:
        hidden = 0
        if entry.is_verbatim and entry.message.role == "assistant":
            hidden = THOUGHT * (entry.start >= start)
        assert entry.tokens == prepared.counter.count_message(entry.message) + hidden

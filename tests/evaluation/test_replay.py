"""Tests of ``replay``: the state of each message is checked against the requests."""

from __future__ import annotations

import numpy as np
import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run, strategies

from ctxlab.context.context import Budget
from ctxlab.evaluation.replay import MESSAGE_STATES, Replay, replay
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies import Strategy, as_strategy
from ctxlab.tokens.counter import TokenCounter

CALL = Message("assistant", None, tool_calls=(ToolCall("c1", "read", '{"path": "src/io.py"}'),))
RESULT = Message("tool", "HAT136 " * 30, tool_call_id="c1")
NEXT = Message("assistant", None, tool_calls=(ToolCall("c1", "book", '{"flight": "HAT136"}'),))
TALK = (
    Message("user", "look at src/io.py"),
    CALL,
    RESULT,
    Message("user", "book it"),
    NEXT,
    RESULT,
)


@given(messages=conversations(), strategy=strategies(), limit=limits())
def test_states_are_what_stands_for_each_message_in_each_request(
    messages: tuple[Message, ...], strategy: Strategy, limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, strategy, limit)
    states = Replay(prepared, trace).states
    expected = []
    for sent in requests:
        row = ["absent"] * len(messages)
        row[: sent.position] = ["dropped"] * sent.position
        for entry in sent.entries:
            row[entry.start : entry.stop] = [entry.form.value] * (entry.stop - entry.start)
        expected.append(row)
    assert states.shape == (len(requests), len(messages))
    assert [[MESSAGE_STATES[code] for code in row] for row in states] == expected


def test_the_same_holds_for_a_plain_function(counter: TokenCounter) -> None:
    def newest_and_a_note(old: list[Message]) -> list[Message]:
        return [Message("user", "a note"), *old[-1:]]

    prepared = prepare_messages(TALK, counter)
    trace, _ = run(prepared, as_strategy(newest_and_a_note), 500)
    states = Replay(prepared, trace).states
    assert [MESSAGE_STATES[code] for code in states[1]] == ["rewritten"] * 3 + ["verbatim"] + [
        "absent"
    ] * 2


def test_needs_say_who_used_what_and_whether_it_was_there() -> None:
    shown = replay(Recording("trip", TALK), "observation_mask(keep=0)", 10_000, "gpt-4o")
    needs = shown.needs
    assert needs["entity"].tolist() == ["src/io.py", "HAT136"]
    assert needs["tier"].tolist() == ["held", "pointer"]
    assert needs["origin"].tolist() == ["user", "tool"]
    assert needs[["request", "position", "last"]].to_numpy().tolist() == [[0, 1, 0], [1, 4, 2]]
    assert needs[["tool", "argument"]].to_numpy().tolist() == [["read", "path"], ["book", "flight"]]
    assert not needs["far"].any()
    assert replay(Recording("trip", TALK), "nothing", 10_000).needs["tier"].tolist() == [
        "held",
        "lost",
    ]
    assert "trip through observation_mask(keep=0): 2 requests" in repr(shown)


def test_requests_have_every_column_of_every_metric() -> None:
    frame = replay(Recording("trip", TALK), "panic()", 0.5, "gpt-4o").requests
    assert frame["position"].tolist() == [1, 4]
    wanted = {
        "tokens",
        "overflow",
        "panicked",
        "invalid",
        "cached",
        "cost_usd",
        "arguments",
        "seen",
    }
    assert wanted <= set(frame.columns)


@pytest.mark.parametrize("budget", [Budget(60), 60, 0.4])
def test_a_budget_is_given_in_any_way_that_a_limit_is(budget: Budget | float) -> None:
    shown = replay(Recording("trip", TALK), lambda messages: messages[-1:], budget)
    assert shown.trace.message_counts == [1, 1]
    assert np.isin(shown.states, range(len(MESSAGE_STATES))).all()


def test_a_recording_without_requests_can_be_looked_at() -> None:
    shown = replay(Recording("short", TALK[:1]), "full", 0.5)
    assert (len(shown.requests), len(shown.needs), shown.states.shape) == (0, 0, (0, 1))


@given(messages=conversations(), strategy=strategies(), limit=limits())
def test_a_sent_request_and_its_difference_account_for_every_message_and_token(
    messages: tuple[Message, ...], strategy: Strategy, limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, strategy, limit)
    replayed = Replay(prepared, trace)
    for number, request in list(enumerate(requests))[-2:]:
        sent, changed = replayed.sent(number), replayed.diff(number)
        assert sent.messages == list(request.messages)
        assert (
            sent.tokens == trace.tokens[number] == sent.table["tokens"].sum() + trace.budget.fixed
        )
        whole = sum(e.tokens for e in prepared.history.entries[: request.position])
        saved = changed["other_tokens"].sum() - changed["tokens"].sum()
        assert saved == whole + trace.budget.fixed - sent.tokens
        assert changed.empty == (sent.messages == list(messages[: request.position]))
        assert replayed.diff(number, replayed).empty


def test_a_difference_says_what_became_of_each_message() -> None:
    replayed = replay(Recording("r", TALK), "observation_mask(keep=0)", 10_000, "gpt-4o")
    (row,) = replayed.diff(-1).to_dict("records")
    assert (row["first"], row["last"], row["form"], row["other_form"]) == (2, 2, "stub", "verbatim")
    assert row["tokens"] < row["other_tokens"]
    assert row["other_text"] == RESULT.content
    with pytest.raises(IndexError, match="Expected a request from 0 to 1, got 2"):
        replayed.sent(2)

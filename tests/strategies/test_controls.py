"""Rules of the controls: nothing is least, chance is repeatable, the oracle knows."""

from __future__ import annotations

import pytest
from generated import conversations, limits, tape_of
from hypothesis import given
from replaying import run

from ctxlab.context.budget import Budget
from ctxlab.context.context import Context
from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import play
from ctxlab.evaluation.metrics.recall import tiers
from ctxlab.messages.types import (
    Message,
    ToolCall,
)
from ctxlab.strategies import (
    full,
    nothing,
    oracle,
    random_drop,
)
from ctxlab.tokens.counter import TokenCounter


@given(messages=conversations(), limit=limits())
def test_nothing_keeps_the_task_and_the_newest_unit(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    tape = tape_of(messages, counter)
    _, requests = run(tape, nothing(), limit)
    for sent in requests:
        head = min(tape.history.head, sent.position)
        tail = tape.history.starts[sent.position - 1]
        expected = [*range(head), *range(max(head, tail), sent.position)]
        assert [e.start for e in sent.entries] == expected


@given(messages=conversations(), limit=limits())
def test_full_sends_everything(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    trace, requests = run(tape_of(messages, counter), full(), limit)
    assert all(sent.messages == list(messages[: sent.position]) for sent in requests)
    assert (trace.forks, trace.context.edited) == ({}, [])


@given(messages=conversations(turns=6), limit=limits())
def test_chance_drops_no_more_than_needed_and_the_same_again(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    tape = tape_of(messages, counter)
    one, requests = run(tape, random_drop(1), limit)
    assert one.tokens == play(tape, random_drop(1), tape.budget(limit)).tokens
    for tokens, sent in zip(one.tokens, requests, strict=True):
        newest = tape.history.starts[sent.position - 1] if sent.position else 0
        droppable = [e for e in sent.entries if tape.history.head <= e.start < newest]
        assert tokens <= limit or not droppable


def test_seeds_pick_differently(counter: TokenCounter) -> None:
    talk = [Message(role, f"{i} word word") for i in range(40) for role in ("user", "assistant")]
    tape = tape_of(talk, counter)
    kept = {
        tuple(e.start for e in run(tape, random_drop(seed), 150)[1][-1].entries)
        for seed in range(5)
    }
    assert len(kept) == 5


def test_the_oracle_finds_a_fact_that_every_window_has_lost(counter: TokenCounter) -> None:
    talk = [
        Message("user", "go"),
        Message("assistant", "ok"),
        Message("user", "my id is mia_li_3668"),
    ]
    talk += [Message(role, "word " * 30) for _ in range(20) for role in ("assistant", "user")]
    call = ToolCall("c1", "find", '{"user": "mia_li_3668"}')
    tape = tape_of([*talk, Message("assistant", None, tool_calls=(call,))], counter)
    trace, sent = run(tape, oracle(), 300)
    assert tiers(tape.needs, [trace]).seen[0].tolist() == [True]
    assert max(trace.tokens) <= 300
    assert any("my id is mia_li_3668" in m.text for m in sent[-1].messages)
    assert tiers(tape.needs, [play(tape, random_drop(), tape.budget(300))]).seen[0].tolist() == [
        False
    ]


@given(messages=conversations(), limit=limits())
def test_the_oracle_sends_everything_where_everything_fits(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    tape = tape_of(messages, counter)
    trace, requests = run(tape, oracle(), limit)
    whole = play(tape, full(), tape.budget(limit))
    for tokens, sent in zip(whole.tokens, requests, strict=True):
        if tokens <= limit:
            assert sent.messages == list(messages[: sent.position])
    assert trace.context.edited == []


def test_outside_a_replay_the_oracle_knows_nothing(counter: TokenCounter) -> None:
    context = Context(Budget(5), History(counter))
    context.append(Message("user", "more than five tokens of text"))
    with pytest.raises(SpecError, match="only in a replay"):
        oracle()(context)

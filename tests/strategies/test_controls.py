"""Tests of the controls ``nothing``, ``random_drop``, ``oracle`` and ``full``."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import replay_trace
from ctxlab.evaluation.metrics.recall import measure_need_visibility
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import full, nothing, oracle, random_drop
from ctxlab.tokens.counter import TokenCounter


@given(messages=conversations(), limit=limits())
def test_nothing_keeps_the_task_and_the_newest_unit(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, nothing(), limit)
    for sent in requests:
        head = min(prepared.history.head_length, sent.position)
        tail = prepared.history.unit_starts[sent.position - 1]
        expected = [*range(head), *range(max(head, tail), sent.position)]
        assert [e.start for e in sent.entries] == expected


@given(messages=conversations(), limit=limits())
def test_full_sends_everything(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    trace, requests = run(prepare_messages(messages, counter), full(), limit)
    assert all(sent.messages == list(messages[: sent.position]) for sent in requests)
    assert (trace.forked_requests, trace.context.edited_entries) == ({}, [])


@given(messages=conversations(turns=6), limit=limits())
def test_chance_drops_no_more_than_needed_and_the_same_again(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    one, requests = run(prepared, random_drop(1), limit)
    assert one.tokens == replay_trace(prepared, random_drop(1), prepared.make_budget(limit)).tokens
    for tokens, sent in zip(one.tokens, requests, strict=True):
        newest = prepared.history.unit_starts[sent.position - 1] if sent.position else 0
        droppable = [e for e in sent.entries if prepared.history.head_length <= e.start < newest]
        assert tokens <= limit or not droppable


def test_seeds_pick_differently(counter: TokenCounter) -> None:
    talk = [Message(role, f"{i} word word") for i in range(40) for role in ("user", "assistant")]
    prepared = prepare_messages(talk, counter)
    kept = {
        tuple(e.start for e in run(prepared, random_drop(seed), 150)[1][-1].entries)
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
    prepared = prepare_messages([*talk, Message("assistant", None, tool_calls=(call,))], counter)
    trace, sent = run(prepared, oracle(), 300)
    assert measure_need_visibility(prepared.needs, [trace]).in_view[0].tolist() == [True]
    assert max(trace.tokens) <= 300
    assert any("my id is mia_li_3668" in m.text for m in sent[-1].messages)
    assert measure_need_visibility(
        prepared.needs, [replay_trace(prepared, random_drop(), prepared.make_budget(300))]
    ).in_view[0].tolist() == [False]


@given(messages=conversations(), limit=limits())
def test_the_oracle_sends_everything_where_everything_fits(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, oracle(), limit)
    whole = replay_trace(prepared, full(), prepared.make_budget(limit))
    for tokens, sent in zip(whole.tokens, requests, strict=True):
        if tokens <= limit:
            assert sent.messages == list(messages[: sent.position])
    assert trace.context.edited_entries == []


def test_outside_a_replay_the_oracle_knows_nothing(counter: TokenCounter) -> None:
    context = Context(Budget(5), History(counter))
    context.append(Message("user", "more than five tokens of text"))
    with pytest.raises(SpecError, match="only in a replay"):
        oracle()(context)

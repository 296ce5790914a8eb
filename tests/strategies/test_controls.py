"""Tests of the controls that bound a comparison: full, nothing, chance and oracles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Form, History
from ctxlab.context.preview import preview_question
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import (
    full,
    message_oracle,
    nothing,
    oracle,
    random_decay,
    random_drop,
    sliding_window,
)
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


def droppable(prepared: PreparedRecording, position: int) -> list[range]:
    """Return the positions of each unit between the head and the newest unit of a request."""
    starts = prepared.history.unit_starts[:position]
    head, newest = prepared.history.head_length, starts[-1] if starts else 0
    bounds = [i for i, start in enumerate(starts) if start == i and i >= head]
    return [range(i, j) for i, j in pairwise(bounds) if j <= newest]


@given(messages=conversations(turns=6), limit=limits(), seed=st.integers(0, 9))
def test_chance_keeps_whole_units_until_no_other_one_fits(
    messages: tuple[Message, ...], limit: int, seed: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, random_drop(seed), limit)
    for tokens, sent in zip(trace.tokens, requests, strict=True):
        kept = {entry.start for entry in sent.entries}
        for unit in droppable(prepared, sent.position):
            assert len({place in kept for place in unit}) == 1
            size = sum(prepared.history.entries[place].tokens for place in unit)
            assert unit[0] in kept or tokens + size > limit
        choices = {place for unit in droppable(prepared, sent.position) for place in unit}
        assert tokens <= limit or not choices & kept


@given(messages=conversations(), limit=limits(), data=st.data())
def test_a_preview_chooses_as_if_the_question_had_been_asked(
    messages: tuple[Message, ...], limit: int, data: st.DataObject, counter: TokenCounter
) -> None:
    length, question = data.draw(st.integers(0, len(messages))), Message("user", "Which one?")
    context = Context(Budget(limit), History(counter, messages))
    context.advance(length)
    random_drop(1)(context)
    asked = Context(Budget(limit), History(counter, [*messages[:length], question]))
    asked.advance(length + 1)
    sent = random_drop(1)(preview_question(context, question))
    assert sent.messages == random_drop(1)(asked).messages


@given(messages=conversations(turns=6), limit=limits())
def test_decay_drops_no_more_than_needed_and_nothing_returns(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, random_decay(1), limit)
    gone: set[int] = set()
    for tokens, sent in zip(trace.tokens, requests, strict=True):
        newest = prepared.history.unit_starts[sent.position - 1] if sent.position else 0
        assert tokens <= limit or not [
            e for e in sent.entries if prepared.history.head_length <= e.start < newest
        ]
        kept = {entry.start for entry in sent.entries}
        assert not gone & kept
        gone |= set(range(sent.position)) - kept


def small_talk(counter: TokenCounter, turns: int = 40) -> PreparedRecording:
    roles = ("user", "assistant")
    return prepare_messages(
        [Message(role, f"{i:03} word word") for i in range(turns) for role in roles], counter
    )


def test_each_seed_and_each_request_draws_anew(counter: TokenCounter) -> None:
    prepared = small_talk(counter)
    sent = {seed: run(prepared, random_drop(seed), 150)[1] for seed in range(5)}
    assert len({tuple(e.start for e in requests[-1].entries) for requests in sent.values()}) == 5
    kept = [{e.start for e in request.entries} for request in sent[0]]
    returned = [now - before - {max(now), max(now) - 1} for before, now in pairwise(kept)]
    assert any(returned)


def test_chance_uses_the_budget_of_a_long_conversation_and_repeats_nothing(
    counter: TokenCounter,
) -> None:
    prepared = small_talk(counter, 600)
    limit = int(0.9 * prepared.longest_request_tokens)
    trace, requests = run(prepared, random_drop(0), limit)
    kept = [entry.start for entry in requests[-1].entries]
    assert all(before < after for before, after in pairwise(kept))
    assert limit - 10 < trace.tokens[-1] <= limit


def test_chance_keeps_an_old_message_as_often_as_a_recent_one(counter: TokenCounter) -> None:
    prepared = small_talk(counter, 100)
    place = np.zeros(200)
    requests = [sent for seed in range(20) for sent in run(prepared, random_drop(seed), 300)[1]]
    late = [sent for sent in requests if sent.position >= 150]
    for sent in late:
        place[[entry.start for entry in sent.entries]] += 1
    shares = place[1:140].reshape(-1, 139) / len(late)
    assert abs(shares[0, :70].mean() - shares[0, 70:].mean()) < 0.02
    decayed = [s for seed in range(20) for s in run(prepared, random_decay(seed), 300)[1]]
    ages = [np.mean([e.start for e in s.entries[1:]]) for s in decayed if s.position >= 150]
    fresh = [np.mean([e.start for e in s.entries[1:]]) for s in late]
    assert np.mean(ages) > np.mean(fresh) + 20


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
        prepared.needs, [replay_trace(prepared, sliding_window(), prepared.make_budget(300))]
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
    with pytest.raises(SpecError, match=r"^message_oracle needs"):
        message_oracle()(context)


def lookup(counter: TokenCounter, *, filler: int) -> PreparedRecording:
    """Return a recording whose last call needs two ids: one in a short, one in a long message."""
    talk = [
        Message("user", "go"),
        Message("assistant", "ok"),
        Message("user", "my id is mia_li_3668"),
        Message("assistant", "and the order is HAT13644: " + "word " * filler),
    ]
    talk += [Message(role, "word " * 30) for _ in range(20) for role in ("user", "assistant")]
    call = ToolCall("c1", "find", '{"user": "mia_li_3668", "order": "HAT13644"}')
    return prepare_messages([*talk, Message("assistant", None, tool_calls=(call,))], counter)


@pytest.mark.parametrize(("filler", "found"), [(30, [True, True]), (600, [True, False])])
def test_the_message_oracle_keeps_the_whole_messages_that_fit(
    counter: TokenCounter, filler: int, found: list[bool]
) -> None:
    prepared = lookup(counter, filler=filler)
    trace, requests = run(prepared, message_oracle(), 300)
    assert measure_need_visibility(prepared.needs, [trace]).in_view[0].tolist() == found
    assert all(entry.form is Form.VERBATIM for sent in requests for entry in sent.entries)
    assert max(trace.tokens) <= 300
    assert any(entry.start == 2 for entry in requests[-1].entries)


@given(messages=conversations(), limit=limits())
def test_the_message_oracle_recalls_no_more_than_lines_and_no_less_than_nothing(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    traces = [
        replay_trace(prepared, strategy, prepared.make_budget(limit))
        for strategy in (nothing(), message_oracle(), oracle(), full())
    ]
    none, messages_kept, lines, everything = measure_need_visibility(prepared.needs, traces).in_view
    assert (none <= messages_kept).all()
    assert (messages_kept <= everything).all()
    if max([*traces[1].tokens, *traces[2].tokens], default=0) <= limit:
        assert (messages_kept <= lines).all()

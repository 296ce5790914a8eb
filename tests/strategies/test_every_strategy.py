"""Tests for all strategies, alone and in pipelines, on valid and invalid conversations."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from generated import (
    TOOLS,
    conversations,
    limits,
    prepare_messages,
    strange_conversations,
    with_times,
)
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS, Sent, run

from ctxlab.context.context import Budget
from ctxlab.evaluation.engine import replay_trace, replay_traces
from ctxlab.evaluation.metrics.tokens import UsageMetric
from ctxlab.evaluation.metrics.validity import ValidityMetric
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import STRATEGIES, parse_strategy
from ctxlab.tokens.counter import TokenCounter

PANICS = [spec for spec in SPECS if spec.endswith(("panic()", "panic(protect=2)"))]
REAL = [spec for spec in SPECS if spec != "oracle | panic()"]


def test_every_strategy_is_tested_here() -> None:
    tried = {part.strip().split("(")[0] for spec in SPECS for part in spec.split("|")}
    assert tried == set(STRATEGIES)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=with_times(conversations()), limit=limits(), reserve=st.sampled_from([0, 0, 50]))
def test_no_request_is_invalid_and_its_tokens_are_a_fresh_count(
    spec: str, messages: tuple[Message, ...], limit: int, reserve: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter, TOOLS)
    trace, requests = run(prepared, spec, prepared.make_budget(limit, reserve))
    assert len(requests) == len(prepared.request_positions)
    for tokens, faults, sent in zip(trace.tokens, trace.violation_counts, requests, strict=True):
        assert find_violations(sent.messages) == []
        assert not faults
        assert tokens == counter.count_request(sent.messages, TOOLS)
        # Images that are not among the newest are left out, of the first message too.
        without_images = spec.startswith("recent_images") and isinstance(messages[0].content, tuple)
        assert sent.messages[0].role == messages[0].role
        assert sent.messages[0] == messages[0] or without_images
    assert not ValidityMetric().measure(prepared, [trace])["invalid"].any()


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", PANICS)
@given(messages=with_times(conversations() | strange_conversations()), limit=limits())
def test_with_panic_last_a_request_fits_or_is_reported_as_stuck(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace = replay_trace(prepared, parse_strategy(spec), prepared.make_budget(limit))
    stuck = {turn for turn, event in trace.context.events if event == "stuck"}
    sent = zip(trace.tokens, trace.message_counts, strict=True)
    # Where nothing has been said yet there is nothing to repair, however small the limit.
    assert stuck == {turn for turn, (tokens, some) in enumerate(sent) if tokens > limit and some}
    usage = UsageMetric().measure(prepared, [trace])
    assert (usage["stuck"] <= usage["overflow"]).all()
    assert (usage["stuck"] <= usage["panicked"]).all()


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=with_times(strange_conversations()), limit=limits())
def test_strange_conversations_are_survived_and_their_whole_pairs_stay_whole(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, spec, limit)
    for tokens, faults, sent in zip(trace.tokens, trace.violation_counts, requests, strict=True):
        assert tokens == counter.count_request(sent.messages)
        assert bool(faults) == bool(find_violations(sent.messages))
        for unit in whole_units(messages[: sent.position]):
            places = [places_of(sent, position) for position in unit]
            assert len({bool(place) for place in places}) == 1
            first = places[0]
            if first:
                assert [at for place in places for at in place] == [
                    first[0] + i for i in range(len(unit))
                ]


def whole_units(messages: Sequence[Message]) -> list[list[int]]:
    """Return the positions of calls with results if each call is answered once, directly after it."""
    units = []
    for start, message in enumerate(messages):
        size = len(message.tool_calls)
        unit = list(range(start, start + size + 1))
        if size and unit[-1] < len(messages):
            answers = [messages[i].tool_call_id for i in unit[1:] if messages[i].role == "tool"]
            calls = [call.id for call in message.tool_calls]
            if sorted(map(str, answers)) == sorted(calls) and len(set(calls)) == size:
                units.append(unit)
    return units


def places_of(sent: Sent, position: int) -> list[int]:
    return [i for i, e in enumerate(sent.entries) if (e.start, e.stop) == (position, position + 1)]


@given(messages=with_times(conversations()), limit=limits())
def test_nothing_that_fits_recalls_more_than_the_oracle(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    oracle = replay_trace(prepared, parse_strategy("oracle"), prepared.make_budget(limit))
    best = measure_need_visibility(prepared.needs, [oracle]).in_view[0]
    for spec in REAL:
        trace = replay_trace(prepared, parse_strategy(spec), prepared.make_budget(limit))
        # Where what was said last is too large by itself, the oracle overflows: no comparison.
        if max([*trace.tokens, *oracle.tokens], default=0) <= limit:
            seen = measure_need_visibility(prepared.needs, [trace]).in_view[0]
            assert best.sum() >= seen.sum(), spec


@given(messages=with_times(conversations()), few=st.lists(limits(), min_size=1, max_size=3))
@pytest.mark.properties
def test_replaying_all_at_once_is_replaying_each(
    messages: tuple[Message, ...], few: list[int], counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    strategies = [parse_strategy(spec) for spec in SPECS]
    budgets = [Budget(limit, fixed=prepared.fixed_tokens) for limit in few]
    together = replay_traces(prepared, strategies, budgets)
    alone = [replay_trace(prepared, s, budget) for budget in budgets for s in strategies]
    for one, other in zip(together, alone, strict=True):
        assert (one.strategy, one.budget) == (other.strategy, other.budget)
        assert (one.tokens, one.message_counts, one.unchanged_prefix_tokens) == (
            other.tokens, other.message_counts, other.unchanged_prefix_tokens,
        )  # fmt: skip
        assert one.context.events == other.context.events
    assert np.array_equal(
        measure_need_visibility(prepared.needs, together).in_view,
        measure_need_visibility(prepared.needs, alone).in_view,
    )
    overs = [UsageMetric().measure(prepared, traces)["over"] for traces in (together, alone)]
    assert np.array_equal(*overs)


@pytest.mark.parametrize("spec", SPECS)
def test_a_strategy_is_a_value(spec: str) -> None:
    strategy = parse_strategy(spec)
    assert parse_strategy(repr(strategy)) == strategy
    assert hash(parse_strategy(repr(strategy))) == hash(strategy)
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    with pytest.raises(AttributeError):
        strategy.keep = 5  # type: ignore[attr-defined]


@given(messages=with_times(conversations()), limit=limits())
@pytest.mark.properties
def test_a_replay_gives_the_same_again(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    for spec in SPECS:
        one, sent = run(prepare_messages(messages, counter), spec, limit)
        other, again = run(prepare_messages(messages, counter), spec, limit)
        assert one.tokens == other.tokens
        assert [s.messages for s in sent] == [s.messages for s in again]

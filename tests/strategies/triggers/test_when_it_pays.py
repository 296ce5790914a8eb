"""Tests of ``when_it_pays``: it edits if this is cheaper, and saves cost on real recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from generated import conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import Sent, run

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies import Strategy, observation_mask, panic, parse_strategy, when_it_pays
from ctxlab.strategies.triggers.base import dry_run_strategy
from ctxlab.tokens.cache_timeline import CostSettings
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.encodings import litellm_folder
from ctxlab.tokens.models import find_model

MASK = observation_mask(keep=1)
FAR = observation_mask(keep=8)


def work(count: int) -> list[Message]:
    said = [Message("system", "Be brief. " * 300), Message("user", "go")]
    for i in range(count):
        said += [Message("assistant", tool_calls=(ToolCall(f"c{i}", "ls"),))]
        said += [Message("tool", f"line {i}\n" * 60, tool_call_id=f"c{i}")]
    return said


def prepare(messages: Sequence[Message], counter: TokenCounter) -> PreparedRecording:
    """Prepare messages with the prices and the cache policy of the model of the counter."""
    return PreparedRecording(Recording("r", tuple(messages)), counter)


def price(before: list[Message], now: Context, read: float, write: float) -> float:
    """Compute the cost of a request after another one by comparing all messages."""
    total, same = 0.0, True
    for i, entry in enumerate(now.entries):
        same = same and i < len(before) and before[i] == entry.message
        total += entry.tokens * (read if same else write)
    return total


@given(
    messages=conversations(turns=6),
    remaining=st.integers(0, 60),
    read=st.sampled_from([0.1, 0.25, 0.5, 1.0]),
    write=st.sampled_from([1.0, 1.25, 2.0]),
)
def test_it_compacts_where_the_rest_costs_less_with_it_than_without(
    messages: tuple[Message, ...], remaining: int, read: float, write: float, counter: TokenCounter
) -> None:
    strategy = when_it_pays(MASK, remaining, read, write)
    prepared = prepare(messages, counter)
    context = Context(prepared.make_budget(10**6), prepared.history)
    before: list[Message] = []
    for position in prepared.request_positions:
        context.advance(position)
        context.strategy_state.pop(strategy, None)  # so that it is tried at every request
        then = dry_run_strategy(context, MASK)
        keeping = price(before, context, read, write) + remaining * context.tokens * read
        cutting = price(before, then, read, write) + remaining * then.tokens * read
        told = len(context.events)
        sent = strategy(context)
        if abs(keeping - cutting) > 1e-6:
            assert (len(context.events) > told) == (cutting < keeping)
        assert sent.messages == (then.messages if len(context.events) > told else sent.messages)
        context.commit_request(sent)
        before = sent.messages


@pytest.mark.skipif(litellm_folder() is None, reason="litellm is not installed")
def test_a_request_without_compaction_and_one_with_it_count_at_the_prices_of_their_size() -> None:
    name = "dashscope/qwen3-coder-plus"  # dearer from 32,001 tokens on
    prepared = prepare(work(160), TokenCounter(name))
    context = Context(prepared.make_budget(10**6), prepared.history)
    context.advance(prepared.request_positions[-2])
    context.commit_request(context)
    before = context.messages
    context.advance(prepared.request_positions[-1])
    cuts = observation_mask(keep=110)
    then = dry_run_strategy(context, cuts)
    sizes = [each.tokens + prepared.fixed_tokens for each in (context, then)]
    assert sizes[0] > 32_000 > sizes[1]
    long, short = (find_model(name).prices.rates_for(size) for size in sizes)
    told, given = set(), set()
    for remaining in range(20):
        keeping = price(before, context, long.cache_read, long.cache_write)
        keeping += remaining * context.tokens * long.cache_read
        cutting = price(before, then, short.cache_read, short.cache_write)
        cutting += remaining * then.tokens * short.cache_read
        pays = when_it_pays(cuts, remaining)._is_worthwhile(context, then, 0)
        assert pays == (cutting < keeping)
        told.add(pays)
        given.add(when_it_pays(cuts, remaining, 0.1, 1.0)._is_worthwhile(context, then, 0) == pays)
    assert told == {False, True}
    assert given == {True}  # shares that are given are shares of the input price at that size


def unbroken(before: Sent, unchanged: int) -> bool:
    return unchanged == sum(entry.tokens for entry in before.entries)


def test_between_compactions_the_whole_previous_request_is_unchanged(counter: TokenCounter) -> None:
    prepared = prepare(work(120), counter)
    trace, sent = run(prepared, when_it_pays(FAR, read=0.1, write=1.25), 10**6)
    compacted = {turn for turn, event in trace.context.events if event == "compacted: pays"}
    assert 2 < len(compacted) < len(sent) / 4
    for turn in range(1, len(sent)):
        assert unbroken(sent[turn - 1], trace.unchanged_prefix_tokens[turn]) == (
            turn not in compacted
        )


def test_without_room_it_compacts_whether_it_pays_or_not(counter: TokenCounter) -> None:
    prepared = prepare(work(40), counter)
    limit = 5000
    trace, _ = run(prepared, when_it_pays(FAR, remaining=0), limit)
    assert {event for _, event in trace.context.events} == {"compacted: no room"}
    assert max(trace.tokens) <= limit


def test_where_no_cache_is_to_be_had_it_compacts_as_soon_as_anything_goes(
    counter: TokenCounter,
) -> None:
    prepared = prepare(work(20), counter)
    costly, _ = run(prepared, when_it_pays(FAR, remaining=0, read=1.0, write=1.0), 10**6)
    assert len(costly.context.events) > 5
    plain, _ = run(prepared, when_it_pays(FAR, 0, 0.1, 1.25), 10**6)
    assert plain.context.events == []


def test_a_model_of_its_own_makes_it_wait(counter: TokenCounter) -> None:
    prepared = prepare(work(60), counter)
    free = when_it_pays(parse_strategy("rolling_summary(0.1, 0.05)"), read=0.1, write=1.25)
    paid = when_it_pays(
        parse_strategy('rolling_summary(0.1, 0.05, model="claude-opus-4-5")'), read=0.1, write=1.25
    )
    context = {}
    for strategy in (free, paid):
        here = context[strategy] = Context(prepared.make_budget(40_000), prepared.history)
        here.advance(61)
        here.commit_request(here)
    then = dry_run_strategy(context[paid], parse_strategy("rolling_summary(0.1, 0.05)"))
    assert then.tokens < context[paid].tokens
    kept = context[free]
    assert free._is_worthwhile(kept, then, 15)
    assert not paid._is_worthwhile(kept, then, 15)


@pytest.mark.recordings(smoke=True)
@pytest.mark.parametrize("folder", ["claude-code-entireio", "pi-mono"])
def test_on_real_logs_it_costs_less_than_never_and_than_always(recorded: Path, folder: str) -> None:
    name = "claude-opus-4-5"
    counter, cost = TokenCounter(name), CostMetric()
    messages_only = CostSettings("5m", fixed=0)  # a strategy saves nothing of the unlogged tokens
    prepared_recordings = [
        PreparedRecording(recording, counter, costs=messages_only)
        for recording in load(recorded / folder)
    ]

    def usd(strategy: Strategy, limit: int) -> float:
        traces = [
            (prepared, replay_trace(prepared, strategy, prepared.make_budget(limit)))
            for prepared in prepared_recordings
            if prepared.request_positions
        ]
        return sum(
            float(cost.measure(prepared, [trace])["cost_usd"].sum()) for prepared, trace in traces
        )

    mask = observation_mask(keep=10)
    roomy = 10**7
    paying = usd(when_it_pays(mask), roomy)
    assert paying < 0.75 * usd(parse_strategy("full"), roomy)
    assert paying < 0.75 * usd(mask, roomy)
    assert usd(when_it_pays(mask) | panic(), 160_000) < 0.9 * usd(mask | panic(), 160_000)

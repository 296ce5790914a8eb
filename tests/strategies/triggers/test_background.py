"""Tests of ``background``: what was prepared on a copy is installed later, once, as it was."""

from __future__ import annotations

from typing import Any

import pytest
from generated import conversations, limits, prepare_messages, with_times
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.context import Context
from ctxlab.context.history import NEVER, Form
from ctxlab.context.preview import preview_question
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import replay_trace
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import (
    background,
    in_batches,
    observation_mask,
    panic,
    parse_strategy,
    rolling_summary,
    sliding_window,
    tool_stubs,
)
from ctxlab.tokens.counter import TokenCounter

WRAPPED = [
    sliding_window(messages=2),
    observation_mask(keep=1),
    rolling_summary(0, 0.3, keep_recent=2),
    tool_stubs(keep=0) | sliding_window(),
    panic(),
]


def work(count: int) -> list[Message]:
    said = [Message("user", "go")]
    for i in range(count):
        said += [Message("assistant", tool_calls=(ToolCall(f"c{i}", "ls"),))]
        said += [Message("tool", f"line {i}\n" * 60, tool_call_id=f"c{i}")]
    return said


@given(
    messages=with_times(conversations(turns=6)),
    strategy=st.sampled_from(WRAPPED),
    requests=st.integers(0, 4),
)
def test_the_first_installation_is_the_result_on_the_copy_and_the_newer_messages(
    messages: tuple[Message, ...], strategy: Any, requests: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    wrapper = background(strategy, start=150, block=10**6, target=100, requests=requests)
    _, sent = run(prepared, wrapper, 10**7)
    before = prepared.history.tokens_before
    large = [i for i, each in enumerate(sent) if before[each.position] > 150]
    first = large[0] if large else len(sent)
    for each in sent[: first + requests]:
        assert each.messages == list(messages[: each.position])
    if first + requests < len(sent):
        start, installed = sent[first].position, sent[first + requests]
        context = Context(prepared.make_budget(10**7), prepared.history)
        context.advance(start)
        alone = context.run_with_budget_share(100 / context.available, strategy)
        newer = list(messages[start : installed.position])
        assert installed.messages == [*alone.messages, *newer]


@given(messages=with_times(conversations(turns=6)), limit=limits())
def test_edits_are_recorded_as_they_are_made(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    for strategy in WRAPPED:
        trace, sent = run(prepared, background(strategy, 0.3, 0.6, 0.2), limit)
        context = trace.context
        for turn, request in enumerate(sent):
            verbatim = {e.start for e in request.entries if e.form is Form.VERBATIM}
            gone = {p for p in range(request.position) if context.dropped_at[p] <= turn}
            assert gone == set(range(request.position)) - verbatim
            edited = [e for e in request.entries if e.form is not Form.VERBATIM]
            present = [e for e in context.edited_entries if e.since <= turn < e.until]
            assert sorted(map(id, edited)) == sorted(map(id, present))
        assert all(entry.until == NEVER for entry in context.entries)


def test_without_delay_it_is_in_batches(counter: TokenCounter) -> None:
    prepared = prepare_messages(work(60), counter)
    for strategy in (sliding_window(), observation_mask(keep=2), rolling_summary(0, 1.0)):
        now, _ = run(prepared, background(strategy, requests=0), 3000)
        batches, _ = run(prepared, in_batches(strategy), 3000)
        assert now.tokens == batches.tokens


def test_above_block_what_is_prepared_is_installed_at_once(counter: TokenCounter) -> None:
    prepared = prepare_messages(work(60), counter)
    limit = 3000
    trace, _ = run(prepared, background(sliding_window(), requests=50), limit)
    assert max(trace.tokens) <= 0.95 * limit
    assert len({e for e in trace.context.dropped_at if e != NEVER}) > 1


def test_the_model_is_called_once_for_each_installation_and_before_it(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(work(60), counter)
    client = prepared.history.client = ScriptedClient(lambda _: "## Goal\nList everything.")
    strategy = background(rolling_summary(0, 1.0, model="gpt-5-mini"), requests=2)
    trace, _ = run(prepared, strategy, 4000)
    called = [call.request_index for call in trace.context.model_calls]
    installed = [turn for turn, event in trace.context.events if event == "summary"]
    assert len(client.requests) == len(called) > 1
    assert installed == [turn + 2 for turn in called][: len(installed)]
    assert len(called) - len(installed) <= 1


def test_a_rewrite_by_another_strategy_meanwhile_is_kept(counter: TokenCounter) -> None:
    prepared = prepare_messages(work(30), counter)
    trace, sent = run(prepared, "tool_stubs(keep=2) | background(sliding_window())", 3000)
    assert not any("discarded" in event for _, event in trace.context.events)
    for request in sent:
        results = [e for e in request.entries if e.message.role == "tool"]
        assert all(entry.form is Form.STUB for entry in results[:-2])


def test_if_prepared_messages_are_dropped_meanwhile_nothing_comes_back(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(work(60), counter)
    spec = "background(rolling_summary(0), 0.5, 0.95, 0.3, 3) | sliding_window(messages=9)"
    trace, sent = run(prepared, spec, 2000)
    assert any("discarded" in event for _, event in trace.context.events)
    for turn, request in enumerate(sent):
        verbatim = [e.start for e in request.entries if e.form is Form.VERBATIM]
        assert all(trace.context.dropped_at[position] > turn for position in verbatim)


def test_a_preview_neither_prepares_nor_installs(counter: TokenCounter) -> None:
    prepared, strategy = prepare_messages(work(60), counter), background(sliding_window())
    watched = Context(prepared.make_budget(3000), prepared.history)
    plain, sizes = replay_trace(prepared, strategy, prepared.make_budget(3000)), []
    for position in prepared.request_positions:
        watched.advance(position)
        strategy(preview_question(watched, Message("user", "What was line 3?")))
        sent = strategy(watched)
        sizes.append(sent.tokens + prepared.fixed_tokens)
        watched.commit_request(sent)
    assert sizes == plain.tokens
    assert watched.dropped_at == plain.context.dropped_at[: len(watched.dropped_at)]


def test_what_keeps_branches_and_thresholds_in_the_wrong_order_are_refused(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(work(30), counter)
    with pytest.raises(SpecError, match="put it before background"):
        run(prepared, "background(file_sessions())", 1000)
    with pytest.raises(SpecError, match=r"expected start <= block \(0\.7\), got start 0\.8"):
        parse_strategy("background(panic(), block=0.7)")
    with pytest.raises(SpecError, match=r"expected target <= start \(0\.8\), got target 0\.9"):
        parse_strategy("background(panic(), target=0.9)")

"""Tests of ``in_batches``: edits are rare, go down to the target and remove enough tokens."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import (
    in_batches,
    observation_mask,
    panic,
    parse_strategy,
    rolling_summary,
    sliding_window,
)
from ctxlab.strategies.triggers.base import appended_tokens, dry_run_strategy, next_dry_run
from ctxlab.tokens.counter import TokenCounter


def talk(count: int) -> list[Message]:
    said = [f"message {i} " + "word " * 20 for i in range(count)]
    return [Message("user" if i % 2 else "assistant", text) for i, text in enumerate(said)]


@given(messages=conversations(), limit=limits())
def test_below_the_trigger_nothing_happens(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = prepared.make_budget(limit)
    trace, sent = run(prepared, in_batches(sliding_window(messages=0), 0.5, 0.2), budget)
    if all(prepared.history.tokens_before[s.position] <= 0.5 * budget.available for s in sent):
        assert [s.messages for s in sent] == [list(messages[: s.position]) for s in sent]
    assert len(trace.tokens) == len(sent)


def test_between_compactions_the_whole_previous_request_is_unchanged(counter: TokenCounter) -> None:
    prepared = prepare_messages([Message("user", "go"), *talk(80)], counter)
    trace, sent = run(prepared, "in_batches(sliding_window())", 1000)
    cuts = 0
    for before, now, tokens in zip(sent, sent[1:], trace.unchanged_prefix_tokens[1:], strict=False):
        if now.messages[: len(before.messages)] == before.messages:
            assert tokens == sum(entry.tokens for entry in before.entries)
        else:
            cuts += 1
            assert sum(entry.tokens for entry in now.entries) <= 0.5 * (
                1000 - prepared.fixed_tokens
            )
    plain, _ = run(prepared, "sliding_window()", 1000)
    assert 0 < cuts < len(sent) / 4
    assert sum(trace.unchanged_prefix_tokens) > 2 * sum(plain.unchanged_prefix_tokens)


def test_what_a_fork_is_sent_through_next_has_the_whole_budget(counter: TokenCounter) -> None:
    context = Context(Budget(1003), History(counter, [Message("user", "go"), *talk(40)]))
    context.advance(41)
    sent = in_batches(panic(), trigger=0.8, target=0.3)(context)
    assert sent is not context
    assert sent.tokens <= 300
    assert sent.available == context.available == 1000


def test_one_in_another_takes_shares_of_the_outer_budget(counter: TokenCounter) -> None:
    context = Context(Budget(1003), History(counter, [Message("user", "go"), *talk(40)]))
    context.advance(41)
    inner = in_batches(sliding_window(), trigger=0.8, target=0.5)
    assert in_batches(inner, trigger=0.8, target=0.5)(context).tokens <= 250
    assert context.available == 1000


def test_what_does_not_get_below_the_trigger_is_reported_and_asked_again_rarely(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages([Message("user", "go"), *talk(60)], counter)
    trace, sent = run(prepared, in_batches(observation_mask(), trigger=0.5), 1500)
    said = [turn for turn, event in trace.context.events if "still above" in event]
    filling = [i for i, s in enumerate(sent) if 750 < sum(e.tokens for e in s.entries) <= 1490]
    assert said
    assert len([turn for turn in said if turn in filling]) < len(filling) / 2


def test_stuck_under_the_target_alone_is_not_reported_as_stuck(counter: TokenCounter) -> None:
    said = [Message("user", "word " * 600), Message("assistant", "ok"), Message("user", "and?")]
    context = Context(Budget(703), History(counter, said))
    context.advance(3)
    in_batches(panic(), trigger=0.8, target=0.5)(context)
    assert [event for _, event in context.events] == [
        "panic",
        "in_batches: still above the trigger",
    ]


def test_a_target_above_the_trigger_and_what_is_no_strategy_are_refused() -> None:
    with pytest.raises(SpecError, match=r"expected target <= trigger \(0\.8\), got target 0\.9"):
        parse_strategy("in_batches(panic(), target=0.9)")
    with pytest.raises(SpecError, match="expected a strategy"):
        parse_strategy("in_batches(3)")


def test_the_text_form_takes_a_pipeline() -> None:
    strategy = parse_strategy(
        "in_batches(observation_mask(keep=3) | sliding_window(), trigger=0.7)"
    )
    assert strategy == in_batches(observation_mask(3) | sliding_window(), 0.7)
    assert parse_strategy(repr(strategy)) == strategy


def test_a_plain_function_may_be_given_and_what_is_inside_is_printed_first() -> None:
    def newest(messages: list[Message]) -> list[Message]:
        return messages[-1:]

    assert repr(in_batches(newest, trigger=0.9)) == "in_batches(newest, trigger=0.9)"
    assert repr(in_batches(panic() | panic(2))) == "in_batches(panic() | panic(protect=2))"


def work(count: int) -> list[Message]:
    said = [Message("user", "go")]
    for i in range(count):
        said += [Message("assistant", tool_calls=(ToolCall(f"c{i}", "ls"),))]
        said += [Message("tool", f"line {i}\n" * 60, tool_call_id=f"c{i}")]
    return said


@given(
    messages=conversations(turns=6),
    trigger=st.sampled_from([0, 0.3, 0.8, 200]),
    headroom=st.sampled_from([None, None, 200]),
)
def test_between_two_runs_each_request_starts_with_the_whole_previous_one(
    messages: tuple[Message, ...], trigger: float, headroom: int | None, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = Budget(1000, 100, prepared.fixed_tokens)
    given_ = {"trigger": trigger} if headroom is None else {"headroom": headroom}
    level = min(trigger if trigger > 1 else trigger * budget.available, budget.available)
    if headroom is not None:
        level = 1000 - headroom - prepared.fixed_tokens
    strategy = in_batches(observation_mask(keep=1), target=0.2, **given_)  # type: ignore[arg-type]
    trace, sent = run(prepared, strategy, budget)
    for turn in range(1, len(sent)):
        before = sent[turn - 1]
        whole = sum(entry.tokens for entry in before.entries)
        newer = prepared.history.tokens_before
        if whole + newer[sent[turn].position] - newer[before.position] <= level:
            assert trace.unchanged_prefix_tokens[turn] == whole


@given(messages=conversations(), limit=limits(), tokens=st.sampled_from([1, 5, 40, 300, 5000]))
def test_a_request_that_fits_loses_no_less_than_the_minimum(
    messages: tuple[Message, ...], limit: int, tokens: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = prepared.make_budget(limit)
    _, sent = run(prepared, in_batches(observation_mask(keep=1), 0, tokens=tokens), budget)
    gone = 0
    for request in sent:
        whole = prepared.history.tokens_before[request.position]
        here = whole - sum(entry.tokens for entry in request.entries)
        assert here == gone or here >= gone + tokens or whole - gone > budget.available
        gone = here


@given(messages=conversations(turns=6), tokens=st.sampled_from([1, 40, 300]))
def test_with_a_minimum_alone_it_clears_when_a_dry_run_frees_enough(
    messages: tuple[Message, ...], tokens: int, counter: TokenCounter
) -> None:
    """``clear_at_least`` of Anthropic, with dry runs each time the context has grown enough."""
    prepared, mask = prepare_messages(messages, counter), observation_mask(keep=1)
    trace, _ = run(prepared, in_batches(mask, trigger=0, target=1.0, tokens=tokens), 10**7)
    context, due, sizes = Context(prepared.make_budget(10**7), prepared.history), 0, []
    for position in prepared.request_positions:
        context.advance(position)
        if context.tokens >= tokens and appended_tokens(context) >= due:
            saved = context.tokens - dry_run_strategy(context, mask).tokens
            if saved >= tokens:
                mask(context)
            else:
                due = next_dry_run(context, tokens - max(saved, 0))
        sizes.append(context.tokens + prepared.fixed_tokens)
        context.commit_request(context)
    assert trace.tokens == sizes


def test_with_a_minimum_the_cache_is_broken_rarely(counter: TokenCounter) -> None:
    prepared = prepare_messages(work(60), counter)
    trace, sent = run(prepared, in_batches(observation_mask(keep=2), 0, tokens=1500), 10**6)
    broken = [
        i
        for i in range(1, len(sent))
        if trace.unchanged_prefix_tokens[i] < sum(entry.tokens for entry in sent[i - 1].entries)
    ]
    assert 5 < len(broken) < 12
    assert max(trace.tokens) < 4000 < prepared.history.tokens_before[-1]


def test_a_request_that_does_not_fit_is_edited_however_little_that_frees(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(work(30), counter)
    trace, _ = run(prepared, "in_batches(sliding_window(), 0, 1.0, tokens=5000)", 1500)
    assert max(trace.tokens) <= 1500


def test_without_a_minimum_a_model_is_called_only_for_runs(counter: TokenCounter) -> None:
    prepared = prepare_messages(work(60), counter)
    prepared.history.client = ScriptedClient(lambda _: "## Goal\nList everything.")
    strategy = in_batches(rolling_summary(0, 0.5, model="gpt-5-mini"), trigger=0.9)
    trace, sent = run(prepared, strategy, 2500)
    called = [call.request_index for call in trace.context.model_calls]
    assert 0 < len(called) < len(sent) / 4
    edited = {entry.since for entry in trace.context.edited_entries}
    assert edited <= set(called)


def test_a_headroom_is_the_free_part_of_the_limit(counter: TokenCounter) -> None:
    prepared = prepare_messages([Message("user", "go"), *talk(80)], counter)
    budget = Budget(1000, 100, prepared.fixed_tokens)
    free, _ = run(prepared, in_batches(sliding_window(), headroom=300), budget)
    same = (700 - prepared.fixed_tokens) / budget.available
    share, _ = run(prepared, in_batches(sliding_window(), trigger=same), budget)
    assert free.tokens == share.tokens
    assert 650 < max(free.tokens) <= 700


def test_a_trigger_above_1_is_a_number_of_tokens(counter: TokenCounter) -> None:
    prepared = prepare_messages([Message("user", "go"), *talk(80)], counter)
    trace, _ = run(prepared, in_batches(sliding_window(), trigger=600, target=300), 10**6)
    assert 550 < max(trace.tokens) - prepared.fixed_tokens <= 600


def test_a_trigger_beside_a_headroom_is_refused() -> None:
    with pytest.raises(SpecError, match=r"expected trigger or headroom, got trigger 0\.5 and"):
        parse_strategy("in_batches(panic(), trigger=0.5, headroom=100)")

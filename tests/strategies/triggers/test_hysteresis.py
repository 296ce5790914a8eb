"""Tests of ``hysteresis``: edits are rare and go down to the target."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies import hysteresis, observation_mask, panic, parse_strategy, sliding_window
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
    trace, sent = run(prepared, hysteresis(sliding_window(messages=0), 0.5, 0.2), budget)
    if all(prepared.history.tokens_before[s.position] <= 0.5 * budget.available for s in sent):
        assert [s.messages for s in sent] == [list(messages[: s.position]) for s in sent]
    assert len(trace.tokens) == len(sent)


def test_between_compactions_the_whole_previous_request_is_unchanged(counter: TokenCounter) -> None:
    prepared = prepare_messages([Message("user", "go"), *talk(80)], counter)
    trace, sent = run(prepared, "hysteresis(sliding_window())", 1000)
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
    sent = hysteresis(panic(), trigger=0.8, target=0.3)(context)
    assert sent is not context
    assert sent.tokens <= 300
    assert sent.available == context.available == 1000


def test_one_in_another_takes_shares_of_the_outer_budget(counter: TokenCounter) -> None:
    context = Context(Budget(1003), History(counter, [Message("user", "go"), *talk(40)]))
    context.advance(41)
    inner = hysteresis(sliding_window(), trigger=0.8, target=0.5)
    assert hysteresis(inner, trigger=0.8, target=0.5)(context).tokens <= 250
    assert context.available == 1000


def test_what_does_not_get_below_the_trigger_is_reported_and_asked_again_rarely(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages([Message("user", "go"), *talk(60)], counter)
    trace, sent = run(prepared, hysteresis(observation_mask(), trigger=0.5), 1500)
    said = [turn for turn, event in trace.context.events if "still above" in event]
    filling = [i for i, s in enumerate(sent) if 750 < sum(e.tokens for e in s.entries) <= 1490]
    assert said
    assert len([turn for turn in said if turn in filling]) < len(filling) / 2


def test_stuck_under_the_target_alone_is_not_reported_as_stuck(counter: TokenCounter) -> None:
    said = [Message("user", "word " * 600), Message("assistant", "ok"), Message("user", "and?")]
    context = Context(Budget(703), History(counter, said))
    context.advance(3)
    hysteresis(panic(), trigger=0.8, target=0.5)(context)
    assert [event for _, event in context.events] == [
        "panic",
        "hysteresis: still above the trigger",
    ]


def test_a_target_above_the_trigger_and_what_is_no_strategy_are_refused() -> None:
    with pytest.raises(SpecError, match=r"expected target <= trigger \(0\.8\), got target 0\.9"):
        parse_strategy("hysteresis(panic(), target=0.9)")
    with pytest.raises(SpecError, match="expected a strategy"):
        parse_strategy("hysteresis(3)")


def test_the_text_form_takes_a_pipeline() -> None:
    strategy = parse_strategy(
        "hysteresis(observation_mask(keep=3) | sliding_window(), trigger=0.7)"
    )
    assert strategy == hysteresis(observation_mask(3) | sliding_window(), 0.7)
    assert parse_strategy(repr(strategy)) == strategy


def test_a_plain_function_may_be_given_and_what_is_inside_is_printed_first() -> None:
    def newest(messages: list[Message]) -> list[Message]:
        return messages[-1:]

    assert repr(hysteresis(newest, trigger=0.9)) == "hysteresis(newest, trigger=0.9)"
    assert repr(hysteresis(panic() | panic(2))) == "hysteresis(panic() | panic(protect=2))"

"""Tests of pipelines, and of functions as strategies."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from generated import conversations, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run, strategies

from ctxlab.context.context import Context
from ctxlab.errors import SpecError, StrategyError
from ctxlab.evaluation.engine import replay_trace
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import (
    FunctionStrategy,
    Pipeline,
    Strategy,
    as_strategy,
    full,
    panic,
    tool_stubs,
)
from ctxlab.strategies.metric_controls import name_list
from ctxlab.tokens.counter import TokenCounter

PICKS = st.lists(st.integers(0, 40), max_size=15)


def last_two(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[-2:]


@given(messages=conversations(), picks=PICKS, extra=st.integers(0, 12), as_dicts=st.booleans())
def test_what_a_function_returns_is_what_is_sent_and_judged(
    messages: tuple[Message, ...],
    picks: list[int],
    extra: int,
    as_dicts: bool,
    counter: TokenCounter,
) -> None:
    returned: list[list[Any]] = []

    def shuffle(old: list[Message]) -> list[Any]:
        new: list[Any] = [old[i] for i in picks if i < len(old)]
        new.insert(extra % (len(new) + 1), Message("user", f"inserted {extra}"))
        new = [message.to_dict() if as_dicts else message for message in new]
        returned.append(new)
        old.clear()  # it is given a list of its own
        return new

    trace, requests = run(prepare_messages(messages, counter), shuffle, 500)
    assert trace.context.edited_entries == []
    for sent, wanted, faults, tokens in zip(
        requests, returned, trace.violation_counts, trace.tokens, strict=True
    ):
        made = [message_from_dict(m) if as_dicts else m for m in wanted]
        assert [m.to_dict() for m in sent.messages] == [m.to_dict() for m in made]
        assert tokens == counter.count_request(made)
        assert bool(faults) == bool(find_violations(made))


@given(messages=conversations(), first=PICKS, then=strategies())
def test_a_function_in_a_pipeline_is_judged_by_what_is_sent_at_last(
    messages: tuple[Message, ...], first: list[int], then: Strategy, counter: TokenCounter
) -> None:
    def pick(old: list[Message]) -> list[Message]:
        return [old[i] for i in first if i < len(old)]

    trace, requests = run(prepare_messages(messages, counter), as_strategy(pick) | then, 400)
    for sent, faults, tokens in zip(requests, trace.violation_counts, trace.tokens, strict=True):
        assert bool(faults) == bool(find_violations(sent.messages))
        assert tokens == counter.count_request(sent.messages)


def test_a_list_of_names_needs_no_newest_message(counter: TokenCounter) -> None:
    said = [Message("user", "go"), Message("assistant", "see a.py"), Message("user", "and b.py?")]
    prepared = prepare_messages((*said, Message("assistant", "no")), counter)
    _, requests = run(prepared, as_strategy(lambda old: old[:2]) | name_list(), 400)
    assert [message.text for message in requests[-1].messages] == ["go", "a.py"]


class EditsAtRandom:
    """Edits a context in place, in any way that edits can be made."""

    def __init__(self, edits: list[Any]) -> None:
        self.edits = edits

    def __call__(self, context: Context) -> Context:
        for what, place, message in self.edits:
            size = len(context.entries)
            if not size:
                break
            start = place % size
            if what == "drop":
                context.drop(start, start + 1)
            elif what == "fold":
                context.fold(start, min(size, start + 2), message)
            elif what == "insert":
                context.insert(start, message)
            else:
                context.replace(start, message)
        return context


ODD = st.sampled_from(
    [
        Message("user", "a note"),
        Message("system", "a late prompt"),
        Message("assistant", None),
        Message("tool", "42", tool_call_id="c0a"),
    ]
)


@given(
    messages=conversations(),
    edits=st.lists(
        st.tuples(st.sampled_from(["drop", "fold", "insert", "replace"]), st.integers(0, 30), ODD),
        max_size=3,
    ),
)
def test_edits_in_place_are_judged_as_a_look_at_the_request_judges_them(
    messages: tuple[Message, ...], edits: list[Any], counter: TokenCounter
) -> None:
    trace, requests = run(prepare_messages(messages, counter), EditsAtRandom(edits), 10**6)
    for sent, faults in zip(requests, trace.violation_counts, strict=True):
        assert bool(faults) == bool(find_violations(sent.messages))


def test_a_pipeline_is_flat_and_reads_as_it_is_written() -> None:
    flat = tool_stubs(keep=3) | panic() | full()
    assert flat == tool_stubs(keep=3) | (panic() | full())
    assert repr(flat) == "tool_stubs(keep=3) | panic() | full()"
    assert isinstance(flat, Pipeline)
    assert len({flat, tool_stubs(3) | panic() | full()}) == 1


def test_a_function_joins_a_pipeline_and_is_shown_by_its_name() -> None:
    both = tool_stubs() | last_two
    assert repr(both) == "tool_stubs() | last_two"
    assert pickle.loads(pickle.dumps(both)) == both
    assert as_strategy(last_two) == FunctionStrategy(last_two)
    assert as_strategy(both) is both
    assert isinstance(as_strategy(functools.partial(last_two)), FunctionStrategy)


@pytest.mark.parametrize("what", [panic, FunctionStrategy, 3, None, "panic()", [last_two]])
def test_what_is_no_strategy_is_refused(what: Any) -> None:
    with pytest.raises(SpecError, match="expected a strategy"):
        as_strategy(what)


def fails(messages: Sequence[Message]) -> Sequence[Message]:
    raise KeyError("oh")


def forgets_to_return(messages: Sequence[Message]) -> None:
    messages[:2]


def returns_numbers(messages: Sequence[Message]) -> list[int]:
    return [1]


class returns_nothing:
    def __call__(self, context: Context) -> None:
        return None


@pytest.mark.parametrize(
    "strategy",
    [fails, forgets_to_return, returns_numbers, returns_nothing(), full() | returns_nothing()],
)
def test_a_strategy_that_fails_is_named_with_recording_and_message(
    strategy: Callable[..., Any], counter: TokenCounter
) -> None:
    prepared = prepare_messages([Message("user", "a"), Message("assistant", "b")], counter)
    with pytest.raises(StrategyError, match=r"message 1 of r\b"):
        replay_trace(prepared, as_strategy(strategy), prepared.make_budget(100))

"""Tests of ``Context``: positions, invalid edits, and edits with special cases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cutting import safe_cuts
from generated import conversations, history_of
from hypothesis import given

from ctxlab.context.branch import Branch
from ctxlab.context.context import Budget, Context
from ctxlab.context.history import NEVER, Form
from ctxlab.errors import EditError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import panic
from ctxlab.tokens.counter import TokenCounter

COUNTER = TokenCounter("gpt-4o")


def context_of(*messages: Message, limit: int = 10**6) -> Context:
    context = Context(Budget(limit), history_of((), COUNTER))
    for message in messages:
        context.append(message)
    return context


def said(*texts: str) -> Context:
    return context_of(*(Message("user", text) for text in texts))


def halved(message: Message, _: ToolCall | None) -> Message | None:
    return message.replace(content=message.text[: len(message.text) // 2]) if message.text else None


@given(conversations())
def test_the_head_is_the_system_prompt_and_the_first_user_message(
    messages: tuple[Message, ...],
) -> None:
    context = context_of(*messages)
    assert context.first_droppable == 1 + next(
        i for i, m in enumerate(messages) if m.role == "user"
    )
    assert context.last_unit_start == safe_cuts(messages)[-1]
    context.drop(0, len(context.entries))
    assert (context.first_droppable, context.last_unit_start) == (0, 0)


def test_an_inserted_message_stands_before_the_place_where_it_was_inserted() -> None:
    context = said("a", "b", "c")
    context.insert(1, Message("user", "new"))
    # "The first entry that stands for the position or for what follows": that is b, whatever was
    # inserted before it, and whether or not something was dropped further on the left.
    assert context.messages[context.index_at_or_after(1)].content == "b"
    context.drop(0, 1)
    assert context.messages[context.index_at_or_after(1)].content == "b"


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.drop(1, 1),
        lambda c: c.drop(2, 1),
        lambda c: c.drop(0, 4),
        lambda c: c.drop(-1, 1),
        lambda c: c.fold(1, 1, Message("user", "s")),
        lambda c: c.fold(-1, 3, Message("user", "s")),
        lambda c: c.fold(0, 9, Message("user", "s")),
        lambda c: c.insert(4, Message("user", "s")),
        lambda c: c.insert(-1, Message("user", "s")),
        lambda c: c.replace(3, Message("user", "s")),
        lambda c: c.replace(-1, Message("user", "s")),
        lambda c: c.rewrite(3, halved, Form.TRUNCATED),
        lambda c: c.rewrite(-1, halved, Form.TRUNCATED),
        lambda c: c.fork().append(Message("user", "d")),
    ],
)
def test_an_edit_that_makes_no_sense_raises_and_changes_nothing(
    edit: Callable[[Context], Any],
) -> None:
    context = said("a", "b", "c")
    with pytest.raises(EditError):
        edit(context)
    assert [m.content for m in context.messages] == ["a", "b", "c"]
    assert context.tokens == sum(map(COUNTER.count_message, context.messages))
    assert (len(context.history), context.edited_entries, context.maybe_invalid) == (3, [], False)
    context.append(Message("user", "d"))
    assert len(context.entries) == 4


def test_only_the_next_message_of_a_shared_history_can_be_appended() -> None:
    history = history_of([Message("user", "a"), Message("user", "b")], COUNTER)
    context = Context(Budget(100), history)
    context.append(history[0])
    with pytest.raises(EditError):
        context.append(Message("user", "b"))
    context.append(history[1])
    assert context.messages == list(history)


CALL = Message("assistant", None, tool_calls=(ToolCall("c1", "f"),))
RESULT = Message("tool", "42", tool_call_id="c1")


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.replace(1, Message("assistant", "")),
        lambda c: c.replace(2, Message("user", "42")),
        lambda c: c.replace(2, RESULT.replace(tool_call_id="c2")),
        lambda c: c.replace(1, CALL.replace(tool_calls=(ToolCall("c2", "f"),))),
        lambda c: c.replace(3, Message("user", None)),
        lambda c: c.fold(3, 4, Message("user", "")),
        lambda c: c.fold(3, 4, Message("system", "late")),
        lambda c: c.fold(3, 4, RESULT),
        lambda c: c.fold(1, 3, CALL),
        lambda c: c.insert(2, Message("user", "between a call and its result")),
        lambda c: c.insert(4, Message("system", "late")),
        lambda c: c.insert(4, RESULT),
        lambda c: c.insert(4, CALL),
        lambda c: c.insert(4, Message("user", None)),
    ],
)
def test_an_edit_that_provenance_cannot_judge_marks_the_context_as_maybe_invalid(
    edit: Callable[[Context], Any],
) -> None:
    context = context_of(Message("user", "a"), CALL, RESULT, Message("user", "b"))
    edit(context)
    assert context.maybe_invalid


def test_a_message_inserted_before_the_system_prompt_makes_the_prompt_late() -> None:
    context = context_of(Message("system", "be good"), Message("user", "a"))
    context.insert(0, Message("user", "a note"))
    assert context.maybe_invalid


def test_equal_strategies_share_what_was_rewritten_once() -> None:
    history = history_of([Message("tool", "x" * 9000)], COUNTER)
    one, _ = history.get_rewrite_cache(panic().shorten).apply(history.entries[0])
    other, _ = history.get_rewrite_cache(panic().shorten).apply(history.entries[0])
    assert one is other


def test_a_message_that_takes_the_place_of_an_equal_one_is_unchanged() -> None:
    context = said("a", "try again", "try again", "b")
    context.commit_request(context)
    context.drop(1, 2)
    assert context.unchanged_tokens == sum(entry.tokens for entry in context.entries[:2])


def test_the_idle_time_is_known_only_between_two_requests_with_times() -> None:
    context = said("a", "b")
    hours = [9, None, 10, 12, 11, 13]
    found = []
    for hour in hours:
        context.set_time(None if hour is None else datetime(2025, 5, 1, hour, tzinfo=UTC))
        found.append(context.idle)
        assert context.fork().idle == Branch(context).idle == context.idle
        context.commit_request(context)
    # A time before that of the previous request counts as that time: 12, 12, 13.
    assert found == [None, None, None, timedelta(hours=2), timedelta(0), timedelta(hours=1)]
    with pytest.raises(EditError, match="expected a time with a time zone"):
        context.set_time(datetime(2025, 5, 1))


def test_adopted_edits_are_refused_if_a_message_is_gone_and_change_nothing() -> None:
    context = said("a", "b", "c")
    before, prepared = context.entries.copy(), context.fork()
    prepared.drop(0, 1)
    context.drop(1, 2)
    left = context.messages
    assert not context.adopt(before, prepared.entries)
    assert context.messages == left
    assert context.dropped_at == [NEVER, 0, NEVER]


def test_adopted_edits_keep_what_was_rewritten_meanwhile() -> None:
    context = said("a", "b", "c")
    before, prepared = context.entries.copy(), context.fork()
    prepared.fold(0, 1, Message("user", "summary of a"))
    context.commit_request(context)
    context.replace(1, Message("user", "short b"))
    context.append(Message("user", "d"))
    assert context.adopt(before, prepared.entries)
    assert [m.content for m in context.messages] == ["summary of a", "short b", "c", "d"]
    assert context.tokens == sum(map(context.history.counter.count_message, context.messages))
    assert [(e.message.content, e.since) for e in context.edited_entries] == [
        ("short b", 1),
        ("summary of a", 1),
    ]
    assert context.unchanged_tokens == 0

"""Tests of the hypothesis strategies that other tests use."""

from __future__ import annotations

import pytest
from generated import conversations, prepare_messages, strange_conversations
from hypothesis import Phase, find, given, settings

from ctxlab.messages.types import Message
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.counter import TokenCounter

_FEW = settings(max_examples=500, database=None, derandomize=True, phases=[Phase.generate])


@given(conversations())
def test_generated_conversations_are_valid(messages: tuple[Message, ...]) -> None:
    assert is_valid(messages)


def test_strange_conversations_break_rules() -> None:
    assert find(strange_conversations(), lambda m: not is_valid(m), settings=_FEW)


@pytest.mark.properties
def test_generated_conversations_have_needs_of_every_origin(counter: TokenCounter) -> None:
    for origin in ("user", "tool", "assistant"):

        def has(messages: tuple[Message, ...], origin: str = origin) -> bool:
            needs = prepare_messages(messages, counter).needs
            return any(needs.get_need(i).origin_role == origin for i in range(len(needs)))

        assert find(conversations(), has, settings=_FEW)

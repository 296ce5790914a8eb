"""Tests of branches: each contains a part of a conversation, keeps its edits, and counts its tokens."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import EditError
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.types import Message
from ctxlab.tokens.counter import TokenCounter


class even_and_odd:
    """Strategy that assigns units to two branches alternately; both branches contain the head."""

    def __call__(self, context: Context) -> Context:
        state = context.strategy_state.setdefault(self, {"done": 0, "which": 0, "branches": {}})
        starts = context.history.unit_starts
        for position in range(state["done"], context.history_length):
            if starts[position] == position and position >= context.history.head_length:
                state["which"] += 1
            for key in (0, 1):
                branch = state["branches"].get(key) or Branch(context)
                state["branches"][key] = branch
                branch.sync(context)
                if position < context.history.head_length or key == state["which"] % 2:
                    branch.add_from_history(position)
        state["done"] = context.history_length
        branch = state["branches"][state["which"] % 2]
        branch.sync(context)
        return branch


@given(messages=conversations(), limit=limits())
def test_what_is_sent_from_a_branch_is_counted_and_compared_as_it_is(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, even_and_odd(), limit)
    before: list[Message] = []
    for tokens, unchanged, sent in zip(
        trace.tokens, trace.unchanged_prefix_tokens, requests, strict=True
    ):
        assert tokens == counter.count_request(sent.messages)
        same = 0
        while same < min(len(before), len(sent.messages)) and before[same] == sent.messages[same]:
            same += 1
        assert unchanged == sum(map(counter.count_message, sent.messages[:same]))
        before = sent.messages
    seen = measure_need_visibility(prepared.needs, [trace]).in_view[0]
    whole = measure_need_visibility(
        prepared.needs, [run(prepared, lambda messages: messages, limit)[0]]
    ).in_view[0]
    assert not (seen & ~whole).any()


def test_an_edit_of_a_branch_is_there_when_it_is_resumed(counter: TokenCounter) -> None:
    prepared = prepare_messages([Message("user", str(i)) for i in range(6)], counter)
    trunk = Context(prepared.make_budget(1000), prepared.history)
    trunk.advance(4)
    branch = Branch(trunk)
    for position in (0, 2):
        branch.add_from_history(position)
    branch.replace(1, Message("user", "changed"), Form.TRUNCATED)
    trunk.commit_request(branch)
    trunk.advance(6)
    branch.sync(trunk)
    branch.add_from_history(5)
    assert [m.content for m in branch.messages] == ["0", "changed", "5"]
    assert branch.unchanged_tokens == sum(entry.tokens for entry in branch.entries[:2])
    assert [m.content for m in trunk.messages] == ["0", "1", "2", "3", "4", "5"]
    assert branch.tokens == sum(map(counter.count_message, branch.messages))


def test_messages_of_a_branch_are_in_the_order_of_the_history(counter: TokenCounter) -> None:
    prepared = prepare_messages([Message("user", str(i)) for i in range(3)], counter)
    trunk = Context(prepared.make_budget(1000), prepared.history)
    trunk.advance(3)
    branch = Branch(trunk)
    branch.add_from_history(1)
    for position in (0, 1):
        with pytest.raises(EditError, match="out of order"):
            branch.add_from_history(position)

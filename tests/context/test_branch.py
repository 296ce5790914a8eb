"""A branch holds a part of a conversation, keeps its edits, and is measured as it is sent."""

from __future__ import annotations

import pytest
from generated import conversations, limits, tape_of
from hypothesis import given
from replaying import run

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import EditError
from ctxlab.evaluation.metrics.recall import tiers
from ctxlab.messages.types import Message
from ctxlab.tokens.counter import TokenCounter


class even_and_odd:
    """Routes whole units to two branches in turn; both hold the head."""

    def __call__(self, context: Context) -> Context:
        state = context.notes.setdefault(self, {"done": 0, "which": 0, "branches": {}})
        starts = context.history.starts
        for position in range(state["done"], context.length):
            if starts[position] == position and position >= context.history.head:
                state["which"] += 1
            for key in (0, 1):
                branch = state["branches"].get(key) or Branch(context)
                state["branches"][key] = branch
                branch.resume(context)
                if position < context.history.head or key == state["which"] % 2:
                    branch.take(position)
        state["done"] = context.length
        branch = state["branches"][state["which"] % 2]
        branch.resume(context)
        return branch


@given(messages=conversations(), limit=limits())
def test_what_is_sent_from_a_branch_is_counted_and_compared_as_it_is(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    tape = tape_of(messages, counter)
    trace, requests = run(tape, even_and_odd(), limit)
    before: list[Message] = []
    for tokens, unchanged, sent in zip(trace.tokens, trace.unchanged, requests, strict=True):
        assert tokens == counter.request(sent.messages)
        same = 0
        while same < min(len(before), len(sent.messages)) and before[same] == sent.messages[same]:
            same += 1
        assert unchanged == sum(map(counter.message, sent.messages[:same]))
        before = sent.messages
    seen = tiers(tape.needs, [trace]).seen[0]
    whole = tiers(tape.needs, [run(tape, lambda messages: messages, limit)[0]]).seen[0]
    assert not (seen & ~whole).any()


def test_an_edit_of_a_branch_is_there_when_it_is_resumed(counter: TokenCounter) -> None:
    tape = tape_of([Message("user", str(i)) for i in range(6)], counter)
    trunk = Context(tape.budget(1000), tape.history)
    trunk.advance(4)
    branch = Branch(trunk)
    for position in (0, 2):
        branch.take(position)
    branch.replace(1, Message("user", "changed"), Form.TRUNCATED)
    trunk.settle(branch)
    trunk.advance(6)
    branch.resume(trunk)
    branch.take(5)
    assert [m.content for m in branch.messages] == ["0", "changed", "5"]
    assert branch.unchanged == sum(entry.tokens for entry in branch.entries[:2])
    assert [m.content for m in trunk.messages] == ["0", "1", "2", "3", "4", "5"]
    assert branch.tokens == sum(map(counter.message, branch.messages))


def test_messages_of_a_branch_are_in_the_order_of_the_history(counter: TokenCounter) -> None:
    tape = tape_of([Message("user", str(i)) for i in range(3)], counter)
    trunk = Context(tape.budget(1000), tape.history)
    trunk.advance(3)
    branch = Branch(trunk)
    branch.take(1)
    for position in (0, 1):
        with pytest.raises(EditError, match="out of order"):
            branch.take(position)

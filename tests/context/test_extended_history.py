"""Tests of a recorded history with messages added between the recorded ones."""

from __future__ import annotations

from generated import conversations, history_of
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.context.context import Budget, Context
from ctxlab.context.extended_history import ExtendedHistory
from ctxlab.context.history import Form, History
from ctxlab.messages.types import Compaction, Message, Substitute, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

COUNTER = TokenCounter("gpt-4o")


@given(conversations(), st.data())
def test_it_equals_a_history_of_the_same_messages(
    messages: tuple[Message, ...], data: st.DataObject
) -> None:
    recorded = history_of(messages, COUNTER)
    extended = ExtendedHistory(recorded)
    for length in sorted(data.draw(st.sets(st.integers(0, len(messages))))):
        extended.append_recorded(length)
        extra = Message("user", f"added at {length}")
        extended.add(extra, COUNTER.count_message(extra))
    alike = History(COUNTER, list(extended))
    for name in (
        "tokens_before",
        "unit_starts",
        "result_positions",
        "user_positions",
        "head_length",
    ):
        assert getattr(extended, name) == getattr(alike, name)
    assert extended.calls_by_result == alike.calls_by_result
    for place, position in enumerate(extended.positions):
        assert extended[position] is messages[place]
        assert extended.recorded_positions[position] == place


def test_rewrites_of_recorded_messages_are_shared_and_those_of_others_are_not() -> None:
    call = ToolCall("c1", "Read", '{"file_path": "a.py"}')
    said = [
        Message("user", "go"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "x = 1\n" * 500, tool_call_id="c1"),
    ]
    recorded = History(COUNTER, said)
    extended = ExtendedHistory(recorded)
    extended.append_recorded(1)
    again = ToolCall("c2", "Read", '{"file_path": "b.py"}')
    extended.add(Message("assistant", tool_calls=(again,)), 9)
    extended.add(Message("tool", "y = 2\n" * 500, tool_call_id="c2"), 999)
    extended.append_recorded(3)
    strategy = parse_strategy("tool_stubs(keep=0)")
    context = Context(Budget(10**6), extended)
    context.advance(len(extended))
    sent = strategy(context)
    stubs = [entry for entry in sent.entries if entry.form is Form.STUB]
    assert [entry.start for entry in stubs] == [2, 4]
    assert "y = 2" in stubs[0].message.text
    assert "x = 1" in stubs[1].message.text
    original = Context(Budget(10**6), recorded)
    original.advance(len(recorded))
    assert strategy(original).entries[2].message is stubs[1].message


def test_compactions_are_translated_when_they_are_due() -> None:
    said = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    recorded = History(COUNTER, [*said, Message("assistant", "d")])
    kept = Substitute(Message("user", "short"), 2)
    recorded.compactions = (Compaction(3, (0, kept, 1)),)
    extended = ExtendedHistory(recorded)
    extended.append_recorded(1)
    extended.add(Message("user", "new"), 4)
    extended.append_recorded(2)
    assert extended.compactions == ()
    extended.append_recorded(3)
    assert extended.compactions == (Compaction(4, (0, Substitute(kept.message, 3), 2)),)

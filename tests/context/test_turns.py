"""Tests of turns and steps: what counts as one, stable numbers, labels, and one-line descriptions."""

from __future__ import annotations

from itertools import groupby

import pytest
from generated import conversations, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.context.history import History
from ctxlab.context.turns import (
    MAX_HEADLINE_CHARS,
    TurnCounter,
    TurnLabel,
    contents_label,
    headline,
    set_turn_offset,
    step_at,
    steps_between,
    turn_span,
)
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter


def step(name: str, *results: str) -> list[Message]:
    calls = tuple(ToolCall(f"c{i}", name, '{"path": "a.py"}') for i in range(len(results)))
    answers = [Message("tool", text, tool_call_id=f"c{i}") for i, text in enumerate(results)]
    return [Message("assistant", None, tool_calls=calls), *answers]


def labels(history: History) -> list[str]:
    return [str(step_at(history, position)) for position in range(len(history))]


def test_a_user_message_begins_a_turn_and_each_reply_is_a_step_of_it(counter: TokenCounter) -> None:
    """Seed 003, turns: each interaction gets a turn number, from 1."""
    talk = [
        *(Message("system", "Be brief."), Message("user", "go"), *step("read", "1", "2")),
        *(*step("grep", "3"), Message("assistant", "done")),
        *(Message("user", "first"), Message("user", "second"), Message("assistant", "yes")),
    ]
    history = History(counter, talk)
    first = ["0", "1.1", "1.1", "1.1", "1.1", "1.2", "1.2", "1.3"]
    assert labels(history) == [*first, "2.1", "3.1", "3.1"]
    assert turn_span(history, TurnLabel(1)) == (1, 8)
    assert turn_span(history, TurnLabel(1, 2)) == (5, 7)
    assert turn_span(history, TurnLabel(3)) == turn_span(history, TurnLabel(3, 1)) == (9, 11)
    unknown = (TurnLabel(0), TurnLabel(4), TurnLabel(1, 4), TurnLabel(3, 2))
    assert {turn_span(history, label) for label in unknown} == {(11, 11)}


def test_an_assistant_that_speaks_first_begins_turn_1(counter: TokenCounter) -> None:
    roles = ("system", "assistant", "assistant", "user", "assistant")
    history = History(counter, [Message(role, "said") for role in roles])
    assert labels(history) == ["0", "1.1", "1.2", "2.1", "2.1"]


@given(messages=conversations() | strange_conversations())
def test_every_message_is_in_exactly_one_step_of_one_turn(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    history = History(counter, messages)
    steps = list(steps_between(history, 0, len(messages)))
    assert steps == sorted(set(steps))
    before = turn_span(history, steps[0])[0] if steps else len(messages)
    assert all(message.role not in ("user", "assistant") for message in messages[:before])
    for spans in (
        [turn_span(history, label) for label in steps],
        [turn_span(history, TurnLabel(turn)) for turn in sorted({label.turn for label in steps})],
    ):
        assert [at for span in spans for at in range(*span)] == [*range(before, len(messages))]
    # Turns are numbered without a gap, and so are the steps of each turn.
    turns = [[label.step for label in own] for _, own in groupby(steps, lambda each: each.turn)]
    assert [label.turn for label in steps if label.step == 1] == [*range(1, len(turns) + 1)]
    assert all(numbers == [*range(1, len(numbers) + 1)] for numbers in turns)


@given(messages=conversations() | strange_conversations())
def test_each_user_message_begins_a_turn_and_each_later_reply_a_step(
    messages: tuple[Message, ...],
) -> None:
    counter, before = TurnCounter(), TurnLabel(0)
    replied = False
    for message in messages:
        label = counter.add(message)
        if message.role == "user" or (message.role == "assistant" and not before.turn):
            assert label == (before.turn + 1, 1)
        elif message.role == "assistant" and replied:
            assert label == (before.turn, before.step + 1)
        else:
            assert label == before
        replied = message.role == "assistant" or (replied and message.role != "user")
        before = label


@given(messages=conversations() | strange_conversations())
def test_numbers_do_not_change_as_the_conversation_goes_on(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    whole, growing = History(counter, messages), History(counter)
    for position, message in enumerate(messages):
        growing.append(message)
        assert step_at(growing, position) == step_at(whole, position)


@given(messages=conversations() | strange_conversations(), data=st.data())
def test_a_history_that_begins_later_has_the_same_numbers(
    messages: tuple[Message, ...], data: st.DataObject, counter: TokenCounter
) -> None:
    cut = data.draw(st.integers(0, len(messages)))
    before = TurnCounter()
    for message in messages[:cut]:
        before.add(message)
    whole = History(counter, messages)
    rest = History(counter, [Message("user", "a summary"), *messages[cut:]])
    set_turn_offset(rest, 1, before)
    for position in range(cut, len(messages)):
        assert step_at(rest, position - cut + 1) == step_at(whole, position)
    assert step_at(rest, 0) == (before.turn, before.step)


@given(messages=conversations())
def test_in_a_valid_conversation_a_step_parts_no_call_from_its_results(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    history = History(counter, messages)
    starts = [turn_span(history, each)[0] for each in steps_between(history, 0, len(messages))]
    assert all(history.unit_starts[start] == start for start in starts)


@given(messages=conversations() | strange_conversations(), data=st.data())
def test_a_contents_label_depends_only_on_the_messages_that_exist(
    messages: tuple[Message, ...], data: st.DataObject, counter: TokenCounter
) -> None:
    length = data.draw(st.integers(0, len(messages)))
    whole, so_far = History(counter, messages), History(counter, messages[:length])
    for label in steps_between(so_far, 0, length):
        shown = contents_label(whole, label, length)
        assert shown == contents_label(so_far, label, length)
        later = turn_span(so_far, TurnLabel(label.turn + 1))[0] < length
        only = turn_span(so_far, TurnLabel(label.turn, 2))[0] == length
        assert shown == (TurnLabel(label.turn) if later and only else label)


@given(turn=st.integers(1, 10**18 - 1), number=st.integers(0, 10**18 - 1))
def test_a_label_reads_back(turn: int, number: int) -> None:
    label = TurnLabel(turn, number)
    assert TurnLabel.parse(str(label)) == TurnLabel.parse(f" {label}\n") == label
    assert TurnLabel.parse(turn) == TurnLabel(turn)


@pytest.mark.parametrize(
    "written",
    *[
        (
            "",
            "0",
            "3.0",
            "-1",
            "3.",
            ".2",
            "3.2.1",
            "3,2",
            "three",
            "٣",
            0,
            -1,
            True,
            None,
            3.2,
            "1" * 99,
        )
    ],
)
def test_what_is_no_label_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(
        SpecError, match=r"Expected a turn such as 3 or a step such as 3\.2, got "
    ) as e:
        TurnLabel.parse(written)
    assert len(str(e.value)) < 130


@given(messages=strange_conversations())
def test_a_line_is_one_line_of_at_most_100_characters_that_says_something(
    messages: tuple[Message, ...],
) -> None:
    line = headline(messages)
    assert line
    assert len(line) <= MAX_HEADLINE_CHARS
    assert len(line.splitlines()) == 1


def test_a_line_without_a_model_is_the_first_line_of_prompt_or_response() -> None:
    talk = [Message("user", "\n Fix it, please \nnow"), Message("assistant", "Done.\nAll of it.")]
    assert headline(talk) == "Fix it, please"
    assert headline(talk[1:]) == "Done."
    assert headline([]) == "(nothing was said)"


def test_a_step_is_named_by_its_tools_and_their_main_arguments() -> None:
    calls = (
        ToolCall("1", "Bash", '{"description": "tests", "command": "pytest -x"}'),
        ToolCall("2", "Edit", '{"old_string": "a", "file_path": "src/io.py"}'),
        ToolCall("3", "think", '{"thought": "' + "hm " * 99 + '"}'),
    )
    line = headline([Message("assistant", "Let me see", tool_calls=calls)])
    assert line == "Bash pytest -x · Edit src/io.py · think hm hm hm hm hm hm hm hm hm…"

"""Tests of turns: what counts as a turn, stable turn numbers, and one-line descriptions."""

from __future__ import annotations

from generated import conversations, strange_conversations
from hypothesis import given

from ctxlab.context.history import History
from ctxlab.context.turns import MAX_HEADLINE_CHARS, headline, turn_at, turn_span, turn_starts
from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter


def step(name: str, *results: str) -> list[Message]:
    calls = tuple(ToolCall(f"c{i}", name, '{"path": "a.py"}') for i in range(len(results)))
    answers = [Message("tool", text, tool_call_id=f"c{i}") for i, text in enumerate(results)]
    return [Message("assistant", None, tool_calls=calls), *answers]


def test_a_users_message_with_its_reply_is_a_turn_and_each_further_step_is_one(
    counter: TokenCounter,
) -> None:
    talk = [
        *(Message("system", "Be brief."), Message("user", "go"), *step("read", "1", "2")),
        *(*step("grep", "3"), Message("assistant", "done")),
        *(Message("user", "first"), Message("user", "second"), Message("assistant", "yes")),
    ]
    history = History(counter, talk)
    assert list(turn_starts(history)) == [1, 5, 7, 8, 9]
    assert [turn_at(history, i) for i in range(11)] == [0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 5]
    assert turn_span(history, 1) == (1, 5)
    assert turn_span(history, 5) == (9, 11)
    assert turn_span(history, 0) == turn_span(history, 6) == (11, 11)


@given(messages=conversations() | strange_conversations())
def test_numbers_do_not_change_as_the_conversation_goes_on(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    whole, growing = History(counter, messages), History(counter)
    for position, message in enumerate(messages):
        growing.append(message)
        assert turn_at(growing, position) == turn_at(whole, position)
    assert list(turn_starts(growing)) == list(turn_starts(whole))


@given(messages=conversations())
def test_in_a_valid_conversation_a_turn_parts_no_call_from_its_results(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    history = History(counter, messages)
    assert all(history.unit_starts[start] == start for start in turn_starts(history))
    spans = [turn_span(history, n + 1) for n in range(len(turn_starts(history)))]
    assert [at for start, stop in spans for at in range(start, stop)] == [
        *range(spans[0][0] if spans else 0, len(messages) if spans else 0)
    ]


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

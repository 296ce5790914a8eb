"""Whatever piece of a conversation is asked for can be sent."""

from __future__ import annotations

from generated import conversations, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.resume_messages import INTERRUPTED_RESULT, pair_tool_results

A, B = ToolCall("a", "read", '{"path": "a.py"}'), ToolCall("b", "run", "{}")


def calls(*made: ToolCall) -> Message:
    return Message("assistant", tool_calls=made)


def result(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)


@given(strange_conversations(), st.data())
def test_any_piece_of_any_conversation_is_one_that_a_provider_takes(
    messages: tuple[Message, ...], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    sent = pair_tool_results(messages[start:stop])
    # What is left is no matter of pairs: who speaks first, and where system messages stand.
    rules = {violation.rule for violation in find_violations(sent)}
    assert rules <= {"late_system", "starts_with_user", "empty_request"}
    assert pair_tool_results(sent) == sent
    first = [m for m in sent if m.role != "system"][:1]
    if first and first[0].role == "user" and not rules & {"late_system"}:
        assert not rules


@given(conversations())
def test_what_is_valid_stays_as_it_is(messages: tuple[Message, ...]) -> None:
    said = [m for m in messages if m.role == "tool" or m.content or m.tool_calls]
    assert pair_tool_results(said) == tuple(said)


@given(strange_conversations())
def test_nothing_is_made_up_but_results_that_say_they_were_interrupted(
    messages: tuple[Message, ...],
) -> None:
    known = list(messages)
    assert all(m in known or m.content == INTERRUPTED_RESULT for m in pair_tool_results(messages))


def test_an_unanswered_call_gets_a_result_that_says_so() -> None:
    """Issue 6, done when: no unpaired tool message after resume."""
    sent = pair_tool_results([Message("user", "go"), calls(A, B), result("b", "ok")])
    assert [(m.role, m.tool_call_id, m.content) for m in sent[2:]] == [
        ("tool", "b", "ok"),
        ("tool", "a", INTERRUPTED_RESULT),
    ]
    assert sent[3].name == "read"


def test_a_result_without_its_call_is_left_out() -> None:
    assert pair_tool_results([result("a", "x"), Message("user", "hi"), result("b", "y")]) == (
        Message("user", "hi"),
    )


def test_a_result_that_came_late_stands_after_its_call() -> None:
    late = [calls(A), Message("user", "wait"), result("a", "x")]
    assert pair_tool_results(late) == (late[0], late[2], late[1])


def test_two_agents_that_wrote_in_turns_keep_their_results() -> None:
    mixed = [calls(A), calls(B), result("a", "of a"), result("b", "of b")]
    assert pair_tool_results(mixed) == (mixed[0], mixed[2], mixed[1], mixed[3])


def test_an_id_that_is_used_again_means_the_newest_call() -> None:
    again = [calls(A), calls(A), result("a", "x")]
    sent = pair_tool_results(again)
    assert [m.content for m in sent] == [None, INTERRUPTED_RESULT, None, "x"]

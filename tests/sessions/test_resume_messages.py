"""Tests of the message at the start of a resumed context, which describes its state."""

from __future__ import annotations

import json

from generated import conversations, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.base import AgentPlan, ResumeState
from ctxlab.sessions.resume_messages import (
    CONTINUE_INSTRUCTION,
    INTERRUPTED_RESULT,
    build_resume_message,
    build_resumed_messages,
    has_cut_images,
    pair_tool_results,
    restore_images,
    trim_message,
)
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow
from ctxlab.strategies.tool_stubs import make_stub

HI = Message("user", "hi")
PLAN = AgentPlan(("read", "fix", "test"), current=1)
A, B = ToolCall("a", "read", '{"path": "a.py"}'), ToolCall("b", "run", "{}")


def calls(*made: ToolCall) -> Message:
    return Message("assistant", tool_calls=made)


def result(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)


def test_a_stub_after_a_resume_tells_what_the_result_was_before_it_was_cut() -> None:
    """Seed 000, testing 4: status, number of results and files."""
    for value in ({"hits": [{"path": f"n{i}.md"} for i in range(900)]}, {"error": "x" * 9000}):
        whole = result("a", json.dumps(value))
        cut = trim_message(whole, 4000)
        stub, expected = make_stub(cut, A), make_stub(whole, A)
        assert len(cut.text) <= 4000
        assert stub is not None
        assert expected is not None
        assert stub.text == expected.text


def test_the_message_says_summary_current_step_and_to_continue() -> None:
    """Seed 004, resume: the single engine-authored message."""
    message = build_resume_message(ResumeState("- user: Fix it", (HI,), PLAN))
    assert message is not None
    assert message.role == "user"
    assert "- user: Fix it" in message.text
    assert "Current step of the plan (2 of 3): fix" in message.text
    assert message.text.endswith(CONTINUE_INSTRUCTION)


def test_a_conversation_that_is_there_whole_needs_no_message() -> None:
    assert build_resume_message(ResumeState("", (HI, Message("assistant", "hello")))) is None
    assert build_resume_message(ResumeState()) is None
    assert build_resumed_messages(ResumeState("", (HI,))) == (HI,)


def test_what_the_plan_waits_for_is_said_and_a_broken_plan_is_not() -> None:
    waits = build_resume_message(
        ResumeState(plan=AgentPlan(("a",), 0, awaiting_continuation=True, paused=True))
    )
    assert waits is not None
    assert "a (it waits to be continued) (it is paused)" in waits.text
    assert build_resume_message(ResumeState(plan=AgentPlan(("a",), 7))) is None


def test_where_the_user_does_not_speak_first_the_engine_does() -> None:
    recent = (Message("system", "Be brief."), Message("assistant", "Done."))
    assert [m.role for m in build_resumed_messages(ResumeState("", recent))] == [
        "system",
        "user",
        "assistant",
    ]


@given(conversations())
def test_what_a_context_is_seeded_with_is_valid_for_every_provider(
    messages: tuple[Message, ...],
) -> None:
    window = ResumeWindow(ResumeCaps(messages=4))
    window.extend(messages)
    sent = build_resumed_messages(window.resume_state(PLAN))
    assert not find_violations(sent)


@given(strange_conversations())
def test_no_pair_is_broken_whatever_was_stored(messages: tuple[Message, ...]) -> None:
    """Issue 6, done when: no unpaired tool message after resume."""
    window = ResumeWindow(ResumeCaps(messages=5))
    window.extend(messages)
    sent = build_resumed_messages(window.resume_state())
    assert pair_tool_results(sent) == sent


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


def test_the_newest_messages_with_images_get_them_back() -> None:
    def shown(text: str) -> Message:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text[:4]}"}}
        return Message("user", ({"type": "text", "text": text}, image))

    plain = Message("user", "two " * 99 + "and now?")
    stored = [
        shown("one"),
        shown("two " * 99),
        plain,
        Message("assistant", "Seen."),
        shown("three"),
    ]
    cut = [trim_message(message, 100) for message in stored]
    assert has_cut_images(cut[1:2])
    first, second, *others, last = restore_images(cut, stored, most=2)
    assert (first, others, last) == (cut[0], cut[2:4], stored[4])
    text, image = second.content
    assert text == {"type": "text", "text": cut[1].text}
    assert image == stored[1].content[1]

"""A resumed context begins with one message of the engine's that says where things stand."""

from __future__ import annotations

from generated import conversations, strange_conversations
from hypothesis import given

from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.base import AgentPlan, ResumeState
from ctxlab.sessions.resume_messages import (
    CONTINUE_INSTRUCTION,
    build_resume_message,
    build_resumed_messages,
    pair_tool_results,
)
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow

HI = Message("user", "hi")
PLAN = AgentPlan(("read", "fix", "test"), current=1)


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

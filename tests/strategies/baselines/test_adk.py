"""Tests of the Google ADK baseline, which leaves out earlier turns."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter


@given(messages=conversations(), limit=limits())
def test_the_system_prompt_and_the_current_turn_are_sent(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    trace, sent = run(prepare_messages(messages, counter), "adk.include_contents_none()", limit)
    assert not any(trace.violation_counts)
    for request in sent:
        before = messages[: request.position]
        turn = max(i for i, m in enumerate(before) if m.role == "user")
        kept = [*(m for m in before[:turn] if m.role == "system"), *before[turn:]]
        assert request.messages == kept


def turns(count: int) -> list[Message]:
    talk = [Message("system", "You are an agent.")]
    for i in range(count):
        call = Message("assistant", None, tool_calls=(ToolCall(f"c{i}", "look"),))
        result = Message("tool", f"secret{i} " * 40, tool_call_id=f"c{i}")
        talk += [Message("user", f"question {i} " * 20), call, result]
        talk.append(Message("assistant", f"answer {i} " * 20))
    return talk


def test_every_few_turns_become_a_summary_of_their_own(counter: TokenCounter) -> None:
    talk = turns(9)
    sent = run(prepare_messages(talk, counter), "adk.compaction()", 10**6)[1][-1].messages
    assert [m.text[:12] for m in sent[:3]] == ["You are an a", "For context:", "For context:"]
    assert sent[3:] == talk[25:-1]
    assert "answer 2" in sent[1].text
    # The turn before is in the second summary as well.
    assert "question 2" in sent[2].text
    assert "question 1" not in sent[2].text


def test_a_summary_never_saw_what_the_tools_gave(counter: TokenCounter) -> None:
    sent = run(prepare_messages(turns(9), counter), "adk.compaction()", 10**6)[1][-1].messages
    assert not any("secret" in m.text for m in sent if m.role == "user")


@given(messages=conversations(turns=6), limit=limits())
def test_a_compaction_leaves_a_valid_request(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    for spec in ("adk.compaction(compaction_interval=1, overlap_size=0)", "adk.compaction()"):
        trace, _ = run(prepare_messages(messages, counter), spec, limit)
        assert not any(trace.violation_counts)

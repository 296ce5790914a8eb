"""Tests of the Google ADK baseline, which leaves out earlier turns."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
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
    assert [m.role for m in sent[:3]] == ["system", "assistant", "assistant"]
    assert sent[3:] == talk[25:-1]
    assert "answer 2" in sent[1].text
    # The turn before is in the second summary as well.
    assert "question 2" in sent[2].text
    assert "question 1" not in sent[2].text


def test_turns_that_are_smaller_than_the_last_summary_are_not_compacted(
    counter: TokenCounter,
) -> None:
    short = [Message("user" if i % 2 == 0 else "assistant", f"word {i}") for i in range(13)]
    talk = [*turns(3), *short]
    sent = run(prepare_messages(talk, counter), "adk.compaction()", 10**6)[1][-1].messages
    assert len([m for m in sent if m not in talk]) == 1
    assert sent[-11:] == short[:11]


def test_a_call_without_a_result_is_left_out_until_the_result_comes(counter: TokenCounter) -> None:
    calls = (ToolCall("a", "look"), ToolCall("b", "look"))
    result = Message("tool", "seen", tool_call_id="a")
    talk = [
        Message("user", "Look."),
        Message("assistant", "I look.", tool_calls=calls),
        result,
        Message("assistant", "Wait."),
        result.replace(tool_call_id="b"),
        Message("assistant", "Done."),
    ]
    for spec in ("adk.compaction()", "adk.include_contents_none()"):
        sent = run(prepare_messages(talk, counter), spec, 10**6)[1]
        assert [call.id for call in sent[-2].messages[1].tool_calls] == ["a"]
        assert [call.id for call in sent[-1].messages[1].tool_calls] == ["a", "b"]


def test_a_result_without_a_call_is_left_out(counter: TokenCounter) -> None:
    orphan = Message("tool", "seen", tool_call_id="a")
    talk = [
        Message("user", "Look."),
        orphan,
        Message("user", "Go on."),
        Message("assistant", "Yes."),
    ]
    sent = run(prepare_messages(talk, counter), "adk.compaction()", 10**6)[1][-1].messages
    assert sent == [talk[0], talk[2]]


@given(messages=conversations(turns=6), limit=limits())
def test_a_compaction_leaves_a_valid_request(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    for spec in ("adk.compaction(compaction_interval=1, overlap_size=0)", "adk.compaction()"):
        _, requests = run(prepare_messages(messages, counter), spec, limit)
        broken = {v.rule for sent in requests for v in find_violations(sent.messages)}
        assert broken <= {"starts_with_user"}  # the summary is a message of the assistant

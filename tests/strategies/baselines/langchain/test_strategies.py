"""Tests of the LangChain baselines on small conversations."""

from __future__ import annotations

import pytest
from generated import conversations, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies.baselines.langchain.summarization import NOTHING_TO_SUMMARIZE, is_triggered
from ctxlab.strategies.baselines.langchain.trim import trim_to_newest
from ctxlab.tokens.counter import TokenCounter

HEADER = "Here is a summary of the conversation to date:\n\n"


def step(number: int, text: str = "found") -> list[Message]:
    """Return a tool call and its result."""
    call = ToolCall(f"c{number}", "look", f'{{"at": {number}}}')
    said = Message("tool", f"{text} {number}", tool_call_id=call.id)
    return [Message("assistant", tool_calls=(call,)), said]


def agent(steps: int, text: str = "found") -> list[Message]:
    begun = [Message("system", "You look."), Message("user", "Look around")]
    return begun + [message for number in range(steps) for message in step(number, text)]


def sent(
    spec: str, messages: list[Message], counter: TokenCounter, client: ScriptedClient | None = None
) -> list[list[str]]:
    """Return the requests as lists of ``role text`` lines."""
    said = (*messages, Message("assistant", "Done."))
    prepared = PreparedRecording(Recording("r", said), counter, client)
    _, requests = run(prepared, spec, 100_000)
    return [[f"{m.role} {m.text}" for m in request.messages] for request in requests]


@given(messages=conversations(), room=st.sampled_from([0, 30, 80, 300, 5000]))
def test_trimming_keeps_the_longest_suffix_that_fits_wherever_that_cuts(
    messages: tuple[Message, ...], room: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, f"langchain.trim_messages(max_tokens={room})", 100_000)
    for request in requests:
        suffixes = [
            list(messages[start : request.position]) for start in range(request.position + 1)
        ]
        longest = next(s for s in suffixes if sum(map(counter.count_message, s)) <= room)
        assert request.messages == longest


def test_trimming_from_a_users_message_on_can_leave_an_agent_nothing(
    counter: TokenCounter,
) -> None:
    spec = "langchain.trim_messages(max_tokens=60, start_on='human', include_system=True)"
    requests = sent(spec, agent(6), counter)
    assert requests[0] == ["system You look.", "user Look around"]
    assert requests[-1] == ["system You look."]


def test_results_are_cleared_at_every_request_once_the_trigger_was_passed(
    counter: TokenCounter,
) -> None:
    spec = "langchain.clear_tool_uses(trigger=60, keep=1)"
    requests = sent(spec, agent(5), counter)
    cleared = [sum("[cleared]" in line for line in request) for request in requests]
    passed = next(i for i, count in enumerate(cleared) if count)
    assert cleared[:passed] == [0] * passed
    assert cleared[passed:] == list(range(cleared[passed], 5))


def test_clearing_at_least_so_much_stops_there_for_good(counter: TokenCounter) -> None:
    spec = "langchain.clear_tool_uses(trigger=200, keep=1, clear_at_least=60)"
    requests = sent(spec, agent(9, text="word " * 40), counter)
    assert [line for line in requests[-1] if "[cleared]" in line] == ["tool [cleared]"] * 2


def test_excluded_tools_and_results_without_a_call_stay(counter: TokenCounter) -> None:
    messages = [*agent(2), Message("tool", "lost", tool_call_id="elsewhere"), *step(5)]
    spec = "langchain.clear_tool_uses(trigger=10, keep=0)"
    assert "tool lost" in sent(spec, messages, counter)[-1]
    kept = sent(spec.replace(")", ", exclude_tools=('look',))"), messages, counter)[-1]
    assert not any("[cleared]" in line for line in kept)


def test_clearing_inputs_empties_the_arguments_of_the_call(counter: TokenCounter) -> None:
    prepared = prepare_messages((*agent(2), Message("assistant", "Done.")), counter)
    spec = "langchain.clear_tool_uses(trigger=10, keep=0, clear_tool_inputs=True)"
    _, requests = run(prepared, spec, 100_000)
    calls = [call for message in requests[-1].messages for call in message.tool_calls]
    assert [call.arguments for call in calls] == ["{}", "{}"]


def test_without_a_trigger_nothing_is_summarised(counter: TokenCounter) -> None:
    assert len(sent("langchain.summarization()", agent(40), counter)[-1]) == 82


def test_a_cut_before_a_result_moves_back_to_its_call(counter: TokenCounter) -> None:
    client = ScriptedClient(lambda _: "It went well.")
    spec = "langchain.summarization(trigger=('messages', 7), keep=('messages', 3), model='gpt-4o')"
    request = sent(spec, agent(3), counter, client)[-1]
    assert request[:2] == ["system You look.", f"user {HEADER}It went well."]
    assert request[2:] == ["assistant ", "tool found 1", "assistant ", "tool found 2"]


def test_a_summariser_that_would_see_no_user_is_not_asked(counter: TokenCounter) -> None:
    client = ScriptedClient()
    spec = (
        "langchain.summarization(trigger=('messages', 9), keep=('messages', 2), "
        "trim_tokens_to_summarize=20, model='gpt-4o')"
    )
    request = sent(spec, agent(4), counter, client)[-1]
    assert request[1] == f"user {HEADER}{NOTHING_TO_SUMMARIZE}"
    assert client.requests == []


def test_an_older_summary_out_of_sight_is_lost(counter: TokenCounter) -> None:
    messages = [Message("user", f"Fact {n}: " + "word " * 20) for n in range(12)]
    said = [m for message in messages for m in (message, Message("assistant", "Noted."))]
    client = ScriptedClient(lambda request: f"Summary {len(client.requests)}")
    spec = (
        "langchain.summarization(trigger=('messages', 8), keep=('messages', 1), "
        "trim_tokens_to_summarize=40, model='gpt-4o')"
    )
    sent(spec, said, counter, client)
    assert len(client.requests) > 1
    assert not any("Summary" in request.messages[-1].text for request in client.requests)


def test_a_model_that_fails_is_replaced_and_that_is_reported(counter: TokenCounter) -> None:
    client = ScriptedClient(lambda _: ModelUnavailable("busy"))
    prepared = PreparedRecording(
        Recording("r", (*agent(4), Message("assistant", "Done."))), counter, client
    )
    spec = "langchain.summarization(trigger=('messages', 9), keep=('messages', 2), model='gpt-4o')"
    trace, requests = run(prepared, spec, 100_000)
    assert "Look around" in requests[-1].messages[1].text
    assert any("fallback: busy" in what for _, what in trace.context.events)


@pytest.mark.parametrize(
    ("trigger", "reached"),
    [
        (("messages", 10), True),
        (("messages", 11), False),
        (("tokens", 100), True),
        (("fraction", 0.5), True),
        (("fraction", 0.51), False),
        ((("messages", 11), ("tokens", 100)), True),
        (None, False),
    ],
)
def test_any_of_several_triggers_fires(trigger: object, reached: bool) -> None:
    assert is_triggered(trigger, messages=10, tokens=100, limit=200) is reached  # type: ignore[arg-type]


@given(messages=conversations(), room=st.integers(0, 400))
def test_what_a_summariser_sees_fits_and_begins_with_the_user(
    messages: tuple[Message, ...], room: int, counter: TokenCounter
) -> None:
    seen = trim_to_newest(messages, room, counter)
    assert sum(map(counter.count_message, seen)) <= room or len(seen) == 1
    assert all(message.role == "user" for message in seen[:1])
    assert list(messages[len(messages) - len(seen) + 1 :]) == seen[1:]

"""Tests of the OpenHands baselines, which count events."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.baselines.openhands import openhands_summarizing
from ctxlab.tokens.counter import TokenCounter


def step(number: int, calls: int = 1) -> list[Message]:
    made = tuple(ToolCall(f"c{number}.{i}", "run") for i in range(calls))
    results = [Message("tool", f"output {number} " * 20, tool_call_id=call.id) for call in made]
    return [Message("assistant", f"step {number}", tool_calls=made), *results]


def work(count: int, calls: int = 1) -> list[Message]:
    talk = [Message("system", "You are an agent."), Message("user", "Fix it")]
    for number in range(count):
        talk += step(number, calls)
    return talk


def last(
    talk: list[Message], spec: str, counter: TokenCounter, limit: int = 10**6
) -> list[Message]:
    talk = [*talk, Message("assistant", ".")]
    return run(prepare_messages(talk, counter), spec, limit)[1][-1].messages


def test_half_of_the_events_stay_with_a_summary_behind_the_first_few(counter: TokenCounter) -> None:
    talk = work(10)  # 22 events; the 21st brings the condensation, so the last step is whole
    sent = last(talk, "openhands.default(max_size=20, keep_first=3)", counter)
    # Events 0 to 2 stay; the third opens a step, so its result stays too.
    assert sent[:4] == talk[:4]
    assert (sent[4].role, sent[5:]) == ("user", talk[-6:])


def test_a_message_with_several_calls_is_several_events(counter: TokenCounter) -> None:
    spec = "openhands.default(max_size=20, keep_first=1)"
    assert last(work(3, calls=3), spec, counter) == work(3, calls=3)  # 2 + 3 · 6 events
    assert len(last(work(4, calls=3), spec, counter)) < len(work(4, calls=3))


def test_it_condenses_to_half_of_the_tokens_when_the_window_is_full(counter: TokenCounter) -> None:
    talk = work(30)
    prepared = prepare_messages([*talk, Message("assistant", ".")], counter)
    trace, sent = run(prepared, "openhands.default(max_size=1000)", 1000)
    assert max(trace.tokens) <= 1000
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert trace.tokens[first] < 700
    assert sent[-1].messages[-1] == talk[-1]


def test_a_call_without_a_result_forbids_all_cuts_behind_it(counter: TokenCounter) -> None:
    talk = work(12)
    lost = Message("assistant", "lost", tool_calls=(ToolCall("never", "run"),))
    talk.insert(4, lost)
    spec = "openhands.default(max_size=14, keep_first=1)"
    assert last(talk, spec, counter) == talk


def test_where_no_cut_is_found_and_tokens_are_over_all_but_the_system_prompt_goes(
    counter: TokenCounter,
) -> None:
    talk = work(12)
    talk.insert(4, Message("assistant", "lost", tool_calls=(ToolCall("never", "run"),)))
    sent = last(talk, "openhands.default()", counter, 700)
    assert [m.role for m in sent[:2]] == ["system", "user"]
    assert sent[1].text.startswith("- user: Fix it")


@given(messages=conversations(), limit=limits())
def test_its_requests_are_valid_or_as_they_were(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, sent = run(prepared, openhands_summarizing(max_size=8, keep_first=2), limit)
    for faults, request in zip(trace.violation_counts, sent, strict=True):
        assert not faults
        assert request.messages


@pytest.mark.parametrize(
    "spec", ["openhands.default(max_size=8)", "openhands.amortized(max_size=2)"]
)
def test_more_first_events_than_there_is_room_for_are_refused(spec: str) -> None:
    with pytest.raises(SpecError, match="keep_first"):
        parse_strategy(spec)


def test_masked_results_speak_as_the_user_and_their_calls_are_gone(counter: TokenCounter) -> None:
    talk = work(5)
    sent = last(talk, "openhands.masking(attention_window=4)", counter)
    assert sent[:2] == talk[:2]
    assert [(m.role, m.content) for m in sent[2:5]] == [("user", "<MASKED>")] * 3
    assert sent[5:] == talk[-4:]


def test_a_message_whose_results_are_partly_masked_is_not_sent(counter: TokenCounter) -> None:
    talk = work(1, calls=3)
    sent = last(talk, "openhands.masking(attention_window=1)", counter)
    assert [m.content for m in sent[2:]] == ["<MASKED>"] * 2


def test_results_of_one_message_are_masked_one_after_another(counter: TokenCounter) -> None:
    # 6 events: system prompt, task, and two calls, each followed by its result.
    sent = last(work(1, calls=2), "openhands.masking(attention_window=2)", counter)
    assert [m.content for m in sent[2:]] == ["<MASKED>"]


def test_forgetting_keeps_the_first_and_the_newest_events(counter: TokenCounter) -> None:
    talk = work(6)
    sent = last(talk, "openhands.amortized(max_size=12)", counter)  # 14 events: down to 6
    assert sent == [talk[0], *talk[-4:]]  # of 5 newest events, the first is a result without a call


def test_forgetting_never_takes_the_system_prompt(counter: TokenCounter) -> None:
    talk = work(6)
    sent = last(talk, "openhands.amortized(max_size=12, keep_first=0)", counter)
    assert sent == [talk[0], *talk[-6:]]


def test_a_message_stays_if_only_the_first_of_its_calls_is_forgotten(counter: TokenCounter) -> None:
    talk = work(4, calls=2)  # 18 events, of which the newest 7 and the first one stay
    sent = last(talk, "openhands.amortized(max_size=16)", counter)
    assert sent == [talk[0], *talk[-6:]]


@given(messages=conversations(), limit=limits())
def test_forgetting_never_parts_a_call_from_its_result(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, sent = run(prepared, "openhands.amortized(max_size=7)", limit)
    found = {fault.rule for request in sent for fault in find_violations(request.messages)}
    # The task is dropped like other events, and so is the newest step if it has too many.
    assert found <= {"starts_with_user", "empty_request"}

"""Tests of the AG2 baselines, which count events; a step with one call has five events."""

from __future__ import annotations

import pytest
from generated import conversations, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run
from small_talk import firsts, last, played, said, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter


def calling(*ids: str) -> Message:
    return Message("assistant", tool_calls=tuple(ToolCall(id, "read") for id in ids))


def test_plain_messages_are_an_event_each() -> None:
    sent = last("ag2.sliding_window(max_events=3)", said(5, words=1), 10**6)
    assert firsts(sent) == ["assistant 3", "user 4", "assistant 4"]


def test_a_window_of_forty_holds_eight_steps_with_one_call() -> None:
    assert len(last("ag2.sliding_window", task(20), 10**6)) == 1 + 2 * 8


def test_a_step_that_is_cut_through_goes_whole() -> None:
    # Two steps are ten events: in nine of them the older step has lost its response.
    assert firsts(last("ag2.sliding_window(max_events=9)", task(6), 10**6)) == [
        *("Be brief.", "step 5", "result 5")
    ]


def test_a_window_that_would_be_empty_widens_to_the_newest_step() -> None:
    sent = last("ag2.sliding_window(max_events=2)", task(6, parallel=2), 10**6)
    assert firsts(sent) == ["Be brief.", "step 5", "result 5", "result 5"]


def test_an_orphaned_result_stays_where_a_later_call_uses_its_id() -> None:
    steps = [calling("c1"), Message("tool", "a", tool_call_id="c1")] * 2
    trace, sent = played("ag2.sliding_window(max_events=7)", [Message("user", "go"), *steps], 9999)
    assert [m.role for m in sent[-1].messages] == ["tool", "assistant", "tool"]
    assert trace.violation_counts[-1]


def test_a_budget_counts_long_results_by_their_first_characters() -> None:
    messages = task(6, lines=4000)
    assert last("ag2.token_budget(max_tokens=2000)", messages, 10**6) == messages
    trace, sent = played("ag2.token_budget", messages, 20_000)
    assert len(sent[-1].messages) == len(messages)
    assert trace.tokens[-1] > 20_000


def test_what_the_assistant_says_counts_in_full() -> None:
    messages = [Message("user", "a" * 4000), Message("assistant", "b" * 4000), Message("user", "c")]
    assert firsts(last("ag2.token_budget(max_tokens=900)", messages, 10**6)) == ["c"]
    assert last("ag2.token_budget(max_tokens=1200)", messages, 10**6) == messages


@given(
    messages=conversations() | strange_conversations(),
    spec=st.sampled_from(["sliding_window(max_events=6)", "token_budget(max_tokens=150)"]),
)
def test_only_whole_messages_go_and_the_rest_stays_in_order(
    messages: tuple[Message, ...], spec: str, counter: TokenCounter
) -> None:
    trace, requests = run(prepare_messages(messages, counter), f"ag2.{spec}", 10**6)
    for sent, tokens in zip(requests, trace.tokens, strict=True):
        places = [e.start for e in sent.entries]
        assert places == sorted(places)
        assert sent.messages == [messages[i] for i in places]
        assert tokens == counter.count_request(sent.messages)


def test_a_token_has_at_least_a_character() -> None:
    with pytest.raises(SpecError, match="chars_per_token"):
        parse_strategy("ag2.token_budget(chars_per_token=0)")

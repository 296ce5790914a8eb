"""Tests of ``clear_at_least``: an edit is applied only if it frees enough tokens."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import clear_at_least, observation_mask, panic, sliding_window
from ctxlab.tokens.counter import TokenCounter


def work(count: int) -> list[Message]:
    said = [Message("user", "go")]
    for i in range(count):
        said += [Message("assistant", tool_calls=(ToolCall(f"c{i}", "ls"),))]
        said += [Message("tool", f"line {i}\n" * 60, tool_call_id=f"c{i}")]
    return said


@given(messages=conversations(), limit=limits(), tokens=st.sampled_from([0, 5, 40, 300, 5000]))
def test_less_is_never_taken_away(
    messages: tuple[Message, ...], limit: int, tokens: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, sent = run(prepared, clear_at_least(observation_mask(keep=1), tokens=tokens), limit)
    gone = 0
    for request in sent:
        here = prepared.history.tokens_before[request.position] - sum(
            e.tokens for e in request.entries
        )
        assert here == gone or here >= gone + tokens
        gone = here


def test_the_cache_is_broken_rarely_and_in_between_serves_the_whole_previous_request(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(work(60), counter)
    trace, sent = run(prepared, clear_at_least(observation_mask(keep=2), tokens=1500), 10**6)
    broken = [
        i
        for i in range(1, len(sent))
        if trace.unchanged_prefix_tokens[i] < sum(entry.tokens for entry in sent[i - 1].entries)
    ]
    assert 5 < len(broken) < 12
    assert max(trace.tokens) < 4000 < prepared.history.tokens_before[-1]


def test_what_lasts_for_one_request_is_decided_at_each(counter: TokenCounter) -> None:
    prepared = prepare_messages(work(30), counter)
    limit = 1500
    trace, _ = run(prepared, clear_at_least(panic(), tokens=1) | sliding_window(), limit)
    assert max(trace.tokens) <= limit

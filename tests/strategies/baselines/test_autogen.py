"""Tests of the AutoGen baselines; a block is a message or the results of one step."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run
from small_talk import firsts, last, played, said, steps, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.helpers.message_blocks import group_blocks
from ctxlab.tokens.counter import TokenCounter

Blocks = list[tuple[Message, ...]]


def parted(messages: tuple[Message, ...]) -> tuple[list[Message], Blocks]:
    """Split messages into leading system messages and blocks."""
    start = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    return list(messages[:start]), group_blocks(messages[start:])


def flat(blocks: Blocks) -> list[Message]:
    return [message for block in blocks for message in block]


@given(messages=conversations(), size=st.integers(1, 9))
def test_buffered_keeps_the_newest_blocks_and_no_result_comes_first(
    messages: tuple[Message, ...], size: int, counter: TokenCounter
) -> None:
    _, requests = run(
        prepare_messages(messages, counter), f"autogen.buffered(buffer_size={size})", 10**6
    )
    for sent in requests:
        prompt, blocks = parted(messages[: sent.position])
        kept = blocks[-size:]
        if kept and kept[0][0].role == "tool":
            kept = kept[1:]
        assert sent.messages == prompt + flat(kept)


@given(messages=conversations(), head=st.integers(1, 5), tail=st.integers(1, 5))
def test_head_and_tail_keeps_both_ends_and_says_how_many_were_skipped(
    messages: tuple[Message, ...], head: int, tail: int, counter: TokenCounter
) -> None:
    spec = f"autogen.head_and_tail(head_size={head}, tail_size={tail})"
    trace, requests = run(prepare_messages(messages, counter), spec, 10**6)
    for sent in requests:
        prompt, blocks = parted(messages[: sent.position])
        skipped = len(blocks) - head - tail
        if skipped > 0:
            oldest, newest = blocks[:head], blocks[-tail:]
            if oldest[-1][0].tool_calls:
                oldest = oldest[:-1]
            if newest[0][0].role == "tool":
                newest = newest[1:]
            line = Message("user", f"Skipped {skipped} messages.")
            assert sent.messages == [*prompt, *flat(oldest), line, *flat(newest)]
        else:
            assert sent.messages == list(messages[: sent.position])
    assert not any(trace.violation_counts)


@given(messages=conversations(), limit=limits(), size=st.none() | st.sampled_from([1, 60, 300]))
def test_token_limited_takes_the_middle_out_until_the_rest_fits(
    messages: tuple[Message, ...], limit: int, size: int | None, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, f"autogen.token_limited(token_limit={size})", limit)
    most = prepared.make_budget(limit).available if size is None else size
    for sent, faults in zip(requests, trace.violation_counts, strict=True):
        prompt, blocks = parted(messages[: sent.position])
        while blocks and sum(map(counter.count_message, flat(blocks))) > most:
            blocks.pop(len(blocks) // 2)
        if blocks and blocks[0][0].role == "tool":
            blocks = blocks[1:]
        assert sent.messages == prompt + flat(blocks)
        assert bool(faults) == bool(find_violations(sent.messages))


def test_token_limited_parts_calls_from_results_and_validity_counts_it() -> None:
    trace, sent = played("autogen.token_limited(token_limit=400)", task(20), 10**6)
    broken = {v.rule for s in sent for v in find_violations(s.messages)}
    assert {"unanswered_call", "orphaned_result"} <= broken
    assert sum(map(bool, trace.violation_counts)) > len(sent) / 2


def test_token_limited_does_not_count_the_system_prompt() -> None:
    messages = [Message("system", "rule " * 500), *said(2, words=1)]
    assert last("autogen.token_limited(token_limit=100)", messages, 10**6) == messages


def test_what_token_limited_dropped_may_come_back() -> None:
    large = Message("user", "word " * 300)
    messages = [*said(3), large, *said(4)]
    _, sent = played("autogen.token_limited(token_limit=450)", messages, 10**6)
    seen = [messages[4] in s.messages for s in sent if s.position > 7]
    assert False in seen
    assert seen[-1]


def test_buffered_counts_the_results_of_a_step_as_one() -> None:
    sent = last("autogen.buffered(buffer_size=3)", task(4, parallel=3), 10**6)
    assert firsts(sent, 1) == ["Be", "step", "result", "result", "result"]
    assert [m.role for m in steps(1, parallel=3)] == [m.role for m in sent[1:]]


@pytest.mark.parametrize(
    "spec", ["autogen.buffered(buffer_size=0)", "autogen.head_and_tail(tail_size=0)"]
)
def test_a_size_of_nothing_is_refused_as_the_package_does(spec: str) -> None:
    with pytest.raises(SpecError, match="at least 1"):
        parse_strategy(spec)

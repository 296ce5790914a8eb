"""Tests of the windows against a search over all valid suffixes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cutting import safe_cuts
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import replay_trace
from ctxlab.messages.types import Message
from ctxlab.strategies import chunked_window, parse_strategy, sliding_window
from ctxlab.tokens.counter import TokenCounter


def head_of(messages: Sequence[Message]) -> int:
    return 1 + next((i for i, m in enumerate(messages) if m.role == "user"), -1)


def longest_suffix(history: History, length: int, room: int, most: int | None) -> int:
    """Return the earliest safe cut whose suffix fits together with the head, or the newest unit."""
    head, before = history.head_length, history.tokens_before
    cuts = [c for c in safe_cuts(list(history)[:length]) if c >= head]
    for cut in cuts:
        tokens = before[head] + before[length] - before[cut]
        if tokens <= room and (most is None or length - cut <= most):
            return cut
    return cuts[-1] if cuts else length


@given(
    messages=conversations(),
    limit=limits(),
    tokens=st.none() | st.sampled_from([0, 40, 200, 600]),
    most=st.none() | st.sampled_from([0, 1, 2, 5, 12]),
)
def test_a_sliding_window_keeps_the_longest_safe_suffix_that_fits(
    messages: tuple[Message, ...],
    limit: int,
    tokens: int | None,
    most: int | None,
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = prepared.make_budget(limit)
    _, requests = run(prepared, sliding_window(tokens, most), budget)
    room = budget.available if tokens is None else min(tokens, budget.available)
    history = prepared.history
    for sent in requests:
        cut = longest_suffix(history, sent.position, room, most)
        head = list(range(min(history.head_length, sent.position)))
        assert [e.start for e in sent.entries] == [
            *head,
            *range(max(cut, len(head)), sent.position),
        ]


@given(messages=conversations(turns=6), size=st.sampled_from([1, 2, 3, 5, 8]), limit=limits())
def test_a_chunked_window_cuts_at_chunk_boundaries_only(
    messages: tuple[Message, ...], size: int, limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, chunked_window(size), limit)
    cuts, head = safe_cuts(messages), head_of(messages)
    for sent in requests:
        length = sent.position
        boundary = max(0, (length // size - 1) * size)
        newest = max(c for c in cuts if c < length) if length else 0
        cut = min(next((c for c in cuts if c >= boundary), length), newest)
        kept = [e.start for e in sent.entries]
        assert kept == [*range(min(head, length)), *range(max(cut, head), length)]
        if cut >= head:
            assert length - boundary < 2 * size
            assert length - boundary >= min(size, length)
    starts = [sent.entries[head].start for sent in requests if len(sent.entries) > head]
    assert starts == sorted(starts)
    assert len(set(starts)) <= 1 + len(messages) // size


def test_between_two_cuts_the_request_only_grows(counter: TokenCounter) -> None:
    talk = [Message(role, f"message {i}") for i in range(60) for role in ("user", "assistant")]
    prepared = prepare_messages(talk, counter)
    chunked = replay_trace(prepared, chunked_window(10), prepared.make_budget(10**6))
    sliding = replay_trace(prepared, sliding_window(messages=10), prepared.make_budget(10**6))
    fixed = prepared.fixed_tokens
    grown = [
        unchanged == tokens - fixed
        for unchanged, tokens in zip(
            chunked.unchanged_prefix_tokens[1:], chunked.tokens, strict=False
        )
    ]
    assert sum(grown) > 0.75 * len(grown)
    assert max(chunked.message_counts) <= 1 + 20
    assert sum(chunked.unchanged_prefix_tokens) / sum(chunked.tokens) > 2 * sum(
        sliding.unchanged_prefix_tokens
    ) / sum(sliding.tokens)


@pytest.mark.parametrize(
    "text",
    [
        "chunked_window(0)",
        "chunked_window(-3)",
        "sliding_window(-1)",
        "sliding_window(messages=-1)",
    ],
)
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=text.split("(")[0]):
        parse_strategy(text)

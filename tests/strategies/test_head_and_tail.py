"""Tests of ``first_and_last``, which keeps the oldest and the newest messages."""

from __future__ import annotations

from cutting import safe_cuts
from generated import conversations, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run
from small_talk import firsts, last, said, task

from ctxlab.messages.types import Message
from ctxlab.tokens.counter import TokenCounter


def test_as_many_as_were_asked_for_stay() -> None:
    sent = last("first_and_last(first=2, last=3)", said(10), 10**6)
    assert firsts(sent) == ["user 0", "assistant 0", "assistant 8", "user 9", "assistant 9"]


def test_a_step_at_either_end_is_kept_whole_or_not_at_all() -> None:
    sent = last("first_and_last(first=3, last=3)", task(9), 10**6)
    assert firsts(sent) == ["Be brief.", "Fix the", "step 8", "result 8"]


@given(messages=conversations(), first=st.integers(0, 8), most=st.integers(0, 8))
def test_one_row_goes_between_two_safe_cuts(
    messages: tuple[Message, ...], first: int, most: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, f"first_and_last(first={first}, last={most})", 10**6)
    for sent in requests:
        cuts = [*safe_cuts(messages[: sent.position]), sent.position]
        start = max(
            prepared.history.head_length, max((cut for cut in cuts if cut <= first), default=0)
        )
        newest = next(cut for cut in cuts if cut >= sent.position - most)
        stop = max(start, min(newest, max(cuts[:-1], default=0)))
        gone = range(start, stop) if sent.position > first else range(0)
        kept = [i for i in range(sent.position) if i not in gone]
        assert [entry.start for entry in sent.entries] == kept

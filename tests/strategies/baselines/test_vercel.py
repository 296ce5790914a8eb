"""Tests of the baseline for ``pruneMessages`` of the Vercel AI SDK."""

from __future__ import annotations

import pytest
from small_talk import firsts, last, played, said, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy


def test_by_default_only_empty_messages_go() -> None:
    messages = [*task(5), Message("assistant", ""), Message("user", "next")]
    assert last("vercel.prune_messages", messages, 10**6) == [*task(5), Message("user", "next")]
    assert last("vercel.prune_messages(empty_messages='keep')", messages, 10**6) == messages


@pytest.mark.parametrize(("count", "steps"), [(2, 1), (3, 2), (4, 2), (7, 4)])
def test_calls_go_with_their_results_before_the_last_messages(count: int, steps: int) -> None:
    spec = f"vercel.prune_messages('before-last-{count}-messages')".replace("(", "(tool_calls=")
    for parallel in (1, 3):
        trace, sent = played(spec, task(9, parallel=parallel), 10**6)
        after = sent[-1].messages
        assert sum(bool(m.tool_calls) for m in after) == steps
        assert sum(m.role == "tool" for m in after) == steps * parallel
        assert firsts(after)[2:4] == ["step 0", "step 1"]  # what was said beside a call stays
        assert not any(trace.violation_counts)


def test_all_takes_the_newest_too() -> None:
    sent = last("vercel.prune_messages(tool_calls='all')", task(3), 10**6)
    assert [m.role for m in sent] == ["system", "user", *["assistant"] * 3]


def test_a_message_that_was_nothing_but_a_call_is_gone() -> None:
    messages = [m.replace(content=None) if m.tool_calls else m for m in task(3)]
    sent = last("vercel.prune_messages(tool_calls='before-last-message')", messages, 10**6)
    assert [m.role for m in sent] == ["system", "user", "assistant", "tool"]


def test_plain_talk_is_never_touched() -> None:
    assert last("vercel.prune_messages(tool_calls='all')", said(4), 10**6) == said(4)


@pytest.mark.parametrize("given", ["some", "before-last-few-messages", ""])
def test_what_it_does_not_know_is_refused(given: str) -> None:
    with pytest.raises(SpecError, match="before-last-message"):
        parse_strategy(f"vercel.prune_messages(tool_calls={given!r})")

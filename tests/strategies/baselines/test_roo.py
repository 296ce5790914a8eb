"""Tests of the Roo Code baseline and its fallback."""

from __future__ import annotations

import pytest
from small_talk import firsts, last, played, said, task

from ctxlab.messages.types import Message


def test_above_nine_tenths_less_the_reply_one_summary_stands_for_everything() -> None:
    whole, _ = played("full", task(20), 1000)
    trace, sent = played("roo(max_tokens=100)", task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] > 800 >= whole.tokens[first - 1]
    assert firsts(sent[first].messages) == ["Be brief.", "Summary of"]
    assert not any(trace.violation_counts)


def test_a_lower_percentage_comes_first() -> None:
    spec = "roo(max_tokens=100, auto_condense_context_percent=50)"
    assert max(played(spec, task(20), 1000)[0].tokens) < 500


@pytest.mark.parametrize(("turns", "hidden"), [(12, 10), (13, 12), (14, 12)])
def test_without_condensing_an_even_number_after_the_first_is_hidden(
    turns: int, hidden: int
) -> None:
    messages = [*said(turns), Message("user", "next")][:-1]
    tokens = played("full", messages, 10**6)[0].tokens[-1]
    spec = "roo(auto_condense_context=False, max_tokens=0)"
    # Only the last request is too large.
    sent = last(spec, messages, int(tokens / 0.9))
    assert sent[1].text == f"[{hidden} messages hidden to make room]"
    assert firsts(sent[:1]) == ["user 0"]
    assert len(sent) == len(messages) - hidden + 1


def test_a_step_counts_as_two_messages_however_many_calls_it_makes() -> None:
    messages = task(20, parallel=2)
    tokens = played("full", messages, 10**6)[0].tokens[-1]
    trace, sent = played(
        "roo(auto_condense_context=False, max_tokens=0)", messages, int(tokens / 0.9)
    )
    assert sent[-1].messages[2].text == "[20 messages hidden to make room]"
    assert sent[-1].messages[3].text == "step 10"
    assert not any(trace.violation_counts)

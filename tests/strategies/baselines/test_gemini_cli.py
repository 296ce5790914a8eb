"""Tests of the Gemini CLI baseline, including conversations that it cannot compress."""

from __future__ import annotations

import pytest
from small_talk import firsts, last, played, said, steps, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy


def test_the_older_70_percent_become_a_summary_and_an_acknowledgement() -> None:
    messages = [*said(10), Message("user", "next")]
    trace, sent = played("gemini_cli", messages, 700)
    request = next(s for s in sent if "Summary" in s.messages[0].text)
    after, kept = request.messages, request.messages[2:-1]
    assert [m.role for m in after[:3]] == ["user", "assistant", "user"]
    assert 0.1 < len(kept) / (request.position - 1) <= 0.3
    assert not any(trace.violation_counts)
    assert firsts(last("gemini_cli", messages, 10**5)) == firsts(messages)


def test_it_fires_at_half_the_window() -> None:
    messages = [*said(12), Message("user", "next")]
    whole, _ = played("full", messages, 800)
    trace, _ = played("gemini_cli", messages, 800)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert max(whole.tokens[:first]) < 400 + 40  # what the user has just said is not counted
    assert whole.tokens[first] >= 400


def test_a_run_after_one_request_is_never_compressed_and_overflows() -> None:
    trace, sent = played("gemini_cli", task(30), 600)
    assert len(sent[-1].messages) == 62
    assert max(trace.tokens) > 600
    assert trace.context.events == []


def test_where_the_user_spoke_early_it_cuts_there() -> None:
    messages = [*said(2), Message("user", "fix it"), *steps(12)]
    sent = last("gemini_cli", messages, 900)
    assert [m.role for m in sent[:4]] == ["user", "assistant", "user", "assistant"]
    assert sent[2].text == "fix it"


def test_old_large_results_keep_a_fifth_of_their_beginning() -> None:
    messages = [
        *said(6, words=200),
        Message("user", "fix it"),
        *steps(3, lines=50),
        Message("assistant", "ok " * 300),
        Message("user", "go on"),
    ]
    spec = "gemini_cli(tool_tokens=250, tool_chars=100)"
    texts = [m.text for m in last(spec, messages, 2 * 3100) if m.role == "tool"]
    assert [("left out" in text) for text in texts] == [True, True, False]
    assert texts[0].startswith("result 0\na line of ")
    assert len(texts[0].split("\n\n[")[0]) == 20


@pytest.mark.parametrize("share", [0, 1])
def test_all_or_nothing_cannot_be_preserved(share: int) -> None:
    with pytest.raises(SpecError, match="between 0 and 1"):
        parse_strategy(f"gemini_cli(preserve={share})")


def test_results_before_the_protected_ones_are_masked_once_they_are_large_enough() -> None:
    # A result has about 480 tokens; the newest is not answered yet, so it is not counted.
    spec = "gemini_cli(protection_tokens=1000, min_prunable_tokens=900)"
    for number, masked in ((4, 0), (5, 2), (6, 2), (7, 4)):
        sent = last(spec, task(number, lines=128), 10**6)
        texts = [m.text for m in sent if m.role == "tool"]
        assert ["masked" in text for text in texts] == [True] * masked + [False] * (number - masked)


def test_questions_to_the_user_are_never_masked() -> None:
    messages = [*task(0), *steps(6, lines=128, tool="ask_user")]
    sent = last("gemini_cli(protection_tokens=500, min_prunable_tokens=500)", messages, 10**6)
    assert sent == messages

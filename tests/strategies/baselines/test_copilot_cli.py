"""Tests of the Copilot CLI baseline."""

from __future__ import annotations

from small_talk import firsts, played, said, task

from ctxlab.messages.types import Message


def test_the_summary_is_installed_three_requests_after_four_fifths_were_reached() -> None:
    whole, _ = played("full", task(30), 1500)
    trace, sent = played("copilot_cli", task(30), 1500)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    begun = next(turn for turn, tokens in enumerate(whole.tokens) if tokens > 0.8 * 1500)
    assert first == begun + 3
    assert trace.tokens[:first] == whole.tokens[:first]
    # The task stays, and so do the steps that were made while the summary was written.
    texts = firsts(sent[first].messages)
    assert texts[:3] == ["Be brief.", "Fix the", "Summary of"]
    assert len(texts) == 3 + 2 * 3
    assert not any(trace.violation_counts)


def test_all_messages_of_the_user_stay() -> None:
    messages = [*said(5), *task(20)[2:], Message("assistant", "ok"), Message("user", "next")]
    trace, sent = played("copilot_cli", messages, 1500)
    assert any(event == "summary" for _, event in trace.context.events)
    told = [m.text for m in sent[-1].messages if m.role == "user"]
    assert [text for text in told if text.startswith("user")] == [m.text for m in said(5)[::2]]


def test_it_waits_for_the_summary_when_hardly_anything_is_free() -> None:
    messages = [*task(7), *task(1, lines=40)[2:]]
    trace, _ = played("copilot_cli", messages, 800)
    assert [event for _, event in trace.context.events] == ["summary"]
    assert max(trace.tokens) <= 0.95 * 800

"""Tests of the Claude Code baseline, as observed in recorded sessions."""

from __future__ import annotations

from small_talk import firsts, played, task


def test_at_775_of_1000_tokens_only_a_summary_stays() -> None:
    whole, _ = played("full", task(18), 1000)
    trace, sent = played("claude_code", task(18), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] >= 775 > whole.tokens[first - 1]
    assert firsts(sent[first].messages) == ["Be brief.", "Summary of"]
    assert max(trace.tokens) < 775
    assert not any(trace.violation_counts)

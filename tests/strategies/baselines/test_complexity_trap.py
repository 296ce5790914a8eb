"""Tests of the three configurations of the paper "The Complexity Trap"."""

from __future__ import annotations

import pytest
from small_talk import firsts, last, played, task

from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.strategies import parse_strategy


def test_masking_keeps_ten_observations() -> None:
    sent = [m.text for m in last("complexity_trap.masking", task(30), 10**6) if m.role == "tool"]
    assert [text.startswith("Old environment") for text in sent] == [True] * 20 + [False] * 10


def test_at_31_turns_the_oldest_21_become_a_summary_and_ten_stay() -> None:
    before = last("complexity_trap.summary", task(30), 10**6)
    after = last("complexity_trap.summary", task(31), 10**6)
    assert len(before) == 2 + 2 * 30
    assert firsts(after[:4]) == ["Be brief.", "Fix the", "Summary of", "step 21"]
    assert len(after) == 3 + 2 * 10


def test_the_next_summary_stands_for_the_one_before_and_21_turns_more() -> None:
    _, sent = played("complexity_trap.summary", task(52), 10**6)
    assert len(sent[-1].messages) == 3 + 2 * 10
    summaries = [e for e in sent[-1].entries if e.form is Form.SUMMARY]
    assert [(e.start, e.stop) for e in summaries] == [(2, 2 + 2 * 42)]


def test_the_hybrid_masks_what_the_summary_leaves() -> None:
    sent = last("complexity_trap.hybrid", task(45), 10**6)
    assert firsts(sent[:4]) == ["Be brief.", "Fix the", "Summary of", "step 21"]
    masked = [m.text.startswith("Old environment") for m in sent if m.role == "tool"]
    assert masked == [True] * 14 + [False] * 10


def test_other_windows_are_parameters() -> None:
    sent = last(
        "complexity_trap.hybrid(summarize_every=4, keep_last_m_turns=2, n=1)", task(6), 10**6
    )
    assert firsts(sent[2:4]) == ["Summary of", "step 4"]
    assert [m.text[:3] for m in sent if m.role == "tool"] == ["Old", "res"]


def test_parallel_calls_are_one_turn_and_stay_whole() -> None:
    spec = "complexity_trap.summary(summarize_every=3, keep_last_m_turns=2)"
    trace, sent = played(spec, task(9, parallel=3), 10**6)
    assert not any(trace.violation_counts)
    assert len(sent[-1].messages) == 3 + 4 * 3


def test_a_summary_of_no_turns_is_refused() -> None:
    with pytest.raises(SpecError, match="summarize_every must be at least 1, got 0"):
        parse_strategy("complexity_trap.summary(summarize_every=0)")

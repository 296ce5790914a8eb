"""Tests of ``find_equal_tokens_limit``, which finds the limit at which a strategy sends N tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import a_recording

from ctxlab.errors import SpecError
from ctxlab.evaluation.comparison.equal_tokens import find_equal_tokens_limit
from ctxlab.evaluation.comparison.paired import compare_strategies
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.formats import load


@pytest.mark.e2e
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("wanted", [2000, 3000])
def test_the_limit_makes_it_send_as_many_tokens(share: bool, wanted: float) -> None:
    recordings = [a_recording(number, turns=14 + number) for number in range(4)]
    found = find_equal_tokens_limit(recordings, "sliding_window", wanted, as_share=share)
    board = evaluate(recordings, ["sliding_window"], [found.limit]).leaderboard()
    assert board["tokens_mean"].iloc[0] == pytest.approx(found.tokens)
    assert isinstance(found.limit, float) == share
    limits = [x / 60 for x in range(6, 61)] if share else [*range(600, 6600, 100)]
    others = evaluate(recordings, ["sliding_window"], limits).leaderboard()["tokens_mean"]
    assert abs(found.tokens - wanted) <= (others - wanted).abs().min() + 0.005 * wanted


def test_a_strategy_that_does_not_look_at_its_limit_says_no() -> None:
    recordings = [a_recording(0)]
    with pytest.raises(SpecError, match=r"no limit makes 'tool_stubs\(keep=3\)' send 100 tokens"):
        find_equal_tokens_limit(recordings, "tool_stubs(keep=3)", 100)


def test_masking_and_a_window_of_equal_tokens_on_real_logs(recorded: Path) -> None:
    recordings = list(load(recorded / "claude-code-entireio"))
    model, mask = "claude-opus-4-5", "observation_mask(keep=10)"
    sent = evaluate(recordings, mask, 1.0, model).leaderboard()["tokens_mean"].iloc[0]
    window = find_equal_tokens_limit(recordings, "sliding_window", sent, model, as_share=True)
    results = evaluate(recordings, [mask, "sliding_window()"], [1.0, window.limit], model)
    found = compare_strategies(results, f"{mask} @ 100%", f"sliding_window @ {window.limit}")
    rows = found.table.set_index("score")
    assert abs(rows.loc["tokens_mean", "difference"]) < 0.01
    assert rows.loc[HEADLINE_SCORE, "clusters"] == 9
    assert rows.loc[HEADLINE_SCORE, "low"] < rows.loc[HEADLINE_SCORE, "difference"]


@pytest.mark.parametrize("wanted", [0, -5, float("nan"), float("inf")])
def test_what_is_no_number_of_tokens_is_refused(wanted: float) -> None:
    with pytest.raises(SpecError, match="target_tokens: expected a positive number"):
        find_equal_tokens_limit([a_recording(0)], "sliding_window", wanted)


@pytest.mark.e2e
def test_recordings_may_come_one_by_one_and_a_path_is_none() -> None:
    recordings = [a_recording(number) for number in range(2)]
    found = find_equal_tokens_limit(iter(recordings), "sliding_window", 2000)
    assert found == find_equal_tokens_limit(recordings, "sliding_window", 2000)
    with pytest.raises(SpecError, match="got the path 'logs'"):
        find_equal_tokens_limit("logs", "sliding_window", 2000)  # type: ignore[arg-type]

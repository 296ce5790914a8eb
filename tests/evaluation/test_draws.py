"""Tests of random strategies in evaluations: means and spread over several seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.formats import load
from ctxlab.messages.types import Recording
from ctxlab.strategies.base import SEEDS

SEEDED = [f"random_drop(seed={seed})" for seed in range(SEEDS)]


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return list(load("bundled:support-desk"))[:6]


@pytest.fixture(scope="module")
def found(recordings: list[Recording]) -> Results:
    strategies = ["full", "random_drop", "random_drop() | panic()", *SEEDED]
    return evaluate(recordings, strategies, (0.3, 0.6), workers=1, progress=False)


def test_a_random_control_has_the_mean_of_its_seeds_in_every_row(found: Results) -> None:
    numbers = found.requests.columns[6:]
    assert {"tokens", "seen", "cost_usd"} <= {*numbers}
    rows = found.requests.set_index(["strategy", "limit", "recording", "request"])[numbers]
    seeds = np.mean([rows.loc[name].to_numpy() for name in SEEDED], axis=0)
    np.testing.assert_allclose(rows.loc["random_drop()"].to_numpy(), seeds, rtol=1e-12)
    assert len(found.runs) == len(found.runs[["recording", "strategy", "limit"]].drop_duplicates())


def test_the_spread_is_the_standard_deviation_of_the_scores_of_the_seeds(found: Results) -> None:
    board = found.leaderboard().set_index(["limit", "strategy"])
    for limit in (0.3, 0.6):
        for score in ("recall", HEADLINE_SCORE):
            values = [board.loc[(limit, name), score] for name in SEEDED]
            row = board.loc[(limit, "random_drop()")]
            assert row[f"{score}_sd"] == pytest.approx(np.std(values, ddof=1))
            assert row[score] == pytest.approx(np.mean(values))
        assert board.loc[(limit, "random_drop() | panic()"), "recall_sd"] > 0
        assert np.isnan(board.loc[(limit, "full()"), "recall_sd"])
        assert np.isnan(board.loc[(limit, SEEDED[0]), "recall_sd"])


def test_saved_results_keep_the_spread(found: Results, tmp_path: Path) -> None:
    again = Results.load(found.save(tmp_path / "run"))
    assert again.equals(found)
    assert again.leaderboard().equals(found.leaderboard())


def test_the_number_of_processes_changes_nothing(recordings: list[Recording]) -> None:
    one, two = (
        evaluate(recordings, ["full", "random_drop | panic"], 0.3, workers=count, progress=False)
        for count in (1, 2)
    )
    assert one.equals(two)


def test_without_a_random_strategy_no_spread_is_shown(recordings: list[Recording]) -> None:
    strategies = ["full", "random_drop(seed=0)"]
    board = evaluate(recordings[:2], strategies, 0.3, workers=1, progress=False).leaderboard()
    assert not [name for name in board if name.endswith("_sd")]

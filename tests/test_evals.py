"""Tests that experiments in ``evals/`` state a question, are valid, and run if their data exists."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import read_spec, run_experiment

ROOT = Path(__file__).parents[1]
EXPERIMENTS = sorted(p for p in (ROOT / "evals").glob("*.toml") if p.stem != "budgets")
NAMES = {
    "quickstart",
    "coding-agents",
    "customer-service",
    "long-chat",
    "stress",
    "published-claims",
}

each_experiment = pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)


def test_the_experiments_are_there() -> None:
    assert {path.stem for path in EXPERIMENTS} >= NAMES


@each_experiment
def test_it_says_what_it_asks_and_can_be_read(path: Path) -> None:
    comment = path.read_text(encoding="utf-8").partition("data =")[0]
    if path.stem != "quickstart":
        assert "?" in comment
        assert "How to read the results" in comment
    spec = read_spec(path)
    assert spec.strategies
    assert all(each.startswith(("bundled:", "dataset:")) for each in spec.data)


def evaluated(name: str) -> tuple[Results, pd.DataFrame]:
    results = run_experiment(read_spec(ROOT / "evals" / f"{name}.toml"), progress=False)
    return results, results.leaderboard().set_index(["limit", "strategy"])


@pytest.mark.evals
def test_under_stress_requests_stay_valid_and_nothing_is_far_above_the_least() -> None:
    _, board = evaluated("stress")
    assert (board["invalid_rate"] == 0).all()
    for limit in (500, 2000):
        over = board.loc[limit, "overflow_rate"].drop("full()")
        assert over["nothing()"] > 0
        assert (over <= over["nothing()"] + 0.02).all()
    assert board.loc[(500, "full()"), "overflow_rate"] > 0.9


@pytest.mark.evals
def test_coding_agents_show_what_tokens_alone_do_not() -> None:
    """Masking one result at every step sends fewer tokens than full history and costs more."""
    _, board = evaluated("coding-agents")
    every, full = board.loc[(0.5, "observation_mask() | panic()")], board.loc[(0.5, "full()")]
    assert every["tokens_mean"] < full["tokens_mean"] / 2
    assert every["cost_usd"] > full["cost_usd"]
    assert board.loc[(0.25, "oracle()"), "recall_far"] == 1
    assert board.loc[(0.25, "nothing()"), "recall_far"] < 0.2


@pytest.mark.evals
def test_in_customer_service_and_chat_the_controls_bound_the_rest() -> None:
    for name, score in (("customer-service", "recall_far"), ("long-chat", "evidence_recall")):
        _, board = evaluated(name)
        for _, rows in board.groupby("limit"):
            found = rows[score].droplevel("limit")
            assert found["full()"] == found["oracle()"] == found.max()
            assert (
                found["nothing()"] <= found.drop("langchain.trim_messages()", errors="ignore").min()
            )


def program(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``python evals`` in a folder."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(ROOT / "evals"), *arguments],
        capture_output=True,
        cwd=folder,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, **variables},
    )


@pytest.mark.evals
def test_an_experiment_without_its_data_is_skipped_with_a_sentence(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(
        ("CTXLAB_DATA", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"), str(tmp_path)
    )
    done = program(tmp_path, "published-claims", **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert "skipped: the data set mini-swe-agent is not downloaded" in done.stdout


@pytest.mark.evals
def test_what_is_run_is_saved_by_its_name_with_the_options_given(tmp_path: Path) -> None:
    done = program(tmp_path, "customer-service", "-l", "3k", "-s", "nothing")
    assert done.returncode == 0
    board = Results.load(tmp_path / "runs" / "customer-service").leaderboard()
    assert list(board["limit"]) == [3000]


@pytest.mark.evals
def test_an_experiment_that_fails_is_not_hidden(tmp_path: Path) -> None:
    done = program(tmp_path, "stress", "-s", "no_such_strategy")
    assert done.returncode == 2
    assert "no_such_strategy" in done.stderr


@pytest.mark.evals
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stres"], "unknown experiment 'stres'; choose from coding-agents, customer-service"),
        (["stress", "-l", "3k", "stres"], "unknown experiment 'stres'"),
        (["stress", "--lmit", "3k"], "unknown option of ctxlab eval '--lmit'; did you mean"),
    ],
)
def test_a_typo_is_an_error_before_anything_is_run(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = program(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.evals
def test_all_are_run_also_after_one_that_failed(tmp_path: Path) -> None:
    done = program(tmp_path, "customer-service", "stress", "-s", "no_such_strategy")
    assert done.returncode == 2
    assert done.stderr.count("no_such_strategy") == 2


@pytest.mark.evals
def test_help_names_the_experiments_and_runs_none(tmp_path: Path) -> None:
    done = program(tmp_path, "--help")
    assert done.returncode == 0
    assert all(path.stem in done.stdout for path in EXPERIMENTS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.evals
def test_an_option_keeps_its_value_wherever_it_stands(tmp_path: Path) -> None:
    done = program(tmp_path, "-l3k", "-s", "nothing", "stress", "--json")
    assert done.returncode == 0
    assert Results.load(tmp_path / "runs" / "stress").manifest["spec"]["limits"] == [3000]

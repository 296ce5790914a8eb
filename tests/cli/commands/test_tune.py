"""Tests of ``ctxlab tune``, which prints a frontier or JSON and a summary, or saves a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest
from running import Run, on_a_terminal
from trips import trips

from ctxlab._utils.numbers import format_share, format_usd
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tuning.search_space import DEFAULT_SPACES
from ctxlab.formats import write

MASK = "observation_mask(keep=[1, 3, 8]) | [sliding_window, in_batches(sliding_window)] | panic"
SUMMARY = "rolling_summary(target=[0.3, 0.5, 0.7], keep_recent=[2, 10]) | panic"
FEW = ("-s", MASK, "-s", SUMMARY, "-l", "4k", "-l", "8k", "--model", "gpt-4o")


@pytest.fixture
def trails(tmp_path: Path) -> Path:
    """Return a folder of twelve recordings of twelve different tasks."""
    folder = tmp_path / "trails"
    folder.mkdir()
    for number, recording in enumerate(trips(12)):
        write([recording], folder / f"{number:02d}.jsonl")
    return folder


@pytest.mark.e2e
def test_it_prints_the_frontier_and_the_verdict_last(run: Run, trails: Path) -> None:
    said = run("tune", trails, *FEW, "--min-recall", "0.2")
    assert said.code == 0
    *lines, last = said.out.rstrip("\n").split("\n")
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in said.out
    assert last.startswith("Recommended: ")
    assert sum(line.rstrip().endswith(" *") or " * " in line for line in lines) == 1
    assert "on the tuning set. On 6 held-out clusters, it reaches this minimum (0.20)" in last
    words = " ".join(said.out.split())
    for part in ("of 24 are on the cost-gain frontier of 6 clusters", "6 other clusters", "off-policy",
                 "upper bound", "their difference (the optimism) is"):  # fmt: skip
        assert part in words
    assert "optimism (95 %)" in said.out


@pytest.mark.e2e
def test_it_says_how_to_go_on_with_what_it_found(run: Run, trails: Path) -> None:
    said = run("tune", trails, *FEW, "--min-recall", "0.2")
    (advice,) = [line for line in said.err.split("\n") if "next: ctxlab eval" in line]
    arguments = advice.split("ctxlab eval ")[1]
    before, strategy = arguments.split(" -s full -s ")
    again = run("eval", *before.split(), "-s", strategy.strip("'"), "-s", "full", "--json")
    assert again.code == 0
    assert {row["strategy"] for row in json.loads(again.out)} >= {"full()"}


@pytest.mark.e2e
def test_json_is_the_frontier_with_limits_as_given(run: Run, trails: Path) -> None:
    rows = json.loads(run("tune", trails, *FEW, "--json").out)
    assert {row["limit"] for row in rows} <= {4000, 8000}
    assert all(isinstance(row["limit"], int) for row in rows)
    assert {"strategy", "cost_usd", "cost_share", HEADLINE_SCORE, f"{HEADLINE_SCORE}_low", "dominated",
            f"tuned_{HEADLINE_SCORE}", f"{HEADLINE_SCORE}_optimism"} <= set(rows[0])  # fmt: skip
    assert [row["cost_usd"] for row in rows] == sorted(row["cost_usd"] for row in rows)


@pytest.mark.e2e
def test_what_is_saved_is_a_run_that_other_commands_read(
    run: Run, trails: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run("tune", trails, *FEW, "--out", out).code == 0
    saved = Results.load(out)
    assert saved.cluster_count == 6
    assert len(pd.read_parquet(out / "trials.parquet")) == 24 + 2
    again = run("eval", out)
    assert again.code == 0
    assert "6 are new" in again.err  # it replays what was tuned on as well, and says so


@pytest.mark.e2e
def test_the_same_seed_gives_the_same_and_another_holds_out_others(run: Run, trails: Path) -> None:
    one, two, other = (
        run("tune", trails, *FEW, "--seed", seed, "--trials", 8).out for seed in (3, 3, 4)
    )
    assert one == two != other


@pytest.mark.e2e
def test_a_name_is_the_space_that_is_searched_by_default(run: Run, trails: Path) -> None:
    options = ("-l", "8k", "-m", "gpt-4o", "--json")
    named = run("tune", trails, "-s", "rolling_summary", *options)
    assert named.out == run("tune", trails, "-s", DEFAULT_SPACES["rolling_summary"], *options).out
    assert named.code == 0


@pytest.mark.e2e
def test_holding_nothing_out_is_said_loudly(run: Run, trails: Path) -> None:
    said = run("tune", trails, *FEW, "--holdout", "0")
    assert "warning: nothing was held out" in said.err
    assert (
        said.out.rstrip("\n").split("\n")[-1].startswith("Nothing was held out, so these figures")
    )
    assert "optimism" not in said.out


@pytest.mark.e2e
def test_another_objective_is_weighed(run: Run, trails: Path) -> None:
    said = run("tune", trails, *FEW, "--objective", "tokens_mean,recall")
    assert said.code == 0
    assert f"A verdict needs {HEADLINE_LABEL}" in said.out


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-s", "observation_mask(keep=[])"), "at least one alternative, got [], at character 23"),
        (("-s", "observation_mask(kep=[1])"), "unexpected keyword argument 'kep'"),
        (
            ("-s", "rolling_summary(model='gpt-4o') | panic"),
            "would be called in every trial; ctxlab tune does not allow that",
        ),
        (("--holdout", "0.1"), "use --holdout 0.42"),
        (("--holdout", "1.5"), "--holdout must be at least 0 and below 1"),
        (("--objective", "cost_usd"), "--objective: expected two scores"),
        (("--objective", "cost_usd,speed"), "--objective: unknown gain 'speed'"),
        (
            ("--objective", "cost_usd,evidence_recall"),
            "choose another one, such as --objective tokens_mean,recall",
        ),
        (("-l", "lots"), "lots"),
        (("--trials", "0"), "--trials must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence_and_ends_with_2(
    run: Run, trails: Path, options: tuple[str, ...], said: str
) -> None:
    found = run("tune", trails, "-m", "gpt-4o", *options)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert found.err.rstrip("\n").count("\n") == 0


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="a terminal is opened as POSIX has it")
@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_cost_and_where_tuned_stand_beside_what_was_held_out_however_narrow(
    run: Run, trails: Path, columns: int
) -> None:
    lines = on_a_terminal(columns, "tune", str(trails), *FEW)
    assert max(map(len, lines)) <= columns
    words = " ".join(" ".join(lines).split())
    rows = json.loads(run("tune", trails, *FEW, "--json").out)
    for row in rows:
        shares = (row[f"tuned_{HEADLINE_SCORE}"], row[HEADLINE_SCORE])
        for figure in (format_usd(row["cost_usd"]), *map(format_share, shares)):
            assert any(f" {figure}" in line for line in lines)
    assert f"tuning set: {HEADLINE_LABEL}" in words
    assert ("vs full:" in words.lower()) == ("% (95 %)" in words)
    hidden = words.partition("Hidden at this width: ")[2].partition(";")[0].split(", ")
    assert ("optimism" in hidden) == ("optimism (95 %)" not in words)


def test_one_configuration_is_worth_its_price(run: Run, trails: Path) -> None:
    said = run("tune", trails, "-s", "panic", "-l", "4k", "-m", "gpt-4o")
    assert said.out.count("1 configuration of 1 is on the cost-gain frontier") == 1


def test_a_search_without_holdout_says_how_to_measure_the_choice(run: Run, logs: Path) -> None:
    said = run("tune", logs, "-s", "panic", "-l", "4k", "-m", "gpt-4o", "--holdout", "0")
    assert "All 3 clusters were searched. Before you rely" in " ".join(said.out.split())


def test_what_is_saved_says_what_repeating_it_replays(
    run: Run, trails: Path, tmp_path: Path
) -> None:
    said = run("tune", trails, "-s", "panic", "-l", "4k", "-m", "gpt-4o", "--out", tmp_path / "run")
    assert "replays the frontier on all recordings, including those of the search" in said.err


def test_help_teaches_with_examples(run: Run) -> None:
    said = run("tune", "--help").out
    assert "ctxlab tune ~/.claude/projects" in said
    assert "observation_mask(keep=[1, 3, 10" in said
    names = said.split("Default search spaces:")[1].split(".")[0]
    assert {name.strip() for name in names.split(",")} == set(DEFAULT_SPACES)

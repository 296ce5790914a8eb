"""Tests of ``ctxlab compare``, which reads a saved run or replays recordings."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace
from running import Run, a_recording, on_a_terminal

from ctxlab.evaluation.comparison import compare_strategies
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.formats import write

PAIR = ("panic", "sliding_window")
LIMIT = ("-l", "4k")


def saved(run: Run, logs: Path, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    said = run(
        "eval", logs, *LIMIT, "-l", "3k", *(x for s in PAIR for x in ("-s", s)), "--out", out
    )
    assert said.code == 0
    return out


@pytest.mark.e2e
def test_a_saved_run_is_compared_without_its_data(run: Run, logs: Path, tmp_path: Path) -> None:
    folder = saved(run, logs, tmp_path)
    for log in logs.iterdir():
        log.unlink()
    said = run("compare", folder, "panic @ 4k", "sliding_window @ 3k")
    assert said.code == 0
    *lines, last = said.out.rstrip("\n").split("\n")
    assert max(map(len, lines)) <= 100
    assert "a  panic() @ 4,000" in said.out
    assert last.startswith(f"{HEADLINE_SCORE}: panic() @ 4,000 ")
    assert "clusters)" in last


@pytest.mark.e2e
def test_a_run_and_a_replay_of_the_same_data_agree(run: Run, logs: Path, tmp_path: Path) -> None:
    folder = saved(run, logs, tmp_path)
    mine = run("compare", folder, "panic @ 4k", "sliding_window @ 4k", "--json")
    other = run("compare", logs, *PAIR, *LIMIT, "--json", "--out", tmp_path / "again")
    assert json.loads(mine.out) == json.loads(other.out)
    assert (tmp_path / "again" / "manifest.json").is_file()


@pytest.mark.e2e
def test_equal_tokens_says_which_limit_that_takes(run: Run, logs: Path) -> None:
    said = run("compare", logs, "tool_stubs(keep=3)", "sliding_window", *LIMIT, "--equal-tokens",
               "--json")  # fmt: skip
    assert "sliding_window under the limit" in said.err
    rows = {row["score"]: row for row in json.loads(said.out)}
    assert abs(rows["tokens_mean"]["difference"]) < 0.1
    assert rows["tokens_mean"]["limit_b"] != 4000


@pytest.mark.e2e
def test_tables_are_written_for_papers(run: Run, logs: Path) -> None:
    assert run("compare", logs, *PAIR, *LIMIT, "--latex").out.startswith(r"\begin{tabular}")
    assert run("compare", logs, *PAIR, *LIMIT, "--markdown").out.startswith("| a | b |")


@pytest.mark.e2e
def test_what_makes_no_sense_is_refused_in_one_sentence(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    folder = saved(run, logs, tmp_path)
    for arguments, hint in (
        ((folder, *PAIR, *LIMIT), "so limits cannot be set"),
        ((logs, "panic", *LIMIT), "or one strategy and two limits"),
        ((logs, *PAIR, *LIMIT, "-l", "3k", "--equal-tokens"), "one limit"),
        ((folder, *PAIR, "--margin", HEADLINE_SCORE), "--margin"),
        ((folder, *PAIR, "--margin", "recall=-0.02"), "0 or more for recall, got -0.02"),
        ((folder, *PAIR, "--out", tmp_path / "again"), "so out cannot be set"),
        ((folder, *PAIR, "--resamples", "999"), "--resamples: expected 1,000 or more, got 999"),
        ((logs, "panic @ 4k", "panic @ 4k"), "or one strategy and two limits"),
        ((logs, "panic @ 4k", "sliding_window @ 3k", *LIMIT), "every strategy has an @ LIMIT"),
        (
            (logs, "panic", "sliding_window @ 3k", *LIMIT, "--equal-tokens"),
            "only the first strategy can have an @ LIMIT",
        ),
        ((folder, *PAIR, "--latex", "--json"), "use only one of them"),
        ((folder, "panic", "tool_stubs"), "unknown strategy of this evaluation"),
    ):
        said = run("compare", *arguments)
        assert said.code == 2
        assert hint in said.err
        assert len(said.err.strip().split("\n")) == 1
    assert not (tmp_path / "again").exists()


@pytest.mark.e2e
def test_many_pairs_are_summarized_against_the_first_strategy(run: Run, logs: Path) -> None:
    many = ("full", "nothing", *PAIR, "tool_stubs")
    options = (*LIMIT, "--resamples", "1000", "--score", HEADLINE_SCORE)
    said = run("compare", logs, *many, *options)
    assert f"{HEADLINE_SCORE}: a = full() @ 4,000" in said.out
    assert "a  panic() @ 4,000" not in said.out
    assert said.out.rstrip().endswith("--all shows every pair.")
    whole = run("compare", logs, *many, *options, "--all").out
    assert whole.count("\na  ") == 10
    assert f"Recordings that differ most in {HEADLINE_SCORE}" in whole


LONG = "observation_mask(keep=3) | rolling_summary(keep_recent=4) | sliding_window | panic"


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="a terminal is opened as POSIX has it")
@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_names_take_no_room_from_figures_and_no_figure_is_cut(
    run: Run, logs: Path, tmp_path: Path, columns: int
) -> None:
    for number in range(6, 18):
        write([replace(a_recording(number), cluster=None)], logs / f"{number}.jsonl")
    out = tmp_path / "run"
    run("eval", logs, *LIMIT, "-s", LONG, "-s", f"tool_stubs | {LONG}", "--out", out)
    margins = ("--margin", f"{HEADLINE_SCORE}=0.02", "--margin", "tokens_mean=5%")
    lines = on_a_terminal(columns, "compare", str(out), *margins)
    assert max(map(len, lines)) <= columns
    table = lines[: lines.index("")]
    names = [line for line in table if line[:3] in ("a  ", "b  ")]
    assert len(names) == 2
    words = " ".join(" ".join(table).split())
    shown = compare_strategies(
        Results.load(out), margins={HEADLINE_SCORE: 0.02, "tokens_mean": 0.05}
    )
    for cells in shown.rows():
        figures = cells[2:7]
        assert all(word in words for figure in figures for word in figure.split())
        assert set(cells[-1].replace(";", "").split()) <= set(words.replace(";", "").split())
    told = " ".join(" ".join(lines).split())
    heads = {head for head in ("w/t/l", "(Holm)") if head in words}
    assert ("Hidden at this width:" in told) == (" effect " not in table[1])
    assert ("w/t/l: recordings" in told) == ("w/t/l" in heads)
    assert ("permutation test" in told) == ("(Holm)" in heads)
    assert ("(Holm)" in heads) == (columns >= 80)


@pytest.mark.e2e
def test_the_very_pair_that_was_named_is_replayed_and_compared(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    said = run("compare", logs, "panic @ 4k", "sliding_window @ 3k", "--json")
    assert {
        (row["a"], row["limit_a"], row["b"], row["limit_b"]) for row in json.loads(said.out)
    } == {("panic()", 4000, "sliding_window()", 3000)}
    saved_one = saved(run, logs, tmp_path)
    same = run("compare", saved_one, "panic @ 4k", "sliding_window @ 3k", "--json")
    assert said.out == same.out


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "choices", [("panic @ 4k", "panic @ 3k"), ("panic", "-l", "4k", "-l", "3k")]
)
def test_one_strategy_is_compared_at_two_limits_of_data(
    run: Run, logs: Path, choices: tuple[str, ...]
) -> None:
    rows = json.loads(run("compare", logs, *choices, "--json").out)
    assert {(row["limit_a"], row["limit_b"]) for row in rows} == {(4000, 3000)}


def test_a_strategy_without_a_limit_is_replayed_within_the_common_ones_alone(
    run: Run, logs: Path
) -> None:
    said = run("compare", logs, "panic", "tool_stubs", "sliding_window @ 3k", *LIMIT, "--json")
    pairs = {(row["a"], row["limit_a"], row["b"], row["limit_b"]) for row in json.loads(said.out)}
    assert pairs == {
        ("panic()", 4000, "tool_stubs()", 4000),
        ("panic()", 4000, "sliding_window()", 3000),
        ("tool_stubs()", 4000, "sliding_window()", 3000),
    }


@pytest.mark.e2e
def test_what_equal_tokens_saved_is_compared_again_as_it_says(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    said = run("compare", logs, "tool_stubs(keep=3)", "sliding_window", *LIMIT, "--equal-tokens",
               "--json", "--out", tmp_path / "a run")  # fmt: skip
    (advice,) = [line for line in said.err.split("\n") if "compare it again with: " in line]
    arguments = shlex.split(advice.split("compare it again with: ctxlab ")[1])
    again = run(*arguments, "--json")
    assert again.code == 0
    assert again.out == said.out


@pytest.mark.e2e
def test_a_replay_says_what_an_evaluation_says(run: Run, logs: Path) -> None:
    (logs / "notes.txt").write_text("nothing of use")
    claude = replace(a_recording(7), id="claude", model="claude-opus-4-5")
    write([claude], logs / "claude.jsonl")
    said, told = (run(command, logs, *more, *LIMIT) for command, more in (
        ("compare", PAIR), ("eval", [x for s in PAIR for x in ("-s", s)])))  # fmt: skip
    assert said.err == told.err
    assert "skipped 1 file" in said.err
    assert "priced by their own models: claude-opus-4-5 (1)" in said.err
    named = run("compare", logs, *PAIR, *LIMIT, "-m", "gpt-5").err
    assert "counted and priced as gpt-5; recorded with claude-opus-4-5 (1)" in named
    basis = " ".join(said.out.split())
    for words in (
        "Tokens are counted with o200k_base, the encoding of gpt-5.",
        "The tokenizer of claude-opus-4-5 is not public",
        "gpt-5: input $1.25, cached $0.125, output $10",
        "claude-opus-4-5: input $5, cached $0.5, output $25",
    ):
        assert basis.count(words) == 1

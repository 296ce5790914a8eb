"""Tests of ``ctxlab gate``: exit status 0 if budgets hold, 1 if one is exceeded, 2 on errors."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from running import Run, a_recording, on_a_terminal

from ctxlab.formats import write

BUDGETS = """
[logs]
[logs.all]
strategy = "full"
max = { invalid_rate = 0 }
margin = { tokens_mean = "1 %" }
"""


@pytest.fixture
def gate(logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with budgets that hold and without a baseline, outside of CI."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(logs.parent)
    folder = logs.parent
    (folder / "logs.toml").write_text('data = ["logs"]\nlimits = [8000]\n')
    (folder / "budgets.toml").write_text(BUDGETS)
    return folder


def broken(folder: Path) -> None:
    text = (folder / "budgets.toml").read_text()
    (folder / "budgets.toml").write_text(text.replace('"full"', '"tool_stubs(keep=1) | panic"'))


def better_then_worse(run: Run, folder: Path) -> None:
    """Write a baseline for a strategy, then name a strategy in the budgets that sends more tokens."""
    text = (folder / "budgets.toml").read_text()
    (folder / "budgets.toml").write_text(text.replace('"full"', '"tool_stubs(keep=1)"'))
    assert run("gate", "budgets.toml", "--update").code == 0
    (folder / "budgets.toml").write_text(text)


def test_it_leaves_with_0_where_all_hold(run: Run, gate: Path) -> None:
    assert run("gate", "budgets.toml", "--update").code == 0
    said = run("gate", "budgets.toml")
    assert (said.code, said.err) == (0, "")
    assert said.out.rstrip().endswith("2 bounds: all met.")


def test_it_leaves_with_1_where_one_is_broken_and_says_the_sentence(run: Run, gate: Path) -> None:
    better_then_worse(run, gate)
    said = run("gate", "budgets.toml")
    assert said.code == 1
    assert re.search(
        r"BREACH: logs / all at 8,000: token mean rose from [\d,]+ to [\d,]+ \(\+[\d,]+; margin 1 %, "
        r"which is \d+; too few clusters for an interval \(3\)\); "
        r"all is now full\(\) and was tool_stubs\(keep=1\)\.\n",
        said.out,
    )
    assert said.out.rstrip().endswith("2 bounds: 1 violated.")


FAULTS = {
    "no file": (["gate", "nowhere.toml"], "nowhere.toml: No such file"),
    "no file named": (["gate"], "evals/budgets.toml: No such file"),
    "no baseline": (["gate", "budgets.toml"], "run ctxlab gate budgets.toml --update"),
    "experiment": (["gate", "budgets.toml", "-e", "lags"], "did you mean logs?"),
    "update and report": (
        ["gate", "budgets.toml", "--update", "--json"],
        "--update writes no report; remove --markdown, --junit and --json",
    ),
    "score": (["gate", "score.toml"], "score.toml: logs: a: max: unknown score 'recal'"),
    "strategy that raises": (["gate", "raises.toml"], "getcwd failed at message"),
    "strategy that fails unseen": (["gate", "odd.toml"], "unexpected ZeroDivisionError"),
    "data": (["gate", "data.toml"], "nowhere: no such file or folder"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_any_fault_leaves_with_2_and_a_sentence(run: Run, gate: Path, case: str) -> None:
    (gate / "odd_tricks.py").write_text("raise ZeroDivisionError('at import')\n")
    (gate / "none.toml").write_text('data = ["nowhere"]\n')
    for name, table in {
        "score": '[logs.a]\nstrategy = "full"\nmax = { recal = 1 }',
        "raises": '[logs.a]\nstrategy = "os.getcwd"\nmax = { recall = 1 }',
        "odd": '[logs.a]\nstrategy = "odd_tricks.first"\nmax = { recall = 1 }',
        "data": '[none.a]\nstrategy = "full"\nmax = { recall = 1 }\nlimits = 0.5',
    }.items():
        (gate / f"{name}.toml").write_text(table)
    arguments, words = FAULTS[case]
    said = run(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("ctxlab: ")
    assert words in said.err


@pytest.mark.e2e
def test_the_program_leaves_as_the_function_returns(program: Run, run: Run, gate: Path) -> None:
    better_then_worse(run, gate)
    assert program("gate", "budgets.toml", cwd=gate).code == 1
    assert program("gate", "nowhere.toml", cwd=gate).code == 2


def test_the_table_takes_a_line_a_bound_at_100_columns(run: Run, gate: Path) -> None:
    better_then_worse(run, gate)
    table = run("gate", "budgets.toml").out.split("\n\n")[0].split("\n")
    assert len(table) == 4
    assert max(map(len, table)) <= 100
    assert [line.split()[0] for line in table[1:]] == ["logs", "BREACH", "ok"]


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="a terminal is opened as POSIX has it")
@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_no_figure_is_cut_and_names_keep_their_words(run: Run, gate: Path, columns: int) -> None:
    budgets = gate / "budgets.toml"
    budgets.write_text(BUDGETS.replace("logs.all", "logs.as-it-was-before"))
    better_then_worse(run, gate)
    lines = on_a_terminal(columns, "gate", "budgets.toml")
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= columns
    assert any(" as-it-was-before" in line for line in table)
    rows = json.loads(run("gate", "budgets.toml", "--json").out)
    words = " ".join(" ".join(lines).split())
    for row in rows:
        assert f"{row['now']:,.0f}" in " ".join(table)
        assert row["score"] in " ".join(table)
    assert "margin 1 %" in " ".join(table)
    assert ("Hidden at this width:" in words) == ("baseline" not in table[0])
    assert ("difference (95 %)" in table[0]) == (columns >= 80)


def test_json_holds_a_bound_an_object(run: Run, gate: Path) -> None:
    better_then_worse(run, gate)
    said = run("gate", "budgets.toml", "--json")
    rows = json.loads(said.out)
    assert said.code == 1
    assert [(row["score"], row["kind"], row["fails"]) for row in rows] == [
        ("tokens_mean", "margin", True),
        ("invalid_rate", "max", False),
    ]
    assert rows[0]["difference"] == pytest.approx(rows[0]["now"] - rows[0]["baseline"])
    assert rows[1]["baseline"] is None


def test_markdown_has_the_table_and_the_sentences(run: Run, gate: Path) -> None:
    better_then_worse(run, gate)
    run("gate", "budgets.toml", "--markdown", "out/gate.md")
    lines = (gate / "out" / "gate.md").read_text().split("\n")
    assert "**2 bounds: 1 violated.**" in lines
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
    assert any(line.startswith("- BREACH: logs / all at 8,000: token mean rose") for line in lines)


@pytest.mark.e2e
def test_in_github_actions_the_summary_of_the_step_is_added_to(
    run: Run, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("gate", "budgets.toml", "--update")
    summary = gate / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    said = run("gate", "budgets.toml")
    assert "the table was added to the step summary" in said.err
    assert summary.read_text().startswith("before\n### ctxlab gate\n")
    run("gate", "budgets.toml", "--markdown", "own.md")
    assert summary.read_text().count("### ctxlab gate") == 1


def test_junit_xml_counts_what_it_holds(run: Run, gate: Path) -> None:
    better_then_worse(run, gate)
    run("gate", "budgets.toml", "--junit", "gate.xml")
    root = ElementTree.parse(gate / "gate.xml").getroot()
    (suite,) = root
    assert (root.tag, suite.tag, suite.get("name")) == ("testsuites", "testsuite", "logs")
    for each in (root, suite):
        counts = [each.get(key) for key in ("tests", "failures", "errors", "skipped")]
        assert counts == ["2", "1", "0", "0"]
    cases = suite.findall("testcase")
    assert all(case.get("classname") and case.get("name") for case in cases)
    (failure,) = suite.iter("failure")
    assert failure.get("message") == failure.text
    assert "token mean rose" in (failure.text or "")


def test_an_update_prints_old_and_new(run: Run, gate: Path) -> None:
    first = run("gate", "budgets.toml", "--update")
    assert re.search(r"logs / all at 8,000: token mean none → [\d,]+\n", first.out)
    assert run("gate", "budgets.toml", "--update").out == (
        "baseline.json is up to date: nothing changed\n"
    )
    broken(gate)
    again = run("gate", "budgets.toml", "--update")
    assert re.search(r"logs / all at 8,000: token mean [\d,]+ → [\d,]+\n", again.out)
    assert again.out.endswith("baseline.json was rewritten; commit it\n")


def test_files_that_were_left_out_are_said(run: Run, gate: Path) -> None:
    run("gate", "budgets.toml", "--update")
    (gate / "logs" / "notes.txt").write_text("nothing of use")
    assert "skipped 1 file" in run("gate", "budgets.toml").err


LOGS = ("gate", "--old", "old", "--new", "new", "-m", "gpt-5")


@pytest.fixture
def grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with old logs, and with new logs of an agent that makes more calls."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    for folder, turns in (("old", 14), ("new", 24)):
        (tmp_path / folder).mkdir()
        for number in range(8):
            recording = replace(a_recording(number, turns + number % 3), cluster=f"task-{number}")
            write([recording], tmp_path / folder / f"{number}.jsonl")
    return tmp_path


@pytest.mark.e2e
def test_new_logs_that_grew_beyond_the_margin_leave_with_1(run: Run, grown: Path) -> None:
    said = run(*LOGS)
    assert said.code == 1
    assert re.search(r"\nBREACH: new logs: token total per recording rose from [\d,]+ to", said.out)
    rows = {row["score"]: row for row in json.loads(run(*LOGS, "--json").out)}
    row = rows["calls_per_recording"]
    assert (row["fails"], row["limit"], row["strategy"]) == (True, None, "recorded()")
    assert (
        row["bound"] < row["low"] < row["difference"] == row["now"] - row["baseline"] < row["high"]
    )
    wide = [f"--margin={name}=900%" for name in rows if not name.startswith("recall")]
    assert run(*LOGS, *wide).code == 0
    assert run("gate", "--old", "new", "--new", "old", "-m", "gpt-5", "--junit", "a.xml").code == 0
    assert ElementTree.parse(grown / "a.xml").getroot().get("failures") == "0"


@pytest.mark.e2e
def test_unclear_scores_leave_with_1_only_if_the_check_is_strict(run: Run, grown: Path) -> None:
    same = ("gate", "--old", "old", "--new", "old", "-m", "gpt-5")
    lenient, strict = run(*same), run(*same, "--strict")
    assert "5 unclear" in lenient.out
    assert (lenient.code, strict.code) == (0, 1)
    assert lenient.out == strict.out
    unsettled = [r["score"] for r in json.loads(run(*same, "--json").out) if r["outcome"] != "ok"]
    met = run(*same, "--strict", *(f"--margin={name}=900%" for name in unsettled))
    assert met.code == 0
    assert "all met" in met.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gate", "--old", "old"], "expected both --old and --new"),
        ([*LOGS, "budgets.toml"], "take no FILE"),
        ([*LOGS, "--update"], "take no FILE, --update"),
        (["gate", "--margin", "recall=0.1"], "need --old and --new"),
        (["gate", "--strict"], "need --old and --new"),
        (
            [*LOGS, "--margin", "recall"],
            "expected NAME=MARGIN, such as tokens_mean=10%, got 'recall'",
        ),
        ([*LOGS, "--margin", "recal=0.1"], "did you mean recall"),
        ([*LOGS, "-s", "full", "-s", "nothing"], "at most one --strategy"),
        (["gate", "--old", "nowhere", "--new", "new"], "nowhere: no such file"),
    ],
)
def test_wrong_options_for_logs_leave_with_2(
    run: Run, grown: Path, arguments: list[str], words: str
) -> None:
    said = run(*arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err

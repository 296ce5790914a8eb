"""Tests of ``ctxlab canaries``, which prints a table, JSON, or the recordings with canaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from running import NAMELESS, Run, a_recording

from ctxlab.cli.commands.canaries import _BREAKDOWNS
from ctxlab.evaluation.canaries import read_canaries
from ctxlab.evaluation.survival import BREAKDOWNS, measure_survival
from ctxlab.formats import load, write

LIMIT = ("-l", "3k")
SOME = ("-s", "full", "-s", "rolling_summary", "-s", "observation_mask(keep=2) | panic")


def test_json_is_all_of_standard_output_and_says_what_python_says(run: Run, logs: Path) -> None:
    said = run("canaries", logs, *LIMIT, *SOME, "--json", "--seed", "3", "--reserve", "500")
    rows = json.loads(said.out)
    assert (said.code, said.err) == (0, NAMELESS)
    some = [s for s in SOME if s != "-s"]
    found = measure_survival(list(load(logs)), some, "3k", seed=3, reserve=500)
    frame = found.breakdown("kind").set_index(["strategy", "kind"])
    for row in rows:
        if row["kind"] is not None:
            assert row["survival_end"] == frame.loc[(row["strategy"], row["kind"]), "survival_end"]
    whole = [row for row in rows if row["kind"] is None]
    assert [row["strategy"] for row in whole] == [
        "full()",
        "rolling_summary()",
        "observation_mask(keep=2) | panic()",
    ]
    assert all(row["limit"] == 3000 and isinstance(row["limit"], int) for row in rows)
    assert whole[0]["survival"] == 1
    assert whole[0]["survival_end_low"] is None


@pytest.mark.simulations(smoke=True)
@pytest.mark.parametrize("by", BREAKDOWNS)
def test_the_table_is_readable_at_100_columns(run: Run, logs: Path, by: str) -> None:
    said = run("canaries", logs, *LIMIT, "-l", "50%", "--by", by)
    *lines, verdict = said.out.rstrip("\n").split("\n")
    assert said.code == 0
    assert verdict.count("Within ") == 2
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in said.out
    assert by in lines[0]
    assert "within 3,000 tokens" in said.out
    assert "within 50 % of each recording" in said.out
    assert "60 canaries in 6 recordings, 3 clusters" in " ".join(said.out.split())


def test_every_breakdown_can_be_asked_for(run: Run, logs: Path) -> None:
    assert _BREAKDOWNS == BREAKDOWNS
    said = run("canaries", logs, "--by", "dept")
    assert (said.code, said.out) == (2, "")
    assert "did you mean depth?" in said.err


def test_kinds_depths_and_numbers_are_those_that_were_asked_for(run: Run, logs: Path) -> None:
    options = ("--kind", "fact", "--kind", "path", "--depth", "0.2", "--depth", "0.6", "-n", "4")
    said = run("canaries", logs, *LIMIT, "-s", "full", *options, "--by", "depth", "--json")
    rows = json.loads(said.out)
    assert [(row["depth"], row["canaries"]) for row in rows] == [(None, 24), (0.2, 12), (0.6, 12)]


def test_planted_recordings_are_written_with_their_questions(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "planted"
    said = run("canaries", logs, "--write", out, "-n", "5")
    assert (said.code, said.out) == (0, "")
    assert f"wrote 6 recordings with 5 canaries each to {out}" in said.err
    again = list(load(out))
    assert [len(read_canaries(recording)) for recording in again] == [5] * 6
    assert all(len(recording.probes) == 5 for recording in again)
    told = run("canaries", logs, "--write", out, "-n", "5")
    assert told.code == 2
    assert "--force" in told.err
    assert run("canaries", logs, "--write", out, "-n", "5", "--force").code == 0


@pytest.mark.e2e
def test_recordings_that_were_planted_before_are_measured_as_they_are(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    run("canaries", logs, "--write", tmp_path / "planted", "-n", "3")
    said = run("canaries", tmp_path / "planted", *LIMIT, "-s", "full", "--json")
    assert json.loads(said.out)[0]["canaries"] == 18
    twice = run("canaries", tmp_path / "planted", "--write", tmp_path / "twice")
    assert twice.code == 2
    assert "already has canaries" in twice.err


def test_recordings_without_room_are_named(run: Run, logs: Path) -> None:
    (logs / "short.jsonl").write_text(
        '{"role":"user","content":"hi"}\n{"role":"assistant","content":"hello"}\n'
    )
    said = run("canaries", logs, *LIMIT, "-s", "full", "--json")
    assert said.code == 0
    assert "skipped 1 recording: short: 10 canaries need 12 suitable messages" in said.err
    none = run("canaries", logs / "short.jsonl", *LIMIT)
    assert none.code == 2
    assert none.err.startswith("ctxlab: no canary could be planted: short: ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-n", "0"), "expected 1 to"),
        (("--kind", "facts"), "did you mean fact?"),
        (("--depth", "3"), "shares from 0 to 1"),
        (("-s", "nobody"), "unknown strategy"),
        (("--write", ""), "--write: expected a folder, got an empty string"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run, logs: Path, options: tuple[str, ...], says: str
) -> None:
    said = run("canaries", logs, *options)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert said.err.count("\n") == 1


def test_it_says_what_was_left_out_and_of_which_model_it_counts(run: Run, logs: Path) -> None:
    (logs / "notes.txt").write_text("nothing of use")
    claude = replace(a_recording(7), id="claude", model="claude-opus-4-5")
    write([claude], logs / "claude.jsonl")
    said = run("canaries", logs, *LIMIT, "-s", "full", "--json").err
    assert "skipped 1 file" in said
    assert (
        "by their own models: claude-opus-4-5 (1); as gpt-5: 6 recordings that name no model"
        in said
    )
    named = run("canaries", logs, *LIMIT, "-s", "full", "-m", "gpt-5").err
    assert "counted and priced as gpt-5; recorded with claude-opus-4-5 (1)" in named


def test_a_file_of_planted_recordings_tells_one_from_the_other(tmp_path: Path, run: Run) -> None:
    write([a_recording(number) for number in range(2)], tmp_path / "all.jsonl")
    run("canaries", tmp_path / "all.jsonl", "--write", tmp_path / "out", "-n", "2")
    values = [{c.value for c in read_canaries(recording)} for recording in load(tmp_path / "out")]
    assert len(values) == 2
    assert not values[0] & values[1]

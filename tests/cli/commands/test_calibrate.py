"""Tests of ``ctxlab calibrate``: it fits a profile to billed tokens and saves it for later runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Run

from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording, Usage

MODEL = "claude-opus-4-5"


@pytest.fixture
def billed(tmp_path: Path) -> Path:
    """Return a file with two sessions whose bills have ten tokens per word."""
    folder = tmp_path / "billed"
    folder.mkdir()
    for number in range(2):
        messages, words = [Message("user", "hi")], 0
        for turn in range(40):
            usage = Usage(input=1000 + 10 * words)
            said = "word " * (1 + (turn * (number + 2)) % 9)
            messages.append(Message("assistant", said, usage=usage))
            words += len(said.split())
        write([Recording(f"s{number}", tuple(messages), model=MODEL)], folder / f"{number}.jsonl")
    return folder


@pytest.mark.e2e
def test_what_was_learned_is_used_by_later_runs_in_the_project(
    run: Run, billed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = json.loads(run("describe", billed, "--json").out)["recordings"]
    said = run("calibrate", billed)
    assert said.code == 0
    assert "2 sessions and 80 requests" in said.out
    assert "stored as .ctxlab/profiles/anthropic.json" in said.err
    after = json.loads(run("describe", billed, "--json").out)["recordings"]
    assert before[0]["billed"]["error"] > 0.1
    assert after[0]["billed"]["error"] < 0.01
    run("eval", billed, "-s", "full", "-l", "1.0", "-m", MODEL, "--out", "run")
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert [each["sessions"] for each in manifest["spec"]["profiles"]] == [2]
    Path(".ctxlab/profiles/anthropic.json").unlink()
    again = json.loads(run("eval", "run", "--json").out)
    without = run("eval", billed, "-s", "full", "-l", "1.0", "-m", MODEL, "--json")
    assert again[0]["tokens_mean"] > 3 * json.loads(without.out)[0]["tokens_mean"]


def test_a_dry_run_stores_nothing(
    run: Run, billed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = json.loads(run("calibrate", billed, "--dry-run", "--json").out)
    assert [row["recording"] for row in rows] == ["s0", "s1"]
    assert not (tmp_path / ".ctxlab").exists()


def test_recordings_without_bills_are_refused_in_a_sentence(run: Run, logs: Path) -> None:
    said = run("calibrate", logs)
    assert said.code == 2
    assert "billed usage" in said.err

"""Tests of ``ctxlab recommend``."""

from __future__ import annotations

import json
from pathlib import Path

from running import Run

CHOICE = ("--for", "mini-swe-agent", "-l", "5k", "-m", "gpt-4", "--sample", "1")


def test_it_prints_four_lines_and_what_they_assume_and_keeps_the_figures(
    logs: Path, run: Run, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    said = run("recommend", logs, *CHOICE, "--json", "--out", kept)
    assert said.code == 0, said.err
    assert f"saved to {kept}" in said.err
    found = json.loads(said.out)
    assert found == json.loads((kept / "recommendation.json").read_text(encoding="utf-8"))
    assert list(found["lines"])[:4] == ["Setting", "Saves", "Forgets", "Evidence"]
    assert {fact["name"]: fact["origin"] for fact in found["facts"]}["window"] == "given"
    again = run("recommend", logs, *CHOICE, "--out", kept)  # replaces the earlier recommendation
    assert again.code == 0, again.err
    text = " ".join(again.out.split())
    assert all(f"{name}: {line}" in text for name, line in found["lines"].items())
    assert "Assumed: product mini-swe-agent 2.4.6 (given); window 5,000 tokens (given)" in text


def test_a_folder_with_other_files_is_left_alone(logs: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes", encoding="utf-8")
    said = run("recommend", logs, *CHOICE, "--out", tmp_path)
    assert said.code == 2
    assert "expected an empty folder or a recommendation" in said.err


def test_errors_name_the_options(logs: Path, run: Run) -> None:
    assert "name the product with --for" in run("recommend", logs).err
    assert "--limit: expected a context window in tokens" in run("recommend", logs, "-l", "25%").err

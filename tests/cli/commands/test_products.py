"""Tests of ``ctxlab products``."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from running import Run

CHOICE = ("-s", "codex", "-s", "random_drop", "-l", "5k", "--constraints", "3", "-m", "gpt-4o")


def test_it_shows_what_products_cost_and_forget_and_keeps_the_measurements(
    logs: Path, run: Run, tmp_path: Path
) -> None:
    said = run("products", logs, *CHOICE, "--out", tmp_path / "kept")
    assert said.code == 0, said.err
    head, *rows = [line.split() for line in said.out.splitlines() if line.strip()]
    assert head[:3] == ["cost", "1", "h"]
    assert [row[0] for row in rows[1:6]] == ["within", "codex", "controls", "full", "random_drop"]
    assert f"saved to {tmp_path / 'kept'}" in said.err
    shown = json.loads(run("products", logs, *CHOICE, "--json").out)
    stored = pd.read_parquet(tmp_path / "kept" / "products.parquet")
    assert [row["strategy"] for row in shown] == stored["strategy"].tolist()
    assert [row["held_far"] for row in shown] == stored["held_far"].tolist()


def test_what_was_not_measured_has_no_column(logs: Path, run: Run) -> None:
    said = run("products", logs, *CHOICE, "--no-closed-loop", "--constraints", "0")
    assert said.code == 0, said.err
    assert "held far" in said.out
    assert "closed" not in said.out.split("within")[0]


def test_a_folder_with_other_files_is_left_alone(logs: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("notes", encoding="utf-8")
    said = run("products", logs, *CHOICE, "--out", tmp_path / "mine")
    assert said.code == 2
    assert "expected an empty folder or a comparison of products" in said.err
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["notes.txt"]

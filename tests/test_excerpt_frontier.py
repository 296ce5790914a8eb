"""Tests of ``evals/excerpt_frontier.py``: the frontier, and the page of bundled recordings."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from eval_scripts import bundled_folder, import_eval_script

from ctxlab.strategies.helpers.entity_memory import WEIGHTS


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_eval_script("excerpt_frontier", monkeypatch)


def test_no_cheaper_point_of_the_frontier_holds_as_much(script: ModuleType) -> None:
    random = np.random.default_rng(0)
    costs, held = random.random(60), random.random(60).round(1)
    front = script.pareto(costs, held, range(50))
    for i in range(50):
        better = [k for k in range(50) if costs[k] < costs[i] and held[k] >= held[i]]
        equal = [k for k in range(50) if costs[k] == costs[i] and held[k] > held[i]]
        assert (i in front) == (not better and not equal)


@pytest.mark.evals
def test_the_page_compares_on_both_prices_and_by_family(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    strategies = ["rolling_summary() | panic()", "claude_code() | panic()"]
    monkeypatch.setattr(script, "LIMITS", (6000,))
    monkeypatch.setattr(script, "MAIN_LIMIT", 6000)
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(script, "PIPELINES", (script.WINDOW, script.MASK))
    monkeypatch.setattr(script, "deployable_strategies", lambda: strategies)
    page = script.write_page([bundled_folder()], {name: {"": WEIGHTS} for name in script.ABLATIONS})
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    cells = {row[0].strip(" `"): row for row in rows if len(row) == 8}
    assert [float(each) for each in cells[r"sliding_window() \| panic()"][3:5]] == [1, 1]
    assert float(cells[r"excerpt_memory() \| panic()"][3]) < 1
    assert f"| {Path(bundled_folder()).name} | 6,000 |" in page
    assert (tmp_path / "page.png").is_file()

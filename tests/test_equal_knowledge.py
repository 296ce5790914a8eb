"""Tests of ``evals/equal_knowledge.py``: costs relative to full history, in both loops."""

from __future__ import annotations

from types import ModuleType

import pytest
from eval_scripts import bundled_folder, import_eval_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = import_eval_script("equal_knowledge", monkeypatch)
    monkeypatch.setattr(module, "LIFETIMES", {8000: ("5m", "1h")})
    monkeypatch.setattr(module, "DEFAULT_LINEUP", ("full", "nothing", "sliding_window()"))
    monkeypatch.setattr(module, "PRODUCTS", ("claude_code",))
    return module


@pytest.mark.evals
def test_the_page_has_both_loops_of_each_strategy_and_controls_last(script: ModuleType) -> None:
    page = script.write_page([bundled_folder()])
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads, body = rows[0], {row[0]: dict(zip(rows[0], row, strict=False)) for row in rows[2:6]}
    assert heads[3:7] == ["open 5m", "closed 5m", "open 1h", "closed 1h"]
    assert list(body)[2:] == ["*nothing()*", "*full()*"]
    full, window = body["*full()*"], body["`sliding_window`"]
    assert [full[name] for name in heads[3:9]] == [*["1.00"] * 5, "0.0"]
    assert float(window["closed 5m"].split()[0]) > float(window["open 5m"])
    assert float(window["re-fetches"].split()[0]) > 0

"""Tests of ``evals/equal_knowledge.py``: costs relative to full history, in both loops."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = ROOT / "evals" / "equal_knowledge.py"
    spec = importlib.util.spec_from_file_location("equal_knowledge", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LIFETIMES", {8000: ("5m", "1h")})
    monkeypatch.setattr(module, "DEFAULT_LINEUP", ("full", "nothing", "sliding_window()"))
    monkeypatch.setattr(module, "PRODUCTS", ("claude_code",))
    return module


def test_the_page_has_both_loops_of_each_strategy_and_controls_last(script: ModuleType) -> None:
    folder = ROOT / "datasets" / "coding-agent"
    if not any(folder.glob("*.jsonl")):
        pytest.skip("the bundled recordings are not there")
    page = script.write_page([str(folder)])
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads, body = rows[0], {row[0]: dict(zip(rows[0], row, strict=False)) for row in rows[2:6]}
    assert heads[3:7] == ["open 5m", "closed 5m", "open 1h", "closed 1h"]
    assert list(body)[2:] == ["*nothing()*", "*full()*"]
    full, window = body["*full()*"], body["`sliding_window`"]
    assert [full[name] for name in heads[3:9]] == [*["1.00"] * 5, "0.0"]
    assert float(window["closed 5m"].split()[0]) > float(window["open 5m"])
    assert float(window["re-fetches"].split()[0]) > 0

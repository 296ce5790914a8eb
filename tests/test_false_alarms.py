"""Tests of ``evals/false_alarms.py``: it decides as ``ctxlab gate --old --new`` does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest
from running import a_recording

from ctxlab.evaluation.gate.logs import compare_logs
from ctxlab.messages.types import Message, Recording, Usage

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "evals" / "false_alarms.py"
    spec = importlib.util.spec_from_file_location("false_alarms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def logs(seed: int, turns: int, count: int = 8) -> list[Recording]:
    """Return billed recordings, each a cluster of its own, with about ``turns`` model calls."""
    random = np.random.default_rng(seed)

    def billed(message: Message) -> Message:
        bill = Usage(100, cache_read=50, output=20) if message.role == "assistant" else None
        return msgspec.structs.replace(message, usage=bill)

    made = [a_recording(100 * seed + i, turns + int(random.integers(0, 5))) for i in range(count)]
    return [
        msgspec.structs.replace(
            each, cluster=each.id, model="gpt-5", messages=tuple(map(billed, each.messages))
        )
        for each in made
    ]


@pytest.mark.parametrize(("turns", "alarm"), [(24, True), (14, False)])
def test_a_score_is_a_breach_where_the_gate_finds_one(
    script: ModuleType, turns: int, alarm: bool
) -> None:
    old, new = logs(1, 14), logs(2, turns)
    gate = compare_logs(old, new, progress=False)
    scores = script.measure([*old, *new])
    found = {
        name: script._breaches(sums, np.arange(8), np.arange(8, 16))[0]
        for name, sums in scores.items()
    }
    assert found == {f.score.name: f.outcome == "worse" for f in gate.findings}
    assert any(found.values()) == alarm


def test_larger_changes_are_breaches_more_often(script: ModuleType) -> None:
    random = np.random.default_rng(3)
    amounts = script.Sums(random.lognormal(3, 0.3, 60), np.ones(60), share=False)
    share = script.Sums(random.binomial(40, 0.9, 60) / 1.0, np.full(60, 40.0), share=True)
    none, margin, more = script.count_alarms({"amount": amounts, "share": share}, 25, 200)
    assert none <= margin <= 0.1 < 0.8 < more


def test_the_page_says_what_its_table_says(script: ModuleType) -> None:
    page = (ROOT / "evals" / "README.md").read_text(encoding="utf-8")
    rows = page.partition("| product | clusters |")[2].partition("\n\n")[0].splitlines()[2:]
    shares = np.array([[float(x) for x in re.findall(r"([\d.]+)%", row)] for row in rows])
    assert shares.shape == (len(rows), len(script.CHANGES))
    none, margin, more = shares.T
    for text in (page, (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")):
        said = " ".join(text.split())
        assert f"{none.min():.1f} to {none.max():.1f} % of draws" in said
        assert f"{margin.min():.1f} to {margin.max():.1f} %" in said
        assert f"{more.min():.1f} to {more.max():.1f} %" in said

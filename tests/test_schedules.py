"""Tests of ``evals/schedules.py``: what the selection explains, and what the schedule does."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from eval_scripts import bundled_folder, import_eval_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_eval_script("schedules", monkeypatch)


@pytest.mark.parametrize(
    ("selection", "schedule", "rest"), [(1, 0, 0), (0, 1, 0), (0.5, 0.5, 0), (0, 0, 1)]
)
def test_the_shares_are_those_of_the_sums_of_squares(
    script: ModuleType, selection: float, schedule: float, rest: float
) -> None:
    rows, columns = np.array([[1.0], [-1.0]]), np.array([[1.0, -1.0]])
    parts = zip((selection, schedule, rest), (rows, columns, rows * columns), strict=True)
    values = 3 + sum(np.sqrt(share) * each * np.ones((2, 2)) for share, each in parts)
    shares = script.decompose(values)
    found = (shares.selection, shares.schedule, shares.rest)
    assert found == pytest.approx((selection, schedule, rest))


def test_a_score_is_the_ratio_of_sums_and_clusters_can_be_weighted_equally(
    script: ModuleType,
) -> None:
    grid = script.Grid(np.array([[[1.0]], [[90.0]]]), np.array([[[10.0]], [[100.0]]]), False)
    ones = np.ones(2)
    assert grid.values(ones)[0, 0] == pytest.approx(91 / 110)
    assert grid.values(np.array([2.0, 0.0]))[0, 0] == pytest.approx(0.1)
    assert grid.with_equal_weight().values(ones)[0, 0] == pytest.approx((0.1 + 0.9) / 2)


@pytest.mark.parametrize(("effect", "expected"), [(1.0, "schedule"), (0.05, "undecided")])
def test_a_difference_decides_only_if_it_exceeds_the_noise_between_clusters(
    script: ModuleType, effect: float, expected: str
) -> None:
    noise = np.random.default_rng(1).normal(size=(12, 2, 2))
    top = np.exp(noise + effect * np.array([[3.0, -3.0]]))
    _, draws = script._estimate(script.Grid(top, np.ones_like(top), True))
    assert script._decide(draws) == expected


def test_the_page_has_a_row_per_selection_and_a_column_per_schedule(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "LIMITS", (6000,))
    names = ("window", "mask")
    monkeypatch.setattr(script, "SELECTIONS", {name: script.SELECTIONS[name] for name in names})
    page = script.write_page([bundled_folder()])
    rows = [line.split("|")[2:-1] for line in page.splitlines() if line.startswith("| `window`")]
    dollars = dict(zip(script.SCHEDULES, rows[1], strict=True))
    assert float(dollars["always"].split()[0]) > float(dollars["batches"].split()[0])
    assert "- At 6,000 tokens: **for dollars: " in page

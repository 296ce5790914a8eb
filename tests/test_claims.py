"""Tests that the figures and the text of ``evals/CLAIMS.md`` match the output of its script."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from ctxlab.formats.io.datasets import find_dataset, local_dataset_dir

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "evals" / "CLAIMS.md").read_text(encoding="utf-8")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("claims", ROOT / "evals" / "claims.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def claims(recorded: Path) -> ModuleType:
    found = script()
    for name in {*found.SCAFFOLDS, *found.AGENTS}:
        if local_dataset_dir(find_dataset(name), recorded) is None:
            pytest.skip(f"the data set {name} is not beside the others")
    return found


def rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def bounds(cell: str) -> tuple[float, float]:
    low, high = cell.partition("(")[2].rstrip(")").split("–")
    return float(low), float(high)


def table(name: str) -> list[list[str]]:
    return rows(script().find_tables(TEXT)[name])


def test_the_tables_are_what_the_script_gives(
    claims: ModuleType, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_DATA", str(recorded))
    made = claims.compute_tables()
    assert claims.find_tables(TEXT) == made
    assert set(made) == {"cost", "length", "keep"}


def test_intervals_of_a_share_contain_it_and_end_at_1() -> None:
    for row, column in [*((row, 7) for row in table("cost")), *((row, 3) for row in table("keep"))]:
        if "(" in row[column]:
            low, high = bounds(row[column])
            assert 0 <= low <= float(row[column].split()[0]) <= high <= 1


def test_without_a_cache_masking_costs_less_and_with_an_ideal_one_more() -> None:
    for scaffold in table("cost")[:2]:
        uncached, plan, cached = (bounds(cell) for cell in scaffold[4:7])
        assert uncached[1] < 0.75
        assert plan[1] < 1
        assert cached[0] > 1


def test_once_masking_begins_its_cost_falls_with_length() -> None:
    for name in ("mini-swe-agent", "openhands"):
        for column in (3, 4):
            found = [float(row[column].split()[0]) for row in table("length") if row[0] == name]
            assert found[0] == 1
            assert found[1:] == sorted(found[1:], reverse=True)


def test_windows_differ_between_scaffolds_and_ten_is_enough_for_none() -> None:
    smallest = {row[0]: row[4] for row in table("keep")}
    assert len(set(smallest.values())) == len(smallest)
    assert all(float(row[3].split()[0]) < 0.95 for row in table("keep"))
    assert int(smallest["mini-swe-agent"]) > int(smallest["openhands"])


def test_masking_many_results_at_a_time_costs_less_than_full_history_even_with_a_cache(
    claims: ModuleType, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_DATA", str(recorded))
    rare = "in_batches(observation_mask(keep=10), trigger=0, tokens=10000)"
    assert rare in " ".join(TEXT.split())
    logs = [log for name in claims.SCAFFOLDS for log in claims.read(name)]
    board = claims.run(
        logs, ["full", "observation_mask(keep=10)", rare], claims.CACHED
    ).leaderboard()
    full, every, seldom = board["cost_usd"]
    assert seldom < full < every

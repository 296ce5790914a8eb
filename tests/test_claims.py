"""Tests that the figures and the text of ``evals/CLAIMS.md`` match the output of its script."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from eval_scripts import ROOT, import_eval_script

from ctxlab.cli import app
from ctxlab.formats.io.datasets import find_dataset, local_dataset_dir
from ctxlab.strategies import parse_strategy

TEXT = (ROOT / "evals" / "CLAIMS.md").read_text(encoding="utf-8")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_eval_script("claims", monkeypatch)


@pytest.fixture
def trap(script: ModuleType, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script of the paper's tables; skip the test if recordings are missing."""
    for name in (
        "mini-swe-agent",
        "openhands",
        "swe-agent",
        script.CLAUDE,
        script.PI,
        "tau2-bench",
    ):
        if local_dataset_dir(find_dataset(name), recorded) is None:
            pytest.skip(f"the data set {name} is not beside the others")
    monkeypatch.setenv("CTXLAB_DATA", str(recorded))
    return import_eval_script("complexity_trap", monkeypatch)


def a_claim(script: ModuleType, found: tuple[float, ...], claimed: Any, **more: Any) -> Any:
    return script.Claim("a", "b", "c", "d", "e", lambda: script.Measured(*found), claimed, **more)


@pytest.mark.parametrize(
    ("found", "claimed", "more", "verdict"),
    [
        ((0.5, 0.4, 0.6, 9), (0.6, 0.7), {}, "reproduced"),
        ((0.5, 0.4, 0.594, 9), (0.6, 0.7), {}, "contradicted"),
        ((0.5, 0.4, 0.595, 9), (0.6, 0.7), {}, "reproduced"),  # 0.6 is a rounded figure
        ((0.5, 0.4, 0.6, 4), (0.5, 0.5), {}, "out of reach"),
        ((0.5, 0.1, 0.9, 9), (0.5, 0.5), {}, "out of reach"),
        ((-0.5, -0.9, 0.1, 9), (-0.5, -0.5), {"form": "change"}, "out of reach"),
        ((-0.5, -0.6, -0.1, 9), (-math.inf, 0), {"form": "change"}, "reproduced"),
        ((-0.5, -0.6, 0.1, 9), (-math.inf, 0), {"form": "change"}, "out of reach"),
        ((0.5, 0.1, 0.6, 9), (-math.inf, 0), {"form": "change"}, "contradicted"),
        ((-0.2, -0.3, -0.1, 9), (-0.9, -0.5), {"form": "change", "exists": True}, "out of reach"),
        ((0.01, 0.0, 0.02, 9), (0, 0), {}, "contradicted"),  # never means never
        ((0.5, 0.4, 0.6, 9), (math.nan, math.nan), {}, "out of reach"),
    ],
)
def test_a_verdict_follows_from_the_interval(
    script: ModuleType, found: tuple[float, ...], claimed: Any, more: Any, verdict: str
) -> None:
    assert script.judge(a_claim(script, found, claimed, **more)).verdict == verdict


def test_the_claims_have_names_of_their_own_and_a_reason_or_a_measure(script: ModuleType) -> None:
    names = [claim.name for claim in script.CLAIMS]
    assert len(names) == len(set(names))
    for claim in script.CLAIMS:
        assert (claim.measure is None) == (claim.group == script.OUT) == (not claim.command)
        assert claim.why.strip().endswith(".")


def test_the_commands_of_the_claims_exist(script: ModuleType) -> None:
    known: Any = typer.main.get_command(app)
    for claim in script.CLAIMS:
        if claim.command:
            program, name, *arguments = shlex.split(claim.command)
            assert program == "ctxlab"
            with known.commands[name].make_context(name, arguments):
                pass
            if name != "tune":
                flags = itertools.pairwise(arguments)
                for strategy in (value for flag, value in flags if flag == "-s"):
                    parse_strategy(strategy)


def test_the_page_counts_its_verdicts(script: ModuleType) -> None:
    cells = re.findall(r"\| \*\*([a-z ]+)\*\*[^|]*\|$", TEXT, flags=re.MULTILINE)
    without = sum(claim.measure is None for claim in script.CLAIMS)
    found = [cells.count(verdict) for verdict in ("reproduced", "contradicted", "out of reach")]
    found[2] += without
    counted = [int(number) for number in re.findall(r"\d+", script.find_tables(TEXT)["verdicts"])]
    assert counted == [sum(found), *found] == [len(script.CLAIMS), *found]


def rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def bounds(cell: str) -> tuple[float, float]:
    low, high = cell.partition("(")[2].rstrip(")").split("–")
    return float(low), float(high)


def table(name: str) -> list[list[str]]:
    return rows(re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", TEXT, flags=re.DOTALL)[0])


def test_the_tables_are_what_the_script_gives(script: ModuleType, trap: ModuleType) -> None:
    made = script.compute_tables()
    assert script.find_tables(TEXT) == made
    assert set(made) == {"verdicts", "claims", "methods", "cost", "length", "keep"}


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
    trap: ModuleType,
) -> None:
    rare = "in_batches(observation_mask(keep=10), trigger=0, tokens=10000)"
    assert rare in " ".join(TEXT.split())
    logs = [log for name in trap.SCAFFOLDS for log in trap.read(name)]
    board = trap.run(logs, ["full", "observation_mask(keep=10)", rare], trap.CACHED).leaderboard()
    full, every, seldom = board["cost_usd"]
    assert seldom < full < every

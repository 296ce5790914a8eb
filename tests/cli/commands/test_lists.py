"""Tests of the commands that list names, each with a one-line description."""

from __future__ import annotations

import json

import pytest
from running import Run

from ctxlab.evaluation.metrics import METRICS
from ctxlab.formats import FORMATS
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.introspection import list_strategies, strategy_info
from ctxlab.strategies.registry import CONTROLS, STRATEGIES


def test_every_strategy_is_listed_with_its_source_and_controls_stand_apart(run: Run) -> None:
    out = run("strategies").out
    first, controls, baselines = out.split("\n\n")[:3]
    for name in (*STRATEGIES, *BASELINES):
        where = baselines if name in BASELINES else controls if name in CONTROLS else first
        assert f"\n{name}(" in where
    said = " ".join(out.split())
    assert all(f"Source: {each.source}" in said for each in list_strategies())


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", [*STRATEGIES, *BASELINES])
def test_every_strategy_has_a_page_of_its_own(run: Run, name: str) -> None:
    said = " ".join(run("strategies", name).out.split())
    known = strategy_info(name)
    assert " ".join(known.summary.split())[:-1] in said.replace("``", "")
    for parameter in known.parameters:
        assert parameter.description, f"{name}: {parameter.name} is not explained"
        assert parameter.name in said


def test_strategies_are_given_to_a_program_as_json(run: Run) -> None:
    rows = json.loads(run("strategies", "--json").out)
    assert [row["name"] for row in rows] == [each.name for each in list_strategies()]
    assert run("strategies", "no_such").code == 2


def test_every_format_is_listed(run: Run) -> None:
    out = run("formats").out
    assert all(f"\n{name} " in out for name in FORMATS)


def test_every_column_and_score_is_explained(run: Run) -> None:
    out = " ".join(run("metrics").out.split())
    for metric in METRICS.values():
        for figure in (*metric.columns, *metric.scores):
            assert f"{figure.name} {figure.unit}" in out


def test_all_tables_are_readable_at_100_columns(run: Run) -> None:
    for command in ("strategies", "formats", "metrics"):
        assert max(map(len, run(command).out.split("\n"))) <= 100

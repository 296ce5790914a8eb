"""The name tables are printed whole, with a line on each name."""

from __future__ import annotations

from running import Run

from ctxlab.formats import FORMATS
from ctxlab.metrics import METRICS
from ctxlab.models import find_model
from ctxlab.strategies.names import CONTROLS, STRATEGIES


def test_every_strategy_is_listed_and_controls_are_marked(run: Run) -> None:
    lines = run("strategies").out.partition("\n\n")[0].split("\n")
    for name in STRATEGIES:
        (line,) = (at for at in lines if at == name or at.startswith((f"{name}(", f"{name} ")))
        assert ("a control" in line) == (name in CONTROLS)


def test_every_format_is_listed(run: Run) -> None:
    out = run("formats").out
    assert all(f"\n{name} " in out for name in FORMATS)


def test_every_column_and_score_is_explained(run: Run) -> None:
    out = " ".join(run("metrics").out.split())
    for make in METRICS.values():
        metric = make(find_model("gpt-5"))
        for figure in (*metric.columns, *metric.scores):
            assert f"{figure.name} {figure.unit}" in out


def test_all_tables_are_readable_at_100_columns(run: Run) -> None:
    for command in ("strategies", "formats", "metrics"):
        assert max(map(len, run(command).out.split("\n"))) <= 100

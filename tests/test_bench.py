"""Tests of the table, the stored runs and the comparison of ``tests/bench``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.formats import load
from ctxlab.messages.validation import is_valid
from ctxlab.strategies import parse_strategy

BENCH = Path(__file__).parent / "bench"
MACHINE = {
    "cpu": "C",
    "cores": 2,
    "memory_gb": 8.0,
    "os": "Linux",
    "python": "CPython 3",
    "packages": {"ctxlab": "1"},
    "commit": "abc",
    "date": "2026-01-01",
    "load_before": 0.1,
    "load_after": 0.2,
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import modules from the folder, and forget them after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCH)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


@pytest.fixture
def table() -> ModuleType:
    return import_module("table")


@pytest.fixture
def report() -> ModuleType:
    return import_module("report")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the program with two groups that measure nothing."""
    monkeypatch.setenv("CTXLAB_CACHE", "")  # restored after the test; the program changes it
    spec = spec_from_file_location("bench_main", BENCH / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    line = import_module("table").Line
    groups = {
        "good": ("Good", lambda quick: [line("a", "1 s / 1 s", [1, 2, 3], at_most=2.0)]),
        "bad": ("Bad", lambda quick: [line("b", "", [3.0], at_least=4.0)]),
    }
    monkeypatch.setattr(module, "GROUPS", groups)
    return module


def run_of(report: ModuleType, *lines: Any) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(
        report.dumps(report.to_dict({"group": ("Title", lines)}, MACHINE, quick=False))
    )
    return run


@pytest.mark.parametrize(
    ("values", "expected"),
    [((), None), ((2.0,), None), ((3.0, 1.0, 2.0), (1, 3)), ((5.0, 1.0, 2.0, 3.0, 4.0), (2, 4))],
)
def test_the_spread_is_the_range_of_few_rounds_and_the_quartiles_of_many(
    table: ModuleType, values: tuple[float, ...], expected: tuple[float, float] | None
) -> None:
    assert table.Line("a", "", values).spread == expected


def test_a_bar_bounds_the_median_from_above_or_below(table: ModuleType) -> None:
    values = (1.0, 2.0, 9.0)
    assert table.Line("a", "", values, at_most=2.0).met is True
    assert table.Line("a", "", values, at_most=1.9).met is False
    assert table.Line("a", "", values, at_least=2.0).met is True
    assert table.Line("a", "", values, at_least=2.1).met is False
    assert table.Line("a", "", values).met is None
    assert table.Line("a", "remark", at_most=1.0).met is None


def test_a_printed_line_has_figures_median_spread_bar_and_verdict(
    table: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    table.show("Title", [table.Line("name", "1 s / 2 s", (1.0, 2.0, 3.0), 1.5)])
    heading, line = capsys.readouterr().out.split("\n")[1:3]
    assert heading == "Title"
    assert line.split() == ["name", "1", "s", "/", "2", "s", "2", "×", "1–3", "≤", "1.5", "missed"]


def test_two_lines_of_a_group_have_different_names(table: ModuleType) -> None:
    with pytest.raises(ValueError, match="name"):
        table.show("Title", [table.Line("name", "", [1.0]), table.Line("name", "", [2.0])])


def test_a_stored_run_has_what_the_table_shows(table: ModuleType, report: ModuleType) -> None:
    run = run_of(report, table.Line("name", "1 s / 2 s", (1.0, 2.0, 3.0), 1.5, unit="s"))
    assert run["machine"] == MACHINE
    (line,) = run["groups"][0]["lines"]
    assert line == {
        "what": "name",
        "figures": "1 s / 2 s",
        "values": [1, 2, 3],
        "median": 2,
        "spread": [1, 3],
        "unit": "s",
        "at_most": 1.5,
        "at_least": None,
        "met": False,
    }
    row = "| name | 1 s / 2 s | 2 | 1–3 | s | ≤ 1.5 | **no** |"
    assert row in report.to_markdown(run).splitlines()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ((1.0, 1.2), (1.1, 1.3), "no"),
        ((1.0, 1.2), (1.3, 1.4), "yes"),
        ((1.3, 1.4), (1.0, 1.2), "yes"),
        ((1.0,), (9.0,), "unknown"),
    ],
)
def test_a_change_exceeds_the_spread_if_the_spreads_do_not_overlap(
    table: ModuleType, report: ModuleType, old: Any, new: Any, said: str
) -> None:
    runs = (run_of(report, table.Line("name", "", values)) for values in (old, new))
    text, fine = report.compare(*runs)
    assert text.splitlines()[1].split()[-1] == said
    assert fine


def test_a_comparison_shows_both_medians_and_the_change(
    table: ModuleType, report: ModuleType
) -> None:
    runs = (run_of(report, table.Line("name", "", values)) for values in ((2.0, 2.0), (3.0, 3.0)))
    text, _ = report.compare(*runs)
    assert text.splitlines()[1].split() == ["group:", "name", "2", "3", "+50.0%", "yes"]


@pytest.mark.parametrize(
    ("old", "new", "fine"), [(1, 3, False), (3, 3, True), (3, 1, True), (1, 1, True)]
)
def test_a_comparison_fails_if_a_bar_that_was_met_is_missed(
    table: ModuleType, report: ModuleType, old: float, new: float, fine: bool
) -> None:
    runs = (run_of(report, table.Line("name", "", [value], at_most=2.0)) for value in (old, new))
    assert report.compare(*runs)[1] is fine


def test_a_comparison_names_lines_of_one_run_and_different_machines(
    table: ModuleType, report: ModuleType
) -> None:
    old, new = (run_of(report, table.Line(name, "", [1.0])) for name in ("first", "second"))
    new["machine"]["cores"] = 4
    text, _ = report.compare(old, new)
    assert "Only in the old run: group: first" in text
    assert "Only in the new run: group: second" in text
    assert "The cores differ: 2 and 4." in text


def test_the_program_stores_the_groups_that_it_ran_and_fails_if_a_bar_is_missed(
    program: ModuleType, tmp_path: Path
) -> None:
    file, page = tmp_path / "run.json", tmp_path / "run.md"
    assert program.main(["good", "--json", str(file), "--markdown", str(page)]) == 0
    (group,) = json.loads(file.read_text(encoding="utf-8"))["groups"]
    assert group["name"] == "good"
    assert "## Good" in page.read_text(encoding="utf-8")
    assert program.main([]) == 1


def test_the_program_replaces_no_file_unasked(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    file.write_text("mine")
    with pytest.raises(SystemExit):
        program.main(["good", "--json", str(file)])
    assert "--overwrite" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert program.main(["good", "--json", str(file), "--overwrite"]) == 0
    assert file.read_text() != "mine"


def test_the_program_compares_two_files(program: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    program.main(["good", "--json", str(file)])
    worse = tmp_path / "worse.json"
    run = json.loads(file.read_text(encoding="utf-8"))
    run["groups"][0]["lines"][0].update(met=False, median=9.0, values=[9.0])
    worse.write_text(json.dumps(run))
    assert program.main(["--compare", str(file), str(file)]) == 0
    assert program.main(["--compare", str(file), str(worse)]) == 1


def test_the_facts_of_a_machine_name_no_host_and_no_folder() -> None:
    machine = import_module("machine")
    text = json.dumps(machine.describe_machine())
    assert machine.platform.node() not in text
    assert str(BENCH.parents[1]) not in text
    assert str(Path.home()) not in text


def test_the_configurations_of_the_scaling_are_different_strategies() -> None:
    texts = import_module("scaling").strategies(200)
    assert len({repr(parse_strategy(text)) for text in texts}) == 200


def test_written_conversations_are_valid_different_and_always_the_same(tmp_path: Path) -> None:
    synthetic = import_module("synthetic")
    for name in ("one", "two"):
        synthetic.write_conversations(tmp_path / name, 3, 24)
    one, two = (list(load(tmp_path / name)) for name in ("one", "two"))
    assert [each.messages for each in one] == [each.messages for each in two]
    assert len({recording_digest(each) for each in one}) == 3
    assert [len(each.messages) for each in one] == [24, 24, 24]
    assert all(is_valid(each.messages) for each in one)


def test_the_exponent_of_a_linear_series_is_one() -> None:
    rounds = [{"cpu_seconds": 2.0, "peak_mb": 5.0}], [{"cpu_seconds": 20.0, "peak_mb": 5.0}]
    points = [
        {"series": "messages", "size": size, "rounds": each}
        for size, each in zip((10, 100), rounds, strict=True)
    ]
    found = import_module("scaling").exponents(points, "messages")
    assert found == pytest.approx({"time": 1.0, "memory": 0.0})

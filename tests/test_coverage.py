"""Tests of ``evals/coverage.py``, and that the pages say what its table says."""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ctxlab.evaluation.bootstrap import ratio_difference

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "evals" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def table() -> dict[str, list[str]]:
    """Return the rows of the table in ``docs/numbers.md``: cells by name of row."""
    page = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    rows = page.partition("|  | 5 clusters |")[2].partition("\n\n")[0].splitlines()[2:]
    parts = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {name: cells for name, *cells in parts}


def numbers(cell: str) -> list[float]:
    """Return the percentage of a cell, and the width if the cell has one."""
    assert re.fullmatch(r"[\d.]+%(?: \([\d.]+\))?", cell)
    return [float(number) for number in re.findall(r"[\d.]+", cell)]


def shares(cells: list[str]) -> list[float]:
    return [numbers(cell)[0] for cell in cells]


def span(*names: str) -> str:
    found = [share for name in names for share in shares(table()[name])]
    return f"{min(found):.0f} to {max(found):.0f} %"


def equal_clusters(
    random: np.random.Generator, clusters: int, effect: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw clusters of one size with normal values, for which the coverage is known."""
    values = random.normal(size=(2, clusters))
    return values[0] + effect, np.zeros(clusters), np.ones(clusters)


def test_five_equal_clusters_have_the_coverage_that_theory_says(script: ModuleType) -> None:
    # A percentile interval of a mean is about z standard errors of size √((n − 1) / n) wide.
    from scipy import stats  # takes a second to import, in every worker

    known = 1 - 2 * stats.t.sf(stats.norm.ppf(0.975) * np.sqrt(4 / 5), 4)
    assert known == pytest.approx(0.846, abs=0.001)
    found = script.simulate(equal_clusters, 5, 500)
    assert found.truth == pytest.approx(0, abs=0.005)
    assert found.percentile_coverage == pytest.approx(known, abs=0.05)
    assert found.coverage == pytest.approx(0.95, abs=0.03)
    assert found.too_high == pytest.approx(0.025, abs=0.02)


def test_a_true_difference_moves_the_intervals_and_not_their_widths(script: ModuleType) -> None:
    none, some = (
        script.simulate(partial(equal_clusters, effect=effect), 9, 60, paired=True)
        for effect in (0.0, 1.5)
    )
    np.testing.assert_allclose(none.low + 1.5, some.low, rtol=1e-6)
    np.testing.assert_allclose(none.high + 1.5, some.high, rtol=1e-6)
    np.testing.assert_allclose(none.detectable, some.detectable, rtol=1e-6)
    shown = ((some.low > 0) | (some.high < 0)).mean()
    assert none._power(np.full(60, 1.5)) == pytest.approx(shown, abs=0.1)
    assert none._power(np.zeros(60)) <= 0.1
    assert none._power(np.full(60, 50.0)) == 1


@pytest.mark.simulations
def test_a_strategy_at_the_minimum_passes_for_settled_in_one_case_of_ten(
    script: ModuleType,
) -> None:
    random = np.random.default_rng(2)
    settled = []
    for _ in range(1000):
        kept, _, needs = script.draw_share(random, 9, 0.95)
        # The recommendation compares the recall with .95 of that of the full history, which is 1.
        settled.append(ratio_difference(kept, needs, 0.95 * needs, needs, resamples=500).low >= 0)
    assert np.mean(settled) == pytest.approx(0.1, abs=0.035)


def test_a_row_counts_only_replications_with_an_interval(script: ModuleType) -> None:
    nan = np.nan
    found = script.Simulated(
        0.5,
        np.array([0.4, 0.6, 0.1, nan, 0.3]),
        np.array([0.6, 0.8, 0.3, nan, 0.7]),
        np.array([0.5, 0.5, 0.5, 0.5, 0.6]),
        np.array([0.6, 0.6, 0.6, 0.6, 0.7]),
        np.full(5, nan),
    )
    scenario = script.Scenario("x", equal_clusters, near_one=True)
    assert list(script.render_rows(scenario, [found])) == [
        ["x", "50.0% (0.25)"],
        ["x: percentile", "75.0% (0.10)"],
        ["x: interval too high", "25.0%"],
        ["x: no interval", "20.0%"],
    ]


def test_the_table_has_all_rows_of_the_script(script: ModuleType) -> None:
    one = script.simulate(equal_clusters, 5, 2, paired=True)
    expected = [row[0] for each in script.SCENARIOS for row in script.render_rows(each, [one])]
    assert list(table()) == expected
    assert all(len(shares(cells)) == len(script.CLUSTERS) for cells in table().values())
    assert f"{script.REPLICATIONS:,} replications" in text_of("docs/numbers.md")


def test_the_pages_say_what_the_table_says() -> None:
    near_one = ("share .95", "share .97", "share .99")
    nine = {name: f"{shares(cells)[1]:.0f} %" for name, cells in table().items()}
    power, printed = (
        span(*(f"{name}: power{at}" for name in ("difference", "growing difference")))
        for at in ("", " at the printed value")
    )
    most = {name: f"{shares(cells)[4]:.0f}" for name, cells in table().items()}
    high = [int(most[f"{name}: interval too high"]) for name in near_one]
    missing = f"{shares(table()['share .99: no interval'])[0]:.0f} %"
    said = {
        "docs/trust.md": [
            f"A paired difference: {span('difference')}.",
            f"grows with the size of a recording: {span('growing difference')}.",
            f"A share of .70: {span('share .70')}.",
            f"falls with the size: {span('falling share')}.",
            f"A share of .95 or .97: {span(*near_one[:2])}. A share of .99: {span(near_one[2])}",
            f"in {span(*(f'{name}: interval too high' for name in near_one))} of cases",
            f"contains it in {shares(table()['falling share'])[0]:.0f} % of cases",
            f"exclude 0 in {nine['difference: power']} of cases if the true difference is the mean",
            f"in {nine['difference: power at the printed value']} if it is the printed figure itself",
            f"with nine clusters and a share of .95, {nine['share .95']} of the intervals contain it",
            f"and {nine['share .95: interval too high']} are above it, instead of 2.5 %",
            f"nine clusters have a power of {nine['difference: power at the printed value']}",
            f"With 100 clusters it is {most['difference: power']} % and "
            f"{most['difference: power at the printed value']} %.",
            f"still in {min(high)} to {max(high)} % with 100 clusters",
            f"five clusters had no interval in {missing} of cases",
        ],
        "ctxlab/evaluation/bootstrap.py": [
            f"a paired difference in {span('difference')} of simulations",
            f"{span('growing difference')} if the difference grows with the size",
            f"shares near 1 in {span(*near_one)}",
            f"Percentile intervals of a paired difference cover it in {span('difference: percentile')}",
            f"in {power} of simulations",
            f"and in {printed} if it is the estimate from one other sample",
        ],
        "docs/numbers.md": [f"did so in {power} of cases", f"did so in {printed} of cases"],
    }
    for page, sentences in said.items():
        for sentence in sentences:
            assert sentence in text_of(page), (page, sentence)


@pytest.mark.evals
def test_the_table_is_what_the_script_gives(script: ModuleType) -> None:
    made = script.render_table(script.REPLICATIONS).splitlines()[2:]
    for line, (name, cells) in zip(made, table().items(), strict=True):
        label, *found = (cell.strip() for cell in line.strip("|").split("|"))
        assert label == name
        for mine, theirs in zip(found, cells, strict=True):
            one, other = numbers(mine), numbers(theirs)
            # Other versions of NumPy may draw other numbers.
            assert one[0] == pytest.approx(other[0], abs=2.5)
            assert one[1:] == pytest.approx(other[1:], abs=0.03)

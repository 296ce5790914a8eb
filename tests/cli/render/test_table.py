"""Tests of the rows and columns that the user chooses to print, and of colours."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import TableView
from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import ColumnFacts, named_columns
from ctxlab.evaluation.results import Results

FACTS = {"cost": ColumnFacts("USD", "lower"), "recall": ColumnFacts("share", "higher")}
BOARD = pd.DataFrame(
    {
        "strategy": ["full()", "a()", "b()", "c()", "a()", "b()"],
        "limit": [8000.0] * 4 + [4000.0] * 2,
        "cost": [9.0, 3.0, 1.0, float("nan"), 2.0, 4.0],
        "recall": [1.0, 0.8, 0.5, 0.9, 0.7, 0.6],
        "overflow_rate": [0.5, 0.0, 0.0, 0.1, 0.0, 0.0],
    }
)


@pytest.mark.parametrize(
    ("sort", "order"),
    [("cost", "ba full c ab"), ("-cost", "full ab c ba"), ("recall", "full cab ab")],
)
def test_rows_are_sorted_within_a_limit_the_best_first_and_unknown_values_last(
    sort: str, order: str
) -> None:
    found = TableView(sort).arrange(BOARD, FACTS)
    assert found["limit"].tolist() == BOARD["limit"].tolist()
    names = [name.removesuffix("()") for name in found["strategy"]]
    assert "".join(names) == order.replace(" ", "")


def test_the_first_strategies_of_each_limit_are_kept_beside_all_controls() -> None:
    found = TableView("cost", 1).arrange(BOARD, FACTS)
    assert found["strategy"].tolist() == ["b()", "full()", "a()"]


def test_an_unknown_column_is_an_error_that_lists_the_columns() -> None:
    with pytest.raises(SpecError, match=r"--sort: .*'price'; choose from strategy, limit, cost"):
        TableView("-price").arrange(BOARD, FACTS)


def test_csv_has_the_keys_and_the_named_columns_unrounded_and_limits_as_given() -> None:
    said = TableView(columns=("recall",)).to_data(BOARD, FACTS, [8000, 4000], as_csv=True)
    assert said.split("\n")[:3] == ["strategy,limit,recall", "full(),8000,1.0", "a(),8000,0.8"]


def test_colours_mark_the_best_and_flaws_on_terminals_that_want_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = Results(BOARD, (), {"spec": {"limits": [8000, 4000]}})
    columns = named_columns(BOARD, ["recall", "overflow_rate"], FACTS)

    def render() -> str:
        return show.render_to_text(board_table(results, BOARD, columns, FACTS).text)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = render()
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    colored = render()
    assert [line.split("\x1b[32m")[1][:3] for line in colored.split("\n") if "[32m" in line] == [
        ".80",
        ".70",
    ]  # c has more recall than a, but exceeds the limit
    assert colored.count("\x1b[31m") + colored.count("\x1b[2;31m") == 2
    monkeypatch.setenv("NO_COLOR", "1")
    assert "[32m" not in render()

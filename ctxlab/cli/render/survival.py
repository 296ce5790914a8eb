"""Render the shares of canaries that strategies keep, by kind, depth or another group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import WHOLE_TABLE, TableView
from ctxlab.evaluation.columns import ColumnFacts
from ctxlab.evaluation.survival_table import survival_columns, survival_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.survival import SurvivalResults

FACTS = {
    "survival": ColumnFacts("share", "higher"),
    "survival_end": ColumnFacts("share", "higher"),
    "stale": ColumnFacts("share", "lower"),
    "stale_end": ColumnFacts("share", "lower"),
    "both": ColumnFacts("share"),
}
"""Format, direction and meaning of the columns of ``SurvivalResults.breakdown``."""


def survival_names(by: str) -> list[str]:
    """Return the names of the columns of the JSON and CSV output.

    Parameters
    ----------
    by : str
        Dimension that groups the canaries, such as ``"kind"``.

    Returns
    -------
    list of str
        Names of the columns.
    """
    bounds = (f"{name}{end}" for name in FACTS for end in ("", "_low", "_high"))
    return ["limit", "strategy", by, "canaries", "clusters", *bounds]


def survival_data(
    survival: SurvivalResults, by: str, view: TableView, *, as_csv: bool = False
) -> str:
    """Convert the shares of kept canaries to JSON or CSV, one row per strategy, limit and canary group.

    Parameters
    ----------
    survival : SurvivalResults
        Results to convert.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. It is also a column. Its value is null in
        rows about all canaries.
    view : TableView
        Rows and columns to print. Rows are sorted within each limit and group.
    as_csv : bool, default False
        True for CSV, False for a JSON array.

    Returns
    -------
    str
        Text to print.
    """
    whole = survival.breakdown(None)
    whole.insert(2, by, None)
    parts = [frame.astype(object) for frame in (whole, survival.breakdown(by)[list(whole)])]
    both = pd.concat(parts, ignore_index=True).assign(part=lambda rows: rows[by].astype(str))
    limits = survival.results.manifest["spec"]["limits"]
    if view.sort or view.top:
        both = view.arrange(both.sort_values("part", kind="stable"), FACTS, ("limit", "part"))
    chosen = view.pick(both.drop(columns="part"))
    return (show.frame_to_csv if as_csv else show.frame_to_json)(chosen, limits)


def survival_text(survival: SurvivalResults, by: str, view: TableView = WHOLE_TABLE) -> str:
    """Return the shares of kept canaries as a table, one row per strategy, with notes and a verdict.

    Parameters
    ----------
    survival : SurvivalResults
        Results to print.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. The table has one column per group.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print; the last line is the verdict.
    """
    whole = view.arrange(survival.breakdown(None), FACTS)
    usual = survival_columns(survival, whole, by)
    columns = view.shown_columns(whole, FACTS) if view.columns else usual
    table = board_table(survival.results, whole, columns, FACTS)
    text = table.render(*survival_notes(survival, by, table.legend))
    return show.with_conclusion(text, survival.verdict())

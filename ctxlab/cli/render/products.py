"""Render the comparison of the defaults of products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import describe_limit, to_sentence
from ctxlab._utils.tables import markdown_table
from ctxlab.cli.render.leaderboard import board_table, describe_counting
from ctxlab.cli.render.table import WHOLE_TABLE, TableView
from ctxlab.evaluation.columns import (
    Column,
    frame_columns,
    legend_of,
    short_strategy,
)
from ctxlab.evaluation.products import FACTS, FIGURES

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.products import ProductTable


def products_data(table: ProductTable, view: TableView, *, as_csv: bool = False) -> str:
    """Convert the table to a JSON array with one object per strategy and limit, or to CSV.

    Parameters
    ----------
    table : ProductTable
        Comparison to convert.
    view : TableView
        Rows and columns to print.
    as_csv : bool, default False
        True for CSV, False for JSON.

    Returns
    -------
    str
        JSON or CSV.
    """
    limits = table.frame["limit"].unique().tolist()
    return view.to_data(table.frame, FACTS, limits, as_csv=as_csv)


def products_text(table: ProductTable, view: TableView = WHOLE_TABLE) -> str:
    """Return the table as text, with a legend and notes.

    Parameters
    ----------
    table : ProductTable
        Comparison to print.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print.
    """
    frame = view.arrange(table.ranked, FACTS)
    results = next(iter(table.results.values()))
    shown = board_table(results, frame, _columns(frame, view), FACTS)
    return shown.render(*_notes(table, shown.legend))


def _columns(frame: pd.DataFrame, view: TableView) -> list[Column]:
    """Return the columns beside the names of the strategies."""
    return view.shown_columns(frame, FACTS) if view.columns else frame_columns(frame, FIGURES)


def products_markdown(table: ProductTable, view: TableView = WHOLE_TABLE) -> str:
    """Convert the table to Markdown, with one table per limit, a legend and notes.

    Parameters
    ----------
    table : ProductTable
        Comparison to convert.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Markdown.
    """
    parts: list[str] = []
    legend = ""
    for limit, frame in view.arrange(table.ranked, FACTS).groupby("limit", sort=False):
        columns = _columns(frame.reset_index(drop=True), view)
        names = [f"`{short_strategy(name)}`" for name in frame["strategy"]]
        legend = legend_of(columns)
        heads = ["strategy", *(each.head.replace("\n", " ") for each in columns)]
        rows = zip(names, *(each.cells for each in columns), strict=True)
        counts = f"{pluralize(int(frame['recordings'].iloc[0]), 'recording')} in "
        counts += pluralize(int(frame["clusters"].iloc[0]), "cluster")
        parts += [f"**{to_sentence(describe_limit(float(str(limit))))}** {counts}."]
        parts += [markdown_table(heads, list(rows))]
    return "\n\n".join([*parts, *_notes(table, legend)])


def _notes(table: ProductTable, legend: str) -> Iterator[str]:
    frame = table.frame
    for limit, rows in frame.groupby("limit", sort=False):
        first = rows.iloc[0]
        yield (
            f"{limit:,.0f} tokens: {pluralize(int(first['recordings']), 'recording')} that are longer, "
            f"in {pluralize(int(first['clusters']), 'cluster')}, with {first['requests']:,.0f} requests."
        )
    yield legend
    yield (
        "A replay: the agent acts as recorded, whatever a product removed. Summaries are extracted "
        "without a model, so they cost nothing and keep names rather than meaning. "
        "ctxlab strategies NAME says what is imitated, in which version, and where to set it."
    )
    yield describe_counting(next(iter(table.results.values())).manifest, include_prices=True)

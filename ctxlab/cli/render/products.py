"""Render the comparison of the defaults of products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import to_sentence
from ctxlab._utils.tables import markdown_table
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table, describe_counting
from ctxlab.evaluation.columns import (
    describe_limit,
    frame_columns,
    legend_of,
    short_strategy,
)
from ctxlab.evaluation.products import FIGURES

if TYPE_CHECKING:
    from ctxlab.evaluation.products import ProductTable


def products_json(table: ProductTable) -> str:
    """Convert the table to a JSON array with one object per strategy and limit.

    Parameters
    ----------
    table : ProductTable
        Comparison to convert.

    Returns
    -------
    str
        JSON array as text.
    """
    return show.frame_to_json(table.frame, table.frame["limit"].unique().tolist())


def products_text(table: ProductTable) -> str:
    """Return the table as text, with a legend and notes.

    Parameters
    ----------
    table : ProductTable
        Comparison to print.

    Returns
    -------
    str
        Text to print.
    """
    frame = table.ranked
    results = next(iter(table.results.values()))
    shown = board_table(results, frame, frame_columns(frame, FIGURES))
    return shown.render(*_notes(table, shown.legend))


def products_markdown(table: ProductTable) -> str:
    """Convert the table to Markdown, with one table per limit, a legend and notes.

    Parameters
    ----------
    table : ProductTable
        Comparison to convert.

    Returns
    -------
    str
        Markdown.
    """
    parts: list[str] = []
    legend = ""
    for limit, frame in table.ranked.groupby("limit", sort=False):
        columns = frame_columns(frame.reset_index(drop=True), FIGURES)
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

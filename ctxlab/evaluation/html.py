"""HTML of leaderboards and other data frames: the tables that results show in a notebook.

The parts that every object uses, such as ``table_html``, come from ``ctxlab._utils.html``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctxlab._utils.html import fold as fold
from ctxlab._utils.html import paragraph as paragraph
from ctxlab._utils.html import table_html as table_html
from ctxlab._utils.html import wrap_html as wrap_html
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import describe_limit
from ctxlab._utils.tables import Column, legend_of
from ctxlab._utils.text import show_symbols
from ctxlab.evaluation.columns import (
    places_by_limit,
    score_columns,
    short_strategy,
)

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.metrics import Score

_BETWEEN_TAGS = re.compile(r">\s+<")
_MAX_FRAME_BYTES, _LEAST_FRAME_BYTES = 30_000, 2_000
"size of the HTML of all columns; a larger frame is cut off"
_MAX_BYTES = 46_000
"size of the HTML of an object; the frame with all columns gets what is left"
_MAX_BOARD_ROWS = 60


def board_rows(board: pd.DataFrame) -> list[tuple[int | str, bool]]:
    """Return the rows of a table that is grouped by limit, with the controls last in each group.

    Parameters
    ----------
    board : pandas.DataFrame
        Table with the columns ``strategy`` and ``limit``.

    Returns
    -------
    list of tuple of (int or str, bool)
        Rows for ``table_html``. Controls are drawn in a quieter tone. If there are many rows, the last
        ones are left out.
    """
    rows: list[tuple[int | str, bool]] = []
    more = len(board) - _MAX_BOARD_ROWS
    for limit, (others, controls) in places_by_limit(board).items():
        rows.append((f"within {describe_limit(limit)}", False))
        rows += [(i, False) for i in others]
        rows += [(i, True) for i in controls]
    if more > 0:
        rows[_MAX_BOARD_ROWS:] = [(f"… {pluralize(more, 'more row')}", True)]
    return rows


def grouped_html(board: pd.DataFrame, columns: Sequence[Column]) -> str:
    """Return a table with one row per strategy, grouped by limit, with the controls last in each group.

    Parameters
    ----------
    board : pandas.DataFrame
        Table with the columns ``strategy`` and ``limit``.
    columns : sequence of Column
        Columns after the names of the strategies, with one cell per row of the table.

    Returns
    -------
    str
        HTML.
    """
    names = Column("strategy", [short_strategy(name) for name in board["strategy"]], left=True)
    return table_html([names, *columns], board_rows(board))


def board_html(board: pd.DataFrame, scores: Sequence[Score], notes: Sequence[str]) -> str:
    """Return the leaderboard as HTML, with the columns of the command line and a fold for the others.

    Parameters
    ----------
    board : pandas.DataFrame
        Leaderboard.
    scores : sequence of Score
        Scores of the leaderboard.
    notes : sequence of str
        Paragraphs: the first is above the table, the others are below it.

    Returns
    -------
    str
        HTML.
    """
    main = score_columns(scores, board)
    sections = [
        f"{paragraph(title)}{grouped_html(board, score_columns(scores, board, title))}"
        for title in dict.fromkeys(score.section for score in scores if score.section)
    ]
    parts = [
        *(paragraph(text) for text in notes[:1]),
        grouped_html(board, main),
        *sections,
        *(paragraph(text, is_note=True) for text in (legend_of(main), *notes[1:])),
    ]
    return wrap_with_frame(parts, board)


def wrap_with_frame(parts: Sequence[str], frame: pd.DataFrame) -> str:
    """Wrap parts of HTML, followed by a fold with all columns of a data frame.

    Parameters
    ----------
    parts : sequence of str
        HTML.
    frame : pandas.DataFrame
        Table. It is cut off if the HTML would become larger than about 46 kB.

    Returns
    -------
    str
        HTML.
    """
    left = _MAX_BYTES - len("".join(parts).encode())
    room = min(max(left, _LEAST_FRAME_BYTES), _MAX_FRAME_BYTES)
    return wrap_html(*parts, fold_frame(frame, room))


def fold_frame(frame: pd.DataFrame, room: int = _MAX_FRAME_BYTES) -> str:
    """Return all columns of a data frame, folded away.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table. If it is large, only the first rows are shown, and the title says so.
    room : int, optional
        Largest size of the HTML, in bytes.

    Returns
    -------
    str
        HTML; an empty string if the table has no rows.
    """
    shown = len(frame)
    while (size := len((html := _frame_html(frame.head(shown))).encode())) > room and shown > 1:
        shown = min(shown - 1, shown * room // size) or 1
    more = "" if shown == len(frame) else f" (the first {shown:,} of {len(frame):,} rows)"
    return fold(f"All columns{more}", html) if len(frame) else ""


def _frame_html(frame: pd.DataFrame) -> str:
    shown = frame.copy()
    for name in frame.select_dtypes(exclude=["number", "bool", "boolean"]):
        shown[name] = [show_symbols(str(each)) for each in frame[name]]
    table = shown.to_html(index=False, border=0, float_format="{:,.3g}".format, na_rep="–")
    return f"<div class=w>{_BETWEEN_TAGS.sub('><', table)}</div>"

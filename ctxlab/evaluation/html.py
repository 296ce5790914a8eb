"""HTML in which results show themselves in a notebook: tables, folds and notes.

The HTML has no scripts, and fetches nothing. It is readable in light and dark notebooks, because it
takes the colour of the text from them, and on pages that remove style sheets, such as GitHub's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ctxlab._utils.numbers import describe_limit, to_sentence
from ctxlab.evaluation.columns import (
    Column,
    legend_of,
    places_by_limit,
    score_columns,
    short_strategy,
)

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.metrics import Score

_STYLE = """<style>
.ctxlab{font-family:system-ui,sans-serif;font-size:13px;line-height:1.4}
.ctxlab table{border-collapse:collapse;border:0;margin:.4em 0;font-size:inherit;color:inherit}
.ctxlab th,.ctxlab td{text-align:right;padding:.15em .5em;border:0;white-space:nowrap;\
background:none;color:inherit;font-variant-numeric:tabular-nums;vertical-align:bottom}
.ctxlab th{font-weight:600;border-bottom:1px solid currentColor}
.ctxlab td.l,.ctxlab th.l{text-align:left}
.ctxlab td:first-child{white-space:normal}
.ctxlab tr.g td{font-weight:600;padding-top:.7em;text-align:left}
.ctxlab tr.c td{opacity:.65}
.ctxlab p{margin:.4em 0;max-width:60em}
.ctxlab .n{opacity:.75;font-size:12px}
.ctxlab summary{cursor:pointer}
.ctxlab .w{overflow-x:auto}
</style>"""


def wrap_html(*parts: str) -> str:
    """Wrap parts of HTML in an element with ctxlab's style.

    Parameters
    ----------
    *parts : str
        HTML; empty strings are left out.

    Returns
    -------
    str
        HTML.
    """
    return f'{_STYLE}<div class="ctxlab">{"".join(filter(None, parts))}</div>'


def paragraph(text: str, is_note: bool = False) -> str:
    """Return a paragraph of plain text.

    Parameters
    ----------
    text : str
        Text, which is escaped.
    is_note : bool, default False
        True to print it smaller, as a note.

    Returns
    -------
    str
        HTML; an empty string if there is no text.

    Examples
    --------
    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p{' class=n' if is_note else ''}>{escape(text)}</p>" if text else ""


def fold(title: str, content: str) -> str:
    """Return content that is folded away until the reader opens it.

    Parameters
    ----------
    title : str
        Title that is always visible.
    content : str
        HTML.

    Returns
    -------
    str
        HTML.
    """
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def table_html(
    columns: Sequence[Column], rows: Iterable[tuple[int | str, bool]] | None = None
) -> str:
    """Return a table.

    Parameters
    ----------
    columns : sequence of Column
        Columns of the table.
    rows : iterable of tuple of (int or str, bool), optional
        Rows to draw: the index of a row, or the text of a heading above the next rows; and whether the
        row is drawn in a quieter tone. None draws all rows.

    Returns
    -------
    str
        HTML. A table that is wider than the page is scrolled by itself.

    Examples
    --------
    >>> html = table_html([Column("name", ["a<b"], left=True), Column("n", ["3"])])
    >>> html.partition("<tbody>")[2]
    '<tr><td class=l>a&lt;b</td><td>3</td></tr></tbody></table></div>'
    """
    sides = [" class=l" if each.left else "" for each in columns]
    heads = "".join(
        f"<th{side}{_title(each)}>{_lines(each.head)}</th>"
        for each, side in zip(columns, sides, strict=True)
    )
    body = []
    drawn = ((i, False) for i in range(len(columns[0].cells))) if rows is None else rows
    for what, is_quiet in drawn:
        if isinstance(what, str):
            body.append(f"<tr class=g><td colspan={len(columns)}>{escape(what)}</td></tr>")
            continue
        cells = "".join(
            f"<td{side}>{_lines(each.cells[what])}</td>"
            for each, side in zip(columns, sides, strict=True)
        )
        body.append(f"<tr{' class=c' if is_quiet else ''}>{cells}</tr>")
    return (
        f"<div class=w><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _title(column: Column) -> str:
    """Return the explanation of a heading, which is shown when the pointer is on it."""
    return f' title="{escape(to_sentence(column.legend))}"' if column.legend else ""


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def board_rows(board: pd.DataFrame) -> list[tuple[int | str, bool]]:
    """Return the rows of a table that is grouped by limit, with the controls last in each group.

    Parameters
    ----------
    board : pandas.DataFrame
        Table with the columns ``strategy`` and ``limit``.

    Returns
    -------
    list of tuple of (int or str, bool)
        Rows for ``table_html``. Controls are drawn in a quieter tone.
    """
    rows: list[tuple[int | str, bool]] = []
    for limit, (others, controls) in places_by_limit(board).items():
        rows.append((f"within {describe_limit(limit)}", False))
        rows += [(i, False) for i in others]
        rows += [(i, True) for i in controls]
    return rows


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
    names = Column("strategy", [short_strategy(name) for name in board["strategy"]], left=True)
    rows = board_rows(board)
    main = score_columns(scores, board)
    shown = table_html([names, *main], rows)
    sections = [
        f"{paragraph(title)}{table_html([names, *score_columns(scores, board, title)], rows)}"
        for title in dict.fromkeys(score.section for score in scores if score.section)
    ]
    every = board.to_html(index=False, border=0, float_format="{:,.3g}".format, na_rep="–")
    return wrap_html(
        *(paragraph(text) for text in notes[:1]),
        shown,
        *sections,
        *(paragraph(text, is_note=True) for text in (legend_of(main), *notes[1:])),
        fold("All columns", f"<div class=w>{every}</div>"),
    )

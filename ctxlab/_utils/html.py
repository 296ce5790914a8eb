"""HTML in which objects show themselves in a notebook: tables, folds, notes and simple drawings.

The HTML has no scripts, and fetches nothing. It is readable in light and dark notebooks, because it
takes the colour of the text from them. Pages that remove style sheets and drawings, such as GitHub's,
still show all tables and sentences, so everything that a drawing says is also said in words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from ctxlab._utils.numbers import to_sentence
from ctxlab._utils.tables import Column
from ctxlab._utils.text import show_symbols

_STYLE = """<style>
.ctxlab{font-family:system-ui,sans-serif;font-size:13px;line-height:1.4}
.ctxlab table{border-collapse:collapse;border:0;margin:.4em 0;font-size:inherit;color:inherit}
.ctxlab th,.ctxlab td{text-align:right;padding:.15em .4em;border:0;white-space:nowrap;\
background:none;color:inherit;font-variant-numeric:tabular-nums;vertical-align:top}
.ctxlab th{font-weight:600;border-bottom:1px solid currentColor;vertical-align:bottom}
.ctxlab td.l,.ctxlab th.l{text-align:left}
.ctxlab td.l{white-space:normal}
.ctxlab td.t{overflow-wrap:anywhere;min-width:12em}
.ctxlab tr.g td{font-weight:600;padding-top:.7em;text-align:left;white-space:normal}
.ctxlab tr.c td{opacity:.65}
.ctxlab p{margin:.4em 0;max-width:60em;overflow-wrap:anywhere}
.ctxlab .n{opacity:.75;font-size:12px}
.ctxlab summary{cursor:pointer}
.ctxlab .w{overflow-x:auto}
.ctxlab pre{font-size:11px;line-height:1.2;margin:.4em 0;overflow-x:auto;color:inherit}
.ctxlab pre.t{white-space:pre-wrap;overflow-wrap:anywhere}
.ctxlab table.p td{padding:0 .4em;vertical-align:bottom}
.ctxlab table.p tr{background:none}
.ctxlab table.p svg{margin:0}
.ctxlab svg{max-width:100%;height:auto;display:block;margin:.4em 0}
</style>"""

_LONG_CELL = 28
"cells with more characters may be wrapped"


def escape_text(text: str) -> str:
    r"""Convert text to HTML. Nothing in it becomes markup, and nothing in it is invisible.

    Parameters
    ----------
    text : str
        Any text, for example from a log.

    Returns
    -------
    str
        HTML. Right-to-left text does not change the order of what is around it.

    Examples
    --------
    >>> escape_text("<b>\x00"), escape_text("שלום")
    ('&lt;b&gt;␀', '<bdi>שלום</bdi>')
    """
    html = escape(show_symbols(text))
    if not text.isascii() and any(unicodedata.bidirectional(c) in ("R", "AL") for c in text):
        return f"<bdi>{html}</bdi>"
    return html


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
    return f"<p{' class=n' if is_note else ''}>{escape_text(text)}</p>" if text else ""


def title(text: str) -> str:
    """Return a heading.

    Parameters
    ----------
    text : str
        Text, which is escaped.

    Returns
    -------
    str
        HTML.
    """
    return f"<p><b>{escape_text(text)}</b></p>"


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
        HTML; an empty string if there is no content.
    """
    if not content:
        return ""
    return f"<details><summary>{escape_text(title)}</summary>{content}</details>"


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
    sides = [_classes(each) for each in columns]
    heads = "".join(
        f"<th{side}{_hint(each)}>{_lines(each.head)}</th>"
        for each, side in zip(columns, sides, strict=True)
    )
    body = []
    drawn = ((i, False) for i in range(len(columns[0].cells))) if rows is None else rows
    for what, is_quiet in drawn:
        if isinstance(what, str):
            body.append(f"<tr class=g><td colspan={len(columns)}>{_lines(what)}</td></tr>")
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


def _classes(column: Column) -> str:
    """Return the attribute ``class`` of a column's cells: aligned left, and wrapped if they are long."""
    is_long = column.left and any(
        len(line) > _LONG_CELL for cell in column.cells for line in cell.split("\n")
    )
    return ' class="l t"' if is_long else " class=l" if column.left else ""


def _hint(column: Column) -> str:
    """Return the explanation of a heading, which is shown when the pointer is on it."""
    return f' title="{escape(to_sentence(column.legend))}"' if column.legend else ""


def _lines(text: str) -> str:
    return escape_text(text).replace("\n", "<br>")


def drawing(width: int, height: int, label: str, *parts: str) -> str:
    """Return a drawing: inline SVG in the colour of the surrounding text.

    Parameters
    ----------
    width, height : int
        Size in pixels. A drawing that is wider than the page is made smaller.
    label : str
        Description for people who do not see the drawing.
    *parts : str
        SVG elements. They contain no text, because it would remain where drawings are removed.

    Returns
    -------
    str
        HTML.
    """
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(show_symbols(label))}" fill="currentColor">{"".join(parts)}</svg>'
    )


def lane_table(heads: Sequence[str], lanes: Iterable[tuple[str, str, str]]) -> str:
    """Return a table of drawings, one below the other, with a name and a figure beside each.

    Parameters
    ----------
    heads : sequence of str
        Three headings.
    lanes : iterable of tuple of (str, str, str)
        Name, drawing (HTML) and figure of each lane.

    Returns
    -------
    str
        HTML. Where drawings are removed, the names and figures remain.
    """
    head = "".join(
        f"<th{' class=l' * (n == 1)}>{_lines(text)}</th>" for n, text in enumerate(heads)
    )
    rows = "".join(
        f"<tr><td>{_lines(name)}</td><td>{picture}</td><td>{_lines(figure)}</td></tr>"
        for name, picture, figure in lanes
    )
    return f"<table class=p><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def svg_boxes(
    boxes: Iterable[tuple[float, float, float, float]], color: str = "", opacity: float = 1
) -> str:
    """Return filled rectangles of one colour as a single element.

    Parameters
    ----------
    boxes : iterable of tuple of (float, float, float, float)
        Left edge, upper edge, width and height of each rectangle.
    color : str, optional
        Colour; that of the text if left out.
    opacity : float, default 1
        1 covers what is behind, 0 is invisible.

    Returns
    -------
    str
        SVG element; an empty string if there are no rectangles.

    Examples
    --------
    >>> svg_boxes([(0, 0, 2.5, 3)], "#56B4E9")
    '<path d="M0 0h2.5v3h-2.5z" fill="#56B4E9"/>'
    """
    path = "".join(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z" for x, y, w, h in boxes)
    if not path:
        return ""
    look = f' fill="{color}"' if color else ""
    look += f' opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<path d="{path}"{look}/>'


def svg_lines(path: str, width: float = 1, dashes: str = "") -> str:
    """Return lines in the colour of the text.

    Parameters
    ----------
    path : str
        Lines in the notation of SVG paths.
    width : float, default 1
        Width in pixels.
    dashes : str, optional
        Lengths of dashes and gaps; a continuous line if left out.

    Returns
    -------
    str
        SVG element; an empty string if there are no lines.
    """
    if not path:
        return ""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="{width:g}"{dashed}/>'


def _n(number: float) -> str:
    """Return a number with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")

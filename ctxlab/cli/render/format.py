"""Format figures for columns and draw tables that fit the output.

A terminal gets colours and tables of its own width; a pipe gets the same text, 100 columns wide. If
that is too narrow, whole columns are left out. Figures are never cut.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

TableRow = tuple[Sequence[str], str]
"""The cells of a row and its style."""

_MIN_WIDTH, _DEFAULT_WIDTH = 60, 100
_MIN_NAME_WIDTH = 16  # least width of the first column, which wraps


def output_width() -> int:
    """Return the width of the output in columns.

    Returns
    -------
    int
        The width of the terminal, at least 60, or 100 in a pipe.
    """
    if not sys.stdout.isatty():
        return _DEFAULT_WIDTH
    return max(shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns, _MIN_WIDTH)


def render_to_text(*parts: RenderableType) -> str:
    """Render parts to text, with colours if standard output is a terminal.

    Parameters
    ----------
    *parts : RenderableType
        Texts and tables of rich.

    Returns
    -------
    str
        The text, without white space at line ends.
    """
    console = Console(
        force_terminal=sys.stdout.isatty(),
        width=output_width(),
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def make_table(
    heads: Sequence[str],
    rows: Iterable[TableRow],
    text_columns: Collection[int] = (0,),
    wrap_column: int = 0,
    dim_columns: Collection[int] = (),
) -> Table:
    """Return a table of figures.

    Parameters
    ----------
    heads : sequence of str
        Column headings.
    rows : iterable of TableRow
        Cells and style of each row.
    text_columns : collection of int
        Columns to align left, counted from 0.
    wrap_column : int
        The column that wraps.
    dim_columns : collection of int
        Columns to print dim.

    Returns
    -------
    Table
        The table.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for number, head in enumerate(heads):
        justify: Literal["left", "right"] = "left" if number in text_columns else "right"
        made.add_column(
            Text(head),
            justify=justify,
            no_wrap=number != wrap_column,
            overflow="fold",
            style="dim" if number in dim_columns else "",
        )
    for cells, style in rows:
        made.add_row(*(Text(cell) for cell in cells), style=style)
    return made


def fit_columns(
    columns: Mapping[str, Sequence[str]],
    drop_order: Sequence[str],
    available_width: int | None = None,
) -> list[str]:
    """Choose the columns that fit next to each other.

    Parameters
    ----------
    columns : mapping of str to sequence of str
        Cells by heading. The first column wraps; it needs 16 columns or less.
    drop_order : sequence of str
        Headings that may be left out, least important first.
    available_width : int, optional
        The width; None takes ``output_width()``.

    Returns
    -------
    list of str
        Headings of the columns to show.

    Examples
    --------
    >>> columns = {"name": ["a long name, which wraps"], "msgs": ["2,134"], "format": ["native"]}
    >>> fit_columns(columns, ["format"], 29), fit_columns(columns, ["format"], 28)
    (['name', 'msgs', 'format'], ['name', 'msgs'])
    """
    sizes = {
        head: 1 + max(cell_len(line) for text in (head, *cells) for line in text.split("\n"))
        for head, cells in columns.items()
    }
    first = next(iter(columns))
    name = min(sizes.pop(first) - 1, _MIN_NAME_WIDTH)
    left = (
        (output_width() if available_width is None else available_width)
        - name
        - sum(sizes.values())
    )
    for head in drop_order:
        if left < 0 and head in sizes:
            left += sizes.pop(head)
    return [first, *sizes]


def fold_pipeline(pipeline: str, width: int) -> str:
    """Wrap a pipeline of strategies before its bars.

    Parameters
    ----------
    pipeline : str
        Strategies joined with ``|``.
    width : int
        Columns per line.

    Returns
    -------
    str
        The lines.

    Examples
    --------
    >>> print(fold_pipeline("observation_mask(keep=3) | rolling_summary | panic", 30))
    observation_mask(keep=3)
      | rolling_summary | panic
    """
    lines = [""]
    for step in pipeline.split(" | "):
        joined = f"{lines[-1]} | {step}" if lines[-1] else step
        if len(joined) > width and lines[-1]:
            lines.append(f"  | {step}")
        else:
            lines[-1] = joined
    return "\n".join(lines)


def format_count(number: float) -> str:
    """Format a count with three significant digits.

    Parameters
    ----------
    number : float
        The count.

    Returns
    -------
    str
        The count with a unit, or a dash for NaN.

    Examples
    --------
    >>> [format_count(n) for n in (0, 950, 4_200, 12_240, 999_900, 1_220_000, float("nan"))]
    ['0', '950', '4.20k', '12.2k', '1.00M', '1.22M', '–']
    """
    if math.isnan(number):
        return "–"
    number = float(f"{number:.3g}")
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            value = number / size
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}{unit}"
    return f"{number:.3g}"


def format_percent(rate: float) -> str:
    """Format a rate in per cent without rounding to 0 or 100.

    Parameters
    ----------
    rate : float
        The rate, from 0 to 1.

    Returns
    -------
    str
        The digits without a sign, or a dash for NaN.

    Examples
    --------
    >>> [format_percent(rate) for rate in (0, 0.0004, 0.178, 0.9996, 1, float("nan"))]
    ['0', '<1', '18', '>99', '100', '–']
    """
    if math.isnan(rate):
        return "–"
    if 0 < rate < 0.01:
        return "<1"
    return ">99" if 0.99 < rate < 1 else f"{rate:.0%}".rstrip("%")


def format_usd(amount: float) -> str:
    """Format dollars with at most three significant digits.

    Parameters
    ----------
    amount : float
        Dollars.

    Returns
    -------
    str
        The amount without a sign, or a dash for NaN.

    Examples
    --------
    >>> [format_usd(amount) for amount in (0, 0.00004, 0.0123, 1.8209, 32, 123.4, 12_340)]
    ['0', '<.001', '0.012', '1.82', '32.0', '123', '12.3k']
    """
    if math.isnan(amount) or amount == 0 or amount >= 999.5:
        return format_count(amount)
    if amount < 0.001:
        return "<.001"
    places = 3 if amount < 0.1 else 2 if amount < 10 else 1 if amount < 99.95 else 0
    return f"{amount:.{places}f}"


def format_share(value: float) -> str:
    """Format a share with two decimals; only a full share is written as 1.0.

    Parameters
    ----------
    value : float
        The share, from 0 to 1.

    Returns
    -------
    str
        The share without its leading zero, or a dash for NaN.

    Examples
    --------
    >>> [format_share(value) for value in (0, 0.7649, 0.9999, 1, float("nan"))]
    ['.00', '.76', '.99', '1.0', '–']
    """
    if math.isnan(value):
        return "–"
    return "1.0" if value >= 1 - 1e-9 else f"{min(value, 0.99):.2f}"[1:]


def format_share_interval(value: float, low: float, high: float) -> str:
    """Format a share with its interval, if there is one.

    Parameters
    ----------
    value : float
        The share.
    low, high : float
        The bounds; NaN if there is no interval.

    Returns
    -------
    str
        The share, followed by its interval in parentheses.

    Examples
    --------
    >>> format_share_interval(0.7649, 0.7, 0.821), format_share_interval(1, 1, 1)
    ('.76 (.70–.82)', '1.0')
    """
    said = format_share(value)
    bounds = f"{format_share(low)}–{format_share(high)}"
    return said if math.isnan(low) or bounds == f"{said}–{said}" else f"{said} ({bounds})"


def to_json_array(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as a JSON array with one object per line; NaN and infinity become null.

    Parameters
    ----------
    rows : iterable of mapping
        The rows.

    Returns
    -------
    str
        The array.
    """
    lines = [
        json.dumps({k: _to_json_value(v) for k, v in row.items()}, allow_nan=False) for row in rows
    ]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def _to_json_value(value: Any) -> Any:
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Format numbers and data frames, and render text to the width of the output.

On a terminal, the text is coloured and as wide as the terminal. Otherwise it has no colours, and the
environment variable ``COLUMNS`` sets the width; the default is 100 columns.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    import pandas as pd

_MIN_WIDTH, _DEFAULT_WIDTH = 60, 100


def output_width() -> int:
    """Return the width of the output in columns.

    Returns
    -------
    int
        Value of ``COLUMNS`` if it is set. Otherwise the width of the terminal, or 100 if the output
        is not a terminal. The minimum is 60.
    """
    if sys.stdout.isatty():
        width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
    else:
        named = os.environ.get("COLUMNS", "")
        width = int(named) if named.isdecimal() else _DEFAULT_WIDTH
    return max(width, _MIN_WIDTH)


def render_to_text(*parts: RenderableType) -> str:
    """Render objects of the library rich to a string, with colours if the output is a terminal.

    Parameters
    ----------
    *parts : RenderableType
        Objects to render, such as instances of ``rich.text.Text``.

    Returns
    -------
    str
        Rendered lines without trailing white space.
    """
    console = Console(force_terminal=sys.stdout.isatty(), width=output_width(), highlight=False)
    with console.capture() as captured:
        console.print(Group(*parts), crop=False)  # a Text outside a Group loses no_wrap
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def format_count(number: float) -> str:
    """Format a count with three significant digits.

    Parameters
    ----------
    number : float
        Count to format.

    Returns
    -------
    str
        Count with the suffix ``k``, ``M`` or ``G`` if it is 1,000 or more; a dash for NaN.

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


def format_bytes(count: int) -> str:
    """Format a size in bytes with three significant digits.

    Parameters
    ----------
    count : int
        Number of bytes.

    Returns
    -------
    str
        Size with the unit.

    Examples
    --------
    >>> format_bytes(12_240), format_bytes(7)
    ('12.2kB', '7B')
    """
    return f"{format_count(count)}B"


def format_percent(rate: float) -> str:
    """Format a rate as a percentage without decimals.

    Rates between 0 and 0.01 become ``<1``, and rates between 0.99 and 1 become ``>99``.

    Parameters
    ----------
    rate : float
        Rate from 0 to 1.

    Returns
    -------
    str
        Percentage without a percent sign; a dash for NaN.

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
    """Format an amount in US dollars with at most three digits after the point.

    Amounts of 1 or more have three significant digits. Amounts between 0 and 0.001 become
    ``<.001``.

    Parameters
    ----------
    amount : float
        Amount in US dollars.

    Returns
    -------
    str
        Amount without a dollar sign; a dash for NaN.

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
    """Format a share with two decimals. Shares between 0.99 and 1 become ``.99``, and 1 becomes ``1.0``.

    Parameters
    ----------
    value : float
        Share from 0 to 1.

    Returns
    -------
    str
        Share without a leading zero, such as ``.76``; a dash for NaN.

    Examples
    --------
    >>> [format_share(value) for value in (0, 0.7649, 0.9999, 1, float("nan"))]
    ['.00', '.76', '.99', '1.0', '–']
    """
    if math.isnan(value):
        return "–"
    return "1.0" if value >= 1 - 1e-9 else f"{min(value, 0.99):.2f}"[1:]


def format_signed_share(value: float) -> str:
    """Format the difference between two shares with its sign.

    Parameters
    ----------
    value : float
        Difference from -1 to 1.

    Returns
    -------
    str
        Difference without a leading zero, such as ``−.12``; a value that rounds to 0 has no sign.

    Examples
    --------
    >>> [format_signed_share(value) for value in (-0.123, 0.05, 0.001, -1)]
    ['−.12', '+.05', '.00', '−1.0']
    """
    size = format_share(abs(value) if abs(value) > 0.995 else round(abs(value), 2))
    return size if size == ".00" else f"{'−' if value < 0 else '+'}{size}"


def format_share_interval(value: float, low: float, high: float) -> str:
    """Format a share and its confidence interval.

    Parameters
    ----------
    value : float
        Share from 0 to 1.
    low, high : float
        Bounds of the interval; NaN if there is no interval.

    Returns
    -------
    str
        Share, followed by the interval in parentheses. The interval is left out if it does not exist
        or if both bounds are printed like the share.

    Examples
    --------
    >>> format_share_interval(0.7649, 0.7, 0.821), format_share_interval(1, 1, 1)
    ('.76 (.70–.82)', '1.0')
    """
    said = format_share(value)
    bounds = f"{format_share(low)}–{format_share(high)}"
    return said if math.isnan(low) or bounds == f"{said}–{said}" else f"{said} ({bounds})"


def format_values(frame: pd.DataFrame, name: str, kind: str) -> list[str]:
    """Format the values of one column of a data frame.

    Parameters
    ----------
    frame : DataFrame
        Data frame with the column.
    name : str
        Name of the column.
    kind : {"count", "usd", "share", "percent", "interval"}
        Format of the values. For ``"interval"``, the column contains shares, and the columns with the
        suffixes ``_low`` and ``_high`` contain the bounds of their intervals.

    Returns
    -------
    list of str
        Formatted value of each row.
    """
    if kind == "interval":
        columns = (frame[f"{name}{end}"] for end in ("", "_low", "_high"))
        return [format_share_interval(*map(float, row)) for row in zip(*columns, strict=True)]
    write = {"usd": format_usd, "share": format_share, "percent": format_percent}
    return [write.get(kind, format_count)(float(value)) for value in frame[name]]


def to_sentence(text: str) -> str:
    """Capitalize the first letter of a string and end the string with a full stop.

    Parameters
    ----------
    text : str
        Words of a sentence, with or without a full stop.

    Returns
    -------
    str
        Sentence with a capital letter and one full stop.
    """
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def with_conclusion(text: str, last: str) -> str:
    """Append a conclusion to the output of a command, after an empty line.

    Parameters
    ----------
    text : str
        Output before the conclusion.
    last : str
        Conclusion. Its lines are wrapped only on a terminal. In a pipe, ``tail -n 1`` therefore
        prints the complete last line.

    Returns
    -------
    str
        Output with the conclusion, which is bold on a terminal.
    """
    shown = render_to_text(Text(last, style="bold")) if sys.stdout.isatty() else last
    return f"{text}\n\n{shown}"


def frame_to_json(frame: pd.DataFrame, limits: Iterable[int | float] = ()) -> str:
    """Convert a data frame to a JSON array with one object per row.

    Parameters
    ----------
    frame : DataFrame
        Data frame to convert.
    limits : iterable of int or float
        Distinct limits as the user gave them. pandas has converted the values of the column ``limit`` to
        floats; each value is replaced by the equal limit.

    Returns
    -------
    str
        JSON array as text.
    """
    given = {float(limit): limit for limit in limits}
    rows = frame.astype(object).to_dict("records")
    for row in rows:
        if "limit" in row:
            row["limit"] = given.get(row["limit"], row["limit"])
    return to_json_array(rows)


def to_json_array(rows: Iterable[Mapping[Any, Any]]) -> str:
    """Convert rows to a JSON array with one object per line; NaN and infinity become null.

    Parameters
    ----------
    rows : iterable of mapping
        Rows to convert, each a mapping of column names to values.

    Returns
    -------
    str
        JSON array as text.
    """
    clean = ({key: _to_json_value(value) for key, value in row.items()} for row in rows)
    lines = [json.dumps(row, allow_nan=False) for row in clean]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def to_json_object(**lists: Iterable[Mapping[Any, Any]]) -> str:
    """Convert lists of rows to a JSON object with one array per list.

    Parameters
    ----------
    **lists : iterable of mapping
        Rows to convert, by the key of their array.

    Returns
    -------
    str
        JSON object as text. Each row is on a line of its own.
    """
    arrays = [f"{json.dumps(key)}: {to_json_array(rows)}" for key, rows in lists.items()]
    return "{" + ",\n".join(arrays) + "}"


def _to_json_value(value: Any) -> Any:
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

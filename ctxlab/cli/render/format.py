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
    frame = _with_given_limits(frame, limits)
    return to_json_array(frame.where(frame.notna(), None).to_dict("records"))


def frame_to_csv(frame: pd.DataFrame, limits: Iterable[int | float] = ()) -> str:
    """Convert a data frame to CSV, with a line of headings and one line per row.

    Parameters
    ----------
    frame : DataFrame
        Data frame to convert.
    limits : iterable of int or float
        Distinct limits as the user gave them, as in ``frame_to_json``.

    Returns
    -------
    str
        CSV without a line end after the last line. Nan is an empty cell.
    """
    text: str = _with_given_limits(frame, limits).to_csv(index=False, lineterminator="\n")
    return text.removesuffix("\n")


def _with_given_limits(frame: pd.DataFrame, limits: Iterable[int | float]) -> pd.DataFrame:
    """Replace the limits, which pandas has converted to floats, by the limits that the user gave.

    A limit that is not among them is a number of tokens, and becomes an integer, if it is above 1.
    """
    import pandas as pd

    given = {float(limit): limit for limit in limits}
    frame = frame.astype(object)
    for name in ("limit", "limit_a", "limit_b"):
        if name in frame:
            plain = (int(each) if each > 1 else each for each in frame[name])
            values = [given.get(each, each) for each in plain]
            frame[name] = pd.Series(values, frame.index, dtype=object)
    return frame


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

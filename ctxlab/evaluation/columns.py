"""Columns of the tables that show results: on the command line, in notebooks and in reports.

A column has formatted cells, a heading and an explanation. Where it is drawn, and how, is decided by the
command line (``ctxlab.cli.render.table``) and by ``ctxlab.evaluation.html``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ctxlab._utils.numbers import (
    format_count,
    format_percent,
    format_share,
    format_share_interval,
    format_usd,
)
from ctxlab._utils.tables import Column as Column
from ctxlab._utils.tables import legend_of as legend_of
from ctxlab._utils.tables import text_columns as text_columns
from ctxlab.evaluation.recommendation import control_name
from ctxlab.strategies.base import SEEDS

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.metrics import Score


_Format: TypeAlias = Literal["count", "usd", "share", "percent", "interval"]


class Figure(NamedTuple):
    """Print settings of one column of a data frame."""

    head: str
    "heading of one or two lines"
    name: str
    "name of the column in the data frame; an interval also uses ``NAME_low`` and ``NAME_high``"
    format: _Format
    "format of the values"
    legend: str = ""
    "explanation of the heading, for the legend below the table; empty if none is needed"
    drop: int = 0
    "order in which columns are left out; see ``Column.drop``"
    hide: Literal["", "nan", "zero", "empty"] = ""
    "leave the column out if all values are nan (``nan``), 0 (``zero``), or nan or 0 (``empty``)"

    def column(self, frame: pd.DataFrame) -> Column:
        """Create the printed column from a data frame.

        Parameters
        ----------
        frame : DataFrame
            Data frame with the values.

        Returns
        -------
        Column
            Column with one formatted value per row.
        """
        cells = format_values(frame, self.name, self.format)
        return Column(self.head, cells, self.legend, self.drop, self.format == "interval")

    def is_shown(self, frame: pd.DataFrame) -> bool:
        """Check if the column should be shown with the values of a data frame.

        Parameters
        ----------
        frame : DataFrame
            Data frame with the values.

        Returns
        -------
        bool
            False if the data frame does not have the column, or if ``hide`` is set and all values are
            of the kind that ``hide`` names, such as nan. True otherwise.
        """
        if self.name not in frame:
            return False
        values = frame[self.name]
        match self.hide:
            case "nan":
                return bool(values.notna().any())
            case "zero":
                return bool((values != 0).any())
            case "empty":
                return bool(values.fillna(0).any())
        return True


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


def frame_columns(frame: pd.DataFrame, figures: Iterable[Figure]) -> list[Column]:
    """Create printed columns from a data frame; columns without values to show are left out.

    Parameters
    ----------
    frame : DataFrame
        Data frame with the values.
    figures : iterable of Figure
        Columns to create, in display order.

    Returns
    -------
    list of Column
        Columns for which ``Figure.is_shown`` is True.
    """
    return [figure.column(frame) for figure in figures if figure.is_shown(frame)]


def short_strategy(strategy: str) -> str:
    """Remove empty parentheses from the text form of a strategy.

    Parameters
    ----------
    strategy : str
        Text form of a strategy.

    Returns
    -------
    str
        Shorter text form, which ctxlab also accepts as input.

    Examples
    --------
    >>> short_strategy("tool_stubs(keep=3) | panic()")
    'tool_stubs(keep=3) | panic'
    """
    return re.sub(r"(?<=\w)\(\)(?= \||$)", "", strategy)


def describe_limit(limit: float) -> str:
    """Describe a limit in words.

    Parameters
    ----------
    limit : float
        Number of tokens; a float of at most 1 is a share of each recording.

    Returns
    -------
    str
        Description of the limit.

    Examples
    --------
    >>> describe_limit(8000), describe_limit(0.25)
    ('8,000 tokens', '25 % of each recording')
    """
    if isinstance(limit, float) and limit <= 1:
        return f"{limit * 100:.3g} % of each recording"
    return f"{limit:,.0f} tokens"


_DROP_ORDER = (
    *("question_overflow_rate", "question_tokens_mean", "answer_chance"),
    *("evidence_pointer_rate", "invalid_rate", "cached_share", "recall", "pointer_rate"),
    *("lost_rate", "tokens_peak", "survival_end"),
)
"scores whose columns are left out on a narrow terminal, starting with the last one"
_PROBE_COLUMNS = (
    *("question_tokens_mean", "question_overflow_rate"),
    *("evidence_recall", "answer_containment", "answer_chance", "survival_end"),
)
"scores that are measured only for recordings with probes or canaries"
_HIDE = {**dict.fromkeys(_PROBE_COLUMNS, "nan"), "strategy_usd": "zero"}
_HIDE["evidence_pointer_rate"] = "empty"


def places_by_limit(board: pd.DataFrame) -> dict[float, tuple[list[int], list[int]]]:
    """Return the row numbers of each limit, as one list for strategies and one for controls.

    Parameters
    ----------
    board : pandas.DataFrame
        Table with the columns ``strategy`` and ``limit``.

    Returns
    -------
    dict of float to tuple of (list of int, list of int)
        Row numbers by limit.
    """
    places: dict[float, tuple[list[int], list[int]]] = {}
    for i, (strategy, limit) in enumerate(zip(board["strategy"], board["limit"], strict=True)):
        places.setdefault(limit, ([], []))[bool(control_name(strategy))].append(i)
    return places


def score_columns(scores: Iterable[Score], board: pd.DataFrame, section: str = "") -> list[Column]:
    """Return the columns of a section's scores that have a heading and at least one value to show.

    Parameters
    ----------
    scores : iterable of Score
        Scores of the leaderboard.
    board : pandas.DataFrame
        Leaderboard.
    section : str, default ""
        Heading of the section; an empty string for the main table.

    Returns
    -------
    list of Column
        Columns in the order of the scores.
    """
    chosen = [each for each in scores if each.heading and each.section == section]
    return frame_columns(board, map(_figure, chosen))


def spread_figures(scores: Iterable[Score], board: pd.DataFrame) -> list[Figure]:
    """Return columns with the spread of scores with intervals over the seeds of random controls.

    Parameters
    ----------
    scores : iterable of Score
        Scores of the leaderboard.
    board : pandas.DataFrame
        Leaderboard.

    Returns
    -------
    list of Figure
        One column per score whose spread is known.
    """
    legend = (
        f"sd: standard deviation over {SEEDS} seeds of a random control, whose row has the means"
    )
    found = []
    for score in scores:
        if f"{score.name}_sd" in board and "(95 %)" in score.heading:
            head = f"{score.heading.removesuffix('(95 %)').strip()}\nsd"
            found.append(Figure(head, f"{score.name}_sd", "share", legend, hide="nan"))
            legend = ""
    return found


def _figure(score: Score) -> Figure:
    """Return the print settings of a score's column, which depend on the score's unit and heading."""
    drop = _DROP_ORDER.index(score.name) + 1 if score.name in _DROP_ORDER else 0
    written: Any = {"USD": "usd", "per request": "percent"}.get(score.unit, "count")
    if score.unit == "share":
        head = score.heading
        written = "interval" if "(95 %)" in head else "percent" if "%" in head else "share"
    hide: Any = _HIDE.get(score.name, "")
    return Figure(score.heading, score.name, written, score.legend, drop, hide)

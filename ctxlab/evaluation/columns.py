"""Columns of the tables that show results: on the command line, in notebooks and in reports.

A column has formatted cells, a heading and an explanation. Where it is drawn, and how, is decided by the
command line (``ctxlab.cli.render.table``) and by ``ctxlab.evaluation.html``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
from ctxlab.evaluation.verdict import control_name
from ctxlab.strategies.base import SEEDS

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.metrics import Score
    from ctxlab.evaluation.metrics.base import Better


_Format: TypeAlias = Literal["count", "usd", "share", "percent", "interval"]


class ColumnFacts(NamedTuple):
    """Format, direction and meaning of a column of a data frame, printed or not."""

    unit: str
    "unit of the values, such as ``share`` or ``USD``"
    better: Better = ""
    "direction in which the values improve; empty if neither direction is better"
    meaning: str = ""
    "description of the column"


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
        left = self.format == "interval"
        return Column(self.head, cells, self.legend, self.drop, left, name=self.name)

    def is_shown(self, frame: pd.DataFrame) -> bool:
        """Check if the column should be shown with the values of a data frame.

        Parameters
        ----------
        frame : DataFrame
            Data frame with the values.

        Returns
        -------
        bool
            False if the column was not measured, or if ``hide`` is set and all values are of the kind
            that ``hide`` names, such as nan. True otherwise.
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


SUFFIXES = ("_low", "_high", "_sd")
"""Endings of columns that belong to the column without the ending: the bounds of its interval and its
standard deviation over seeds."""


def score_facts(scores: Iterable[Score]) -> dict[str, ColumnFacts]:
    """Return what is known about the columns of a leaderboard.

    Parameters
    ----------
    scores : iterable of Score
        Scores of the leaderboard.

    Returns
    -------
    dict of str to ColumnFacts
        Facts by name of the score.
    """
    return {each.name: ColumnFacts(each.unit, each.better, each.meaning) for each in scores}


def leaderboard_names(scores: Iterable[Score]) -> list[str]:
    """Return the names of the columns that a leaderboard can have.

    Parameters
    ----------
    scores : iterable of Score
        Scores of the leaderboard.

    Returns
    -------
    list of str
        Names, including those of bounds and of standard deviations.
    """
    names = ["strategy", "limit", "requests"]
    for each in scores:
        names += [each.name, *(f"{each.name}{end}" for end in SUFFIXES if each.interval)]
    return names


def find_facts(name: str, facts: Mapping[str, ColumnFacts]) -> ColumnFacts:
    """Return what is known about a column; a bound of an interval is like the column it belongs to.

    Parameters
    ----------
    name : str
        Name of the column.
    facts : mapping of str to ColumnFacts
        Facts by name of the column.

    Returns
    -------
    ColumnFacts
        Facts of the column; without unit and direction if nothing is known.
    """
    stem = next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)
    return facts.get(name) or facts.get(stem, ColumnFacts(""))._replace(meaning="")


def named_columns(
    frame: pd.DataFrame, names: Iterable[str], facts: Mapping[str, ColumnFacts]
) -> list[Column]:
    """Create printed columns that have the names of the data frame's columns as headings.

    Parameters
    ----------
    frame : pandas.DataFrame
        Data frame with the values.
    names : iterable of str
        Names of the columns, in display order.
    facts : mapping of str to ColumnFacts
        What is known about the columns, by name. It decides how the values are formatted.

    Returns
    -------
    list of Column
        One column per name. A share is printed with its interval if the data frame has one.
    """
    found = []
    for name in names:
        known = find_facts(name, facts)
        legend = f"{name}: {known.meaning}" if known.meaning else ""
        if frame[name].dtype.kind not in "iuf":
            cells = [short_strategy(str(value)) for value in frame[name]]
            found.append(Column(_break_name(name), cells, legend, left=True, name=name))
            continue
        kind: Any = {"USD": "usd", "per request": "percent"}.get(known.unit, "count")
        if known.unit == "share":
            kind = "interval" if f"{name}_low" in frame else "share"
        found.append(Figure(_break_name(name), name, kind, legend).column(frame))
    return found


def _break_name(name: str) -> str:
    r"""Break a name after an underscore into two lines of similar length.

    >>> _break_name("recall_far_held"), _break_name("limit")
    ('recall_\nfar_held', 'limit')
    """
    places = [i + 1 for i, letter in enumerate(name[:-1]) if letter == "_"]
    if not places:
        return name
    place = min(places, key=lambda i: max(i, len(name) - i))
    return f"{name[:place]}\n{name[place:]}"


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


_DROP_ORDER = (
    *("answer_containment", "evidence_recall", "invalid_rate", "cached_share", "recall"),
    *("pointer_rate", "lost_rate", "tokens_peak", "survival_end", "evidence_pointer_rate"),
    *("answer_chance", "question_tokens_mean", "question_overflow_rate"),
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


def score_figures(scores: Iterable[Score], board: pd.DataFrame, section: str = "") -> list[Figure]:
    """Return the print settings of a section's scores that have a heading and a value to show.

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
    list of Figure
        Print settings in the order of the scores.
    """
    chosen = [each for each in scores if each.heading and each.section == section]
    return [figure for figure in map(_figure, chosen) if figure.is_shown(board)]


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
    return [figure.column(board) for figure in score_figures(scores, board, section)]


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

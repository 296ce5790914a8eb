"""Results of a comparison, as a table of differences with intervals and as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import Column, latex_table, markdown_table
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE

_DROP_ORDER = {"effect": 4, "clusters": 3, "w/t/l": 2, "p (Holm)": 1}
_MAX_SHOWN_PAIRS = 12


class Configuration(NamedTuple):
    """A strategy and the limit that it is evaluated under."""

    strategy: str
    "name of the strategy with its options"
    limit: float
    "limit in tokens, or as a fraction of each recording's length"

    def __str__(self) -> str:
        """Return the strategy and its limit, such as ``panic() @ 25%``."""
        share = f"{self.limit * 100:.4g}%"
        window = share if self.limit <= 1 else f"{self.limit:,.0f}"
        return f"{self.strategy} @ {window}"


COMPARISON_COLUMNS = (
    *("kind", "a", "b", "limit_a", "limit_b", "score", "meaning", "unit", "better", "relative"),
    *("value_a", "value_b", "difference", "low", "high", "p", "p_holm", "effect"),
    *("wins", "ties", "losses", "recordings", "clusters", "detectable", "left_out"),
    *("margin", "finding"),
)
"""Columns of ``Comparison.table``. ``kind`` is missing if recordings are not compared by kind."""

_FINDING_VERBS = {
    "better": "is better than",
    "worse": "is worse than",
    "higher": "is higher than",
    "lower": "is lower than",
    "equal here": "has the same values as",
    "too few": "has too few clusters to be distinguished from",
    "unknown": "cannot be compared with",
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Differences between pairs of strategies, with intervals and p-values.

    A notebook displays a comparison as a table.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:3]
    >>> results = ctxlab.evaluate(recordings, ["panic()", "nothing"], 8000, workers=1)
    >>> found = ctxlab.compare_strategies(results, "nothing", "panic()", resamples=1000)
    >>> sorted(found.table["score"])
    ['cost_usd', 'overflow_rate', 'recall', 'recall_far_held', 'tokens_mean']
    """

    table: pd.DataFrame
    """one row per pair and score: strategies ``a`` and ``b`` with ``limit_a`` and ``limit_b``,
    ``score``, ``unit``, ``value_a``, ``value_b``, ``difference`` (a − b; divided by b if
    ``relative``), the interval from ``low`` to ``high``, ``p`` and ``p_holm`` (p-value before and
    after Holm's correction), ``effect`` (difference divided by its standard deviation between
    clusters), ``wins``, ``ties``, ``losses`` (numbers of recordings in which a is better, equal,
    worse), ``recordings`` and ``clusters`` (numbers of those compared), ``left_out`` (number of
    requests with a value for only one of the strategies), ``detectable`` (smallest difference that the
    interval would show with 80 % probability), ``margin`` and ``finding``"""
    level: float
    "coverage of the intervals, such as 0.95"

    @property
    def headings(self) -> list[str]:
        """Column headings of the table that ``rows`` returns."""
        kind = ["kind"] if "kind" in self.table else []
        tests = [f"{self.level:.0%} interval", "p (Holm)", "effect", "w/t/l", "clusters", "finding"]
        return [*kind, "a", "b", "score", "a", "b", "a − b", *tests]

    def rows(self) -> list[list[str]]:
        """Format the table for display.

        Returns
        -------
        list of list of str
            Formatted cells of each row.
        """
        return [_row_cells(row) for row in self.table.itertuples()]

    def columns(self) -> list[Column]:
        """Return the columns of the table after those that name the strategies.

        Returns
        -------
        list of Column
            Scores, differences, intervals and findings, with one cell per row.
        """
        rows, first = self.rows(), self.headings.index("score")
        columns = []
        for head, *cells in list(zip(self.headings, *rows, strict=True))[first:]:
            interval = head.endswith("interval")
            title = head.replace(" ", "\n") if interval or head.endswith(")") else head
            narrow = [cell.replace(" to ", " to\n") for cell in cells] if interval else ()
            left = head in ("score", "finding")
            columns.append(Column(title, cells, "", _DROP_ORDER.get(head, 0), left, narrow=narrow))
        return columns

    def sentences(self, scores: Sequence[str] = ()) -> list[str]:
        """Describe each row in a sentence.

        Parameters
        ----------
        scores : sequence of str, optional
            Describe only rows of these scores. All rows are described by default.

        Returns
        -------
        list of str
            One sentence per row.
        """
        rows = self.table.itertuples()
        return [_row_sentence(row, self.level) for row in rows if not scores or row.score in scores]

    @property
    def notes(self) -> list[str]:
        """Notes that explain the columns and the limitations of the method."""
        said = [
            "Differences are paired by request; percentages are relative to b. Clusters: number of "
            "clusters with data for both strategies; recordings of one task form one cluster. "
            "Intervals: studentized bootstrap over clusters; there is no interval with fewer than "
            f"{MIN_CLUSTERS} clusters, or if all clusters have the same difference. p: two-sided "
            "sign-flip permutation test, Holm-corrected over the rows of a score. Effect: the "
            "difference divided by its standard deviation between clusters. w/t/l: recordings in "
            "which a is better, equal, worse. A finding is 'better' or 'worse' only if test and "
            "interval agree. 'Too few': the test cannot reach significance with so few clusters. "
            "'Equal here': no cluster shows a difference. The difference that recordings could show is "
            "the smallest whose interval should exclude 0 with a probability of 80 %, for one "
            "comparison. With few clusters the probability is lower."
        ]
        if left_out := int(self.table["left_out"].max()):
            said.append(
                f"In some rows, up to {left_out:,} requests have a value for only one of the two "
                "strategies, such as unanswered questions. They are excluded for both."
            )
        return [*said, "Off-policy replay. Recall is availability, an upper bound on what is used."]

    def to_markdown(self) -> str:
        """Return the table in Markdown, followed by its notes.

        Returns
        -------
        str
            Table and notes in Markdown.
        """
        return "\n\n".join([markdown_table(self.headings, self.rows()), *self.notes])

    def to_latex(self) -> str:
        """Return the table in LaTeX, formatted with the package ``booktabs``.

        Returns
        -------
        str
            LaTeX code of the table.
        """
        return latex_table(self.headings, self.rows())

    def __str__(self) -> str:
        """Return one sentence per row."""
        return "\n".join(self.sentences())

    def __repr__(self) -> str:
        """Return a short description with the number of rows."""
        return f"<Comparison: {len(self.table)} rows>"

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.html import paragraph, table_html, wrap_with_frame

        columns = self.columns()
        names = [cells[: -len(columns)] for cells in self.rows()]
        rows: list[tuple[int | str, bool]] = []
        pairs = [list(group) for _, group in groupby(range(len(names)), key=names.__getitem__)]
        for places in pairs[:_MAX_SHOWN_PAIRS]:
            *kind, a, b = names[places[0]]
            rows.append(("\n".join([*kind, f"a: {a}", f"b: {b}"]), False))
            rows += [(place, False) for place in places]
        if left := len(pairs) - _MAX_SHOWN_PAIRS:
            rows += [(f"… {pluralize(left, 'more pair')} (.table)", True)] if left > 0 else []
        headline = {HEADLINE_SCORE} & set(self.table["score"])
        said = self.sentences(sorted(headline))[:_MAX_SHOWN_PAIRS]
        parts = [
            *map(paragraph, said),
            table_html(columns, rows),
            *(paragraph(note, is_note=True) for note in self.notes),
        ]
        return wrap_with_frame(parts, self.table)


def format_difference(row: Any, value: float) -> str:
    """Format a difference with its sign: as a percentage if the row is relative, else as a number.

    Parameters
    ----------
    row : namedtuple
        Row of ``Comparison.table`` that the difference belongs to.
    value : float
        Difference to format.

    Returns
    -------
    str
        The formatted difference, such as ``+5.2%`` or ``−0.031``; ``–`` if it is nan.
    """
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:+.1%}" if row.relative else f"{value:+.3f}"
    return text.replace("-", "−")


def _format_value(row: Any, value: float) -> str:
    if np.isnan(value):
        return "–"
    if row.unit == "share":
        return f"{value:.3f}"
    if row.unit == "USD":
        return f"${value:,.4g}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _format_interval(row: Any) -> str:
    if np.isnan(row.low):
        return "too few" if 0 < row.clusters < MIN_CLUSTERS else "–"
    return f"{format_difference(row, row.low)} to {format_difference(row, row.high)}"


def _format_p(value: float) -> str:
    if np.isnan(value):
        return "–"
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def _format_sides(row: Any) -> tuple[str, str]:
    return str(Configuration(row.a, row.limit_a)), str(Configuration(row.b, row.limit_b))


def _row_cells(row: Any) -> list[str]:
    cells = [row.kind] if hasattr(row, "kind") else []
    cells += [*_format_sides(row), row.score]
    cells += [_format_value(row, row.value_a), _format_value(row, row.value_b)]
    cells += [format_difference(row, row.difference), _format_interval(row), _format_p(row.p_holm)]
    cells += ["–" if np.isnan(row.effect) else f"{row.effect:+.2f}".replace("-", "−")]
    return [*cells, f"{row.wins}/{row.ties}/{row.losses}", str(row.clusters), row.finding]


def _row_sentence(row: Any, level: float) -> str:
    a, b = _format_sides(row)
    kind = f"{row.kind}: " if hasattr(row, "kind") else ""
    bounds = f"{level:.0%} {_format_interval(row)}" if not np.isnan(row.low) else "no interval"
    values = f"{_format_value(row, row.value_a)} against {_format_value(row, row.value_b)}"
    word, *rest = row.finding.split("; ", 1)
    verb = _FINDING_VERBS.get(word, "is not shown to differ from")
    clusters = pluralize(row.clusters, "cluster")
    said = (
        f"{kind}{row.score}: {a} {verb} {b}: {values}, {format_difference(row, row.difference)} "
        f"({bounds}; p {_format_p(row.p_holm)}; {clusters})"
    )
    if word == "unclear" and not np.isnan(row.detectable):
        smallest = format_difference(row, row.detectable)[1:]
        rest.append(f"these recordings could show a difference of {smallest}")
    return f"{'; '.join([said, *rest])}."

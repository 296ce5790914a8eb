"""Leaderboard as plain JSON: the rows that the table, the frontier and the heat map draw.

Each figure is worked out and formatted here; the front end only arranges it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ctxlab._utils.numbers import (
    describe_limit,
    format_limit,
    format_percent,
    format_share,
    format_signed_share,
)
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, RatioDifference, ratio_difference
from ctxlab.evaluation.columns import score_figures, short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.tuning.pareto import pareto_front
from ctxlab.evaluation.verdict import choose_configuration, control_names, usable_rows

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results

_FIRST_ROWS, _FIRST_CONTROLS = 12, 3
"rows of the table before all are shown, and how many of them may be controls"
_MAIN_CONTROLS = ("full", "recorded", "nothing")
"controls that the table has before others"
_COMPARED = 16
"maximum number of strategies of a limit whose pairs are compared"
_HEAT_RECORDINGS, _HEAT_COLUMNS = 40, 8
_RESAMPLES = 2000
_NAME_LENGTH = 30


class Board:
    """The leaderboard with marks, texts and comparisons of its rows.

    Parameters
    ----------
    results : Results
        Results of a run.
    min_recall : float, default 0.95
        Minimum of the headline recall of a recommended strategy; see ``Results.verdict``.
    """

    def __init__(self, results: Results, min_recall: float = 0.95) -> None:
        self.results = results
        self.frame = results.leaderboard()
        self.controls = control_names(self.frame)
        self.usable = usable_rows(self.frame)
        self.figures = score_figures(results.scores, self.frame)
        costs = self.frame["cost_usd"] if "cost_usd" in self.frame else pd.Series(dtype=float)
        self.x = "cost_usd" if len(costs) and costs.notna().all() else "tokens_mean"
        self.x_label = "input cost (USD)" if self.x == "cost_usd" else "tokens per request (mean)"
        self.limits = list(dict.fromkeys(map(float, self.frame["limit"])))
        self.choice = choose_configuration(self.frame, min_recall)
        self.has_recall = HEADLINE_SCORE in self.frame
        self.fronts = self._find_fronts()
        self.order = self._order_rows()

    @cached_property
    def best(self) -> int | None:
        """Number of the row that the verdict chooses; None if it chooses none."""
        if self.choice is None:
            return None
        limit, strategy = self.choice.key
        found = self.frame.index[
            (self.frame["limit"] == limit) & (self.frame["strategy"] == strategy)
        ]
        return int(found[0])

    def _find_fronts(self) -> set[int]:
        """Return the rows that no usable row of the same limit is cheaper and better than."""
        found: set[int] = set()
        if self.has_recall and self.x in self.frame:
            usable = self.frame[self.usable & (self.controls == "")]
            for _, rows in usable.groupby("limit", sort=False):
                found.update(rows.index[pareto_front(rows[self.x], rows[HEADLINE_SCORE])])
        return found

    def _order_rows(self) -> list[int]:
        """Return all rows: the best one, the Pareto rows, other usable rows, the rest, controls."""

        def key(row: int) -> tuple[Any, ...]:
            recall = self._value(HEADLINE_SCORE, row) or 0.0
            is_front = row in self.fronts
            control = self.controls[row]
            if control:
                main = _MAIN_CONTROLS.index(control) if control in _MAIN_CONTROLS else 9
                return (True, main, -recall)
            return (False, row != self.best, not is_front, not self.usable[row], -recall)

        return sorted(range(len(self.frame)), key=key)

    def _value(self, column: str, row: int) -> float | None:
        """Return a figure of a row as JSON has it; None if it is unknown or was not measured."""
        if column not in self.frame:
            return None
        value = float(self.frame[column][row])
        return None if math.isnan(value) else float(f"{value:.6g}")

    @cached_property
    def columns(self) -> list[dict[str, str]]:
        """Columns of the table."""
        better = {score.name: score.better for score in self.results.scores}
        return [
            {
                "label": figure.head,
                "title": figure.legend,
                "better": "high" if better[figure.name] == "higher" else "low",
            }
            for figure in self.figures
        ]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table, by number."""
        cells = [figure.column(self.frame).cells for figure in self.figures]
        heads = [" ".join(figure.head.split()) for figure in self.figures]
        names = [figure.name for figure in self.figures]
        controls = [row for row in self.order if self.controls[row]][:_FIRST_CONTROLS]
        others = [row for row in self.order if not self.controls[row]]
        first = {*controls, *others[: _FIRST_ROWS - len(controls)]}
        rank = {row: i for i, row in enumerate(self.order)}
        found = []
        for row in range(len(self.frame)):
            name, limit = (
                short_strategy(self.frame["strategy"][row]),
                float(self.frame["limit"][row]),
            )
            texts = [column[row] for column in cells]
            said = ", ".join(f"{head} {text}" for head, text in zip(heads, texts, strict=True))
            label = f"{name} within {describe_limit(limit)}" if len(self.limits) > 1 else name
            found.append(
                {
                    "id": row,
                    "strategy": name,
                    "short": name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…",
                    "label": label,
                    "limit": limit,
                    "limitText": describe_limit(limit),
                    "limitCell": format_limit(limit),
                    "control": self.controls[row],
                    "flawed": not bool(self.usable[row]),
                    "onFront": row in self.fronts,
                    "marks": self._marks(row),
                    "rank": rank[row],
                    "isFirst": row in first,
                    "texts": texts,
                    "values": [self._value(each, row) for each in names],
                    "x": self._value(self.x, row),
                    "y": self._value(HEADLINE_SCORE, row),
                    "low": self._value(f"{HEADLINE_SCORE}_low", row),
                    "high": self._value(f"{HEADLINE_SCORE}_high", row),
                    "hover": f"{label}: {said}",
                    "bounds": self._bounds(names, row),
                }
            )
        return found

    def _bounds(self, names: Sequence[str], row: int) -> dict[str, Any] | None:
        if HEADLINE_SCORE not in names:
            return None
        ends = {end: self._value(f"{HEADLINE_SCORE}_{end}", row) for end in ("low", "high")}
        value = self._value(HEADLINE_SCORE, row)
        return {"column": names.index(HEADLINE_SCORE), "value": value, **ends}

    def _marks(self, row: int) -> list[str]:
        is_best = row == self.best and self.choice is not None and self.choice.qualifies
        flags = {
            "best": is_best,
            "pareto": row in self.fronts,
            "over": (self._value("overflow_rate", row) or 0) > 0,
            "invalid": (self._value("newly_invalid_rate", row) or 0) > 0,
        }
        return [name for name, is_set in flags.items() if is_set]

    @cached_property
    def reference(self) -> int | None:
        """Row that others are compared with: the best one, or the first one that is no control."""
        if self.best is not None:
            return self.best
        return next((row for row in self.order if not self.controls[row]), None)

    @property
    def first_row(self) -> int:
        """Row that is shown first: the reference, or a control if there are only controls."""
        return self.order[0] if self.reference is None else self.reference

    @cached_property
    def far_runs(self) -> pd.DataFrame:
        """Arguments with far needs, and how many of them are held, by recording and configuration."""
        columns = ["recording", "strategy", "limit", "far_arguments", "far_held"]
        return self.results.read_runs(columns)

    @cached_property
    def full_row(self) -> int | None:
        """Row of the full history under the limit of the best row; None if it was not evaluated."""
        if self.best is None:
            return None
        same = self.frame["limit"] == self.frame["limit"][self.best]
        return next(map(int, self.frame.index[same & (self.controls == "full")]), None)

    @cached_property
    def main_rows(self) -> list[int]:
        """Rows of one limit whose recordings are shown, ``first_row`` first."""
        first = self.first_row
        limit = self.frame["limit"][first]
        here = [row for row in self.order if self.frame["limit"][row] == limit]
        recorded = [row for row in here if self.controls[row] == "recorded"]
        others = [row for row in here if not self.controls[row] and row != first]
        return [first, *others[:2], *[row for row in recorded if row != first], *others[2:]]

    def compared_rows(self, limit: float) -> list[int]:
        """Return the rows of a limit whose pairs are compared.

        Parameters
        ----------
        limit : float
            Limit.

        Returns
        -------
        list of int
            Numbers of the first strategies, and of ``full`` and ``recorded``.
        """
        here = [row for row in self.order if self.frame["limit"][row] == limit]
        named = [row for row in here if self.controls[row] in ("full", "recorded")]
        return [*[row for row in here if not self.controls[row]][:_COMPARED], *named]

    def key(self, row: int) -> tuple[float, str]:
        """Return the limit and the strategy of a row.

        Parameters
        ----------
        row : int
            Number of the row.

        Returns
        -------
        tuple of (float, str)
            Limit, and strategy in text form.
        """
        return self.frame["limit"][row], self.frame["strategy"][row]

    @cached_property
    def _held_sums(self) -> tuple[Any, Any]:
        return self.results.headline_sums([self.key(row) for row in range(len(self.frame))])

    @cached_property
    def _cost_sums(self) -> Any:
        keys = [self.key(row) for row in range(len(self.frame))]
        return self.results.cluster_sums(self.x if self.x == "cost_usd" else "tokens", keys)

    def difference(self, kind: str, a: int, b: int) -> RatioDifference:
        """Compare two rows on the same requests.

        Parameters
        ----------
        kind : {"held", "cost"}
            Held far needs, or cost; tokens if the cost is unknown.
        a, b : int
            Numbers of the rows.

        Returns
        -------
        RatioDifference
            Row ``a`` minus row ``b``, with a 95 % interval over clusters.
        """
        if kind == "held":
            above, below = self._held_sums
            sides = above[:, a], below[:, a], above[:, b], below[:, b]
        else:
            ones = np.ones(len(self._cost_sums))
            sides = self._cost_sums[:, a], ones, self._cost_sums[:, b], ones
        return ratio_difference(*sides, relative=kind == "cost", resamples=_RESAMPLES)

    @cached_property
    def recordings_by_loss(self) -> list[str]:
        """Names of the recordings with far needs, those of which the reference misses most first."""
        if not self.has_recall:
            return []
        limit, strategy = self.key(self.first_row)
        runs = self.far_runs
        mine = runs[(runs["strategy"] == strategy) & (runs["limit"] == limit)]
        mine = mine[mine["far_arguments"] > 0]
        missed = (mine["far_arguments"] - mine["far_held"]).to_numpy()
        return [str(mine["recording"].iloc[i]) for i in np.argsort(-missed, kind="stable")]

    def describe_pair(self, a: int, b: int) -> str:
        """Say how much two rows of a limit differ in held needs and in cost.

        Parameters
        ----------
        a, b : int
            Numbers of the rows.

        Returns
        -------
        str
            Sentences with 95 % intervals.
        """
        held = self.difference("held", a, b)
        cost = self.difference("cost", a, b) if self.x in self.frame else None
        first, second = (short_strategy(self.frame["strategy"][row]) for row in (a, b))
        clusters = self.results.far_cluster_count or 0
        return _pair_sentence(first, second, held, cost, self.x == "cost_usd", clusters)


def finite(value: float) -> float | None:
    """Return a number with four significant digits for JSON; None if it is not finite.

    Parameters
    ----------
    value : float
        Number.

    Returns
    -------
    float or None
        Rounded number.
    """
    return float(f"{value:.4g}") if math.isfinite(value) else None


def format_difference(kind: str, difference: RatioDifference) -> str:
    """Format the difference of two rows with its interval.

    Parameters
    ----------
    kind : {"held", "cost"}
        What differs: the share of held needs, or the cost in per cent.
    difference : RatioDifference
        Difference.

    Returns
    -------
    str
        Text such as ``−.02 (−.04 to .00)``.
    """
    numbers = difference.estimate, difference.low, difference.high
    write = format_signed_share if kind == "held" else _signed_percent
    said, low, high = map(write, numbers)
    return f"{said} ({low} to {high})" if math.isfinite(numbers[1]) else said


def _signed_percent(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{'−' if value < 0 else '+'}{format_percent(abs(value))} %"


def _pair_sentence(
    a: str, b: str, held: RatioDifference, cost: RatioDifference | None, is_usd: bool, clusters: int
) -> str:
    if math.isnan(held.estimate):
        more = f"cannot be compared with {b}, because the recordings have no far needs"
    elif held.estimate == 0:
        more = f"holds as much of the far needs as {b}"
    else:
        word = "more" if held.estimate > 0 else "less"
        more = f"holds {word} of the far needs than {b}: {format_difference('held', held)}"
    if cost is None:
        spent = "the cost was not measured"
    else:
        what = "input cost" if is_usd else "tokens"
        spent = f"its {what} differ{'s' if is_usd else ''} by {format_difference('cost', cost)}"
    if math.isnan(held.estimate):
        sure = ""
    elif clusters >= MIN_CLUSTERS and math.isnan(held.low):
        sure = "The recordings do not differ enough for an interval."
    elif math.isnan(held.low):
        sure = f"There are no intervals, because there are fewer than {MIN_CLUSTERS} clusters."
    else:
        settled = held.low > 0 or held.high < 0
        is_settled = "settles" if settled else "does not settle"
        sure = f"The interval of the held needs {is_settled} which of them holds more."
    return f"{a} {more}; {spent}. {sure}".strip()


def worst_median_best(names: Sequence[str], count: int) -> list[str]:
    """Choose about half of the names from the start, a third from the middle, the rest from the end.

    Parameters
    ----------
    names : sequence of str
        Names of recordings, the one with most losses first.
    count : int
        Number of names to choose.

    Returns
    -------
    list of str
        Chosen names; all if there are not more.
    """
    if len(names) <= count:
        return list(names)
    worst = math.ceil(count / 2)
    best = count // 6
    middle = count - worst - best
    start = max(worst, len(names) // 2 - middle // 2)
    end = [names[-1 - i] for i in range(best)]
    return list(dict.fromkeys([*names[:worst], *names[start : start + middle], *end]))


def make_heat_map(board: Board) -> dict[str, Any]:
    """Return the share of far needs that the main strategies hold in each of some recordings.

    Parameters
    ----------
    board : Board
        Leaderboard.

    Returns
    -------
    dict
        Names of at most 40 recordings, numbers of the rows of the leaderboard that are the columns,
        cells, and a sentence about the choice of the recordings.
    """
    names = worst_median_best(board.recordings_by_loss, _HEAT_RECORDINGS)
    if not names:
        return {"recordings": [], "columns": [], "cells": [], "note": ""}
    columns = board.main_rows[:_HEAT_COLUMNS]
    figures = {
        (str(name), float(limit), str(strategy)): (held, needs)
        for name, strategy, limit, needs, held in board.far_runs.itertuples(index=False)
    }
    cells = [[_heat_cell(*figures[(name, *board.key(row))]) for row in columns] for name in names]
    note = "All recordings with far needs, those with the most losses first."
    if (total := len(board.recordings_by_loss)) > len(names):
        note = (
            f"{len(names)} of {total:,} recordings with far needs: those with the most losses, "
            "some in the middle, and the best."
        )
    return {"recordings": names, "columns": columns, "cells": cells, "note": note}


def _heat_cell(held: float, needs: float) -> dict[str, Any]:
    share = held / needs if needs > 0 else math.nan
    return {"value": finite(share), "text": format_share(share), "needs": int(needs)}

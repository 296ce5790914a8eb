"""Data of a report: figures, marks, differences and context maps, as plain JSON for the front end.

Each figure is worked out and formatted here; the front end only arranges it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import (
    describe_limit,
    format_limit,
    format_percent,
    format_share,
    format_share_interval,
    format_signed_share,
    format_usd,
)
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, RatioDifference, ratio_difference
from ctxlab.evaluation.columns import legend_of, score_figures, short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.replay import MESSAGE_STATES
from ctxlab.evaluation.report.maps import NO_FAR_NEEDS, MapRequest, iter_lost, make_context_maps
from ctxlab.evaluation.tuning.pareto import pareto_front
from ctxlab.evaluation.verdict import (
    choose_configuration,
    control_names,
    no_verdict_reason,
    usable_rows,
)

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.messages.types import Recording

_FIRST_ROWS, _FIRST_CONTROLS = 12, 3
"rows of the table before all are shown, and how many of them may be controls"
_MAIN_CONTROLS = ("full", "recorded", "nothing")
"controls that the table has before others"
_COMPARED = 16
"maximum number of strategies of a limit whose pairs are compared"
_HEAT_RECORDINGS, _HEAT_COLUMNS = 40, 8
_MAPS_PER_RECORDING = 4
_LOST = 25
_RESAMPLES = 2000
_NAME_LENGTH = 30


def make_document(
    results: Results,
    recordings: Iterable[Recording] = (),
    *,
    with_text: bool,
    sample: int,
    min_recall: float,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Return the document of a report.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    recordings : iterable of Recording, optional
        Recordings of the run that are in memory.
    with_text : bool
        True to include texts of messages and the names of needs.
    sample : int
        Number of recordings with context maps.
    min_recall : float
        Minimum of the headline recall of a recommended strategy.
    progress : bool, optional
        Whether to show a progress bar. None shows it in a notebook and on a terminal.

    Returns
    -------
    dict
        Document that can be written as JSON.
    """
    board = _Board(results, min_recall)
    heat, sampled = _choose_recordings(board, sample)
    wanted = [
        MapRequest(name, board.frame["strategy"][row], board.frame["limit"][row], row)
        for name in sampled
        for row in board.main_rows[:_MAPS_PER_RECORDING]
    ]
    maps = make_context_maps(results.manifest, wanted, recordings, with_text, progress)
    entries = [
        e for e in results.manifest["recordings"] if e["recording"] in {*heat, *maps.messages}
    ]
    number = {entry["recording"]: i for i, entry in enumerate(entries)}
    for each in maps.maps:
        each["recording"] = number[each["recording"]]
    return {
        "answer": _answer(board),
        "columns": board.columns,
        "rows": board.rows,
        "limits": [{"value": limit, "text": describe_limit(limit)} for limit in board.limits],
        "legend": legend_of(figure.column(board.frame) for figure in board.figures),
        "frontier": {"xLabel": board.x_label, "isUsd": board.x == "cost_usd"},
        "pairs": board.pairs,
        "differences": board.differences,
        "heat": _heat(board, heat, number),
        "states": list(MESSAGE_STATES),
        "recordings": [
            {
                "name": entry["recording"],
                "requests": entry["requests"],
                "messages": maps.messages.get(entry["recording"], []),
            }
            for entry in entries
        ],
        "maps": maps.maps,
        "mapsNote": _maps_note(board, len(maps.messages), maps.left_out, sample),
        **_lost_needs(board, maps.maps),
    }


class _Board:
    """The leaderboard with what the report says of each row."""

    def __init__(self, results: Results, min_recall: float) -> None:
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
        """Rows of the reference's limit whose recordings are shown, the reference first."""
        if self.reference is None:
            return []
        limit = self.frame["limit"][self.reference]
        here = [row for row in self.order if self.frame["limit"][row] == limit]
        recorded = [row for row in here if self.controls[row] == "recorded"]
        others = [row for row in here if not self.controls[row] and row != self.reference]
        return [self.reference, *others[:2], *recorded, *others[2:]]

    def _compared_rows(self, limit: float) -> list[int]:
        """Rows of a limit whose pairs are compared: the first strategies, full and recorded."""
        here = [row for row in self.order if self.frame["limit"][row] == limit]
        named = [row for row in here if self.controls[row] in ("full", "recorded")]
        return [*[row for row in here if not self.controls[row]][:_COMPARED], *named]

    def key(self, row: int) -> tuple[float, str]:
        return self.frame["limit"][row], self.frame["strategy"][row]

    @cached_property
    def _held_sums(self) -> tuple[Any, Any]:
        return self.results.headline_sums([self.key(row) for row in range(len(self.frame))])

    @cached_property
    def _cost_sums(self) -> Any:
        keys = [self.key(row) for row in range(len(self.frame))]
        return self.results.cluster_sums(self.x if self.x == "cost_usd" else "tokens", keys)

    def _difference(self, kind: str, a: int, b: int) -> RatioDifference:
        if kind == "held":
            above, below = self._held_sums
            sides = above[:, a], below[:, a], above[:, b], below[:, b]
        else:
            ones = np.ones(len(self._cost_sums))
            sides = self._cost_sums[:, a], ones, self._cost_sums[:, b], ones
        return ratio_difference(*sides, relative=kind == "cost", resamples=_RESAMPLES)

    @cached_property
    def pairs(self) -> dict[str, str]:
        """Sentence about the difference of two rows of a limit, by their numbers."""
        if not self.has_recall:
            return {}
        found = {}
        for limit in self.limits:
            for a, b in combinations(self._compared_rows(limit), 2):
                held, cost = (self._difference(kind, a, b) for kind in ("held", "cost"))
                first, second = (short_strategy(self.frame["strategy"][row]) for row in (a, b))
                said = _pair_sentence(first, second, held, cost, self.x == "cost_usd")
                found[f"{a},{b}"] = said
        return found

    @cached_property
    def differences(self) -> dict[str, Any]:
        """Differences of the rows of a limit from the reference, for a forest plot."""
        if self.reference is None or not self.has_recall:
            return {"reference": "", "groups": []}
        rows = self._compared_rows(self.frame["limit"][self.reference])
        others = [row for row in rows if row != self.reference]
        groups = []
        titles = {
            "held": "Held far needs",
            "cost": "Input cost" if self.x == "cost_usd" else "Tokens",
        }
        for kind, title in titles.items():
            lines = []
            for row in others:
                difference = self._difference(kind, row, self.reference)
                numbers = [difference.estimate, difference.low, difference.high]
                line = dict(zip(("difference", "low", "high"), map(_finite, numbers), strict=True))
                label = short_strategy(self.frame["strategy"][row])
                lines.append({**line, "label": label, "text": _format_difference(kind, difference)})
            heading = "less held ← → more held" if kind == "held" else "cheaper ← → dearer"
            unit = " points" if kind == "held" else " %"
            groups.append({"title": title, "lines": lines, "heading": heading, "unit": unit})
        name = short_strategy(self.frame["strategy"][self.reference])
        return {"reference": name, "groups": groups if others else []}


def _answer(board: _Board) -> str:
    """Return the decision in words: the setting, what it saves and forgets, and how sure it is."""
    if board.best is None or board.choice is None:
        return no_verdict_reason(board.frame) or "No strategy fits the limit in all valid requests."
    row, full = board.best, board.full_row
    limit, name = board.frame["limit"][row], short_strategy(board.frame["strategy"][row])
    first = "Recommended" if board.choice.qualifies else "No strategy holds enough; the nearest is"
    setting = (
        f"{first}{':' if board.choice.qualifies else ''} {name} within {describe_limit(limit)}."
    )
    held = [board.frame[f"{HEADLINE_SCORE}{end}"][row] for end in ("", "_low", "_high")]
    forgets = f"It holds {format_share_interval(*held)} of the needs from far back"
    cost = board.frame["cost_usd"]
    if full is not None:
        forgets += f" (full history: {format_share(board.frame[HEADLINE_SCORE][full])})"
        saved = 1 - cost[row] / cost[full]
        change = "less" if saved > 0 else "more"
        forgets += f" and costs {format_percent(abs(saved))} % {change} than full history"
    else:
        forgets += f" and costs ${format_usd(cost[row])}"
    clusters = board.results.far_cluster_count or 0
    sure = f"Measured on {pluralize(clusters, 'cluster')} of recordings with such needs"
    if clusters < MIN_CLUSTERS:
        sure += f", too few for an interval: {MIN_CLUSTERS} are needed"
    return f"{setting} {forgets}. {sure}."


def _finite(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _format_difference(kind: str, difference: RatioDifference) -> str:
    numbers = difference.estimate, difference.low, difference.high
    write = format_signed_share if kind == "held" else _signed_percent
    said, low, high = map(write, numbers)
    return f"{said} ({low} to {high})" if math.isfinite(numbers[1]) else said


def _signed_percent(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{'−' if value < 0 else '+'}{format_percent(abs(value))} %"


def _pair_sentence(
    a: str, b: str, held: RatioDifference, cost: RatioDifference, is_usd: bool
) -> str:
    if math.isnan(held.estimate):
        more = "has no far needs to compare with"
    else:
        word = "more" if held.estimate > 0 else "less"
        more = f"holds {word} of the far needs than {b}: {_format_difference('held', held)}"
    what = "input cost" if is_usd else "tokens"
    spent = f"its {what} differ{'s' if is_usd else ''} by {_format_difference('cost', cost)}"
    if math.isnan(held.low):
        sure = f"There are no intervals, because there are fewer than {MIN_CLUSTERS} clusters."
    else:
        settled = held.low > 0 or held.high < 0
        is_settled = "settles" if settled else "does not settle"
        sure = f"The interval of the held needs {is_settled} which of them holds more."
    return f"{a} {more}; {spent}. {sure}"


def _choose_recordings(board: _Board, sample: int) -> tuple[list[str], list[str]]:
    """Choose recordings for the heat map, and a sample for the context maps: worst, median, best."""
    if board.reference is None or not board.has_recall:
        return [], []
    limit, strategy = board.key(board.reference)
    runs = board.far_runs
    mine = runs[(runs["strategy"] == strategy) & (runs["limit"] == limit)]
    mine = mine[mine["far_arguments"] > 0]
    missed = (mine["far_arguments"] - mine["far_held"]).to_numpy()
    names = [str(mine["recording"].iloc[i]) for i in np.argsort(-missed, kind="stable")]
    return _worst_median_best(names, _HEAT_RECORDINGS), _worst_median_best(names, sample)


def _worst_median_best(names: Sequence[str], count: int) -> list[str]:
    """Choose about half of the names from the start, a third from the middle, the rest from the end."""
    if len(names) <= count:
        return list(names)
    worst = math.ceil(count / 2)
    best = count // 6
    middle = count - worst - best
    start = max(worst, len(names) // 2 - middle // 2)
    end = [names[-1 - i] for i in range(best)]
    return list(dict.fromkeys([*names[:worst], *names[start : start + middle], *end]))


def _heat(board: _Board, names: Sequence[str], number: dict[str, int]) -> dict[str, Any]:
    columns = board.main_rows[:_HEAT_COLUMNS]
    if not names:
        return {"recordings": [], "columns": [], "cells": [], "note": ""}
    runs = board.far_runs
    figures = {
        (str(name), float(limit), str(strategy)): (held, needs)
        for name, strategy, limit, needs, held in runs.itertuples(index=False)
    }
    cells = [[_heat_cell(*figures[(name, *board.key(row))]) for row in columns] for name in names]
    total = runs.loc[runs["far_arguments"] > 0, "recording"].nunique()
    if total > len(names):
        note = (
            f"{len(names)} of {total:,} recordings with far needs: those with the most losses, "
            "some in the middle, and the best."
        )
    else:
        note = "All recordings with far needs, those with the most losses first."
    return {
        "recordings": [number[name] for name in names],
        "columns": columns,
        "cells": cells,
        "note": note,
    }


def _heat_cell(held: float, needs: float) -> dict[str, Any]:
    share = held / needs if needs > 0 else math.nan
    return {"value": _finite(share), "text": format_share(share), "needs": int(needs)}


def _lost_needs(board: _Board, maps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    places: dict[tuple[int, ...], dict[str, Any]] = {}
    for need in iter_lost(maps):
        if need["row"] == board.reference:
            place = need["recording"], need["request"], need["last"]
            places.setdefault(place, {**need, "more": -1})["more"] += 1
    lost = sorted(places.values(), key=lambda need: -need["gap"])
    shown = lost[:_LOST]
    if not lost or board.reference is None:
        return {"lost": [], "lostNote": ""}
    name = short_strategy(board.frame["strategy"][board.reference])
    note = (
        f"Far needs of the sampled recordings that {name} lost: neither in the request, nor to be "
        f"fetched again. {'' if len(shown) == len(lost) else f'{len(shown)} of {len(lost):,}; '}"
        f"{'T' if len(shown) == len(lost) else 't'}hose last mentioned longest ago are first."
    )
    return {"lost": shown, "lostNote": note}


def _maps_note(board: _Board, shown: int, left_out: Sequence[str], sample: int) -> str:
    if not board.has_recall:
        return "Recall was not measured, so the report cannot say what was lost."
    if sample == 0:
        return ""
    if not shown and not left_out:
        return f"{NO_FAR_NEEDS}, so nothing far was lost."
    said = ""
    if shown:
        said = (
            f"Sample of {pluralize(shown, 'recording')}: those with the most losses, "
            "the median and the best."
        )
    return " ".join(filter(None, [said, *left_out]))

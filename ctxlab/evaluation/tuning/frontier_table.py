"""Columns and notes of the table that shows the frontier of a search.

Cost is the score that the search minimizes. Gain is the score that it maximizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_limit, format_share, format_signed_share
from ctxlab._utils.tables import Column
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import format_values, short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.tuning.results import TuningResults


def frontier_columns(tuning: TuningResults, frame: pd.DataFrame) -> Iterator[Column]:
    """Yield the columns of the table of the frontier beside the strategies and limits.

    Parameters
    ----------
    tuning : TuningResults
        Results of the search.
    frame : pandas.DataFrame
        Rows of ``tuning.frontier`` to show.

    Yields
    ------
    Column
        Next column, with one cell per row.
    """
    rows = frame.to_dict("records")
    cost, kept = tuning.results.manifest["tuning"]["objective"]
    in_usd = cost == "cost_usd"
    score = next(score for score in tuning.results.scores if score.name == kept)
    head = "cost\n$" if in_usd else cost.replace("_", "\n")
    yield Column(head, format_values(frame, cost, "usd" if in_usd else "count"))
    cells = [_format_interval(row, "cost_share", _format_percent_of_whole) for row in rows]
    what = "input cost" if in_usd else cost
    legend = f"vs full: {what} in percent of the {what} of full history on the same requests"
    yield Column("vs full\n% (95 %)", cells, legend, drop=2, left=True)
    legend = score.legend or f"{kept}: {score.meaning}"
    legend += " (availability: an upper bound)" if kept.startswith("recall") else ""
    cells = format_values(frame, kept, "interval")
    yield Column(f"{_gain_name(kept)}\n(95 %)", cells, legend, left=True)
    if tuning.heldout_clusters:
        cells = format_values(frame, f"tuned_{kept}", "share")
        yield Column(
            "tuning\nset", cells, f"tuning set: {_gain_name(kept)} on the clusters used for tuning"
        )
        statuses = [_held_out_status(row) for row in rows]
        legend = f"dominated: on held-out clusters, another one has more {kept} at a lower cost"
        if any(statuses):
            explained = legend if "dominated" in statuses else ""
            colors = ["" if row["fits"] else "red" for row in rows]
            yield Column(
                "held-out\nstatus", statuses, explained, drop=1, left=True, cell_styles=colors
            )
    if frame[f"{kept}_optimism"].notna().any():
        spread = f"{kept}_optimism"
        cells = [_format_interval(row, spread, format_signed_share) for row in rows]
        yield Column("optimism (95 %)", cells, drop=3, left=True)


def name_columns(frame: pd.DataFrame, marks: Sequence[str] = ()) -> list[Column]:
    """Create the columns with the strategies and limits.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows of ``TuningResults.frontier`` to show.
    marks : sequence of str, optional
        Mark after the name in each row; none by default.

    Returns
    -------
    list of Column
        Two columns.
    """
    names = map(short_strategy, frame["strategy"])
    cells = [name + mark for name, mark in zip_longest(names, marks, fillvalue="")]
    limits = [format_limit(limit) for limit in frame["limit"]]
    return [Column("strategy", cells, left=True), Column("limit", limits)]


def frontier_notes(tuning: TuningResults, legend: str) -> Iterator[str]:
    """Yield the notes below the table. The last note compares the tuning set and held-out set.

    Parameters
    ----------
    tuning : TuningResults
        Results of the search.
    legend : str
        Explanation of the headings that are shown.

    Yields
    ------
    str
        Next note.
    """
    manifest = tuning.results.manifest
    tuned, held = len(tuning.tuning_clusters), len(tuning.heldout_clusters)
    searched = manifest["tuning"]["configurations"]
    n_recordings = tuning.results.recording_count
    on = f"Measured on {pluralize(n_recordings, 'recording')} of {pluralize(held, 'other cluster')}"
    best = len(tuning.frontier)
    verb = "is" if best == 1 else "are"
    yield (
        f"{pluralize(best, 'configuration')} of {searched:,} {verb} on the cost-gain frontier of "
        f"{pluralize(tuned, 'cluster')}. {on if held else 'Measured on the same clusters'}, replayed "
        "off-policy: the agent acts as recorded, whatever a strategy removes."
    )
    yield legend
    if held:
        yield _optimism_sentence(tuning)
    yield _next_step_sentence(tuned, held)


def _next_step_sentence(tuned: int, held: int) -> str:
    """Say what to do if nothing was held out, or if few clusters were searched; else nothing."""
    if not held:
        return (
            f"All {pluralize(tuned, 'cluster')} were searched. Before you rely on the choice, measure "
            f"it on recordings of {MIN_CLUSTERS} or more other tasks with ctxlab eval."
        )
    if tuned < MIN_CLUSTERS:
        return (
            f"The choice rests on only {pluralize(tuned, 'cluster')}; search fewer configurations, or "
            "add recordings of other tasks."
        )
    return ""


def _gain_name(name: str) -> str:
    return HEADLINE_LABEL if name == HEADLINE_SCORE else name


def _optimism_sentence(tuning: TuningResults) -> str:
    """Return a sentence that compares the frontier's gain on the tuning set and the held-out set."""
    kept = tuning.results.manifest["tuning"]["objective"][1]
    row = tuning.optimism.loc[kept].to_dict()
    said = (
        f"Over the whole frontier, {_gain_name(kept)} is {format_share(row['tuned'])} on the "
        f"tuning set and {format_share(row['held_out'])} on the held-out set"
    )
    if math.isnan(row["optimism"]):
        return f"{said}; too few clusters for an interval of the difference (the optimism)."
    keys = ("optimism", "low", "high")
    difference, low, high = (format_signed_share(row[key]) for key in keys)
    return f"{said}; their difference (the optimism) is {difference} ({low} to {high})."


def _held_out_status(row: Any) -> str:
    """Return ``does not fit`` or ``dominated`` if this is true on the held-out set.

    Return an empty string if the configuration fits its limit and is not dominated there.
    """
    if not row["fits"]:
        return "does not fit"
    return "dominated" if row["dominated"] else ""


def _format_interval(row: Any, name: str, write: Callable[[float], str]) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "–"
    return write(value) + ("" if math.isnan(low) else f" ({write(low)}–{write(high)})")


def _format_percent_of_whole(share: float) -> str:
    """Format a share as a percentage without a percent sign; values above 999 become ``>999``.

    >>> _format_percent_of_whole(0.2345), _format_percent_of_whole(31.4)
    ('23', '>999')
    """
    return f"{share * 100:.0f}" if share < 9.995 else ">999"

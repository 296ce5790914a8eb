"""Render the frontier that ``ctxlab tune`` finds, with the cost and gain of each configuration.

Cost is the score that the search minimizes. Gain is the score that it maximizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_limit, format_share, format_signed_share
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import CHOSEN_MARK
from ctxlab.cli.render.table import WHOLE_TABLE, Table, TableView
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import (
    Column,
    ColumnFacts,
    format_values,
    score_facts,
    short_strategy,
)
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.tuning.results import TuningResults


def frontier_names(cost: str, gain: str) -> list[str]:
    """Return the names of the columns of ``TuningResults.frontier``.

    Parameters
    ----------
    cost, gain : str
        Scores that the search minimizes and maximizes.

    Returns
    -------
    list of str
        Names of the columns.
    """
    ends = ("", "_low", "_high", "_optimism", "_optimism_low", "_optimism_high")
    scores = (f"{name}{end}" for name in ("cost_share", gain) for end in ends)
    tuned = ("tuned_cost_share", f"tuned_{gain}")
    return ["strategy", "limit", cost, *scores, *tuned, "fits", "dominated"]


def frontier_data(tuning: TuningResults, view: TableView, *, as_csv: bool = False) -> str:
    """Convert the frontier to a JSON array with one object per configuration, or to CSV.

    Parameters
    ----------
    tuning : TuningResults
        Results of the search.
    view : TableView
        Rows and columns to print.
    as_csv : bool, default False
        True for CSV, False for JSON.

    Returns
    -------
    str
        JSON or CSV. The keys are the columns of ``tuning.frontier``; limits are written as the
        user gave them.
    """
    limits = tuning.results.manifest["spec"]["limits"]
    return view.to_data(tuning.frontier, _facts(tuning), limits, (), as_csv=as_csv)


def frontier_text(tuning: TuningResults, min_recall: float, view: TableView = WHOLE_TABLE) -> str:
    """Return the frontier as a table in order of cost, followed by notes and a recommendation.

    Parameters
    ----------
    tuning : TuningResults
        Results of the search.
    min_recall : float
        Minimum of the headline recall score of a recommended strategy, as a share of its value for full
        history.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print; the last line is the recommendation.
    """
    facts = _facts(tuning)
    frame = view.arrange(tuning.frontier, facts, ())
    rows = frame.to_dict("records")
    chosen = tuning.chosen(min_recall)
    is_chosen = [(row["strategy"], row["limit"]) == chosen for row in rows]
    marks = [CHOSEN_MARK if each else "" for each in is_chosen]
    names = [short_strategy(row["strategy"]) + mark for row, mark in zip(rows, marks, strict=True)]
    figures = view.shown_columns(frame, facts) if view.columns else list(_columns(tuning, frame))
    styles = [
        (i, "bold" if is_chosen[i] else "dim" if row["dominated"] else "")
        for i, row in enumerate(rows)
    ]
    limits = Column("limit", [format_limit(row["limit"]) for row in rows])
    table = Table([Column("strategy", names, left=True), limits, *figures], styles)
    mark = _mark_sentence(tuning) if any(is_chosen) else ""
    text = table.render(*_notes(tuning, " ".join(filter(None, [table.legend, mark]))))
    return show.with_conclusion(text, tuning.verdict(min_recall))


def _mark_sentence(tuning: TuningResults) -> str:
    where = "on the tuning set" if tuning.heldout_clusters else "on all clusters"
    return f"*: the choice, made {where}; see the last paragraph."


def _facts(tuning: TuningResults) -> dict[str, ColumnFacts]:
    """Return what is known about the columns of the frontier."""
    facts = score_facts(tuning.results.scores)
    gain = tuning.results.manifest["tuning"]["objective"][1]
    meaning = "cost divided by the cost of full history on the same requests"
    facts["cost_share"] = ColumnFacts("share", "lower", meaning)
    for name in ("cost_share", gain):
        facts[f"tuned_{name}"] = facts[name]._replace(meaning=f"{name} on the tuning set")
        facts[f"{name}_optimism"] = ColumnFacts("share", "", "")
    return facts


def _columns(tuning: TuningResults, frame: pd.DataFrame) -> Iterator[Column]:
    """Yield the columns beside the strategies and limits."""
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


def _notes(tuning: TuningResults, legend: str) -> Iterator[str]:
    """Yield the notes below the table. The last note compares the tuning set and held-out set."""
    manifest = tuning.results.manifest
    tuned, held = len(tuning.tuning_clusters), len(tuning.heldout_clusters)
    searched = manifest["tuning"]["configurations"]
    n_recordings = sum(recording["requests"] > 0 for recording in manifest["recordings"])
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

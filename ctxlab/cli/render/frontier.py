"""Render the frontier that ``ctxlab tune`` finds, with the cost and gain of each configuration.

Cost is the score that the search minimizes. Gain is the score that it maximizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import CHOSEN_MARK
from ctxlab.cli.render.table import WHOLE_TABLE, Table, TableView
from ctxlab.evaluation.columns import ColumnFacts, score_facts
from ctxlab.evaluation.tuning.frontier_table import frontier_columns, frontier_notes, name_columns

if TYPE_CHECKING:
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
    usual = frontier_columns(tuning, frame)
    figures = view.shown_columns(frame, facts) if view.columns else list(usual)
    styles = [
        (i, "bold" if is_chosen[i] else "dim" if row["dominated"] else "")
        for i, row in enumerate(rows)
    ]
    table = Table([*name_columns(frame, marks), *figures], styles)
    mark = _mark_sentence(tuning) if any(is_chosen) else ""
    text = table.render(*frontier_notes(tuning, " ".join(filter(None, [table.legend, mark]))))
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

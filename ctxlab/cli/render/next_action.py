"""Render the table of ``ctxlab next-action``: how often a model makes the recorded tool call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import WHOLE_TABLE, TableView
from ctxlab.evaluation.columns import score_facts
from ctxlab.evaluation.probing.next_action_table import next_action_columns, next_action_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.results import NextActionResults


def next_action_text(results: NextActionResults, view: TableView = WHOLE_TABLE) -> str:
    """Return the scores as a table with one row per strategy, followed by a legend and notes.

    Parameters
    ----------
    results : NextActionResults
        Results of the next-action run.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print.
    """
    facts = score_facts(results.scores)
    board = view.arrange(results.leaderboard(), facts)
    usual = next_action_columns(results, board)
    columns = view.shown_columns(board, facts) if view.columns else list(usual)
    table = board_table(results, board, columns, facts)
    return table.render(*next_action_notes(results, results.leaderboard(), table.legend))

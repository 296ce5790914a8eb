"""Render the table of ``ctxlab next-action``: how often a model makes the recorded tool call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab.cli.render.leaderboard import board_table
from ctxlab.evaluation.probing.next_action_table import next_action_columns, next_action_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.results import NextActionResults


def next_action_text(results: NextActionResults) -> str:
    """Return the scores as a table with one row per strategy, followed by a legend and notes.

    Parameters
    ----------
    results : NextActionResults
        Results of the next-action run.

    Returns
    -------
    str
        Text to print.
    """
    board = results.leaderboard()
    columns = next_action_columns(results, board)
    table = board_table(results, board, columns)
    return table.render(*next_action_notes(results, board, table.legend))

"""Render the table of ``ctxlab probe``: how well a model answers questions under each strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab.cli.render.leaderboard import board_table
from ctxlab.evaluation.probing.qa_table import qa_columns, qa_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.results import QAResults


def qa_text(results: QAResults) -> str:
    """Return the scores as a table with one row per strategy, followed by a legend and notes.

    Parameters
    ----------
    results : QAResults
        Results of question answering.

    Returns
    -------
    str
        Text to print.
    """
    board = results.leaderboard()
    table = board_table(results, board, list(qa_columns(results, board)))
    return table.render(*qa_notes(results, board, table.legend))

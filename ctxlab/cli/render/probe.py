"""Render the table of ``ctxlab probe``: how well a model answers questions under each strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import WHOLE_TABLE, TableView
from ctxlab.evaluation.columns import score_facts
from ctxlab.evaluation.probing.qa_table import qa_columns, qa_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.results import QAResults


def qa_text(results: QAResults, view: TableView = WHOLE_TABLE) -> str:
    """Return the scores as a table with one row per strategy, followed by a legend and notes.

    Parameters
    ----------
    results : QAResults
        Results of question answering.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print.
    """
    facts = score_facts(results.scores)
    board = view.arrange(results.leaderboard(), facts)
    usual = qa_columns(results, board)
    columns = view.shown_columns(board, facts) if view.columns else list(usual)
    table = board_table(results, board, columns, facts)
    return table.render(*qa_notes(results, results.leaderboard(), table.legend))

"""Render the frontier that ``ctxlab tune`` finds, with the cost and gain of each configuration.

Cost is the score that the search minimizes. Gain is the score that it maximizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab.cli.render import format as show
from ctxlab.cli.render.table import Table
from ctxlab.evaluation.tuning.frontier_table import frontier_columns, frontier_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.tuning.results import TuningResults


def frontier_json(tuning: TuningResults) -> str:
    """Convert the frontier to a JSON array with one object per configuration.

    Parameters
    ----------
    tuning : TuningResults
        Results of the search.

    Returns
    -------
    str
        JSON array as text. The keys are the columns of ``tuning.frontier``; limits are written as the
        user gave them.
    """
    return show.frame_to_json(tuning.frontier, tuning.results.manifest["spec"]["limits"])


def frontier_text(tuning: TuningResults, min_recall: float) -> str:
    """Return the frontier as a table in order of cost, followed by notes and a recommendation.

    Parameters
    ----------
    tuning : TuningResults
        Results of the search.
    min_recall : float
        Minimum of the headline recall score of a recommended strategy, as a share of its value for full
        history.

    Returns
    -------
    str
        Text to print; the last line is the recommendation.
    """
    rows = tuning.frontier.to_dict("records")
    styles = [(i, "dim" if row["dominated"] else "") for i, row in enumerate(rows)]
    table = Table(list(frontier_columns(tuning)), styles)
    text = table.render(*frontier_notes(tuning, table.legend))
    return show.with_conclusion(text, tuning.verdict(min_recall))

"""Render the shares of canaries that strategies keep, by kind, depth or another group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.evaluation.survival_table import survival_columns, survival_notes

if TYPE_CHECKING:
    from ctxlab.evaluation.survival import SurvivalResults


def survival_json(survival: SurvivalResults, by: str) -> str:
    """Convert the shares of kept canaries to JSON, one object per strategy, limit and canary group.

    Parameters
    ----------
    survival : SurvivalResults
        Results to convert.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. It is also a key of each object. The
        value of this key is null in objects about all canaries.

    Returns
    -------
    str
        JSON array as text.
    """
    whole = survival.breakdown(None)
    whole.insert(2, by, None)
    parts = [frame.astype(object) for frame in (whole, survival.breakdown(by)[list(whole)])]
    both = pd.concat(parts, ignore_index=True)
    return show.frame_to_json(both, survival.results.manifest["spec"]["limits"])


def survival_text(survival: SurvivalResults, by: str) -> str:
    """Return the shares of kept canaries as a table, one row per strategy, with a legend and notes.

    Parameters
    ----------
    survival : SurvivalResults
        Results to print.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. The table has one column per group.

    Returns
    -------
    str
        Text to print.
    """
    whole = survival.breakdown(None)
    columns = survival_columns(survival, whole, by)
    table = board_table(survival.results, whole, columns)
    return table.render(*survival_notes(survival, by, table.legend))

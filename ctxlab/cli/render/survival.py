"""Render the survival of canaries: one row per strategy, one column per kind, depth or round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import Column
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS

if TYPE_CHECKING:
    from ctxlab.evaluation.survival import SurvivalResults

_BREAKDOWN_LEGEND = {
    "kind": "kinds: share in view at the end",
    "depth": "depths: share in view at the end, of the canaries nearest to each depth",
    "role": "roles of the message with the canary: share in view at the end",
    "round": "rounds: share in view of the canaries that went through so many rounds; a round is a "
    "request that does not begin with all of the previous one",
    "distance": "distances: share in view of the canaries that were so many tokens back",
}
_ALL = "kept, all requests: share in view, over all requests after the canary"
_END = "kept at end: share in view at the last request of each recording"
_STALE = "stale at end: share of superseded values in view without the new value"


def survival_json(survival: SurvivalResults, by: str) -> str:
    """Return survival as a JSON array with one row per strategy, limit and part.

    Parameters
    ----------
    survival : SurvivalResults
        The results.
    by : str
        The breakdown, such as ``"kind"``; rows over all parts have null there.

    Returns
    -------
    str
        The array.
    """
    whole = survival.breakdown(None)
    whole.insert(2, by, None)
    parts = [frame.astype(object) for frame in (whole, survival.breakdown(by)[list(whole)])]
    both = pd.concat(parts, ignore_index=True)
    return show.frame_to_json(both, survival.results.manifest["spec"]["limits"])


def survival_text(survival: SurvivalResults, by: str) -> str:
    """Return the table, its legend and notes.

    Parameters
    ----------
    survival : SurvivalResults
        The results.
    by : str
        The breakdown, such as ``"kind"``.

    Returns
    -------
    str
        The text.
    """
    whole, parts = survival.breakdown(None), survival.breakdown(by)
    # Rounds and distances are measured over all requests, since few recordings end in any one of them.
    figure = "survival" if by in ("round", "distance") else "survival_end"
    columns = [
        Column("kept, all\nrequests", _share_cells(whole, "survival"), _ALL, 2),
        Column("kept\nat end", _share_cells(whole, "survival_end"), _END, 1),
    ]
    keys = whole.set_index(["strategy", "limit"]).index
    legend, over = _BREAKDOWN_LEGEND[by], f"{by}\n"
    for value in dict.fromkeys(parts[by].sort_values()):
        part = parts[parts[by] == value].set_index(["strategy", "limit"]).reindex(keys)
        head = f"{value:g}" if isinstance(value, float) else str(value)
        columns.append(Column(over + head, _share_cells(part, figure), legend))
        legend = over = ""
    if whole["stale_end"].notna().any():
        columns.append(Column("stale\nat end", _share_cells(whole, "stale_end"), _STALE, 3))
    table = board_table(survival.results, whole, columns)
    return table.render(*_notes(survival, by, table.legend))


def _share_cells(frame: pd.DataFrame, name: str) -> list[str]:
    """Format shares with their intervals, if any, on a second line."""
    texts = show.format_values(frame, name, "interval")
    return [text.replace(" (", "\n").removesuffix(")") for text in texts]


def _notes(survival: SurvivalResults, by: str, legend: str) -> Iterator[str]:
    n_recordings = survival.frame["recording"].nunique()
    clusters = survival.results.cluster_count
    yield (
        f"{survival.canary_count:,} canaries in {pluralize(n_recordings, 'recording')}, "
        f"{pluralize(clusters, 'cluster')}, replayed off-policy. A canary is kept if the request "
        "contains its value word for word (availability: an upper bound; a summary may keep the words "
        "and lose the meaning)."
    )
    intervals = " Below each share is its 95 % interval over clusters."
    yield legend + ("" if clusters < MIN_CLUSTERS else intervals)
    if by == "kind":
        yield (
            "Values are ordinary words, except that paths look like paths and decisions are worded as "
            "decisions; strategies that extract those keep them more easily. The oracle keeps what the "
            "recording uses next, which no canary is."
        )

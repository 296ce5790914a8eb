"""Render the shares of canaries that strategies keep, by kind, depth or another group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import Column, format_values

if TYPE_CHECKING:
    from ctxlab.evaluation.survival import SurvivalResults

_BREAKDOWN_LEGEND = {
    "kind": "kinds: share kept at the end, by kind of the canary",
    "depth": "depths: share kept at the end, by the depth that is nearest to the canary",
    "role": "roles: share kept at the end, by role of the message that contains the canary",
    "round": "rounds: share kept, by number of rounds of compaction since the canary; a round "
    "begins with a request that does not start with all messages of the previous request",
    "distance": "distances: share kept, by tokens between the canary and the end of the request",
}
_ALL = "kept, all requests: share of canaries kept, over all requests after the canary"
_END = "kept at end: share of canaries kept at the last request of each recording"
_STALE = "stale at end: share of updated facts with only the old value kept at the end"


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
    whole, parts = survival.breakdown(None), survival.breakdown(by)
    # For rounds and distances all requests count, because few recordings end in a given group.
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
    """Format the shares in a column; the interval of a share, if any, is on a second line."""
    texts = format_values(frame, name, "interval")
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
    intervals = " The 95 % interval over clusters is below each share."
    yield legend + ("" if clusters < MIN_CLUSTERS else intervals)
    if by == "kind":
        yield (
            "The values of canaries are ordinary words, but paths look like paths and decisions are "
            "worded as decisions. Strategies that extract paths or decisions keep these more easily. "
            "The oracle keeps only what the recording uses next, which never includes a canary."
        )

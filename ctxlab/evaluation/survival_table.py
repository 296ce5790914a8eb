"""Columns and notes of the table that shows how many canaries strategies keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import Column
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import format_values

if TYPE_CHECKING:
    import pandas as pd

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


def survival_columns(survival: SurvivalResults, whole: pd.DataFrame, by: str) -> list[Column]:
    """Create the columns of the table: the shares of all canaries, and of each group of canaries.

    Parameters
    ----------
    survival : SurvivalResults
        Results to show.
    whole : pandas.DataFrame
        ``survival.breakdown(None)``. The columns have one cell per row of it.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. There is one column per group.

    Returns
    -------
    list of Column
        Columns.
    """
    parts = survival.breakdown(by)
    # For rounds and distances all requests count, because few recordings end in a given group.
    figure = "survival" if by in ("round", "distance") else "survival_end"
    columns = [
        _share_column("kept, all\nrequests", whole, "survival", _ALL, 2),
        _share_column("kept\nat end", whole, "survival_end", _END, 1),
    ]
    keys = whole.set_index(["strategy", "limit"]).index
    legend, over = _BREAKDOWN_LEGEND[by], f"{by}\n"
    for value in dict.fromkeys(parts[by].sort_values()):
        part = parts[parts[by] == value].set_index(["strategy", "limit"]).reindex(keys)
        head = f"{value:g}" if isinstance(value, float) else str(value)
        columns.append(replace(_share_column(over + head, part, figure, legend), name=""))
        legend = over = ""
    if whole["stale_end"].notna().any():
        columns.append(_share_column("stale\nat end", whole, "stale_end", _STALE, 3))
    return columns


def _share_column(head: str, frame: pd.DataFrame, name: str, legend: str, drop: int = 0) -> Column:
    """Return a column of shares; the interval of a share, if any, is on a second line."""
    texts = format_values(frame, name, "interval")
    cells = [text.replace(" (", "\n").removesuffix(")") for text in texts]
    return Column(head, cells, legend, drop, name=name)


def survival_notes(survival: SurvivalResults, by: str, legend: str) -> Iterator[str]:
    """Yield the notes below the table.

    Parameters
    ----------
    survival : SurvivalResults
        Results to show.
    by : str
        Dimension that groups the canaries.
    legend : str
        Explanation of the headings that are shown.

    Yields
    ------
    str
        Next note.
    """
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

"""Render the shares of canaries that strategies keep, by kind, depth or another group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import WHOLE_TABLE, TableView
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import Column, ColumnFacts, format_values

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
FACTS = {
    "survival": ColumnFacts("share", "higher"),
    "survival_end": ColumnFacts("share", "higher"),
    "stale": ColumnFacts("share", "lower"),
    "stale_end": ColumnFacts("share", "lower"),
    "both": ColumnFacts("share"),
}
"""What is known about the columns of ``SurvivalResults.breakdown``."""
_STALE = "stale at end: share of updated facts with only the old value kept at the end"


def survival_names(by: str) -> list[str]:
    """Return the names of the columns of the JSON and CSV output.

    Parameters
    ----------
    by : str
        Dimension that groups the canaries, such as ``"kind"``.

    Returns
    -------
    list of str
        Names of the columns.
    """
    bounds = (f"{name}{end}" for name in FACTS for end in ("", "_low", "_high"))
    return ["limit", "strategy", by, "canaries", "clusters", *bounds]


def survival_data(
    survival: SurvivalResults, by: str, view: TableView, *, as_csv: bool = False
) -> str:
    """Convert the shares of kept canaries to JSON or CSV, one row per strategy, limit and canary group.

    Parameters
    ----------
    survival : SurvivalResults
        Results to convert.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. It is also a column. Its value is null in
        rows about all canaries.
    view : TableView
        Rows and columns to print. Rows are sorted within each limit and group.
    as_csv : bool, default False
        True for CSV, False for a JSON array.

    Returns
    -------
    str
        Text to print.
    """
    whole = survival.breakdown(None)
    whole.insert(2, by, None)
    parts = [frame.astype(object) for frame in (whole, survival.breakdown(by)[list(whole)])]
    both = pd.concat(parts, ignore_index=True).assign(part=lambda rows: rows[by].astype(str))
    limits = survival.results.manifest["spec"]["limits"]
    if view.sort or view.top:
        both = view.arrange(both.sort_values("part", kind="stable"), FACTS, ("limit", "part"))
    chosen = view.pick(both.drop(columns="part"))
    return (show.frame_to_csv if as_csv else show.frame_to_json)(chosen, limits)


def survival_text(survival: SurvivalResults, by: str, view: TableView = WHOLE_TABLE) -> str:
    """Return the shares of kept canaries as a table, one row per strategy, with notes and a verdict.

    Parameters
    ----------
    survival : SurvivalResults
        Results to print.
    by : str
        Dimension that groups the canaries, such as ``"kind"``. The table has one column per group.
    view : TableView, optional
        Rows and columns to print; the usual ones by default.

    Returns
    -------
    str
        Text to print; the last line is the verdict.
    """
    whole = view.arrange(survival.breakdown(None), FACTS)
    columns = view.shown_columns(whole, FACTS) if view.columns else _columns(survival, by, whole)
    table = board_table(survival.results, whole, columns, FACTS)
    text = table.render(*_notes(survival, by, table.legend))
    return show.with_conclusion(text, survival.verdict())


def _columns(survival: SurvivalResults, by: str, whole: pd.DataFrame) -> list[Column]:
    """Return the columns beside the names of the strategies: the totals, and one column per group."""
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

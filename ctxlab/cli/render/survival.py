"""Render the survival of canaries: one row per strategy, one column per kind, depth or round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import describe_limit, short_strategy
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.recommendation import control_name

if TYPE_CHECKING:
    from ctxlab.evaluation.survival import SurvivalResults

_DROP_ORDER = ("stale\nat end", "kept, all\nrequests", "kept\nat end")
"headings of the columns that a narrow terminal leaves out, least important first"
_BREAKDOWN_LEGEND = {
    "kind": "kinds: share in view at the end",
    "depth": "depths: share in view at the end, of the canaries nearest to each depth",
    "role": "roles of the message with the canary: share in view at the end",
    "round": "rounds: share in view of the canaries that went through so many rounds; a round is a "
    "request that does not begin with all of the previous one",
    "distance": "distances: share in view of the canaries that were so many tokens back",
}
_EXTRA_NAME_WIDTH = 8
"added to the least width of strategies"


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
    frame, limits_as_given = (
        pd.concat([whole, survival.breakdown(by)], ignore_index=True),
        _limits_as_given(survival),
    )
    frame["limit"] = pd.Series(
        [limits_as_given.get(limit, limit) for limit in frame["limit"]], dtype=object
    )
    columns = {str(name): list(frame[name]) for name in whole}
    rows = zip(*columns.values(), strict=True)
    return show.to_json_array(dict(zip(columns, row, strict=True)) for row in rows)


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
    whole = survival.breakdown(None).set_index(["limit", "strategy"])
    parts = survival.breakdown(by)
    # Rounds and distances are measured over all requests, since few recordings end in any one of them.
    figure = "survival" if by in ("round", "distance") else "survival_end"
    cells = {key: _share_cell(row, figure) for key, row in _keyed_rows(parts, by)}
    values = list(dict.fromkeys(parts[by].sort_values()))
    heads = {
        "kept, all\nrequests": [_share_cell(row, "survival") for _, row in whole.iterrows()],
        "kept\nat end": [_share_cell(row, "survival_end") for _, row in whole.iterrows()],
        **{
            f"{by if not i else ''}\n{_format_head(value)}": [
                cells.get((*key, value), "–") for key in whole.index
            ]
            for i, value in enumerate(values)
        },
    }
    if (whole["stale_end"].notna()).any():
        heads["stale\nat end"] = [_share_cell(row, "stale_end") for _, row in whole.iterrows()]
    names = [short_strategy(strategy) for _, strategy in whole.index]
    shown = show.fit_columns(
        {"\nstrategy": names, **heads}, _DROP_ORDER, show.output_width() - _EXTRA_NAME_WIDTH
    )
    columns = [heads[head] for head in shown[1:]]
    room = show.output_width() - sum(_column_width(head, heads[head]) + 1 for head in shown[1:]) - 1
    rows = _table_rows(survival, list(whole.index), list(zip(*columns, strict=True)), room)
    notes = [Text(sentence, style="dim") for sentence in _notes(survival, by, shown)]
    return show.render_to_text(show.make_table(shown, rows), Text(), *notes)


def _keyed_rows(frame: pd.DataFrame, by: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for _, row in frame.iterrows():
        yield (row["limit"], row["strategy"], row[by]), row


def _share_cell(row: Any, name: str) -> str:
    """Format a share with its interval, if any, on a second line."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    said = show.format_share(row[name])
    bounds = f"{show.format_share(low)}–{show.format_share(high)}"
    return said if pd.isna(low) or bounds == f"{said}–{said}" else f"{said}\n{bounds}"


def _column_width(head: str, cells: list[str]) -> int:
    return max(len(line) for text in (head, *cells) for line in text.split("\n"))


def _format_head(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table_rows(
    survival: SurvivalResults, keys: list[Any], cells: list[tuple[str, ...]], room: int
) -> Iterator[show.TableRow]:
    """Yield table rows grouped by limit, strategies first and controls last."""
    limits_as_given = _limits_as_given(survival)
    for number, limit in enumerate(dict.fromkeys(limit for limit, _ in keys)):
        if number:
            yield [""], ""
        yield [f"within {describe_limit(limits_as_given.get(limit, limit))}"], "bold"
        controls = []
        for (of, strategy), row in zip(keys, cells, strict=True):
            if of != limit:
                continue
            line = [show.fold_pipeline(short_strategy(strategy), room), *row]
            if control_name(strategy):
                controls.append(line)
            else:
                yield line, ""
        if controls:
            yield ["  controls"], "dim italic"
            yield from ((line, "dim") for line in controls)


def _notes(survival: SurvivalResults, by: str, shown: list[str]) -> Iterator[str]:
    n_recordings = survival.frame["recording"].nunique()
    clusters = survival.results.cluster_count
    yield (
        f"{survival.canary_count:,} canaries in {pluralize(n_recordings, 'recording')}, "
        f"{pluralize(clusters, 'cluster')}, replayed off-policy. A canary is kept if the request "
        "contains its value word for word (availability: an upper bound; a summary may keep the words "
        "and lose the meaning)."
    )
    legend = [
        (
            "kept, all\nrequests",
            "kept, all requests: share in view, over all requests after the canary",
        ),
        ("kept\nat end", "kept at end: share in view at the last request of each recording"),
        ("", _BREAKDOWN_LEGEND[by]),
        ("stale\nat end", "stale at end: share of superseded values in view without the new value"),
    ]
    legend_text = "; ".join(meaning for head, meaning in legend if not head or head in shown)
    intervals = (
        "" if clusters < MIN_CLUSTERS else " Below each share is its 95 % interval over clusters."
    )
    yield f"{legend_text[:1].upper()}{legend_text[1:]}.{intervals}"
    if by == "kind":
        yield (
            "Values are ordinary words, except that paths look like paths and decisions are worded as "
            "decisions; strategies that extract those keep them more easily. The oracle keeps what the "
            "recording uses next, which no canary is."
        )


def _limits_as_given(survival: SurvivalResults) -> dict[float, int | float]:
    """Map limits to the way they were given; the frame stores all of them as floats."""
    return {float(limit): limit for limit in survival.results.manifest["spec"]["limits"]}

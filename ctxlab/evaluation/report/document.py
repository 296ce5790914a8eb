"""Data of a report: figures, marks, differences and context maps, as plain JSON for the front end.

Each figure is worked out and formatted here; the front end only arranges it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import (
    describe_limit,
    format_percent,
    format_share,
    format_share_interval,
    format_usd,
)
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import legend_of, short_strategy
from ctxlab.evaluation.frontend.board import (
    Board,
    finite,
    format_difference,
    make_heat_map,
    worst_median_best,
)
from ctxlab.evaluation.frontend.replay_map import NO_FAR_NEEDS
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.replay import MESSAGE_STATES
from ctxlab.evaluation.report.maps import MapRequest, iter_lost, make_context_maps
from ctxlab.evaluation.verdict import (
    no_verdict_reason,
)

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.messages.types import Recording

_MAPS_PER_RECORDING = 4
_LOST = 25


def make_document(
    results: Results,
    recordings: Iterable[Recording] = (),
    *,
    with_text: bool,
    sample: int,
    min_recall: float,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Return the document of a report.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    recordings : iterable of Recording, optional
        Recordings of the run that are in memory.
    with_text : bool
        True to include texts of messages and the names of needs.
    sample : int
        Number of recordings with context maps.
    min_recall : float
        Minimum of the headline recall of a recommended strategy.
    progress : bool, optional
        Whether to show a progress bar. None shows it in a notebook and on a terminal.

    Returns
    -------
    dict
        Document that can be written as JSON.
    """
    board = Board(results, min_recall)
    heat = make_heat_map(board)
    sampled = worst_median_best(board.recordings_by_loss, sample)
    wanted = [
        MapRequest(name, board.frame["strategy"][row], board.frame["limit"][row], row)
        for name in sampled
        for row in board.main_rows[:_MAPS_PER_RECORDING]
    ]
    maps = make_context_maps(results, wanted, recordings, with_text, progress)
    shown = {*heat["recordings"], *maps.messages}
    entries = [each for each in results.recordings if each["recording"] in shown]
    number = {entry["recording"]: i for i, entry in enumerate(entries)}
    for each in maps.maps:
        each["recording"] = number[each["recording"]]
    return {
        "answer": _answer(board),
        "columns": board.columns,
        "rows": board.rows,
        "limits": [{"value": limit, "text": describe_limit(limit)} for limit in board.limits],
        "legend": legend_of(figure.column(board.frame) for figure in board.figures),
        "frontier": {"xLabel": board.x_label, "isUsd": board.x == "cost_usd"},
        "pairs": _pairs(board),
        "differences": _differences(board),
        "heat": {**heat, "recordings": [number[name] for name in heat["recordings"]]},
        "states": list(MESSAGE_STATES),
        "recordings": [
            {
                "name": entry["recording"],
                "requests": entry["requests"],
                "messages": maps.messages.get(entry["recording"], []),
            }
            for entry in entries
        ],
        "maps": maps.maps,
        "mapsNote": _maps_note(board, len(maps.messages), maps.left_out, sample),
        **_lost_needs(board, maps.maps),
    }


def _pairs(board: Board) -> dict[str, str]:
    """Return a sentence about the difference of two rows of a limit, by their numbers."""
    if not board.has_recall:
        return {}
    return {
        f"{a},{b}": board.describe_pair(a, b)
        for limit in board.limits
        for a, b in combinations(board.compared_rows(limit), 2)
    }


def _differences(board: Board) -> dict[str, Any]:
    """Return the differences of the rows of a limit from the reference, for a forest plot."""
    if board.reference is None or not board.has_recall:
        return {"reference": "", "groups": []}
    rows = board.compared_rows(board.frame["limit"][board.reference])
    others = [row for row in rows if row != board.reference]
    groups = []
    titles = {
        "held": "Held far needs",
        "cost": "Input cost" if board.x == "cost_usd" else "Tokens",
    }
    for kind, title in titles.items():
        lines = []
        for row in others:
            difference = board.difference(kind, row, board.reference)
            numbers = [difference.estimate, difference.low, difference.high]
            line = dict(zip(("difference", "low", "high"), map(finite, numbers), strict=True))
            label = short_strategy(board.frame["strategy"][row])
            lines.append({**line, "label": label, "text": format_difference(kind, difference)})
        heading = "less held ← → more held" if kind == "held" else "cheaper ← → dearer"
        unit = " points" if kind == "held" else " %"
        groups.append({"title": title, "lines": lines, "heading": heading, "unit": unit})
    name = short_strategy(board.frame["strategy"][board.reference])
    return {"reference": name, "groups": groups if others else []}


def _answer(board: Board) -> str:
    """Return the decision in words: the setting, what it saves and forgets, and how sure it is."""
    if board.best is None or board.choice is None:
        return no_verdict_reason(board.frame) or "No strategy fits the limit in all valid requests."
    row, full = board.best, board.full_row
    limit, name = board.frame["limit"][row], short_strategy(board.frame["strategy"][row])
    first = "Recommended" if board.choice.qualifies else "No strategy holds enough; the nearest is"
    setting = (
        f"{first}{':' if board.choice.qualifies else ''} {name} within {describe_limit(limit)}."
    )
    held = [board.frame[f"{HEADLINE_SCORE}{end}"][row] for end in ("", "_low", "_high")]
    forgets = f"It holds {format_share_interval(*held)} of the needs from far back"
    cost = board.frame["cost_usd"]
    if full is not None:
        forgets += f" (full history: {format_share(board.frame[HEADLINE_SCORE][full])})"
        saved = 1 - cost[row] / cost[full]
        change = "less" if saved > 0 else "more"
        forgets += f" and costs {format_percent(abs(saved))} % {change} than full history"
    else:
        forgets += f" and costs ${format_usd(cost[row])}"
    clusters = board.results.far_cluster_count or 0
    sure = f"Measured on {pluralize(clusters, 'cluster')} of recordings with such needs"
    if clusters < MIN_CLUSTERS:
        sure += f", too few for an interval: {MIN_CLUSTERS} are needed"
    return f"{setting} {forgets}. {sure}."


def _lost_needs(board: Board, maps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    places: dict[tuple[int, ...], dict[str, Any]] = {}
    for need in iter_lost(maps):
        if need["row"] == board.reference:
            place = need["recording"], need["request"], need["last"]
            places.setdefault(place, {**need, "more": -1})["more"] += 1
    lost = sorted(places.values(), key=lambda need: -need["gap"])
    shown = lost[:_LOST]
    if not lost or board.reference is None:
        return {"lost": [], "lostNote": ""}
    name = short_strategy(board.frame["strategy"][board.reference])
    note = (
        f"Far needs of the sampled recordings that {name} lost: neither in the request, nor to be "
        f"fetched again. {'' if len(shown) == len(lost) else f'{len(shown)} of {len(lost):,}; '}"
        f"{'T' if len(shown) == len(lost) else 't'}hose last mentioned longest ago are first."
    )
    return {"lost": shown, "lostNote": note}


def _maps_note(board: Board, shown: int, left_out: Sequence[str], sample: int) -> str:
    if not board.has_recall:
        return "Recall was not measured, so the report cannot say what was lost."
    if sample == 0:
        return ""
    if not shown and not left_out:
        return f"{NO_FAR_NEEDS}, so nothing far was lost."
    said = ""
    if shown:
        said = (
            f"Sample of {pluralize(shown, 'recording')}: those with the most losses, "
            "the median and the best."
        )
    return " ".join(filter(None, [said, *left_out]))

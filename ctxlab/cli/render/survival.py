"""The survival of canaries as a table: strategies downwards, kinds, depths or rounds to the right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import many
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import (
    limit_words,
    short,
)
from ctxlab.evaluation.bootstrap import FEW
from ctxlab.evaluation.recommendation import control_in

if TYPE_CHECKING:
    from ctxlab.evaluation.survival import Survival

__all__ = ["survival_json", "survival_text"]

_HEADS = {
    "constraint": "constr.",
    "decision": "decis.",
    "superseded": "superse.",
    "assistant": "assist.",
}
_SPARE = ("stale\nend", "all\nrequests", "all\nend")
"heads of the columns that a narrow table does without, what is missed least first"
_MEANS = {
    "kind": "kinds: at the end",
    "depth": "depths: at the end, of those nearest to each",
    "role": "roles, of the message that holds it: at the end",
    "round": "rounds: of the canaries that went through so many; a round is a request that does not "
    "begin with all of the one before it",
    "distance": "distances: of the canaries that came so many tokens behind",
}
_NAME = 8
"columns that a strategy has beyond what a name must have"


def survival_json(found: Survival, by: str) -> str:
    """One JSON array: a row a strategy × limit × part; the part is null where a row is of all."""
    whole = found.by(None)
    whole.insert(2, by, None)
    frame, given = pd.concat([whole, found.by(by)], ignore_index=True), _given(found)
    frame["limit"] = pd.Series([given.get(limit, limit) for limit in frame["limit"]], dtype=object)
    columns = {str(name): list(frame[name]) for name in whole}
    rows = zip(*columns.values(), strict=True)
    return show.as_json(dict(zip(columns, row, strict=True)) for row in rows)


def survival_text(found: Survival, by: str) -> str:
    """The table, what its columns mean, and what is behind it."""
    whole = found.by(None).set_index(["limit", "strategy"])
    parts = found.by(by)
    # What a canary goes through is seen on the way: few recordings end in any one round.
    figure = "survival" if by in ("round", "distance") else "survival_end"
    cells = {key: _cell(row, figure) for key, row in _rows(parts, by)}
    values = list(dict.fromkeys(parts[by].sort_values()))
    heads = {
        "all\nrequests": [_cell(row, "survival") for _, row in whole.iterrows()],
        "all\nend": [_cell(row, "survival_end") for _, row in whole.iterrows()],
        **{
            f"{by if not i else ''}\n{_head(value)}": [
                cells.get((*key, value), "–") for key in whole.index
            ]
            for i, value in enumerate(values)
        },
    }
    if (whole["stale_end"].notna()).any():
        heads["stale\nend"] = [_cell(row, "stale_end") for _, row in whole.iterrows()]
    names = [short(strategy) for _, strategy in whole.index]
    shown = show.fitting({"\nstrategy": names, **heads}, _SPARE, show.width() - _NAME)
    columns = [heads[head] for head in shown[1:]]
    room = show.width() - sum(_wide(head, heads[head]) + 1 for head in shown[1:]) - 1
    rows = _lines(found, list(whole.index), list(zip(*columns, strict=True)), room)
    notes = [Text(sentence, style="dim") for sentence in _notes(found, by, shown)]
    return show.drawn(show.table(shown, rows), Text(), *notes)


def _rows(frame: pd.DataFrame, by: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for _, row in frame.iterrows():
        yield (row["limit"], row["strategy"], row[by]), row


def _cell(row: Any, name: str) -> str:
    """A share, and below it its interval where there is one."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    said = show.share(row[name])
    bounds = f"{show.share(low)}–{show.share(high)}"
    return said if pd.isna(low) or bounds == f"{said}–{said}" else f"{said}\n{bounds}"


def _wide(head: str, cells: list[str]) -> int:
    return max(len(line) for text in (head, *cells) for line in text.split("\n"))


def _head(value: Any) -> str:
    return _HEADS.get(str(value), f"{value:g}" if isinstance(value, float) else str(value))


def _lines(
    found: Survival, keys: list[Any], cells: list[tuple[str, ...]], room: int
) -> Iterator[show.Row]:
    """Limit by limit, the controls last."""
    given = _given(found)
    for number, limit in enumerate(dict.fromkeys(limit for limit, _ in keys)):
        if number:
            yield [""], ""
        yield [f"within {limit_words(given.get(limit, limit))}"], "bold"
        controls = []
        for (of, strategy), row in zip(keys, cells, strict=True):
            if of != limit:
                continue
            line = [show.fold(short(strategy), room), *row]
            if control_in(strategy):
                controls.append(line)
            else:
                yield line, ""
        if controls:
            yield ["  controls"], "dim italic"
            yield from ((line, "dim") for line in controls)


def _notes(found: Survival, by: str, shown: list[str]) -> Iterator[str]:
    heard = found.frame["recording"].nunique()
    clusters = found.results.clusters
    yield (
        f"{found.planted:,} canaries in {many(heard, 'recording')}, {many(clusters, 'cluster')}, "
        "replayed off-policy. A canary is kept where the request holds its value word for word "
        "(availability: an upper bound; a summary may keep the words and lose the sense)."
    )
    legend = [
        ("all\nrequests", "requests: share kept over all requests after each"),
        ("all\nend", "end: share kept at the last request of each recording"),
        ("", _MEANS[by]),
        ("stale\nend", "stale: of superseded values, those in view without the new one"),
    ]
    told = "; ".join(meaning for head, meaning in legend if not head or head in shown)
    intervals = "" if clusters < FEW else " Below a share stands its interval (95 %) over clusters."
    yield f"{told[:1].upper()}{told[1:]}.{intervals}"
    if by == "kind":
        yield (
            "Values are plain words; but a path is found by its looks, and a decision is worded as one: "
            "what extracts names or decisions keeps these. The oracle knows what is used next, and no "
            "canary."
        )


def _given(found: Survival) -> dict[float, int | float]:
    """Limits as they were given; in the frame they are all floats."""
    return {float(limit): limit for limit in found.results.manifest["spec"]["limits"]}

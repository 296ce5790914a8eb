"""A frontier as text: what each configuration costs and keeps, held out and where it was tuned."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import many
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import short
from ctxlab.evaluation.metrics import FAR

if TYPE_CHECKING:
    from ctxlab.evaluation.tuning.results import Tuning

__all__ = ["frontier_json", "frontier_text"]

_UNITS = {"cost_usd": ("cost\n$", show.dollars)}
_GAINS = {"recall_far": "far"}
_NAMES = 8  # more than the least that names take, which are long here
_SPARE = ("\noptimism (95 %)", "of full\n% (95 %)", "\nheld out")
"heads of the columns that a narrow terminal does without, what is missed least first"
_NAMED = dict(
    zip(_SPARE, ("optimism", "the share of full", "what is beaten held out"), strict=True)
)


def frontier_json(found: Tuning) -> str:
    """The frontier as one JSON array of objects keyed by its columns, limits as given."""
    given = {float(limit): limit for limit in found.results.manifest["spec"]["limits"]}
    rows = found.frontier.to_dict("records")
    return show.as_json(
        {str(name): given[value] if name == "limit" else value for name, value in row.items()}
        for row in rows
    )


def frontier_text(found: Tuning, floor: float) -> str:
    """The table in order of cost, what its columns mean, what is behind it, and the verdict last."""
    from rich.text import Text

    frame = found.frontier
    cost, kept = found.results.manifest["tuning"]["objective"]
    head, write = _UNITS.get(cost, (cost.replace("_", "\n"), show.compact))
    gain = f"\n{_GAINS.get(kept, kept)} (95 %)"
    rows = frame.to_dict("records")
    columns = {
        "\nstrategy": [short(row["strategy"]) for row in rows],
        "\nlimit": [_limit(row["limit"]) for row in rows],
        head: [write(row[cost]) for row in rows],
        "of full\n% (95 %)": [_span(row, "cost_share", _whole) for row in rows],
        gain: [show.span(row[kept], row[f"{kept}_low"], row[f"{kept}_high"]) for row in rows],
    }
    if found.held_out:
        columns["where\ntuned"] = [show.share(row[f"tuned_{kept}"]) for row in rows]
        if any(map(_stands, rows)):
            columns["\nheld out"] = [_stands(row) for row in rows]
    if frame[f"{kept}_optimism"].notna().any():
        columns["\noptimism (95 %)"] = [_span(row, f"{kept}_optimism", _signed) for row in rows]
    heads = show.fitting(columns, _SPARE, show.width() - _NAMES)
    taken = [max(len(s) for t in (h, *columns[h]) for s in t.split("\n")) for h in heads[1:]]
    room = show.width() - sum(taken) - len(heads)
    lines = [
        ([show.fold(columns[heads[0]][i], room), *(columns[h][i] for h in heads[1:])],
         "dim" if row["dominated"] else "")
        for i, row in enumerate(rows)
    ]  # fmt: skip
    left = {0, *(i for i, h in enumerate(heads) if "(95" in h or "held" in h)}
    told = [*_notes(found, kept, heads)]
    if narrow := [_NAMED[head] for head in _SPARE if head in columns and head not in heads]:
        told.append(f"Too narrow here for {', '.join(narrow)}; --json holds them.")
    notes = [Text(sentence, style="dim") for sentence in told]
    text = show.drawn(show.table(heads, lines, left), Text(), *notes)
    verdict = found.verdict(floor)
    # In a pipe the verdict stays on one line, so that `tail -n 1` has it.
    last = show.drawn(Text(verdict, style="bold")) if sys.stdout.isatty() else verdict
    return f"{text}\n\n{last}"


def _notes(found: Tuning, kept: str, heads: Sequence[str]) -> Iterator[str]:
    """What is behind the table, and what those of its columns mean that are shown."""
    manifest = found.results.manifest
    tuned, held = len(found.tuned_on), len(found.held_out)
    searched = manifest["tuning"]["configurations"]
    heard = sum(recording["requests"] > 0 for recording in manifest["recordings"])
    on = f"Measured on {many(heard, 'recording')} in {many(held, 'other cluster')}"
    best = len(found.frontier)
    worth = "is worth its" if best == 1 else "are worth their"
    yield (
        f"{many(best, 'configuration')} of {searched:,} {worth} price on "
        f"{many(tuned, 'cluster')}. {on if held else 'Measured on the same'}, replayed off-policy: what "
        "the agent did next is what the recording says."
    )
    cost = manifest["tuning"]["objective"][0]
    what = "input cost" if cost == "cost_usd" else cost
    legend = []
    if "of full\n% (95 %)" in heads:
        legend.append(f"of full: {what} as a share of full history's on the same requests")
    if kept == "recall_far":
        legend.append(
            f"far: share of what the agent used next and was last said over {FAR:,} tokens before that "
            "was still in view (availability: an upper bound)"
        )
    else:
        legend.append(f"{kept}: {_meaning(found, kept)}")
    if "where\ntuned" in heads:
        legend.append("where tuned: the same on the clusters that it was chosen on")
    if "\nheld out" in heads and found.frontier["dominated"].any():
        legend.append("beaten: another one keeps more for less here")
    yield f"{legend[0][:1].upper()}{'; '.join(legend)[1:]}."
    if held:
        yield _optimism(found, kept)


def _optimism(found: Tuning, kept: str) -> str:
    """How much better all of the frontier looked where it was chosen."""
    row = found.optimism.loc[kept].to_dict()
    name = "far recall" if kept == "recall_far" else kept
    said = (
        f"All of the frontier together: {name} {show.share(row['tuned'])} where tuned, "
        f"{show.share(row['held_out'])} held out"
    )
    if math.isnan(row["optimism"]):
        return f"{said}; too few clusters for an interval of the difference, the optimism of the search."
    bounds = f"{_signed(row['low'])} to {_signed(row['high'])}"
    return f"{said}; the optimism of the search is {_signed(row['optimism'])} ({bounds})."


def _meaning(found: Tuning, name: str) -> str:
    return next(score.meaning for score in found.results.scores if score.name == name)


def _stands(row: Any) -> str:
    """How a configuration of the frontier stands on what was held out."""
    if not row["fits"]:
        return "does not fit"
    return "beaten" if row["dominated"] else ""


def _limit(limit: float) -> str:
    return f"{limit * 100:.3g} %" if limit <= 1 else f"{limit:,.0f}"


def _span(row: Any, name: str, write: Callable[[float], str]) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "–"
    return write(value) + ("" if math.isnan(low) else f" ({write(low)}–{write(high)})")


def _whole(share: float) -> str:
    """A share of a whole that may be exceeded, in per cent; beyond all measure it only says so.

    >>> _whole(0.2345), _whole(31.4)
    ('23', '>999')
    """
    return f"{share * 100:.0f}" if share < 9.995 else ">999"


def _signed(gap: float) -> str:
    """A difference of shares with its sign.

    >>> _signed(0.034), _signed(-0.5), _signed(0.001)
    ('+.03', '−.50', '.00')
    """
    text = f"{abs(gap):.2f}".removeprefix("0")
    return text if text == ".00" else ("+" if gap > 0 else "−") + text

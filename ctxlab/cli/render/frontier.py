"""Render the frontier of ``ctxlab tune``: cost and gain of each configuration."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import short_strategy
from ctxlab.evaluation.metrics import FAR_TOKENS

if TYPE_CHECKING:
    from ctxlab.evaluation.tuning.results import TuningResults

_COST_COLUMNS = {"cost_usd": ("cost\n$", show.format_usd)}
_GAIN_HEADS = {"recall_far": "far recall"}
_EXTRA_NAME_WIDTH = 8  # added to the least width of names, which are long here
_DROP_ORDER = ("\noptimism (95 %)", "vs full\n% (95 %)", "held-out\nstatus")
"headings of the columns that a narrow terminal leaves out, least important first"
_HEAD_DESCRIPTIONS = dict(
    zip(_DROP_ORDER, ("optimism", "the cost relative to full", "the held-out status"), strict=True)
)


def frontier_json(tuning: TuningResults) -> str:
    """Return the frontier as a JSON array of objects keyed by its columns.

    Parameters
    ----------
    tuning : TuningResults
        The results.

    Returns
    -------
    str
        The array; limits are written as they were given.
    """
    limits_as_given = {float(limit): limit for limit in tuning.results.manifest["spec"]["limits"]}
    rows = tuning.frontier.to_dict("records")
    return show.to_json_array(
        {
            str(name): limits_as_given[value] if name == "limit" else value
            for name, value in row.items()
        }
        for row in rows
    )


def frontier_text(tuning: TuningResults, min_recall: float) -> str:
    """Return the table in order of cost, its legend and notes, and the verdict as the last line.

    Parameters
    ----------
    tuning : TuningResults
        The results.
    min_recall : float
        Far recall that the verdict requires, as a share of full history's.

    Returns
    -------
    str
        The text.
    """
    from rich.text import Text

    frame = tuning.frontier
    cost, kept = tuning.results.manifest["tuning"]["objective"]
    head, write = _COST_COLUMNS.get(cost, (cost.replace("_", "\n"), show.format_count))
    gain = f"{_GAIN_HEADS.get(kept, kept)}\n(95 %)"
    rows = frame.to_dict("records")
    columns = {
        "\nstrategy": [short_strategy(row["strategy"]) for row in rows],
        "\nlimit": [_format_limit(row["limit"]) for row in rows],
        head: [write(row[cost]) for row in rows],
        "vs full\n% (95 %)": [
            _format_interval(row, "cost_share", _format_percent_of_whole) for row in rows
        ],
        gain: [
            show.format_share_interval(row[kept], row[f"{kept}_low"], row[f"{kept}_high"])
            for row in rows
        ],
    }
    if tuning.heldout_clusters:
        columns["tuning\nset"] = [show.format_share(row[f"tuned_{kept}"]) for row in rows]
        if any(map(_held_out_status, rows)):
            columns["held-out\nstatus"] = [_held_out_status(row) for row in rows]
    if frame[f"{kept}_optimism"].notna().any():
        columns["\noptimism (95 %)"] = [
            _format_interval(row, f"{kept}_optimism", _format_signed_share) for row in rows
        ]
    heads = show.fit_columns(columns, _DROP_ORDER, show.output_width() - _EXTRA_NAME_WIDTH)
    head_widths = [max(len(s) for t in (h, *columns[h]) for s in t.split("\n")) for h in heads[1:]]
    room = show.output_width() - sum(head_widths) - len(heads)
    lines = [
        ([show.fold_pipeline(columns[heads[0]][i], room), *(columns[h][i] for h in heads[1:])],
         "dim" if row["dominated"] else "")
        for i, row in enumerate(rows)
    ]  # fmt: skip
    left = {0, *(i for i, h in enumerate(heads) if "(95" in h or "held" in h)}
    sentences = [*_notes(tuning, kept, heads)]
    if narrow := [
        _HEAD_DESCRIPTIONS[head] for head in _DROP_ORDER if head in columns and head not in heads
    ]:
        sentences.append(f"Hidden at this width: {', '.join(narrow)}; --json shows them.")
    notes = [Text(sentence, style="dim") for sentence in sentences]
    text = show.render_to_text(show.make_table(heads, lines, left), Text(), *notes)
    verdict = tuning.verdict(min_recall)
    # In a pipe the verdict stays on one line, so that `tail -n 1` has it.
    last = show.render_to_text(Text(verdict, style="bold")) if sys.stdout.isatty() else verdict
    return f"{text}\n\n{last}"


def _notes(tuning: TuningResults, kept: str, heads: Sequence[str]) -> Iterator[str]:
    """Yield what the figures are based on and the legend of the shown columns."""
    manifest = tuning.results.manifest
    tuned, held = len(tuning.tuning_clusters), len(tuning.heldout_clusters)
    searched = manifest["tuning"]["configurations"]
    n_recordings = sum(recording["requests"] > 0 for recording in manifest["recordings"])
    on = f"Measured on {pluralize(n_recordings, 'recording')} in {pluralize(held, 'other cluster')}"
    best = len(tuning.frontier)
    verb = "is" if best == 1 else "are"
    yield (
        f"{pluralize(best, 'configuration')} of {searched:,} {verb} on the cost-gain frontier of "
        f"{pluralize(tuned, 'cluster')}. {on if held else 'Measured on the same clusters'}, replayed "
        "off-policy: the agent acts as recorded, whatever a strategy removes."
    )
    cost = manifest["tuning"]["objective"][0]
    what = "input cost" if cost == "cost_usd" else cost
    legend = []
    if "vs full\n% (95 %)" in heads:
        legend.append(f"vs full: {what} as a percentage of full history's on the same requests")
    if kept == "recall_far":
        legend.append(
            f"far recall: of what the agent used next and was last said over {FAR_TOKENS:,} tokens "
            "earlier, the share still in the request (availability: an upper bound)"
        )
    else:
        legend.append(f"{kept}: {_score_meaning(tuning, kept)}")
    if "tuning\nset" in heads:
        legend.append("tuning set: the same on the clusters used for tuning")
    if "held-out\nstatus" in heads and tuning.frontier["dominated"].any():
        legend.append("dominated: another configuration keeps more at a lower cost here")
    yield f"{legend[0][:1].upper()}{'; '.join(legend)[1:]}."
    if held:
        yield _optimism_sentence(tuning, kept)


def _optimism_sentence(tuning: TuningResults, kept: str) -> str:
    """Say how much better the frontier looked on the clusters that it was chosen on."""
    row = tuning.optimism.loc[kept].to_dict()
    name = "far recall" if kept == "recall_far" else kept
    said = (
        f"The whole frontier: {name} {show.format_share(row['tuned'])} on the tuning set, "
        f"{show.format_share(row['held_out'])} on the held-out set"
    )
    if math.isnan(row["optimism"]):
        return f"{said}; too few clusters for an interval of their difference (the optimism)."
    bounds = f"{_format_signed_share(row['low'])} to {_format_signed_share(row['high'])}"
    return (
        f"{said}; their difference (the optimism) is {_format_signed_share(row['optimism'])} "
        f"({bounds})."
    )


def _score_meaning(tuning: TuningResults, name: str) -> str:
    return next(score.meaning for score in tuning.results.scores if score.name == name)


def _held_out_status(row: Any) -> str:
    """Return the status of a configuration on the held-out clusters."""
    if not row["fits"]:
        return "does not fit"
    return "dominated" if row["dominated"] else ""


def _format_limit(limit: float) -> str:
    return f"{limit * 100:.3g} %" if limit <= 1 else f"{limit:,.0f}"


def _format_interval(row: Any, name: str, write: Callable[[float], str]) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "–"
    return write(value) + ("" if math.isnan(low) else f" ({write(low)}–{write(high)})")


def _format_percent_of_whole(share: float) -> str:
    """Format a share that may exceed 1 in per cent, up to 999.

    >>> _format_percent_of_whole(0.2345), _format_percent_of_whole(31.4)
    ('23', '>999')
    """
    return f"{share * 100:.0f}" if share < 9.995 else ">999"


def _format_signed_share(gap: float) -> str:
    """Format a difference of shares with its sign.

    >>> _format_signed_share(0.034), _format_signed_share(-0.5), _format_signed_share(0.001)
    ('+.03', '−.50', '.00')
    """
    text = f"{abs(gap):.2f}".removeprefix("0")
    return text if text == ".00" else ("+" if gap > 0 else "−") + text

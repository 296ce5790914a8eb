"""Rank strategies by variants of held far recall: ``python evals/recall_variants.py PATH… -l LIMIT``.

The variants change what counts: the gap from which a need is far, needs that the agent mentioned
first, and requests before or after the first recorded compaction (only of recordings that have one).
One table per limit is printed as Markdown. A cell has the score and, in brackets, the rank. Controls
have no rank. Copies of a recording and the recordings of subagents are left out.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from typing_extensions import override

from ctxlab._utils.humanize import parse_limit
from ctxlab.evaluation.bootstrap import ratio_difference
from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.grid import StrategyLike
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.evaluation.references import ORIGINS
from ctxlab.evaluation.verdict import control_name
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.formats import load
from ctxlab.messages.types import Recording

FAR = (2_000, 4_000, 8_000)
"gaps, in tokens, from which a need is far"
VARIANTS = {
    **{f"over_{tokens}": f"gap over {tokens:,}" for tokens in FAR},
    "with_agent": "with the agent's",
    "before": "before a compaction",
    "after": "after it",
}
"""Heading of each variant. All but the first and third have the gap of the headline."""


class RecallVariants(Metric):
    """Held far recall by several definitions of a far need, and before and after compactions."""

    columns = tuple(
        Column(f"{part}_{name}", f"held far recall, {heading}: {part}", "arguments")
        for name, heading in VARIANTS.items()
        for part in ("held", "arguments")
    )
    scores = tuple(
        Score.share(name, f"held far recall, {heading}", f"held_{name} / arguments_{name}")
        for name, heading in VARIANTS.items()
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        needs = prepared.needs
        held = measure_need_visibility(needs, traces).held
        others = needs.origin != ORIGINS.index("assistant")
        compactions = [each.position for each in prepared.history.compactions]
        first = bisect_left(prepared.request_positions, min(compactions, default=0))
        far = needs.gap_tokens > FAR[1]
        chosen = {f"over_{tokens}": others & (needs.gap_tokens > tokens) for tokens in FAR}
        chosen["with_agent"] = far
        chosen["before"] = far & others & (needs.request < first)
        chosen["after"] = far & others & (needs.request >= first) & bool(compactions)
        figures: dict[str, npt.NDArray[np.float64]] = {}
        for name, each in chosen.items():
            counts = np.bincount(needs.argument[each], minlength=len(needs.arguments))
            weight = each / np.maximum(counts[needs.argument], 1)
            for part, hits in (("held", held), ("arguments", np.ones_like(held))):
                sums = [
                    np.bincount(needs.request, row * weight, len(prepared.request_positions))
                    for row in hits
                ]
                figures[f"{part}_{name}"] = np.array(sums)
        return figures


def distinct(recordings: Iterable[Recording]) -> Iterator[Recording]:
    """Yield the recordings that are neither copies nor those of subagents; report the others."""
    known, left_out = set[str](), 0
    for each in recordings:
        digest = recording_digest(each)
        if digest in known or "parent" in each.meta:
            left_out += 1
        else:
            known.add(digest)
            yield each
    if left_out:
        print(f"copies and recordings of subagents, left out: {left_out}", file=sys.stderr)


def render_tables(board: pd.DataFrame) -> str:
    """Return one Markdown table per limit: the score and rank of each strategy and variant."""
    found = []
    for limit in sorted(board["limit"].unique()):
        rows = board[board["limit"] == limit].set_index("strategy")
        rows = rows.sort_values("over_4000", ascending=False)
        names = [name for name in VARIANTS if rows[name].notna().any()]
        ranked = rows[[not control_name(strategy) for strategy in rows.index]]
        ranks = ranked[names].round(3).rank(ascending=False, method="min")
        compacted = bool(rows["change"].notna().any())
        heads = ["strategy", "tokens", *(VARIANTS[name] for name in names)]
        heads += ["after − before (95 %)"] * compacted
        lines = [f"limit {limit:,.0f}", "", _row(heads), "|" + " --- |" * len(heads)]
        for strategy in map(str, rows.index):
            row = rows.loc[strategy]
            cells = [
                f"{row[name]:.3f}"
                + (f" ({ranks.at[strategy, name]:.0f})" if strategy in ranks.index else "")
                for name in names
            ]
            if compacted:
                bounds = f" ({row['low']:+.3f} to {row['high']:+.3f})" if row["low"] < 1 else ""
                cells.append(f"{row['change']:+.3f}{bounds}")
            label = strategy.replace("|", "\\|")
            lines.append(_row([f"`{label}`", f"{row['tokens_mean']:,.0f}", *cells]))
        counts = (f"{rows[f'arguments_{name}'].iloc[0]:,.0f}" for name in names)
        lines.append(_row(["arguments with such needs", "", *counts, *[""] * compacted]))
        found.append("\n".join(lines))
    return "\n\n".join(found)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def measure(
    recordings: Iterable[Recording],
    strategies: Sequence[StrategyLike],
    limits: Sequence[float],
    reserve: int = 0,
) -> pd.DataFrame:
    """Return the leaderboard of the variants, with the arguments they count and the last column."""
    metrics: list[str | Metric] = ["usage", RecallVariants()]
    results = evaluate(recordings, strategies, limits, reserve=reserve, metrics=metrics)
    columns = [f"{part}_{name}" for name in VARIANTS for part in ("arguments", "held")]
    found = []
    for (limit, strategy), rows in results.runs.groupby(["limit", "strategy"]):
        sums = rows.groupby("cluster")[columns].sum()
        parts = [
            sums[f"{part}_{when}"] for when in ("after", "before") for part in ("held", "arguments")
        ]
        change = ratio_difference(*(part.to_numpy() for part in parts))
        row = {"limit": limit, "strategy": strategy, **sums.sum().to_dict()}
        found.append(row | {"change": change.estimate, "low": change.low, "high": change.high})
    return results.leaderboard().merge(pd.DataFrame(found), on=["limit", "strategy"])


def main(arguments: Sequence[str]) -> None:
    """Print the tables of all recordings in the paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("-l", "--limit", action="append", required=True, type=parse_limit)
    parser.add_argument("-s", "--strategy", action="append", help="default: those of README's plot")
    parser.add_argument("--reserve", default=0, type=parse_limit)
    given = parser.parse_args(arguments)
    strategies = given.strategy
    if not strategies:
        plot = Path(__file__).parents[1] / "docs" / "frontier.py"
        strategies = runpy.run_path(str(plot))["STRATEGIES"]
    recordings = distinct(load(given.paths, on_error="skip"))
    print(render_tables(measure(recordings, strategies, given.limit, given.reserve)))


if __name__ == "__main__":
    main(sys.argv[1:])

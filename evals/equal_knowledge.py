"""Compare the cost of strategies at equal knowledge: ``python evals/equal_knowledge.py PATH…``.

Each recording that is longer than a limit is replayed in an open loop and in a closed loop, in which
the agent fetches again what it needs and no longer holds (see ``docs/closed-loop.md``). Costs are
those of ``MODEL``, with both lifetimes of its prompt cache, and are given in relation to the cost of
the full history in the open loop. A second table compares the calls that the model of the agent
repeats after recorded compactions with those that the recorded agents repeated.

With ``--write``, the page ``docs/equal-knowledge.md`` is written. Otherwise it is printed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from page_script import print_or_write, with_bounds

import ctxlab
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, ratio_interval
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.refetch import find_refetches
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.verdict import control_name
from ctxlab.messages.types import Recording
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.cache_timeline import CacheTtl

PAGE = Path(__file__).parents[1] / "docs" / "equal-knowledge.md"
MODEL = "claude-opus-4-6"
LIFETIMES: dict[int, tuple[CacheTtl, ...]] = {
    100_000: ("5m", "1h"),
    200_000: ("5m", "1h"),
    16_000: ("5m",),
    32_000: ("5m",),
}
"lifetimes of the prompt cache by limit"
PRODUCTS = (
    *("claude_code", "codex", "gemini_cli", "cline", "opencode", "openhands.default", "goose"),
    *("roo", "strands.summarizing", "deepagents"),
)
WITHIN = 20
"number of requests after a compaction in which repeated calls are counted"

INTRO = f"""Costs are input costs at the prices of {MODEL}, divided by those of the full history in
the open loop, as if it always fitted. *Open* is the usual replay. In the *closed* loop, the agent
fetches again what it needs and no longer holds, so that all strategies know the same, except for what
is irrecoverable. [What forgetting costs](closed-loop.md) defines both, and says what the model of the
agent assumes. *5m* and *1h* are the lifetimes of cache writes. *Names suffice* is the lower bound of the
closed loop at 5m. Re-fetches and irrecoverable needs are given per 100 recorded requests. *Over* is the
share of requests that exceed the limit. Strategies that summarise do so without a model, and their own
calls are not priced. Controls are in italics; `random_drop` is the mean of five seeds. Intervals are
95 % intervals over clusters."""
MADE = f"""Claude Code, Codex, Copilot CLI and pi log their own compactions. The strategy `recorded`
repeats them. *Model* is the number of calls that the closed loop then repeats within the {WITHIN}
requests after a compaction. *Agents* is the number of targets (files, searches, commands, look-ups) that
the recorded agent fetched before the compaction, that the request after it no longer contained, and that
the agent fetched again within these requests. Both are given per 100 requests. The two need not agree:
the recorded actions already contain what the agents fetched again, so the model adds calls to them; and
agents also fetch again for other reasons, such as after an edit."""


def load_recordings(paths: Sequence[str]) -> list[Recording]:
    """Load all recordings with requests; the same session in several folders is used once.

    A folder with an ``INDEX.tsv`` takes its clusters from there.
    """
    found: dict[str, Recording] = {}
    for folder in sorted(each for path in paths for each in _list_folders(Path(path))):
        index = folder / "INDEX.tsv"
        clusters = index if index.is_file() else None
        for each in ctxlab.load(folder, on_error="skip", clusters=clusters):
            if each.request_positions:
                found.setdefault(recording_digest(each), each)
    return list(found.values())


def _list_folders(path: Path) -> list[Path]:
    """Return the folders of data sets in a folder, or the folder itself if it is a data set."""
    inside = [each for each in path.iterdir() if (each / "INDEX.tsv").is_file()]
    return inside or [path]


def measure_lengths(recordings: Sequence[Recording]) -> list[int]:
    """Return the tokens of the longest request of each recording."""
    run = ctxlab.evaluate(recordings, "full", 10**9, MODEL, metrics=["usage"])
    peaks = run.runs.set_index("recording")["tokens_peak"]
    return [int(peaks[entry["recording"]]) for entry in run.recordings]


def replay(recordings: Sequence[Recording], limit: int) -> dict[CacheTtl, Results]:
    """Replay recordings in both loops, once per lifetime of the cache."""
    return {
        ttl: ctxlab.evaluate(
            recordings,
            [*DEFAULT_LINEUP, *PRODUCTS],
            limit,
            MODEL,
            cache_ttl=ttl,
            metrics=["usage", "cost", "recall"],
            closed_loop=True,
        )
        for ttl in LIFETIMES[limit]
    }


def cost_table(by_ttl: dict[CacheTtl, Results]) -> str:
    """Return the table of one limit: cheapest strategy in the closed loop first, controls last."""
    boards = {ttl: found.leaderboard().set_index("strategy") for ttl, found in by_ttl.items()}
    bounds = {ttl: _relative_bounds(found) for ttl, found in by_ttl.items()}
    first = next(iter(boards.values()))
    is_control = first.index.map(lambda name: control_name(name) != "")
    rows = []
    for name in first.assign(control=is_control).sort_values(["control", "closed_usd"]).index:
        row = first.loc[name]
        cells = [f"*{name}*" if control_name(name) else f"`{name.replace('()', '')}`"]
        cells += [f"{row['overflow_rate']:.0%}", _with_bounds(row, "recall_far_held", ".2f")]
        for ttl, board in boards.items():
            full, (low, high) = board.loc["full()", "cost_usd"], bounds[ttl][name]
            closed = board.loc[name, "closed_usd"] / full
            cells.append(f"{board.loc[name, 'cost_usd'] / full:.2f}")
            cells.append(with_bounds(closed, low, high, ".2f"))
        cells.append(f"{row['closed_usd_named'] / first.loc['full()', 'cost_usd']:.2f}")
        cells.append(_with_bounds(row * 100, "refetch_rate", ".1f"))
        cells.append(_with_bounds(row * 100, "irrecoverable_rate", ".1f"))
        rows.append(cells)
    costs = [f"{loop} {ttl}" for ttl in boards for loop in ("open", "closed")]
    heads = ["strategy", "over", "held far", *costs, "names suffice", "re-fetches", "irrecoverable"]
    return markdown_table(heads, rows)


def _with_bounds(row: pd.Series[float], name: str, form: str) -> str:
    return with_bounds(*(row[f"{name}{end}"] for end in ("", "_low", "_high")), form)


def _relative_bounds(results: Results) -> dict[str, tuple[float, float]]:
    """Return the interval of the closed cost divided by the open cost of full history."""
    limit = results.manifest["spec"]["limits"][0]
    names = results.manifest["spec"]["strategies"]
    keys = [(float(limit), name) for name in names]
    top = results.cluster_sums("closed_usd", keys)
    bottom = results.cluster_sums("cost_usd", [(float(limit), "full()")])
    low, high = ratio_interval(top, np.repeat(bottom, len(names), axis=1))
    return dict(zip(names, zip(low, high, strict=True), strict=True))


def compaction_rows(recordings: Sequence[Recording]) -> Iterator[list[str]]:
    """Yield one row per product: calls that the model and the agents repeat after compactions."""
    logged = [each for each in recordings if each.compactions]
    for product in sorted({each.format or "" for each in logged}):
        chosen = [each for each in logged if each.format == product]
        results = ctxlab.evaluate(chosen, "recorded", 10**9, metrics=["usage"], closed_loop=True)
        requests = results.requests
        names = [entry["recording"] for entry in results.recordings]
        starts = {
            name: [bisect_left(each.request_positions, c.position) for c in each.compactions]
            for name, each in zip(names, chosen, strict=True)
        }
        near = [
            any(start <= request < start + WITHIN for start in starts[name])
            for name, request in zip(requests["recording"], requests["request"], strict=True)
        ]
        near_requests = requests[near]
        sums = near_requests.groupby("cluster", observed=True).agg(
            requests=("request", "size"), model=("refetches", "sum")
        )
        again = find_refetches(chosen)
        made = again[~again["content"].astype(bool) & (again["again"] < WITHIN)]
        sums["agents"] = made.groupby("cluster").size().reindex(sums.index, fill_value=0)
        counts = sum(len(each.compactions) for each in chosen)
        yield [
            product,
            f"{len(chosen)}",
            f"{counts}",
            f"{len(near_requests):,}",
            _per_100(sums["model"], sums["requests"]),
            _per_100(sums["agents"], sums["requests"]),
        ]


def _per_100(top: pd.Series[float], bottom: pd.Series[float]) -> str:
    found = f"{100 * top.sum() / bottom.sum():.1f}"
    if len(top) < MIN_CLUSTERS:
        return found
    low, high = ratio_interval(top.to_numpy(float)[:, None], bottom.to_numpy(float)[:, None])
    return f"{found} ({100 * low[0]:.1f}–{100 * high[0]:.1f})"


def write_page(paths: Sequence[str]) -> str:
    """Return the page as Markdown."""
    recordings = load_recordings(paths)
    lengths = measure_lengths(recordings)
    parts = ["<!-- Generated by evals/equal_knowledge.py; do not edit. -->"]
    parts += ["# Dollars at equal knowledge", INTRO]
    for limit in LIFETIMES:
        long = [each for each, n in zip(recordings, lengths, strict=True) if n > limit]
        by_ttl = replay(long, limit)
        first = next(iter(by_ttl.values()))
        requests = int(first.leaderboard()["requests"].max())
        parts += [
            f"## Limit of {limit:,} tokens",
            f"{pluralize(len(long), 'recording')} in {pluralize(first.cluster_count, 'cluster')} are "
            f"longer than the limit, with {requests:,} requests.",
            cost_table(by_ttl),
        ]
        print(f"{limit:,}: done", file=sys.stderr)
    heads = ("product", "sessions", "compactions", "requests", "model (95 %)", "agents (95 %)")
    parts += ["## After recorded compactions", MADE]
    parts.append(markdown_table(heads, compaction_rows(recordings)))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print_or_write(write_page, PAGE, __doc__)

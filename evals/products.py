"""Tabulate what the defaults of products cost and forget: ``python evals/products.py PATH…``.

A path is a folder of recordings, or a folder of such folders. The recordings of a folder are a family:
one product in one repository. At most four of each family that are longer than a context window are
replayed through the newest baseline of every product, beside full history, the recorded compactions,
two strategies of ctxlab, and controls. Then the compactions that Claude Code and Codex recorded are
compared with those of their baselines.

With ``--write``, the page ``docs/products.md`` and its plot are written. Otherwise the page is printed.
All measurements are stored as Parquet in ``runs/products``. If the script is stopped, the same command
goes on where it stopped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fit_excerpts import choose_by_limit, load_families
from page_script import print_or_write, with_bounds

import ctxlab
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.products import CONSTRAINTS, ProductTable, compare_products, exceeds_window
from ctxlab.evaluation.results import Results
from ctxlab.messages.types import Recording
from ctxlab.tokens.counter import TokenCounter

PAGE = Path(__file__).parents[1] / "docs" / "products.md"
RUN = Path("runs") / "products"
MODEL = "claude-opus-4-6"
WINDOWS = (64_000, 200_000)
MAIN = 200_000
PER_FAMILY = 4
"maximum number of recordings of a family, which is one product in one repository"
TOLERATED = 0.01
"share of requests that may exceed the window or be invalid"
SAMPLE = Path(__file__).parents[1] / "datasets" / "coding-agent"
SAMPLE_WINDOW = 8000
SAMPLE_STRATEGIES = (
    "claude_code", "codex", "opencode", "gemini_cli", "deepagents", "strands.summarizing",
    "recorded", "sliding_window() | panic()", "excerpt_memory() | panic()", "random_drop()",
)  # fmt: skip
"strategies of the table over bundled recordings, which a test makes anew"

INTRO = f"""\
What does the compaction of a product cost, and what does it forget? Each row is a product with the
settings that it is shipped with. A limit is a context window: it includes the system prompt and the
tools that no log contains, as the bills show them. The recordings are longer than the window, at most
{PER_FAMILY} of one product in one repository, and their heads take at most half of it. Prices, rules
and counts are those of {MODEL}. Intervals are 95 % intervals over clusters.

- *Cost* is the input cost divided by that of the full history, as if it always fitted: with cache
  writes for 5 minutes, for an hour (*1 h*), and for 5 minutes with an agent that fetches again what it
  needs and no longer holds (*closed*; see [What forgetting costs](closed-loop.md)).
- *Held far* is the share of the values in tool calls, last mentioned more than 4,000 tokens before,
  that the request still holds ([recall](recall.md)).
- *Constraints* is the share of {CONSTRAINTS} planted constraints that are still in the last request of
  a recording ([canaries](comparing.md#which-facts-survive-canaries)).
- *Edits* are requests that change what the request before sent, per 100 requests. *Invalid* requests
  would be rejected for their form, unlike the full history; *over* are those that exceed the window.

Rows in italics are no products. A replay is an open loop: the agent acts as recorded, whatever a
product removed. **Summaries are extracted without a model.** A product's own summary costs a call and
is written for the task, so it may keep more meaning. What a product does on its server is not known
where its description says so. `ctxlab strategies NAME` says what is imitated, in which version, and
where a user sets each parameter."""
AGREEMENT = """\
The logs of Claude Code and Codex contain their compactions. Below, the baselines are replayed over
the same sessions in the same window, and their compactions are set beside the recorded ones. Tokens
are counted by ctxlab, with the tokens that no log contains. A *distance* is the number of requests
from a recorded compaction to the one of the baseline with the same number in its session. Figures
are medians and quartiles. Only automatic compactions count, and only sessions whose bills never
exceed the window."""


class Logs(NamedTuple):
    """Sessions of some versions of a product, whose logs contain its compactions."""

    product: str
    "name and versions"
    baseline: str
    "baseline that reproduces these versions"
    version: str
    "key of ``Recording.meta`` with the version, which only logs of this product have"
    window: int
    "context window in which the sessions ran"
    since: str = ""
    "first version; empty for any"
    before: str = ""
    "version after the last one; empty for any"

    def has(self, recording: Recording) -> bool:
        """Return whether a recording is such a session, and no bill exceeds the window."""
        version = str(recording.meta.get(self.version, ""))
        if not version or (self.version == "version" and "sessionId" not in recording.meta):
            return False
        if self.since and _version(version) < _version(self.since):
            return False
        if self.before and _version(version) >= _version(self.before):
            return False
        bills = [m.usage.input + m.usage.cache_read + m.usage.cache_write
                 for m in recording.messages if m.usage]  # fmt: skip
        return bool(recording.request_positions) and max(bills, default=0) <= self.window


def _version(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text)[:3]]


LOGS = (
    Logs("Claude Code before 2.1.25", "claude_code.v2_1_20", "version", 200_000, before="2.1.25"),
    Logs("Claude Code since 2.1.25", "claude_code", "version", 200_000, since="2.1.25"),
    Logs("Codex", "codex", "cli_version", 258_400),
)
"""products whose logs contain their compactions. Codex reports a window of 258,400 tokens, 95 % of
272,000"""


def choose_by_window(families: Mapping[str, Sequence[Recording]]) -> dict[int, list[Recording]]:
    """Return the recordings that are longer than each window, at most a few of each family."""
    return choose_by_limit(families, WINDOWS, MODEL, PER_FAMILY, exceeds_window)


def table_rows(frame: pd.DataFrame) -> str:
    """Return a table of the comparison as Markdown, by cost."""
    heads = ["strategy", "version", "cost", "1 h", "closed", "held far", "constraints", "edits",
             "invalid", "over"]  # fmt: skip
    rows = []
    for row in frame.sort_values("cost_5m", kind="stable").to_dict("records"):
        name = f"`{short_strategy(row['strategy'])}`"
        cells = [
            _with_bounds(row, column)
            for column in ("cost_5m", "cost_1h", "closed_cost", "held_far", "constraints")
        ]
        rows.append([
            name if row["kind"] == "product" else f"*{name}*",
            row["version"],
            *cells,
            f"{row['compactions']:.1f}",
            f"{row['invalid']:.0%}" if row["invalid"] else "",
            f"{row['overflow']:.0%}" if row["overflow"] else "",
        ])  # fmt: skip
    return markdown_table(heads, rows)


def _with_bounds(row: Any, column: str) -> str:
    value, low, high = (row[f"{column}{end}"] for end in ("", "_low", "_high"))
    return "" if np.isnan(value) else with_bounds(value, low, high, ".2f")


def conclude(frame: pd.DataFrame) -> Iterator[str]:
    """Yield the sentences that follow from the table of one window."""
    rows = frame.set_index(frame["strategy"].map(short_strategy))
    products = rows[rows["kind"] == "product"]
    safe = products[(products["overflow"] < TOLERATED) & (products["invalid"] < TOLERATED)]
    idle = products[products["compactions"] == 0]
    yield (
        f"**Fit.** Of {len(products)} defaults, {len(idle)} change nothing in this window, and "
        f"{len(products) - len(safe)} send more than {TOLERATED:.0%} of requests that exceed it or are "
        f"invalid. The other {len(safe)} can be used as they are; the next sentences are about them."
    )
    cheap, *_, dear = (row for _, row in safe.sort_values("cost_5m").iterrows())
    yield (
        f"**Price.** {_name(cheap)} costs {_with_bounds(cheap, 'cost_5m')} of the full history, and "
        f"{_name(dear)} {_with_bounds(dear, 'cost_5m')}. Of the {len(safe)}, "
        f"{(safe['cost_5m'] > 1).sum()} cost more than sending everything."
    )
    keeper = safe.sort_values("held_far").iloc[-1]
    yield (
        f"**Memory.** The median default holds {safe['held_far'].median():.2f} of the far values. "
        f"{_name(keeper)} holds the most: {_with_bounds(keeper, 'held_far')}, at a cost of "
        f"{keeper['cost_5m']:.2f}."
    )
    kept = safe.sort_values("constraints").iloc[-1]
    yield (
        f"**Rules.** In the last request, the median default still has "
        f"{safe['constraints'].median():.0%} of the planted constraints. {_name(kept)} has the most: "
        f"{kept['constraints']:.0%}."
    )
    own = rows.loc["excerpt_memory | panic"]
    worse = (safe["cost_5m"] >= own["cost_5m"]) & (safe["held_far"] <= own["held_far"])
    better = (safe["cost_5m"] <= own["cost_5m"]) & (safe["held_far"] >= own["held_far"])
    yield (
        f"**Beside them.** `excerpt_memory` holds {_with_bounds(own, 'held_far')} at a cost of "
        f"{_with_bounds(own, 'cost_5m')}. {worse.sum()} of the {len(safe)} defaults cost no less and "
        f"hold no more; {better.sum()} cost no more and hold no less."
    )


def _name(row: Any) -> str:
    return f"`{short_strategy(row['strategy'])}`"


def plot(frames: Mapping[int, pd.DataFrame], path: Path) -> None:
    """Plot cost against held far recall, one plot per window. The products of the frontier are named."""
    matplotlib.use("agg")
    figure, axes = plt.subplots(
        1, len(frames), figsize=(6 * len(frames), 5), sharey=True, squeeze=False
    )
    looks = {"product": ("o", "#0072B2"), "reference": ("s", "#D55E00"), "control": ("D", "0.6")}
    for ax, (window, frame) in zip(axes[0], frames.items(), strict=True):
        usable = (frame["overflow"] < TOLERATED) & (frame["invalid"] < TOLERATED)
        for (kind, fits), rows in frame.groupby([frame["kind"], usable]):
            marker, color = looks[str(kind)]
            label = str(kind) if fits else f"{kind}, overflows or invalid"
            fill = color if fits else "white"
            ax.plot(rows["cost_5m"], rows["held_far"], marker, mec=color, mfc=fill, label=label)
        rest = frame[frame["kind"] != "product"]
        for row in pd.concat([_pareto(frame[usable & (frame["kind"] == "product")]), rest]).to_dict(
            "records"
        ):
            ax.annotate(
                short_strategy(row["strategy"]), (row["cost_5m"], row["held_far"]),
                (4, 3), textcoords="offset points", fontsize=6,
            )  # fmt: skip
        ax.set(
            title=f"window of {window:,} tokens", xlabel="cost / cost of full history", xscale="log"
        )
        ax.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        ax.grid(alpha=0.2)
    axes[0][0].set_ylabel("held far recall")
    axes[0][0].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _pareto(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that hold more than every cheaper row."""
    rows = frame.sort_values(["cost_5m", "held_far"], ascending=[True, False])
    return rows[rows["held_far"] > rows["held_far"].cummax().shift(fill_value=-1)]


class Agreement(NamedTuple):
    """Compactions of a baseline beside the recorded ones."""

    sessions: pd.DataFrame
    "one row per session: ``version``, ``recorded`` and ``replayed`` numbers of compactions"
    pairs: pd.DataFrame
    "one row per pair: ``distance`` in requests, and ``before`` and ``after`` of both, in tokens"


def find_agreement(recordings: Sequence[Recording], logs: Logs) -> Agreement:
    """Replay the baseline of a product over its own logs, and pair the compactions of both."""
    chosen = list(filter(logs.has, recordings))
    results = ctxlab.evaluate(
        chosen, ["recorded", logs.baseline], logs.window, fixed_in_limit=True, metrics="usage"
    )
    described, rows = results.recordings, results.compactions
    sessions, pairs = [], []
    for about, recording in zip(described, chosen, strict=True):
        name, unlogged = about["recording"], max(about["unlogged"] or 0, 0)
        mine = rows[rows["recording"] == name]
        automatic = [c.position for c in recording.compactions if _is_automatic(c)]
        own = mine[mine["strategy"] == "recorded()"]
        # A compaction counts at the next request, which may follow a message of the user.
        own = own[[any(0 <= at - p <= 2 for p in automatic) for at in own["position"]]]
        other = mine[(mine["strategy"] == f"{logs.baseline}()") & (mine["kind"] == "summary")]
        cause = _explain(recording) if len(own) != len(other) else ""
        sessions.append((name, recording.meta[logs.version], len(own), len(other), cause))
        for a, b in zip(own.to_dict("records"), other.to_dict("records"), strict=False):
            sizes = (s[f"tokens_{end}"] + unlogged for end in ("before", "after") for s in (a, b))
            pairs.append((b["request"] - a["request"], *sizes))
    columns = ["distance", "before", "before_replayed", "after", "after_replayed"]
    return Agreement(
        pd.DataFrame(sessions, columns=["session", "version", "recorded", "replayed", "cause"]),
        pd.DataFrame(pairs, columns=columns),
    )


def _explain(recording: Recording) -> str:
    """Return what may be the cause of another number of compactions."""
    prepared = PreparedRecording(recording, TokenCounter(recording.model or MODEL))
    causes = {
        "the log begins in the middle of a session": "starts_after" in recording.meta,
        "a user compacted": any(c.trigger == "manual" for c in recording.compactions),
        "tool results were cleared": any(c.kind == "clear" for c in recording.compactions),
        "the context shrank without an entry in the log": bool(
            prepared.bills and prepared.bills.unsaid
        ),
    }
    return "; ".join(text for text, applies in causes.items() if applies)


def _is_automatic(compaction: ctxlab.Compaction) -> bool:
    return compaction.kind == "summary" and compaction.trigger in (None, "auto")


def agreement_table(found: Mapping[Logs, Agreement]) -> str:
    """Return the table of the agreement, one row per product."""
    heads = ["product", "baseline", "sessions", "compactions: recorded", "replayed", "same number",
             "of those with any", "distance", "tokens before: recorded", "replayed",
             "tokens after: recorded", "replayed"]  # fmt: skip
    rows = []
    for logs, (sessions, pairs) in found.items():
        same = sessions["recorded"] == sessions["replayed"]
        some = sessions[["recorded", "replayed"]].any(axis=1)
        counts = [f"{sessions[each].sum()}" for each in ("recorded", "replayed")]
        values = [_quartiles(pairs[each]) for each in pairs]
        rows.append([
            logs.product, f"`{logs.baseline}`", f"{len(sessions)}", *counts, f"{same.mean():.0%}",
            f"{same[some].sum()} of {some.sum()}", *values,
        ])  # fmt: skip
    return markdown_table(heads, rows)


def _quartiles(values: pd.Series[Any]) -> str:
    if values.empty:
        return ""
    low, middle, high = values.quantile([0.25, 0.5, 0.75])
    return f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"


def exceptions_table(found: Mapping[Logs, Agreement]) -> str:
    """Return the sessions in which a baseline compacts more or less often than its product."""
    rows = []
    for logs, (sessions, _) in found.items():
        other = sessions[sessions["recorded"] != sessions["replayed"]].astype(str)
        rows += [
            [f"`{logs.baseline}`", f"`{row[0][:13]}`", *row[1:]]
            for row in other.itertuples(index=False)
        ]
    return markdown_table(
        ["baseline", "session", "version", "recorded", "replayed", "possible cause"], rows
    )


def sample_table() -> str:
    """Return the table over the bundled recordings."""
    table = compare_products(
        list(ctxlab.load(SAMPLE)),
        SAMPLE_WINDOW,
        SAMPLE_STRATEGIES,
        MODEL,
        workers=1,
        progress=False,
    )
    return table_rows(table.frame)


def write_page(paths: Sequence[str]) -> str:
    """Return the page as Markdown, and write the plot and the measurements."""
    frames: dict[int, pd.DataFrame] = {}
    results: dict[tuple[float, str], Results] = {}
    sections: list[str] = []
    families = load_families(paths)
    for window, recordings in choose_by_window(families).items():
        table = compare_products(recordings, window, model=MODEL, folder=RUN)
        frames[window] = table.frame
        results |= table.results
        sections += [f"## A window of {window:,} tokens", _describe(table), table_rows(table.frame)]
        print(f"{window:,}: done", file=sys.stderr)
    ProductTable(pd.concat(frames.values(), ignore_index=True), results).save(RUN)
    plot(frames, PAGE.with_suffix(".png"))
    every = list(chain.from_iterable(families.values()))
    found = {logs: find_agreement(every, logs) for logs in LOGS if any(map(logs.has, every))}
    said = "\n".join(f"{i}. {each}" for i, each in enumerate(conclude(frames[MAIN]), 1))
    parts = [
        "<!-- Generated by evals/products.py; do not edit. -->", "# Products", INTRO,
        f"## In a window of {MAIN:,} tokens", said,
        f"![Cost against held far recall]({PAGE.stem}.png)", *sections,
        "## The baselines beside the products", AGREEMENT, agreement_table(found),
        "Sessions with another number of compactions:", exceptions_table(found),
        "## Bundled recordings",
        f"The same in a window of {SAMPLE_WINDOW:,} tokens over the bundled recordings of a coding "
        "agent. A test makes this table anew.", sample_table(),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _describe(table: ProductTable) -> str:
    first = table.frame.iloc[0]
    counts = [
        pluralize(int(first[name]), name[:-1]) for name in ("recordings", "clusters", "requests")
    ]
    return f"{counts[0]} in {counts[1]} with {counts[2]}."


if __name__ == "__main__":
    print_or_write(write_page, PAGE, __doc__)

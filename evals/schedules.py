"""Compare what strategies remove with when they do: ``python evals/schedules.py PATH…``.

Each recording that is longer than a limit is replayed with every selection (which messages are removed)
under every schedule (before which requests). Tables show the cost, the held far recall and the share
served from the prompt cache. A decomposition of the variance tells how much of the cost and of the
recall depends on the selection, and how much on the schedule.

With ``--write``, the page ``docs/schedules.md`` is written. Otherwise it is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from fit_excerpts import choose_by_limit, load_families
from page_script import print_or_write, with_bounds

import ctxlab
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, ratio_interval
from ctxlab.evaluation.results import Results
from ctxlab.messages.types import Recording

_Array = npt.NDArray[np.float64]

PAGE = Path(__file__).parents[1] / "docs" / "schedules.md"
MODEL = "claude-opus-4-6"
LIMITS = (32_000, 100_000)
PER_FAMILY = 6
"maximum number of recordings of a family, which is one product in one repository"
SELECTIONS = {
    "window": "sliding_window()",
    "stubs": "tool_stubs(keep=3) | sliding_window()",
    "mask": "observation_mask(keep=10) | sliding_window()",
    "stale": "stale_results() | sliding_window()",
    "summary": "rolling_summary(trigger=1, target=1, keep_recent=100000)",
    "excerpts": "excerpt_memory(trigger=1, target=1)",
}
"strategies by name; each removes until the request fits the budget that the schedule sets"
SCHEDULES = {
    "always": "{selection}",
    "always to half": "in_batches({selection}, trigger=0)",
    "batches": "in_batches({selection})",
    "batches of 30 %": "in_batches({selection}, trigger=0, tokens={tokens})",
    "pays": "when_it_pays(in_batches({selection}, trigger=0))",
    "expiry": "on_expiry({selection})",
    "idle": "idle(in_batches({selection}, trigger=0)) | in_batches({selection}, trigger=1)",
    "background": "background({selection})",
}
"text forms of wrapped selections by name; ``{tokens}`` is 30 % of the limit"
SAME_TARGET = tuple(name for name in SCHEDULES if name != "always")
"schedules that all remove down to half of the available tokens"
RARE = tuple(name for name in SAME_TARGET if name != "always to half")
"schedules that do not edit each request once the context is full"
RESAMPLES = 2000

INTRO = f"""\
A strategy decides two things: which messages it removes, and before which requests it removes them.
This page replays every selection under every schedule, and asks which of the two decides more.
Recordings are longer than the limit, at most {PER_FAMILY} of one product in one repository, and their
head (system prompt, tools and first user message) takes at most half of it. Costs are input costs at
the prices of {MODEL} with 5-minute cache writes. The replay is an open loop: the agent acts as
recorded, whatever was removed (see [What forgetting costs](closed-loop.md)). Summaries are extracted
without a model, so they cost nothing. All pipelines end with `panic()`. Intervals are 95 % intervals
over clusters."""
READING = """\
*Dollars* are divided by those of the full history, as if it always fitted. *Held far* is
the share of far needs that are held: `recall_far_held`. *Cached* is the share of paid input tokens
that the prompt cache serves. Rows are selections, and columns are schedules."""
DECIDES = """\
The last table of a limit decomposes the variance: the values of a table differ by row, by column,
and by what neither explains alone (*rest*). The shares are those of the sums of squares of the
logarithm of the dollars, and of the held far recall. The *ranges* are the mean over selections of
the range over schedules, and the reverse: for dollars, the highest divided by the lowest value; for
recall, the highest minus the lowest. *Equal weight* gives each cluster the same weight; otherwise,
long recordings have more. *Same target* leaves out the schedule `always`, which alone fills the
whole limit, and *rare* also `always to half`. *Without excerpts* leaves out the selection whose
weights `evals/fit_excerpts.py` fitted, perhaps to the same recordings. Intervals are percentiles of
resampled clusters. *More* names the larger share, if the interval of their difference excludes 0."""


class Grid(NamedTuple):
    """Sums of the numerator and the denominator of a score, by cluster, selection and schedule."""

    top: _Array
    "array of shape ``(clusters, selections, schedules)``"
    bottom: _Array
    "array of the same shape"
    is_ratio: bool
    "True if values are compared by their logarithm"

    def values(self, counts: _Array) -> _Array:
        """Return the values of the table; ``counts`` says how often each cluster is drawn."""
        shape = (*counts.shape[:-1], *self.top.shape[1:])
        parts = [counts @ each.reshape(len(each), -1) for each in (self.top, self.bottom)]
        found = (parts[0] / parts[1]).reshape(shape)
        return np.log(found) if self.is_ratio else found

    def pick(self, schedules: Sequence[str]) -> Grid:
        """Return the grid of some schedules."""
        columns = [list(SCHEDULES).index(name) for name in schedules]
        return self._replace(top=self.top[..., columns], bottom=self.bottom[..., columns])

    def without(self, selection: str) -> Grid:
        """Return the grid without a selection."""
        row = list(SELECTIONS).index(selection) if selection in SELECTIONS else []
        return self._replace(
            top=np.delete(self.top, row, axis=1), bottom=np.delete(self.bottom, row, axis=1)
        )

    def with_equal_weight(self) -> Grid:
        """Return the grid in which each cluster with a denominator has the same weight."""
        known = (self.bottom > 0).all(axis=(1, 2))
        top, bottom = self.top[known], self.bottom[known]
        return self._replace(top=top / bottom, bottom=np.ones_like(bottom))


class Shares(NamedTuple):
    """Two-way decomposition of tables. Each array has one element per table."""

    selection: _Array
    schedule: _Array
    rest: _Array
    over_schedules: _Array
    "range over schedules, averaged over selections"
    over_selections: _Array
    "range over selections, averaged over schedules"


def decompose(values: _Array) -> Shares:
    """Decompose tables of shape ``(…, selections, schedules)``."""
    whole = values.mean(axis=(-2, -1), keepdims=True)
    rows = values.mean(axis=-1, keepdims=True) - whole
    columns = values.mean(axis=-2, keepdims=True) - whole
    rest = values - whole - rows - columns
    squares = [
        np.square(np.broadcast_to(each, values.shape)).sum(axis=(-2, -1))
        for each in (rows, columns, rest)
    ]
    total = np.sum(squares, axis=0)
    total = np.where(total > 0, total, 1)  # tables of equal values have shares of 0
    return Shares(
        *(each / total for each in squares),
        np.ptp(values, axis=-1).mean(axis=-1),
        np.ptp(values, axis=-2).mean(axis=-1),
    )


def replay(recordings: Sequence[Recording], limit: int) -> Results:
    """Replay recordings with the full history, and with each selection under each schedule."""
    cells = [
        f"{form.format(selection=selection, tokens=round(0.3 * limit))} | panic()"
        for selection in SELECTIONS.values()
        for form in SCHEDULES.values()
    ]
    return ctxlab.evaluate(
        *(recordings, ["full", *cells], limit, MODEL),
        cache_ttl="5m",
        metrics=["usage", "cost", "recall"],
    )


def collect_grids(results: Results) -> dict[str, Grid]:
    """Return the grid of each score."""
    (limit,), names = (results.manifest["spec"][key] for key in ("limits", "strategies"))
    cells = [(float(limit), name) for name in names[1:]]
    scores = {score.name: score for score in results.scores}

    def sums(column: str) -> _Array:
        found = results.cluster_sums(column, cells)
        return found.reshape(len(found), len(SELECTIONS), len(SCHEDULES))

    full = results.cluster_sums("cost_usd", [(float(limit), names[0])])
    dollars = sums("cost_usd")
    grids = {"dollars": Grid(dollars, np.broadcast_to(full[..., None], dollars.shape), True)}
    for head, name in (("held far", "recall_far_held"), ("cached", "cached_share")):
        grids[head] = Grid(*map(sums, scores[name].run_columns), False)
    return grids


def grid_table(grid: Grid, head: str) -> str:
    """Return a table with one row per selection and one column per schedule."""
    clusters = len(grid.top)
    found = grid.values(np.ones(clusters))
    found = np.exp(found) if grid.is_ratio else found
    parts = (grid.top.reshape(clusters, -1), grid.bottom.reshape(clusters, -1))
    bounds = [each.reshape(found.shape) for each in ratio_interval(*parts)]
    rows = [
        [f"`{name}`", *(with_bounds(*cell, ".2f") for cell in zip(*row, strict=True))]
        for name, row in zip(SELECTIONS, zip(found, *bounds, strict=True), strict=True)
    ]
    return markdown_table([head, *SCHEDULES], rows)


def shares_table(grids: Mapping[str, Grid]) -> tuple[str, list[str]]:
    """Return the table of the decompositions, and the sentences that follow from it."""
    rows, said = [], []
    for name in ("dollars", "held far"):
        signs = {}
        for variant, grid in _variants(grids[name]):
            shares, draws = _estimate(grid)
            more = _decide(draws)
            signs[variant] = more
            cells = [_show_share(shares, draws, part) for part in ("selection", "schedule", "rest")]
            parts = ("over_schedules", "over_selections")
            cells += [_show_range(shares, draws, part, grid.is_ratio) for part in parts]
            rows.append([f"{name}, {variant}", *cells, more])
            if variant == "all":
                said.append(_conclude(name, shares, draws, more))
        other = [f"{variant} ({more})" for variant, more in signs.items() if more != signs["all"]]
        said[-1] += f" {_leave_one_out(grids[name])}"
        if other:
            said[-1] += f" These variants say otherwise: {', '.join(other)}."
    heads = ["values", "selection", "schedule", "rest", "over schedules", "over selections", "more"]
    return markdown_table(heads, rows), said


def _variants(grid: Grid) -> Iterator[tuple[str, Grid]]:
    yield "all", grid
    yield "equal weight", grid.with_equal_weight()
    yield "same target", grid.pick(SAME_TARGET)
    yield "rare", grid.pick(RARE)
    yield "without excerpts", grid.without("excerpts")


def _estimate(grid: Grid) -> tuple[Shares, Shares]:
    """Return the decomposition of a grid, and those of its resamples."""
    n = len(grid.top)
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(float)
    return decompose(grid.values(np.ones(n))), decompose(grid.values(counts))


def _bounds(draws: _Array) -> tuple[float, float]:
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def _show_share(shares: Shares, draws: Shares, part: str) -> str:
    value, (low, high) = float(getattr(shares, part)), _bounds(getattr(draws, part))
    return f"{value:.0%} ({low:.0%}–{high:.0%})"


def _show_range(shares: Shares, draws: Shares, part: str, is_ratio: bool) -> str:
    found = float(getattr(shares, part)), *_bounds(getattr(draws, part))
    return with_bounds(*(np.exp(found).tolist() if is_ratio else found), ".2f")


def _decide(draws: Shares) -> str:
    low, high = _bounds(draws.schedule - draws.selection)
    return "schedule" if low > 0 else "selection" if high < 0 else "undecided"


def _conclude(name: str, shares: Shares, draws: Shares, more: str) -> str:
    """Return the sentence about the claim that scheduling beats selection."""
    difference = 100 * float(shares.schedule - shares.selection)
    low, high = (100 * each for each in _bounds(draws.schedule - draws.selection))
    verdict = {
        "schedule": "Yes",
        "selection": "No, the selection decides more",
        "undecided": "Not shown",
    }[more]
    label = "dollars" if name == "dollars" else "held far recall"
    return (
        f"**for {label}: {verdict}.** The schedule explains {shares.schedule:.0%} of the variance, and "
        f"the selection {shares.selection:.0%} (difference {difference:+.0f} points, {low:+.0f} to "
        f"{high:+.0f})."
    )


def _leave_one_out(grid: Grid) -> str:
    """Return a sentence on how far one selection or one schedule decides the result."""
    values, found = grid.values(np.ones(len(grid.top))), {}
    for axis, names in ((0, SELECTIONS), (1, SCHEDULES)):
        for index, name in enumerate(names):
            if len(names) > 2:
                parts = decompose(np.delete(values, index, axis))
                found[name] = 100 * float(parts.schedule - parts.selection)
    if not found:
        return ""
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    return (
        f"If any one selection or schedule is left out, the difference is {found[least]:+.0f} "
        f"(without `{least}`) to {found[most]:+.0f} points (without `{most}`)."
    )


def write_page(paths: Sequence[str]) -> str:
    """Return the page as Markdown."""
    verdicts: list[str] = []
    sections: list[str] = []
    for limit, recordings in choose_by_limit(
        load_families(paths), LIMITS, MODEL, PER_FAMILY
    ).items():
        results = replay(recordings, limit)
        requests = int(results.leaderboard()["requests"].max())
        sections += [
            f"## Limit of {limit:,} tokens",
            f"{pluralize(len(recordings), 'recording')} in "
            f"{pluralize(results.cluster_count, 'cluster')} with {requests:,} requests.",
        ]
        grids = collect_grids(results)
        sections += [grid_table(grid, name) for name, grid in grids.items()]
        if results.cluster_count >= MIN_CLUSTERS:
            table, said = shares_table(grids)
            sections.append(table)
            verdicts += [f"- At {limit:,} tokens: {each}" for each in said]
        print(f"{limit:,}: done", file=sys.stderr)
    parts = ["<!-- Generated by evals/schedules.py; do not edit. -->", "# What or when", INTRO]
    if verdicts:
        parts += ["## Does scheduling beat selection?", "\n".join(verdicts)]
    parts.append("## Selections, schedules and values")
    for heads, forms in (
        (("selection", "strategy"), SELECTIONS),
        (("schedule", "form"), SCHEDULES),
    ):
        shown = {name: form.replace("{selection}", "…") for name, form in forms.items()}
        rows = [(f"`{name}`", f"`{form}`") for name, form in shown.items()]
        parts.append(markdown_table(heads, rows))
    return "\n\n".join([*parts, READING, DECIDES, *sections]) + "\n"


if __name__ == "__main__":
    print_or_write(write_page, PAGE, __doc__)

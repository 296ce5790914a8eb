"""Compare ``excerpt_memory`` with all other strategies: ``python evals/excerpt_frontier.py PATH…``.

The recordings of each family are replayed with weights that were fitted without the family. They are
read from the file that ``--weights`` names, which ``evals/fit_excerpts.py --without FILE`` writes. With
``--write``, the page ``docs/excerpts.md`` and its plot are written. Otherwise the page is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from fit_excerpts import MODEL, choose_recordings, load_families
from typing_extensions import override

import ctxlab
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.bootstrap import ratio_difference, ratio_interval
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.evaluation.metrics.cost import RequestTokens, price_requests
from ctxlab.messages.types import Recording
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.helpers.entity_memory import WEIGHTS, Weights
from ctxlab.strategies.registry import CONTROLS, STRATEGIES, parse_strategy
from ctxlab.tokens.cache_timeline import build_cache_timeline
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

_Array = npt.NDArray[np.float64]

PAGE = Path(__file__).parents[1] / "docs" / "excerpts.md"
OPENAI_MODEL = "gpt-5"
LIMITS = (8_000, 16_000, 32_000)
MAIN_LIMIT = 16_000
PER_FAMILY = 6
"maximum number of recordings of a family"
MAX_OVERFLOW = 0.02
MIN_HELD = 0.5
MASK = "in_batches(observation_mask(keep=10) | sliding_window()) | panic()"
WINDOW = "sliding_window() | panic()"
DEFAULT = "excerpt_memory() | panic()"
VARIANTS = (
    "offload(tokens=700, preview=300) | excerpt_memory(trigger=0.7, target=0.2, share=0.17) | panic()",
    "offload(tokens=1500, preview=500) | excerpt_memory(trigger=0.8, target=0.3, share=0.25) | panic()",
    "offload(tokens=1500, preview=500) | excerpt_memory() | panic()",
    "excerpt_memory(target=0.35, share=0.3) | panic()",
    "excerpt_memory(target=0.5, share=0.4) | panic()",
    DEFAULT,
    "excerpt_memory(target=0.7, share=0.6) | panic()",
    "excerpt_memory(target=0.8, share=0.7) | panic()",
    "excerpt_memory(target=0.9, share=0.8) | panic()",
)
"excerpt_memory, from the cheapest setting to the one that keeps most"
PIPELINES = (
    "in_batches(sliding_window()) | panic()",
    "in_batches(sliding_window(), trigger=1.0, target=0.6) | panic()",
    MASK,
    "in_batches(observation_mask(keep=3) | sliding_window()) | panic()",
    "in_batches(tool_stubs(keep=3) | sliding_window()) | panic()",
    "on_expiry(observation_mask(keep=10) | sliding_window()) | panic()",
    "when_it_pays(observation_mask(keep=10)) | sliding_window() | panic()",
    "observation_mask(keep=3) | sliding_window() | panic()",
    "tool_result_cap(chars=1500) | in_batches(sliding_window()) | panic()",
    "offload(tokens=1500, preview=750) | in_batches(sliding_window()) | panic()",
    "stale_results() | in_batches(sliding_window()) | panic()",
    "rolling_summary(prompt='summary') | panic()",
    "rolling_summary(trigger=1.0, target=0.6) | panic()",
)
"combinations that are compared beside each strategy by itself"
SLOW = ("retrieval",)
"strategies that are not compared here because they take milliseconds per request"
CHAT_STRATEGIES = (
    WINDOW,
    "rolling_summary() | panic()",
    DEFAULT,
    "retrieval() | panic()",
    "excerpt_memory() | retrieval() | panic()",
)
ABLATIONS = ("all", "age", "uses", "constant")


class OpenAICost(Metric):
    """Input cost of the same requests with the prices and the cache rules of ``OPENAI_MODEL``."""

    columns = (Column("openai_usd", f"input cost at the prices of {OPENAI_MODEL}", "USD"),)
    scores = (Score.total("openai_usd", f"input cost at the prices of {OPENAI_MODEL}", "USD"),)

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        """Price the requests, without hidden reasoning."""
        other = copy(prepared)
        other.model = find_model(OPENAI_MODEL)
        places = prepared.request_positions
        timeline = build_cache_timeline(prepared.recording, places, other.model.cache, "5m")
        replays, order = distinct_replays(traces)
        tokens = RequestTokens.of_traces(replays, np.zeros((len(replays), len(places))))
        return {"openai_usd": price_requests(other, tokens, timeline)["input_usd"][order]}


class Sums(NamedTuple):
    """Sums of the runs: arrays of shape ``(clusters, strategies)``."""

    names: list[str]
    "strategies; excerpt_memory without its weights"
    families: list[str]
    "family of each cluster"
    columns: dict[str, _Array]
    "array by name of a column of the runs"

    def of(self, name: str, column: str) -> _Array:
        """Return the sums of a column for one strategy: one value per cluster."""
        return self.columns[column][:, self.names.index(name)]

    def ratio(self, top: str, bottom: str) -> _Array:
        """Return the ratio of two columns for each strategy."""
        return self.columns[top].sum(axis=0) / self.columns[bottom].sum(axis=0)

    def in_family(self, family: str) -> Sums:
        """Return the sums of one family."""
        rows = np.array([each == family for each in self.families])
        return Sums(
            self.names,
            [family] * int(rows.sum()),
            {name: each[rows] for name, each in self.columns.items()},
        )


COLUMNS = (
    *("cost_usd", "openai_usd", "cached", "priced_tokens", "far_held", "far_arguments"),
    *("held", "arguments"),
    *("overflow", "requests", "closed_usd", "irrecoverable"),
)
HELD, FAR = "far_held", "far_arguments"


def with_weights(expression: str, weights: Weights) -> str:
    """Return the expression of a variant of excerpt_memory with other weights."""
    if weights == WEIGHTS:
        return expression
    given = f"excerpt_memory(weights={tuple(weights)}, "
    return expression.replace("excerpt_memory(", given).replace(", )", ")")


def deployable_strategies() -> list[str]:
    """Return all strategies and baselines with their default parameters, followed by ``panic``."""
    names = [
        name
        for name, make in STRATEGIES.items()
        if name not in (*CONTROLS, *SLOW, "panic", "excerpt_memory")
        and "strategy" not in signature(make).parameters
    ]
    return [f"{name}() | panic()" for name in (*names, *BASELINES)]


def sum_families(
    families: Mapping[str, Sequence[Recording]],
    make: Callable[[str], Sequence[tuple[str, str]]],
    limit: int,
    closed_loop: bool = False,
) -> Sums:
    """Evaluate each family with its own strategies, and sum the runs by cluster.

    ``make`` returns pairs of a name and an expression for a family.
    """
    names: list[str] = []
    of_clusters: list[str] = []
    parts: dict[str, list[_Array]] = {}
    for family, recordings in families.items():
        pairs = make(family)
        names = [name for name, _ in pairs]
        results = ctxlab.evaluate(
            recordings,
            [expression for _, expression in pairs],
            limit,
            MODEL,
            metrics=["usage", "cost", "recall", OpenAICost()],
            closed_loop=closed_loop,
        )
        keys = [(float(limit), repr(parse_strategy(expression))) for _, expression in pairs]
        for column in COLUMNS:
            if column in results.runs:
                parts.setdefault(column, []).append(results.cluster_sums(column, keys))
        of_clusters += [family] * results.cluster_count
        print(f"{limit:,}: {family}", file=sys.stderr)
    columns = {name: np.concatenate(each) for name, each in parts.items()}
    return Sums(names, of_clusters, columns)


def is_excerpts(name: str) -> bool:
    """Return whether a strategy is a variant of excerpt_memory."""
    return "excerpt_memory" in name


def pareto(costs: _Array, held: _Array, allowed: Iterable[int]) -> list[int]:
    """Return the strategies that no cheaper one equals in held recall, cheapest first."""
    best, front = -1.0, []
    for i in sorted(allowed, key=lambda i: (costs[i], -held[i])):
        if held[i] > best:
            best = float(held[i])
            front.append(i)
    return front


def eligible(sums: Sums) -> list[int]:
    """Return the strategies that rarely overflow and hold at least half of the far needs."""
    over, held = sums.ratio("overflow", "requests"), sums.ratio(HELD, FAR)
    return [i for i in range(len(over)) if over[i] < MAX_OVERFLOW and held[i] >= MIN_HELD]


def frontier_table(sums: Sums) -> str:
    """Return the Pareto points at both prices, and the next best strategies of others."""
    held, chosen = sums.ratio(HELD, FAR), eligible(sums)
    fronts = {
        column: set(pareto(sums.columns[column].sum(axis=0), held, chosen))
        for column in ("cost_usd", "openai_usd")
    }
    others = [i for i in chosen if not is_excerpts(sums.names[i])]
    other_front = {
        i
        for column in ("cost_usd", "openai_usd")
        for i in pareto(sums.columns[column].sum(axis=0), held, others)
    }
    shown = set(range(len(VARIANTS))) | fronts["cost_usd"] | fronts["openai_usd"] | other_front
    shown.add(sums.names.index(WINDOW))
    bounds = ratio_interval(sums.columns[HELD], sums.columns[FAR])
    window = {name: sums.of(WINDOW, name).sum() for name in fronts}
    rows = []
    for i in sorted(shown, key=lambda i: sums.columns["cost_usd"][:, i].sum()):
        costs = [f"{sums.columns[each][:, i].sum() / window[each]:.2f}" for each in fronts]
        marks = "".join("C" if each == "cost_usd" else "O" for each in fronts if i in fronts[each])
        cached = sums.columns["cached"][:, i].sum() / sums.columns["priced_tokens"][:, i].sum()
        over = sums.columns["overflow"][:, i].sum() / sums.columns["requests"][:, i].sum()
        interval = f"{held[i]:.2f} ({bounds[0][i]:.2f}–{bounds[1][i]:.2f})"
        every = sums.columns["held"][:, i].sum() / sums.columns["arguments"][:, i].sum()
        cells = [f"`{sums.names[i]}`", interval, f"{every:.2f}", *costs]
        rows.append([*cells, f"{cached:.2f}", f"{over:.1%}", marks])
    heads = ("strategy", "held far (95 %)", "held", "Claude", "OpenAI", "cached", "over", "Pareto")
    return markdown_table(heads, rows)


def difference_rows(sums: Sums, others: Sequence[str]) -> list[list[str]]:
    """Return paired differences of excerpt_memory with its defaults and other strategies."""
    own, rows = DEFAULT, []
    for name in others:
        held = ratio_difference(
            *(sums.of(each, column) for each in (own, name) for column in (HELD, FAR))
        )
        ones = np.ones(len(sums.families))
        cells = [f"`{name}`", f"{held.estimate:+.2f} ({held.low:+.2f} to {held.high:+.2f})"]
        for column in ("cost_usd", "openai_usd", "closed_usd"):
            if column in sums.columns:
                found = ratio_difference(
                    *(sums.of(own, column), ones, sums.of(name, column), ones), relative=True
                )
                cells.append(f"{found.estimate:+.0%} ({found.low:+.0%} to {found.high:+.0%})")
        rows.append(cells)
    return rows


def best_of(sums: Sums, names: Iterable[str]) -> str:
    """Return the strategy of those that rarely overflow which holds most per cost."""
    held, cost = sums.ratio(HELD, FAR), sums.columns["cost_usd"].sum(axis=0)
    over = sums.ratio("overflow", "requests")
    found = [sums.names.index(each) for each in names if each in sums.names]
    return sums.names[
        max((i for i in found if over[i] < MAX_OVERFLOW), key=lambda i: held[i] / cost[i])
    ]


def family_rows(sums: Sums, limit: int) -> list[list[str]]:
    """Return one row per family: excerpt_memory beside the window and the best of all others."""
    rows = []
    own = sums.names.index(DEFAULT)
    window = sums.names.index(WINDOW)
    for family in dict.fromkeys(sums.families):
        part = sums.in_family(family)
        if part.columns[FAR][:, own].sum() < 10:
            continue
        held, chosen = part.ratio(HELD, FAR), eligible(part)
        cost = part.columns["cost_usd"].sum(axis=0)
        front = pareto(cost, held, chosen)
        foreign = [i for i in front if not is_excerpts(part.names[i])]
        cells = [family, f"{limit:,}", str(len(part.families))]
        cells += [f"{held[own]:.2f}", f"{held[window]:.2f}", f"{cost[own] / cost[window]:.2f}"]
        cells.append("; ".join(_describe(part, i, own) for i in foreign) or "–")
        rows.append(cells)
    return rows


def _describe(part: Sums, i: int, own: int) -> str:
    """Return an exception: a strategy on the frontier of a family, compared with excerpt_memory."""
    columns = part.columns
    held = ratio_difference(
        *(columns[HELD][:, i], columns[FAR][:, i], columns[HELD][:, own], columns[FAR][:, own])
    )
    low, high = held.low, held.high
    interval = f" ({low:+.2f} to {high:+.2f})" if low < high else ""
    cost = columns["cost_usd"][:, i].sum() / columns["cost_usd"][:, own].sum()
    return f"`{part.names[i]}` held {held.estimate:+.2f}{interval}, cost × {cost:.2f}"


def plot(by_limit: Mapping[int, Sums], path: Path) -> None:
    """Plot held far recall against relative cost, one panel per limit."""
    matplotlib.use("agg")
    figure, axes = plt.subplots(1, len(by_limit), figsize=(12, 4), sharey=True, squeeze=False)
    for ax, (limit, sums) in zip(axes[0], by_limit.items(), strict=True):
        cost = sums.columns["cost_usd"].sum(axis=0)
        cost = cost / cost[sums.names.index(WINDOW)]
        held, over = sums.ratio(HELD, FAR), sums.ratio("overflow", "requests")
        own = sorted(range(len(VARIANTS)), key=lambda i: cost[i])
        rest = [i for i in range(len(cost)) if i not in own]
        low = [i for i in rest if over[i] < MAX_OVERFLOW]
        high = [i for i in rest if over[i] >= MAX_OVERFLOW]
        ax.scatter(cost[low], held[low], s=18, color="#777777", label="other strategies")
        ax.scatter(
            *(cost[high], held[high]),
            s=18,
            facecolors="none",
            edgecolors="#aaaaaa",
            label=f"others, over in at least {MAX_OVERFLOW:.0%}",
        )
        ax.plot(cost[own], held[own], "o-", color="#0072B2", ms=5, label="excerpt_memory")
        ax.plot(1, held[sums.names.index(WINDOW)], "s", color="#D55E00", label="sliding window")
        ax.set(title=f"limit of {limit:,} tokens", xlabel="input cost / window", xlim=(0, 2))
        ax.grid(alpha=0.3)
    axes[0, 0].set_ylabel("held far recall")
    axes[0, -1].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


INTRO = f"""\
`excerpt_memory` keeps the newest messages and, before them, one message of lines quoted word for
word from the older ones. The lines are chosen by the probability that the agent uses their entities
next. This page compares it with all other deployable strategies and baselines with their default
parameters, and with combinations of them; each is followed by `panic()`. `retrieval` is
slow and left out. Summaries are made without a model.

**Weights.** `evals/fit_excerpts.py` fits a logistic regression on recorded sessions. A family is
one product in one repository. Each family below is replayed with weights that were fitted without
it. The algorithm and its defaults were chosen on these recordings, so families are not unseen in
this respect.

**Recordings.** Those longer than the limit, at most {PER_FAMILY} of a family and of as many clusters as
possible, and only those whose
head (system prompt, tool definitions and first user message) takes at most half of the limit: no
strategy drops the head, so with a larger one every strategy overflows. Costs are input costs at the
prices and cache rules of {MODEL} (*Claude*) and {OPENAI_MODEL} (*OpenAI*), divided by those of the
window. A quoted line counts as held by the definition of [recall](recall.md). [Trust](trust.md)
says what this does not show: recall without a model is availability, and a replay is off-policy.

**Pareto.** C and O mark the strategies that no cheaper one equals in held recall, at the prices of
Claude and OpenAI, among those that overflow in less than {MAX_OVERFLOW:.0%} of the requests and
hold at least {MIN_HELD:.0%}. The tables have all variants of `excerpt_memory`, the window, and the
frontier of the other strategies. *Held* is the share of all needs, near ones too: a strategy that
shortens new results loses some of these. `offload` before `excerpt_memory` makes new results short,
and the excerpts quote from their full text."""
NOT_LEADING = """\
- **Plain chats.** Without tool calls there are few entities, and questions are asked in other words
  than the answers. Add `retrieval()` there: the table below has the share of each question's
  evidence messages that are in view.
- **Facts in plain words.** A line without a path, id or number is quoted only if a user said it or
  an agent decided it. Use `pinned(…)` for instructions that must stay.
- **Heads larger than half of the limit.** They are left out above. There, all strategies overflow
  or send little besides the head.
- **What a model makes of quotes** is not measured here. `ctxlab probe` asks a model."""


def chat_table(families: Mapping[str, Sequence[Recording]]) -> str:
    """Return the evidence recall of questions about recorded chats; empty if there are none."""
    asked = [each for every in families.values() for each in every if each.probes]
    if not asked:
        return ""
    limit = min(LIMITS)
    results = ctxlab.evaluate(
        asked, CHAT_STRATEGIES, limit, MODEL, metrics=["usage", "cost", "probes"]
    )
    board = results.leaderboard().set_index("strategy")
    window = board["cost_usd"].iloc[0]
    rows = []
    for name, row in board.iterrows():
        found, low, high = (row[f"evidence_recall{end}"] for end in ("", "_low", "_high"))
        cost = f"{row['cost_usd'] / window:.2f}"
        rows.append([f"`{name}`", f"{found:.2f} ({low:.2f}–{high:.2f})", cost])
    questions = int(board["questions"].iloc[0])
    said = f"{pluralize(len(asked), 'chat')}, {questions:,} questions, limit of {limit:,} tokens:"
    return (
        f"{said}\n\n{markdown_table(('strategy', 'evidence recall (95 %)', 'cost / window'), rows)}"
    )


def write_page(paths: Sequence[str], weights: Mapping[str, Mapping[str, Weights]]) -> str:
    """Return the page as Markdown, and write the plot."""
    families = load_families(paths)
    counter = TokenCounter(MODEL)
    prepared = {
        name: [PreparedRecording(each, counter) for each in recordings]
        for name, recordings in families.items()
    }
    others = [*PIPELINES, *deployable_strategies()]
    by_limit: dict[int, Sums] = {}
    used: dict[int, dict[str, list[Recording]]] = {}
    for limit in LIMITS:
        long = {
            name: choose_recordings(every, limit, PER_FAMILY) for name, every in prepared.items()
        }
        used[limit] = {name: each for name, each in long.items() if each}

        def make(family: str) -> list[tuple[str, str]]:
            own = _without(weights["all"], family)
            variants = [(each, with_weights(each, own)) for each in VARIANTS]
            return [*variants, *((each, each) for each in others)]

        by_limit[limit] = sum_families(used[limit], make, limit)
    plot(by_limit, PAGE.with_suffix(".png"))
    parts = ["<!-- Generated by evals/excerpt_frontier.py; do not edit. -->", "# Excerpts", INTRO]
    parts.append("![Held far recall against input cost at three limits](excerpts.png)")
    for limit, sums in by_limit.items():
        count = sum(map(len, used[limit].values()))
        parts += [
            f"## Limit of {limit:,} tokens",
            f"{pluralize(count, 'recording')} of {len(used[limit])} families in "
            f"{pluralize(len(sums.families), 'cluster')}, "
            f"{sums.columns['requests'][:, 0].sum():,.0f} requests, {len(sums.names)} strategies.",
            frontier_table(sums),
        ]
    parts += _compare(by_limit[MAIN_LIMIT], used[MAIN_LIMIT], weights)
    heads = ("family", "limit", "clusters", "held", "window", "cost", "others on the frontier")
    rows = [row for limit, sums in by_limit.items() for row in family_rows(sums, limit)]
    parts += [
        "## By family",
        "Held far recall of `excerpt_memory()` and of the window, and its cost divided by that of the "
        "window. The last column lists the exceptions: other strategies on the frontier of the family, "
        "compared with `excerpt_memory()`. Families with fewer than ten far arguments are left out; "
        "intervals need five clusters.",
        markdown_table(heads, rows),
        "## Where it does not lead",
        NOT_LEADING,
        chat_table(families),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _without(weights: Mapping[str, Weights], family: str) -> Weights:
    """Return the weights fitted without a family; without any if the family had few cases."""
    return tuple(weights.get(family, weights[""]))


def _compare(
    sums: Sums,
    recordings: Mapping[str, Sequence[Recording]],
    weights: Mapping[str, Mapping[str, Weights]],
) -> list[str]:
    """Return the paired differences in both loops, and the ablation."""
    summaries = [each for each in sums.names if "summar" in each or "compaction" in each]
    products = [f"{name}() | panic()" for name in BASELINES]
    rivals = list(dict.fromkeys([WINDOW, best_of(sums, summaries), best_of(sums, products)]))
    rivals.append(MASK)

    def make(family: str) -> list[tuple[str, str]]:
        found = {name: _without(each, family) for name, each in weights.items()}
        own = with_weights(DEFAULT, found["all"])
        ablated = [(name, with_weights(DEFAULT, found[name])) for name in ABLATIONS[1:]]
        silent = with_weights("excerpt_memory(said=0.0) | panic()", found["all"])
        return [(DEFAULT, own), *((e, e) for e in rivals), *ablated, ("without said", silent)]

    closed = sum_families(recordings, make, MAIN_LIMIT, closed_loop=True)
    heads = ("compared with", "held far", "Claude", "OpenAI", "Claude, closed loop")
    labels = {
        DEFAULT: "as above",
        "age": "age only (least recently mentioned goes first)",
        "uses": "uses only",
        "constant": "constant probability",
        "without said": "without what was said",
    }
    held, window = closed.ratio(HELD, FAR), closed.of(WINDOW, "cost_usd").sum()
    rows = []
    for name, label in labels.items():
        i = closed.names.index(name)
        cost, loop = (closed.columns[each][:, i].sum() for each in ("cost_usd", "closed_usd"))
        lost = (
            100
            * closed.columns["irrecoverable"][:, i].sum()
            / closed.columns["requests"][:, i].sum()
        )
        rows.append(
            [label, f"{held[i]:.3f}", f"{cost / window:.2f}", f"{loop / window:.2f}", f"{lost:.1f}"]
        )
    return [
        f"## Paired differences at {MAIN_LIMIT:,} tokens",
        "`excerpt_memory()` minus the other strategy, on the same recordings, with 95 % intervals over "
        "clusters: the window; of all summaries and of all products, the one that holds most per cost; "
        "and a mask in batches. The [closed loop](closed-loop.md) adds what is fetched again.",
        markdown_table(heads, difference_rows(closed, rivals)),
        "## Ablation",
        "Held far recall, costs in both loops divided by the open cost of the window, and irrecoverable "
        f"needs per 100 requests, at {MAIN_LIMIT:,} tokens.",
        markdown_table(("variant", "held far", "open", "closed", "irrecoverable"), rows),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    page = write_page(given.paths, json.loads(given.weights.read_text(encoding="utf-8")))
    if given.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)

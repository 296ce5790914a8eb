"""Replay the claims of "The Complexity Trap" about masking: three tables of ``CLAIMS.md``.

``claims.py`` prints the tables or writes them into the page. The recordings are the data sets named in
``SCAFFOLDS`` and ``AGENTS``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ctxlab.evaluation.bootstrap import (
    MIN_CLUSTERS,
    RatioDifference,
    ratio_difference,
    ratio_interval,
)
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import Spec
from ctxlab.messages.types import Recording
from ctxlab.tokens.counter import TokenCounter

RAW, MASK = "full()", "complexity_trap.masking()"
SUMMARY, HYBRID = "complexity_trap.summary()", "complexity_trap.hybrid()"
CACHED = "gemini/gemini-2.5-flash"
"model whose cache rules are used; its prices are constants of this module, because price tables change"
TIERS = ((32_000, 1.0), (128_000, 1.8), (256_000, 3.0), (1_000_000, 6.0))
"""Maximum tokens of a request and USD per million input tokens: Qwen3-Coder-480B in the paper."""
FROM_CACHE, GEMINI_FROM_CACHE, GLM_FROM_CACHE = 0.4, 0.1, 0.11 / 0.6
"price of a cached token as a share of the full price: Qwen in the paper, Gemini now, and GLM-4.7"

SCAFFOLDS = ("mini-swe-agent", "openhands", "swe-agent")
AGENTS = (*SCAFFOLDS[:2], "claude-code-entireio", "pi-mono")
LENGTHS = (10, 20, 30, 50, 75, 100)
KEEPS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 58, 72, 100)
FLOOR = 0.95
SAMPLES = 10_000


def compute_tables() -> dict[str, str]:
    """Compute the tables: Markdown by name."""
    runs = {name: price_requests(name) for name in SCAFFOLDS}
    return {
        "cost": cost_table(runs, {name: tool_share(read(name)) for name in SCAFFOLDS}),
        "length": length_table(runs),
        "keep": keep_table(AGENTS),
    }


@cache
def read(name: str) -> tuple[Recording, ...]:
    """Load the recordings of a data set, without subagents, and skip malformed lines."""
    found = Spec(data=(f"dataset:{name}",), on_error="skip").recordings()
    return tuple(recording for recording in found if "parent" not in recording.meta)


@cache
def price_requests(name: str) -> pd.DataFrame:
    """Return one row per request of each strategy, with columns for its cost at each price list."""
    frame = run(read(name), [RAW, MASK, SUMMARY, HYBRID], CACHED).requests
    tokens, cached = frame["tokens"].to_numpy(), frame["cached"].to_numpy()
    limits, prices = np.array(TIERS).T
    tier = prices[np.searchsorted(limits, tokens, side="left")]
    frame["qwen"] = tier * (tokens - (1 - FROM_CACHE) * cached)
    frame["gemini"] = tokens - (1 - GEMINI_FROM_CACHE) * cached
    frame["glm"] = tokens - (1 - GLM_FROM_CACHE) * cached
    frame["number"] = frame.groupby(["recording", "strategy"], observed=True).cumcount() + 1
    return frame


def run(recordings: Sequence[Recording], strategies: Sequence[str], model: str) -> Results:
    """Replay recordings with a limit that is never reached, because masking does not depend on it."""
    return evaluate(recordings, strategies, 10**7, model, workers=1, progress=False)


PRICES = {
    "tokens": "no cache",
    "qwen": "as the paper prices Qwen",
    "gemini": "Gemini 2.5 Flash, ideal cache",
}


def tool_share(recordings: Sequence[Recording]) -> float:
    """Return the share of all tokens that are in tool results."""
    counter = TokenCounter(CACHED)
    roles = [m for each in recordings for m in each.messages]
    tool = sum(counter.count_message(m) for m in roles if m.role == "tool")
    return tool / sum(map(counter.count_message, roles))


def cost_table(runs: dict[str, pd.DataFrame], shares: dict[str, float]) -> str:
    """Return the table ``cost``: the cost of masking divided by the cost of the raw agent."""
    rows = []
    for name, frame in runs.items():
        raw = frame[frame["strategy"] == RAW]
        length = raw.groupby("recording", observed=True).size()
        rows.append(
            {
                "scaffold": name,
                "recordings": len(length),
                "requests": f"{length.median():.0f} (to {length.max()})",
                "in tool results": f"{shares[name]:.0%}",
                **{
                    title: _format_ratio(
                        compare_ratios(frame, column, "number", MASK, RAW, relative=True)
                    )
                    for column, title in PRICES.items()
                },
                "held far recall": _format_share(frame, "far_held", "far_arguments", MASK),
            }
        )
    return markdown(rows)


def length_table(runs: dict[str, pd.DataFrame]) -> str:
    """Return the table ``length``: the cost ratios for the first requests of long enough recordings."""
    rows = []
    for name, frame in runs.items():
        most = frame.groupby("recording", observed=True)["number"].transform("max")
        for length in LENGTHS:
            first = frame[(most >= length) & (frame["number"] <= length)]
            if first["cluster"].nunique() < MIN_CLUSTERS:
                continue
            found = {
                title: _format_ratio(
                    compare_ratios(first, column, "number", MASK, RAW, relative=True)
                )
                for column, title in PRICES.items()
            }
            count = first["recording"].nunique()
            rows.append({"scaffold": name, "first requests": length, "recordings": count, **found})
    return markdown(rows)


class KeepSearch(NamedTuple):
    """Results of masking with each value of ``KEEPS``."""

    results: Results
    above: np.ndarray[Any, Any]
    "held far values, of shape (clusters, values of keep)"
    below: np.ndarray[Any, Any]
    "far values, of the same shape"


@cache
def search_keep(name: str) -> KeepSearch:
    """Replay a data set with each value of ``KEEPS``."""
    results = run(read(name), [f"observation_mask(keep={keep})" for keep in KEEPS], CACHED)
    sums = results.runs.groupby(["cluster", "strategy"], observed=True, sort=False)
    order = list(results.leaderboard()["strategy"])
    above, below = (
        sums[column].sum().unstack()[order].to_numpy() for column in ("far_held", "far_arguments")
    )
    return KeepSearch(results, above, below)


def keep_table(names: Sequence[str]) -> str:
    """Return the table ``keep``: the smallest ``keep`` with a held far recall of at least ``FLOOR``."""
    rows = []
    for name in names:
        results, above, below = search_keep(name)
        board = results.leaderboard()
        ten = board.iloc[KEEPS.index(10)]
        low, high = np.quantile(draw_first(above, below), [0.025, 0.975], method="nearest")
        rows.append(
            {
                "scaffold": name,
                "clusters": len(above),
                "requests, median": f"{results.runs['requests'].median():.0f}",
                "held far recall at 10": _format_interval(
                    ten["recall_far_held"], ten["recall_far_held_low"], ten["recall_far_held_high"]
                ),
                f"smallest keep at {FLOOR}": _format_keep(
                    first_sufficient(board["recall_far_held"].to_numpy())
                ),
                "95 % of draws": f"{_format_keep(int(low))}–{_format_keep(int(high))}"
                if len(above) >= MIN_CLUSTERS
                else "–",
            }
        )
    return markdown(rows)


def draw_first(above: np.ndarray[Any, Any], below: np.ndarray[Any, Any]) -> list[int]:
    """Return the result of ``first_sufficient`` in each bootstrap resample of the clusters."""
    n = len(above)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=SAMPLES)
    with np.errstate(invalid="ignore"):
        return [first_sufficient(recall) for recall in (draws @ above) / (draws @ below)]


def first_sufficient(recall: np.ndarray[Any, Any]) -> int:
    """Return the index of the first recall of at least ``FLOOR``; the length if there is none."""
    return int(np.argmax([*(recall >= FLOOR), True]))


def _format_keep(row: int) -> str:
    return str(KEEPS[row]) if row < len(KEEPS) else f"over {KEEPS[-1]}"


def compare_ratios(
    frame: pd.DataFrame, above: str, below: str, one: str, other: str, *, relative: bool = False
) -> RatioDifference:
    """Return the difference of two ratios of sums, with its interval over clusters."""
    sums = frame.groupby(["strategy", "cluster"], observed=True, sort=False)[[above, below]].sum()
    a, b = sums.loc[one], sums.loc[other]
    b = b.loc[a.index]
    return ratio_difference(
        *(each[name].to_numpy(dtype=np.float64) for each in (a, b) for name in (above, below)),
        relative=relative,
    )


def _format_ratio(found: RatioDifference) -> str:
    """Format a relative difference as a ratio (the difference plus 1), with its interval."""
    return _format_interval(1 + found.estimate, 1 + found.low, 1 + found.high)


def _format_share(frame: pd.DataFrame, above: str, below: str, strategy: str) -> str:
    """Format a share with its interval over clusters, which ends at 0 and 1."""
    rows = frame[frame["strategy"] == strategy]
    sums = rows.groupby("cluster", observed=True, sort=False)[[above, below]].sum().to_numpy()
    top, bottom = sums[:, :1], sums[:, 1:]
    if not bottom.sum() > 0:
        return "–"
    low, high = ratio_interval(top, bottom)
    return _format_interval(top.sum() / bottom.sum(), low[0], high[0])


def _format_interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f}" + ("" if np.isnan(low) else f" ({low:.2f}–{high:.2f})")


def markdown(rows: Sequence[dict[str, object]]) -> str:
    def lines() -> Iterator[str]:
        yield "| " + " | ".join(rows[0]) + " |"
        yield "|" + "---|" * len(rows[0])
        for row in rows:
            yield "| " + " | ".join(map(str, row.values())) + " |"

    return "".join(f"{line}\n" for line in lines())

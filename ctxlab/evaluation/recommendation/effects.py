"""Measure what a strategy costs and forgets, compared with the default of a product.

Summaries of products are extracted without a model. The cost of the calls that would write them is
added: the request that is summarised, read from the prompt cache if the product sends it so that the
cache serves it (``Baseline.caches_summaries``), and 4,000 tokens of summary.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ctxlab.evaluation.bootstrap import RatioDifference, ratio_difference
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.verdict import ConfigurationKey
from ctxlab.strategies.baselines.common.compaction import MAX_SUMMARY_TOKENS
from ctxlab.tokens.models import find_model_without_warning

TOTAL_USD = "cost_usd_with_summaries"
"""Column of the runs: input cost, and the cost of the calls that write summaries."""
CLOSED_USD = "closed_usd_with_summaries"
"""Column of the runs: the same in the closed loop."""


RATES = ("overflow_rate", "newly_invalid_rate")
"""Scores that count requests that exceed the limit, or that only the strategy makes invalid."""


class Estimate(NamedTuple):
    """A figure with its 95 % interval over clusters."""

    value: float
    "measured value"
    low: float = math.nan
    "lower bound; nan with too few clusters"
    high: float = math.nan
    "upper bound; nan with too few clusters"


@dataclass(frozen=True)
class Effect:
    """Cost and recall of a strategy, compared with the default of the product."""

    strategy: str
    "strategy as a string"
    limit: float
    "limit in tokens, with those that no log contains"
    usd: float
    "input cost of 100 requests in USD, with the calls that write summaries"
    saved_usd: Estimate
    "what it saves per 100 requests against the default, in USD"
    saved_share: Estimate
    "the same as a share of the cost of the default"
    saved_share_of_recorded: Estimate
    "what it saves against the recorded requests, as a share of their cost"
    held_far: float
    "held far recall"
    held_far_change: Estimate
    "held far recall minus that of the default"
    refetches: float
    "calls that the agent repeats in the closed loop, per 100 requests"
    refetches_change: Estimate
    "the same minus that of the default"
    closed_saved_share: Estimate
    "what it saves in the closed loop, as a share of the cost of the default there"
    overflow_rate: float
    "share of the requests that exceed the limit less the reserve"
    changed_recordings: int
    "number of recordings whose cost differs from that under the default"
    detectable_share: float
    "smallest saving that the recordings could show, as a share of the cost of the default"


def add_summary_costs(results: Results, strategies: Collection[str], is_cached: bool) -> None:
    """Add to the table of runs the cost with the model calls that would write the summaries.

    Parameters
    ----------
    results : Results
        Evaluation of the strategies, under one limit each.
    strategies : collection of str
        Strategies that call a model for each summary, such as those of products.
    is_cached : bool
        True if the request that is summarised is read from the prompt cache.
    """
    runs, rows = results.runs, results.compactions
    entries = {each["recording"]: each for each in results.recordings}
    rows = rows[(rows["kind"] == "summary") & rows["strategy"].isin(list(strategies))]
    names = rows["recording"].astype(str)
    sizes = zip(names, rows["tokens_before"], strict=True)
    usd = [_summary_usd(entries[name], tokens, is_cached) for name, tokens in sizes]
    keys = ["recording", "strategy", "limit"]
    labels = [pd.Index(runs[key].astype(str)) for key in keys]
    sums = pd.Series(usd, rows.index, dtype=float).groupby([rows[key].astype(str) for key in keys])
    added = sums.sum().reindex(pd.MultiIndex.from_arrays(labels), fill_value=0.0).to_numpy()
    runs[TOTAL_USD] = runs["cost_usd"] + added
    if "closed_usd" in runs:
        runs[CLOSED_USD] = runs["closed_usd"] + added


def _summary_usd(entry: Mapping[str, Any], tokens: float, is_cached: bool) -> float:
    sent = tokens + max(entry["unlogged"] or 0, 0)
    rates = find_model_without_warning(entry["counted_as"]).prices.rates_for(sent)
    per_token = rates.cache_read if is_cached else rates.input
    return float(sent * per_token + MAX_SUMMARY_TOKENS * rates.output)


def score_strategies(results: Results) -> pd.DataFrame:
    """Return the scores by which strategies are chosen.

    Parameters
    ----------
    results : Results
        Evaluation with ``add_summary_costs``.

    Returns
    -------
    pandas.DataFrame
        One row per limit and strategy: ``usd_per_100`` (cost of 100 requests), ``requests``, held far
        recall, the number of arguments it is based on, and ``RATES``.
    """
    names = (HEADLINE_SCORE, "far_arguments", *RATES)
    scores = {each.name: each for each in results.scores if each.name in names}
    columns = {column for score in scores.values() for column in score.run_columns}
    keys = ["limit", "strategy"]
    groups = results.runs.astype({"strategy": str}).groupby(keys, sort=False)
    sums = groups[[*({TOTAL_USD, "requests"} | columns)]].sum(min_count=1)
    found: dict[str, Any] = {
        "usd_per_100": 100 * sums[TOTAL_USD] / sums["requests"],
        "requests": sums["requests"],
    }
    for name in names:
        top, *bottom = (sums[column].to_numpy() for column in scores[name].run_columns)
        found[name] = scores[name].compute(top, *(bottom or [top]))
    return pd.DataFrame(found, sums.index)


def measure_effect(
    results: Results,
    key: ConfigurationKey,
    base: Results,
    default: ConfigurationKey,
    recorded: ConfigurationKey,
) -> Effect:
    """Compare a strategy with the default of a product and with the recorded requests.

    Parameters
    ----------
    results : Results
        Evaluation of the strategy in the closed loop, with ``add_summary_costs``.
    key : ConfigurationKey
        Limit and name of the strategy.
    base : Results
        Evaluation of the default and of ``recorded`` over the same recordings.
    default : ConfigurationKey
        Limit and name of the default.
    recorded : ConfigurationKey
        Limit and name of the strategy ``recorded``.

    Returns
    -------
    Effect
        Measurements and differences with their intervals.
    """

    def sums(of: Results, column: str, place: ConfigurationKey) -> FloatArray:
        found: FloatArray = of.cluster_sums(column, [place])[:, 0]
        return found

    def compare(
        top: str, bottom: str, other: ConfigurationKey = default, relative: bool = False
    ) -> RatioDifference:
        mine = sums(results, top, key), sums(results, bottom, key)
        theirs = sums(base, top, other), sums(base, bottom, other)
        return ratio_difference(*mine, *theirs, relative=relative)

    def ratio(top: str, bottom: str) -> float:
        above, below = (sums(results, column, key).sum() for column in (top, bottom))
        return float(above / below) if below else math.nan

    share = compare(TOTAL_USD, "requests", relative=True)
    return Effect(
        strategy=key[1],
        limit=key[0],
        usd=100 * ratio(TOTAL_USD, "requests"),
        saved_usd=_saving(compare(TOTAL_USD, "requests"), 100),
        saved_share=_saving(share),
        saved_share_of_recorded=_saving(compare(TOTAL_USD, "requests", recorded, relative=True)),
        held_far=ratio("far_held", "far_arguments"),
        held_far_change=_change(compare("far_held", "far_arguments")),
        refetches=100 * ratio("refetches", "requests"),
        refetches_change=_change(compare("refetches", "requests"), 100),
        closed_saved_share=_saving(compare(CLOSED_USD, "requests", relative=True)),
        overflow_rate=float(score_strategies(results).loc[[key]]["overflow_rate"].iloc[0]),
        changed_recordings=_count_changed(results, key, base, default),
        detectable_share=share.detectable,
    )


def _count_changed(
    results: Results, key: ConfigurationKey, base: Results, default: ConfigurationKey
) -> int:
    def costs(of: Results, place: ConfigurationKey) -> pd.Series[float]:
        runs = of.runs
        chosen = runs[(runs["limit"] == place[0]) & (runs["strategy"] == place[1])]
        return chosen.astype({"recording": str}).set_index("recording")[TOTAL_USD]

    mine, theirs = costs(results, key), costs(base, default)
    return int((~np.isclose(mine, theirs.reindex(mine.index), rtol=1e-9, atol=0)).sum())


def _change(found: RatioDifference, factor: float = 1) -> Estimate:
    return Estimate(*(factor * each for each in (found.estimate, found.low, found.high)))


def _saving(found: RatioDifference, factor: float = 1) -> Estimate:
    """Return a difference in cost as a saving; the subtraction from 0 avoids a negative zero."""
    return Estimate(*(0.0 - factor * each for each in (found.estimate, found.high, found.low)))

"""Paired comparison of strategies on the same requests.

Both strategies of a pair are replayed over the same recordings. Each difference has an interval from
resampled clusters and a p-value from a test that swaps the two strategies within clusters. Clusters
are used because the trials of a task depend on each other: four trials of one task count as one
cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import isclose
from typing import Any

import numpy as np
import pandas as pd

from ctxlab._utils.humanize import parse_quantity, split_limit
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, holm_correction, ratio_difference
from ctxlab.evaluation.comparison.report import Comparison, Configuration, format_difference
from ctxlab.evaluation.grid import StrategyLike
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.strategies import as_strategy, parse_strategy

DEFAULT_SCORES: tuple[str, ...] = (
    "tokens_mean",
    "cost_usd",
    "overflow_rate",
    "recall",
    HEADLINE_SCORE,
    "evidence_recall",
    "answer_containment",
    "survival_end",
    "exact",
    "f1",
    "contains",
    "agrees_both",
)
"""Scores that are compared by default, if they were measured."""

_Array = np.ndarray[Any, np.dtype[np.float64]]


def compare_strategies(
    results: Results,
    *strategies: StrategyLike,
    scores: Sequence[str] | str | None = None,
    margins: Mapping[str, float | str] | None = None,
    by: str | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare each pair of the chosen strategies of an evaluation.

    A score is compared on the requests for which both strategies have a value. For example, a question
    that has no reply under one of the strategies is excluded. P-values are adjusted by Holm's method
    for the number of comparisons of each score.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    *strategies : Strategy, str or callable
        Strategies to compare, such as ``"panic"`` or ``"panic @ 16k"``. A strategy without a limit
        is compared under each evaluated limit. All strategies are compared by default.
    scores : str or sequence of str, optional
        Scores to compare. By default, the measured scores of ``DEFAULT_SCORES``.
    margins : mapping of str to float or str, optional
        Margins by name of score, such as 0.05 or ``"5 %"``. The first strategy of a pair counts as
        not worse if the worse end of the interval is within the margin. The margin is an absolute
        difference for scores that are shares, and a relative difference for other scores.
    by : str, optional
        Property of recordings, such as ``format`` or ``model``. A separate comparison is made for
        the recordings with each value of the property.
    level : float, default 0.95
        Coverage of the intervals.
    resamples : int, default 10000
        Number of bootstrap resamples and of random swaps; 1000 or more.
    seed : int, default 0
        Seed of the random number generator.

    Returns
    -------
    Comparison
        Table with one row per pair of strategies and score.

    Raises
    ------
    SpecError
        If a strategy was not evaluated, a score was not measured, or an argument is not valid.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:3]
    >>> results = ctxlab.evaluate(recordings, ["panic()", "nothing"], 8000, workers=1)
    >>> found = ctxlab.compare_strategies(results, scores="tokens_mean", resamples=1000)
    >>> found.table[["a", "b", "score", "recordings"]].values.tolist()
    [['panic()', 'nothing()', 'tokens_mean', 3]]
    >>> bool(found.table["difference"][0] > 0)
    True
    """
    if not isinstance(results, Results):
        raise SpecError(f"expected the Results of evaluate, got {type(results).__name__}")
    if not 0 < level < 1 or resamples < 1000:
        raise SpecError(f"expected 0 < level < 1 and resamples >= 1000, got {level=}, {resamples=}")
    measured = {score.name: score for score in results.scores if score.how != "max"}
    allowed = {name: _parse_margin(name, margin) for name, margin in (margins or {}).items()}
    named = [scores] if isinstance(scores, str) else [*(scores or ())]
    if not named:
        board = results.leaderboard(resamples=1)
        named = [name for name in DEFAULT_SCORES if name in measured and board[name].notna().any()]
    chosen = dict.fromkeys([*named, *allowed])
    wanted = [measured[require_known("score", name, measured)] for name in chosen]
    compare = partial(_compare_score, level=level, resamples=resamples, seed=seed)
    pairs = _configuration_pairs(results, strategies)
    rows = []
    for kind, requests in _split_by_fact(results, by):
        for a, b in pairs:
            about: dict[str, Any] = {"kind": kind, "a": a.strategy, "b": b.strategy}
            about |= {"limit_a": a.limit, "limit_b": b.limit}
            sides = _align_requests(requests, a, b)
            for score in wanted:
                margin = allowed.get(score.name, np.nan)
                rows.append({**about, **compare(*sides, score), "margin": margin})
    table = pd.DataFrame(rows)
    tests = table.groupby("score", sort=False)["p"]
    table["p_holm"] = tests.transform(lambda p: holm_correction(p.to_numpy()))
    least = 2.0 * 0.5 ** table["clusters"].to_numpy(dtype=np.float64) * tests.transform("count")
    found = zip(table.itertuples(), least, strict=True)
    table["finding"] = [_describe_finding(row, level, least_p) for row, least_p in found]
    return Comparison(table if by else table.drop(columns="kind"), level)


def _parse_margin(name: str, margin: float | str) -> float:
    value = margin
    if isinstance(margin, str):
        number, unit = parse_quantity(margin) or (np.nan, "")
        value = number / 100 if unit else number
    if not float(value) >= 0:
        raise SpecError(f"margins: {name}: expected 0 or more, such as 0.02 or 5 %, got {margin!r}")
    return float(value)


def _split_by_fact(results: Results, by: str | None) -> Iterator[tuple[str, pd.DataFrame]]:
    requests = results.requests
    if by is None:
        yield "", requests
        return
    facts = results.recordings
    known = [key for key in ("format", "model", "source", "cluster") if key in facts[0]]
    require_known("property of recordings", by, known)
    kinds = {each["recording"]: str(each[by]) for each in facts}
    of = requests["recording"].astype(str).map(kinds)
    for kind in dict.fromkeys(of):
        yield kind, requests[of == kind]


def _configuration_pairs(
    results: Results, strategies: Sequence[StrategyLike]
) -> list[tuple[Configuration, Configuration]]:
    there = [Configuration(*each) for each in results.configurations]
    limits = list(dict.fromkeys(each.limit for each in there))
    names = dict.fromkeys(each.strategy for each in there)
    chosen = [_parse_choice(choice, there) for choice in strategies] or [(n, None) for n in names]
    for name, limit in chosen:
        if limit is not None and Configuration(name, limit) not in there:
            known = ", ".join(f"{each:g}" for each in limits)
            raise SpecError(
                f"{name} was not evaluated at limit {limit:g}; choose a limit from {known}"
            )
    # A strategy without a limit takes each evaluated limit in turn.
    pairs = []
    for one, two in combinations(chosen, 2):
        for limit in limits if None in (one[1], two[1]) else limits[:1]:
            a, b = (Configuration(name, limit if at is None else at) for name, at in (one, two))
            if a in there and b in there and a != b and (a, b) not in pairs:
                pairs.append((a, b))
    if not pairs:
        raise SpecError("nothing to compare; name two strategies, or one strategy at two limits")
    return pairs


def _parse_choice(choice: StrategyLike, there: Sequence[Configuration]) -> tuple[str, float | None]:
    """Parse a choice such as ``panic @ 16k`` into the strategy's name in the results and its limit."""
    choice = choice if isinstance(choice, str) else repr(as_strategy(choice))
    text, limit = split_limit(choice)
    if limit is not None:  # A fraction may be copied from the output, which rounds it.
        near = [each.limit for each in there if isclose(each.limit, limit, rel_tol=1e-3)]
        limit = near[0] if near else float(limit)
    names = dict.fromkeys(each.strategy for each in there)
    if text in names:
        return text, limit
    try:
        name = repr(parse_strategy(text))
    except SpecError:
        name = text
    return require_known("strategy of this evaluation", name, names), limit


def _align_requests(
    requests: pd.DataFrame, a: Configuration, b: Configuration
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the requests of two configurations, one table each, with rows in the same order."""
    sides = [requests[(requests["strategy"] == s) & (requests["limit"] == x)] for s, x in (a, b)]
    first, second = (side.set_index(["recording", "request"]) for side in sides)
    return first, second if first.index.equals(second.index) else second.loc[first.index]


def _compare_score(
    first: pd.DataFrame, second: pd.DataFrame, score: Score, level: float, resamples: int, seed: int
) -> dict[str, Any]:
    """Compare a score of two configurations, and return a row of ``Comparison.table``.

    Only the requests for which both configurations have a value are compared.
    """
    relative = score.unit != "share"
    pairs = [_numerators_denominators(side, score) for side in (first, second)]
    # A partial sum of money would be misleading; unknown values of other columns are skipped.
    told = [(below > 0) & ((score.unit == "USD") | ~np.isnan(above)) for above, below in pairs]
    both, either = told[0] & told[1], told[0] | told[1]
    columns = [each[both] for pair in pairs for each in pair]
    clusters = first["cluster"].cat
    codes, count = clusters.codes.to_numpy()[both], len(clusters.categories)
    sums = [np.bincount(codes, each, count).astype(np.float64) for each in columns]
    found = ratio_difference(*sums, relative=relative, level=level, resamples=resamples, seed=seed)
    totals = np.array([each.sum() for each in sums])
    value_a, value_b = score.compute(totals[::2], totals[1::2]).tolist()
    recordings = first.index.get_level_values("recording")[both]
    wins, ties, losses = _count_wins(recordings, columns, score)
    return {
        "score": score.name, "meaning": score.meaning, "unit": score.unit, "better": score.better,
        "relative": relative, "value_a": value_a, "value_b": value_b,
        # Two shares differ by at most 1, and no value falls by more than 100 %.
        "difference": found.estimate, "low": float(np.maximum(found.low, -1)),
        "high": found.high if relative else float(np.minimum(found.high, 1)),
        "p": found.p_value, "p_holm": np.nan, "effect": found.effect_size,
        "wins": wins, "ties": ties, "losses": losses, "recordings": wins + ties + losses,
        "clusters": found.clusters, "detectable": found.detectable,
        "left_out": int((either & ~both).sum()),
    }  # fmt: skip


def _numerators_denominators(requests: pd.DataFrame, score: Score) -> tuple[_Array, _Array]:
    """Return the numerators and the denominators of a score, one value per request."""
    numerators = requests[score.column].to_numpy(dtype=np.float64)
    if score.how == "sum" or not score.per:
        return numerators, np.ones(len(numerators))
    return numerators, requests[score.per].to_numpy(dtype=np.float64)


def _count_wins(by: pd.Index[Any], columns: Sequence[_Array], score: Score) -> tuple[int, int, int]:
    """Count the recordings in which the first strategy is better, equal and worse, in this order."""
    codes, names = pd.factorize(by)
    sums = [np.bincount(codes, each, len(names)) for each in columns]
    a, b = sums[::2] if score.how == "sum" else (sums[0] / sums[1], sums[2] / sums[3])
    gain = (a - b) * (-1 if score.better == "lower" else 1)
    gain = gain[~np.isnan(gain)]
    least = 1e-9 * np.nanmax(np.abs([a, b]), initial=0)
    wins, losses = int((gain > least).sum()), int((gain < -least).sum())
    return wins, len(gain) - wins - losses, losses


def _describe_finding(row: Any, level: float, least_p: float) -> str:
    """Describe a row of the comparison in a few words, such as ``better``.

    ``least_p`` is the smallest adjusted p-value that is possible with the row's number of clusters.
    """
    if np.isnan(row.p) or np.isnan(row.difference):
        return "unknown"
    parts = row.low > 0 or row.high < 0
    alike = np.isnan(row.low) and row.clusters >= MIN_CLUSTERS and row.difference != 0
    said = "unclear"
    if row.difference == 0 and row.p == 1 and np.isnan(row.low):
        said = "equal here"
    elif least_p > 1 - level or row.clusters < MIN_CLUSTERS:
        said = "too few"
    elif row.p_holm <= 1 - level and (parts or alike):  # Test and interval must agree.
        higher = row.difference > 0
        said = "higher" if higher else "lower"
        if row.better:
            said = "better" if higher == (row.better == "higher") else "worse"
    if np.isnan(row.margin) or np.isnan(row.low):
        return said
    worst, best = (row.high, row.low) if row.better == "lower" else (-row.low, -row.high)
    margin = format_difference(row, row.margin)[1:]
    if worst < row.margin:
        return f"{said}; not worse by {margin}"
    return f"{said}; {'worse by more than' if best > row.margin else 'may be worse by'} {margin}"

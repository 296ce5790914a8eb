"""Choose a strategy by its scores on a tuning set, and decide on a held-out set whether it holds.

A strategy is chosen if it is the cheapest that saves at least ``MIN_SAVING`` of the cost of the
product's default, keeps a minimum share of the default's held far recall, and exceeds the window and
makes requests invalid no more often than the default. The decision uses the point estimates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_share
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.recommendation.effects import RATES, Effect, Estimate
from ctxlab.evaluation.verdict import MIN_FAR_ARGUMENTS, Choice, ConfigurationKey
from ctxlab.strategies import Strategy

MIN_SAVING = 0.05
"""Smallest saving, as a share of the cost of the default, for which a setting is worth a change."""

Candidates: TypeAlias = Mapping[ConfigurationKey, Strategy]
"""Strategies by limit and name."""

_EQUAL_COST = 0.01
"of strategies whose costs differ by less than this share of the default's, the simplest is chosen"


def choose(
    trials: pd.DataFrame,
    candidates: Candidates,
    default: ConfigurationKey,
    min_recall: float,
    below: ConfigurationKey | None = None,
) -> Choice | None:
    """Return the cheapest strategy that saves enough and keeps enough, or the nearest to it.

    Parameters
    ----------
    trials : pandas.DataFrame
        Scores of all strategies, from ``score_strategies``.
    candidates : mapping of ConfigurationKey to Strategy
        Strategies to choose from.
    default : ConfigurationKey
        Default of the product.
    min_recall : float
        Minimum of the held far recall, as a share of that of the default.
    below : ConfigurationKey, optional
        The chosen strategy must cost less than this one.

    Returns
    -------
    Choice or None
        Limit and strategy. If none keeps enough, the one that keeps most of those that save enough.
        None if no strategy saves enough.
    """
    base, rows = _row(trials, default), trials.loc[list(candidates)]
    most = (1 - MIN_SAVING) * base["usd_per_100"]
    if below is not None:
        most = min(most, _row(trials, below)["usd_per_100"])
    fits = rows["usd_per_100"] < most
    for rate in RATES:
        fits &= rows[rate] <= base[rate]
    saving = rows[fits].sort_values("usd_per_100", kind="stable")
    if saving.empty:
        return None
    keeps = saving[saving[HEADLINE_SCORE] >= min_recall * base[HEADLINE_SCORE]]
    if keeps.empty:
        best = saving.sort_values(HEADLINE_SCORE, ascending=False, kind="stable").index[0]
        return Choice(best, qualifies=False)
    costs = keeps["usd_per_100"]
    equal = costs[costs <= costs.iloc[0] + _EQUAL_COST * base["usd_per_100"]]
    alike = [key for key in equal.index if key in candidates]
    key = min(alike, key=lambda key: len(getattr(candidates[key], "changes", ())))
    return Choice(key, qualifies=True)


def _row(trials: pd.DataFrame, key: ConfigurationKey) -> Any:
    return trials.loc[[key]].iloc[0]


def explain_rejection(effect: Effect, default: Effect, min_recall: float, name: str = "") -> str:
    """Say why a strategy that was chosen on a tuning set is not recommended.

    Parameters
    ----------
    effect : Effect
        Measurements of the strategy, on the held-out set if there is one.
    default : Effect
        Measurements of the default.
    min_recall : float
        Minimum of the held far recall, as a share of that of the default.
    name : str, default ""
        Name of the strategy in the sentence, such as a setting of the product.

    Returns
    -------
    str
        Sentence; an empty string if nothing speaks against the strategy.
    """
    name, saved = name or short_strategy(effect.strategy), effect.saved_share.value
    said = f"{name} saves {percent(saved)}"
    if not saved >= MIN_SAVING:
        there = f"saves only {percent(saved)}" if saved > 0 else f"costs {percent(-saved)} more"
        chosen = f"{name} saved enough on the recordings that chose it"
        return f"{chosen}, but {there} on those that measure it."
    if not effect.held_far >= min_recall * default.held_far:
        return (
            f"{said}, but keeps too little on the recordings that did not choose it: its "
            f"{HEADLINE_LABEL} is {format_share(effect.held_far)} instead of "
            f"{format_share(default.held_far)}."
        )
    if effect.overflow_rate > default.overflow_rate:
        return f"{said}, but exceeds the window more often than the default."
    if not effect.closed_saved_share.value > 0:
        return f"{said}, but costs more than the default if the agent fetches again what it lacks."
    return ""


def explain_no_choice(
    count: int, nearest: Effect | None, default: Effect, min_recall: float, name: str = ""
) -> str:
    """Say that no setting of a product saves enough and keeps enough.

    Parameters
    ----------
    count : int
        Number of settings that were tried, without the default.
    nearest : Effect, optional
        Measurements of the setting that keeps most of those that save enough; None if there is none.
    default : Effect
        Measurements of the default.
    min_recall : float
        Minimum of the held far recall, as a share of that of the default.
    name : str, default ""
        The nearest setting, as the product writes it.

    Returns
    -------
    str
        Sentence.
    """
    if not count:
        return "It lets its user set nothing that could be tried."
    if nearest is None:
        return f"None of {count} other settings saves {percent(MIN_SAVING)}."
    name = name or short_strategy(nearest.strategy)
    return (
        f"None of {count} other settings saves {percent(MIN_SAVING)} and keeps {min_recall:g} of its "
        f"{HEADLINE_LABEL} on the recordings that choose. The nearest, {name}, saves "
        f"{format_saving(nearest.saved_share)} and has {format_share(nearest.held_far)} instead of "
        f"{format_share(default.held_far)} on those that measure."
    )


def explain_few_arguments(trials: pd.DataFrame) -> str:
    """Say that the recordings do not tell what a strategy forgets.

    Parameters
    ----------
    trials : pandas.DataFrame
        Scores of all strategies.

    Returns
    -------
    str
        Sentence; an empty string if there are enough arguments of tool calls to compute recall from.
    """
    far = float(trials["far_arguments"].max())
    if far >= MIN_FAR_ARGUMENTS:
        return ""
    arguments = pluralize(round(far), "argument")
    return (
        f"Its {HEADLINE_LABEL} is based on {arguments} of tool calls, too few to tell what a setting "
        "forgets."
    )


def percent(share: float) -> str:
    """Format a share as a percentage.

    Parameters
    ----------
    share : float
        Share, which may be negative.

    Returns
    -------
    str
        Percentage without decimals.

    Examples
    --------
    >>> percent(0.234), percent(-0.001), percent(-0.2)
    ('23 %', '0 %', '−20 %')
    """
    text = f"{100 * abs(share):.0f}"
    return f"{'−' if share < 0 and text != '0' else ''}{text} %"


def format_saving(found: Estimate) -> str:
    """Format a share that is saved as a percentage with its interval.

    Parameters
    ----------
    found : Estimate
        Share with its interval.

    Returns
    -------
    str
        Percentage, followed by the interval if there is one.

    Examples
    --------
    >>> format_saving(Estimate(0.2, 0.1, 0.3)), format_saving(Estimate(0.2))
    ('20 % (95 %: 10 % to 30 %)', '20 %')
    """
    said = percent(found.value)
    if math.isnan(found.low):
        return said
    return f"{said} (95 %: {percent(found.low)} to {percent(found.high)})"


def is_better(rival: Effect, chosen: Effect | None, default: Effect, min_recall: float) -> bool:
    """Return whether a portable strategy saves more than the recommended setting, and keeps enough.

    Parameters
    ----------
    rival : Effect
        Measurements of the portable strategy.
    chosen : Effect, optional
        Measurements of the recommended setting; None if the default is kept.
    default : Effect
        Measurements of the default.
    min_recall : float
        Minimum of the held far recall, as a share of that of the default.

    Returns
    -------
    bool
        True if it saves more in both replays, nothing speaks against it, and the interval of its
        saving does not contain 0.
    """
    if explain_rejection(rival, default, min_recall) or rival.saved_share.low <= 0:
        return False
    return chosen is None or (
        rival.saved_share.value > chosen.saved_share.value
        and rival.closed_saved_share.value > chosen.closed_saved_share.value
    )

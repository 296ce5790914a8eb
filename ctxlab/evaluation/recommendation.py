"""Recommend the cheapest strategy that keeps enough far recall, in one sentence.

Far recall is the share of needs in view among those that were last mentioned more than 4,000 tokens
earlier. A strategy qualifies if all of its requests fit the limit, and if the provider would reject
its requests no more often than those of the full history. Controls never qualify. The decision uses
the point estimates. The sentence also reports the interval of far recall.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ctxlab.strategies.registry import CONTROLS

_REQUIRED_COLUMNS = frozenset({"recall_far", "cost_usd", "overflow_rate", "invalid_rate"})
_ROUNDING_TOLERANCE = 1e-12
_MIN_FAR_ARGUMENTS = 10
"""minimum number of arguments of tool calls with a far need for a recommendation; far recall computed
from fewer arguments is not reliable"""
_MAX_FALLBACK_RATE = 0.05
"the verdict mentions the share of fallbacks among a strategy's summaries if it exceeds this"


def control_name(strategy: str) -> str:
    """Return the name of the first control (reference strategy) in a strategy or pipeline.

    ``full`` is a control only if it is the whole strategy, because it changes nothing in a pipeline.

    Parameters
    ----------
    strategy : str
        Strategy as a string, such as ``"oracle() | panic()"``.

    Returns
    -------
    str
        Name of the control; an empty string if the strategy contains no control.

    Examples
    --------
    >>> control_name("oracle() | panic()"), control_name("full()"), control_name("full() | panic()")
    ('oracle', 'full', '')
    """
    steps = [step.split("(")[0].strip() for step in strategy.split(" | ")]
    found = [step for step in steps if step in CONTROLS and (step != "full" or len(steps) == 1)]
    return found[0] if found else ""


def control_names(leaderboard: pd.DataFrame) -> pd.Series[str]:
    """Return the name of the control in the strategy of each leaderboard row.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard with the column ``strategy``.

    Returns
    -------
    pandas.Series of str
        Names as ``control_name`` returns them; empty strings for strategies without a control.
    """
    return leaderboard["strategy"].map(control_name)


def usable_rows(leaderboard: pd.DataFrame) -> pd.Series[bool]:
    """Find the leaderboard rows whose requests fit the limit and would be accepted by the provider.

    A row is usable if none of its requests overflows, and if the provider would reject its requests
    no more often than those of the full history.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation. If it has no column ``overflow_rate`` or ``invalid_rate``,
        the condition on this column is not checked.

    Returns
    -------
    pandas.Series of bool
        True for each usable row.
    """
    full = control_names(leaderboard) == "full"
    fit = pd.Series(True, index=leaderboard.index)
    if "overflow_rate" in leaderboard:
        fit &= leaderboard["overflow_rate"] <= 0
    if "invalid_rate" in leaderboard:
        accepted = leaderboard.loc[full, "invalid_rate"].max() if full.any() else 0.0
        fit &= leaderboard["invalid_rate"] <= accepted + _ROUNDING_TOLERANCE
    return fit


def qualifying_rows(leaderboard: pd.DataFrame, min_recall: float = 0.95) -> pd.DataFrame:
    """Return the leaderboard rows that qualify for a recommendation, cheapest first.

    A row qualifies if it is usable (see ``usable_rows``), is not a control and keeps enough far
    recall.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation.
    min_recall : float, default 0.95
        Minimum far recall, as a share of the far recall of full history.

    Returns
    -------
    pandas.DataFrame
        Qualifying rows; empty if none qualifies or the data does not support a recommendation.
    """
    if _no_verdict_reason(leaderboard):
        return leaderboard.iloc[:0]
    control = control_names(leaderboard)
    full = leaderboard[control == "full"]
    goal = min_recall * (float(full["recall_far"].max()) if len(full) else 1.0)
    usable = leaderboard[usable_rows(leaderboard) & (control == "")]
    keeps = usable[usable["recall_far"] >= goal - _ROUNDING_TOLERANCE]
    return keeps.sort_values(["cost_usd", "tokens_mean"], kind="stable")


def leaderboard_verdict(leaderboard: pd.DataFrame, min_recall: float = 0.95) -> str:
    """Recommend a strategy of a leaderboard in one sentence.

    Parameters
    ----------
    leaderboard : pandas.DataFrame
        Leaderboard of an evaluation.
    min_recall : float, default 0.95
        Minimum far recall, as a share of the far recall of full history.

    Returns
    -------
    str
        Sentence that names the cheapest qualifying strategy. If none qualifies, it names the
        strategy with the highest far recall or says why there is no recommendation.
    """
    if said := _no_verdict_reason(leaderboard):
        return said
    control = control_names(leaderboard)
    chosen = leaderboard[control == ""]
    usable = chosen[usable_rows(leaderboard)[control == ""]]
    goal = f"at least {min_recall:g} times the far recall of full history"
    if usable.empty:
        fitting = chosen[chosen["overflow_rate"] <= 0]
        why = "every strategy exceeds its limit at some request"
        if len(fitting):
            refused = fitting["invalid_rate"].min()
            why = f"the provider would reject at least {refused:.0%} of the requests of each that fits"
        return f"No strategy has {goal}: {why}."
    keeps = qualifying_rows(leaderboard, min_recall)
    if keeps.empty:
        best, saving = usable.sort_values("recall_far", kind="stable").iloc[-1], ""
        verdict = f"No strategy has {goal}; the nearest is"
    else:
        best, verdict = keeps.iloc[0], f"The cheapest strategy with {goal} is"
        saving = _format_saving(best, leaderboard[control == "full"])
    chance = _random_drop_warning(best, leaderboard[control == "random_drop"])
    return f"{verdict} {_format_row(best)}{saving}{chance}{_fallback_warning(best)}."


def _no_verdict_reason(board: pd.DataFrame) -> str:
    """Return the reason why the data supports no recommendation, or an empty string."""
    if not set(board) >= _REQUIRED_COLUMNS:
        return "No recommendation: it needs the metrics usage, validity, cost and recall."
    far = board["far_arguments"].max()
    if not far > 0:
        return (
            "No tool call uses anything last mentioned more than 4,000 tokens earlier, so far recall "
            "cannot compare the strategies."
        )
    if far < _MIN_FAR_ARGUMENTS:
        return f"Far recall is based on {far:,.0f} arguments, too few to compare strategies."
    control = control_names(board)
    if (control != "").all():
        return "Only controls were compared, which are never recommended."
    full = board[control == "full"]
    if len(full) and not full["overflow_rate"].max() > 0:
        return "Full history fits at every request under every limit, so no strategy is needed."
    return ""


def format_limit(limit: float) -> str:
    """Format a limit as words for a sentence.

    Parameters
    ----------
    limit : float
        Number of tokens, or a fraction of the recording's length if at most 1.

    Returns
    -------
    str
        Limit in words, such as ``"8,000 tokens"``.

    Examples
    --------
    >>> format_limit(8000), format_limit(0.25)
    ('8,000 tokens', '25% of the recording')
    """
    return f"{limit:.0%} of the recording" if limit <= 1 else f"{limit:,.0f} tokens"


def _format_row(row: Any) -> str:
    window = format_limit(row["limit"])
    low, high = row["recall_far_low"], row["recall_far_high"]
    bounds = "too few clusters for an interval" if pd.isna(low) else f"{low:.2f}–{high:.2f}"
    cost = f"${row['cost_usd']:,.2f}" if row["cost_usd"] > 0 else "at no known price"
    return f"{row['strategy']} at {window}: far recall {row['recall_far']:.2f} ({bounds}), {cost}"


def _format_saving(row: Any, full: pd.DataFrame) -> str:
    """Format how much less or more a strategy costs than sending the full history."""
    if full.empty or not full["cost_usd"].max() > 0 or pd.isna(row["cost_usd"]):
        return ""
    share = 1 - row["cost_usd"] / full["cost_usd"].max()
    more = "less" if share >= 0 else "more"
    return f", {abs(share):.0%} {more} than the full history would cost if it fitted"


def _random_drop_warning(row: Any, random: pd.DataFrame) -> str:
    """Return a warning if ``random_drop`` reaches the row's far recall; else an empty string."""
    rival = random.loc[random["limit"] == row["limit"], "recall_far"].max()
    if not rival >= row["recall_far"]:
        return ""
    return f"; its far recall is no better than that of random_drop at this limit ({rival:.2f})"


def _fallback_warning(row: Any) -> str:
    """Return a warning if too many summaries were made without the model; else an empty string."""
    share = row.get("fallback_rate", 0.0)
    if not share > _MAX_FALLBACK_RATE:
        return ""
    return f"; {share:.0%} of its summaries are fallbacks, made without its model"

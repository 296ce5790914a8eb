"""A verdict is one sentence: the cheapest strategy that keeps what is needed, or that none does.

It counts only strategies that fit their limit at every request and that providers accept as often as the
recordings themselves, and never a control.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ctxlab.strategies.names import CONTROLS

__all__ = ["control_of", "fits", "verdict"]

_NEEDED = frozenset({"recall_far", "cost_usd", "overflow_rate", "invalid_rate"})
_ROUNDING = 1e-12


def control_of(board: pd.DataFrame) -> pd.Series[str]:
    """For each row of a leaderboard the name of the control that it is; empty where it is none."""
    name = board["strategy"].str.replace(r"\(.*", "", regex=True)
    alone = ~board["strategy"].str.contains("|", regex=False)
    return name.where(name.isin(CONTROLS) & alone, "")


def fits(board: pd.DataFrame) -> pd.Series[bool]:
    """Which rows never overflow and are refused no more often than the recordings themselves."""
    full = control_of(board) == "full"
    fit = pd.Series(True, index=board.index)
    if "overflow_rate" in board:
        fit &= board["overflow_rate"] <= 0
    if "invalid_rate" in board:
        accepted = board.loc[full, "invalid_rate"].max() if full.any() else 0.0
        fit &= board["invalid_rate"] <= accepted + _ROUNDING
    return fit


def verdict(board: pd.DataFrame, floor: float = 0.95) -> str:
    """The sentence for a leaderboard; ``floor`` is a share of full history's far recall."""
    if not set(board) >= _NEEDED:
        return "Not all of usage, validity, cost and recall were measured: nothing to recommend."
    if not board["far_arguments"].max() > 0:
        return (
            "Nothing that these agents used had last been said long before, so far recall cannot tell "
            "the strategies apart."
        )
    full = board[control_of(board) == "full"]
    reference = full["recall_far"].max() if len(full) else 1.0
    usable = board[fits(board) & (control_of(board) == "")]
    goal = f"keeps far recall at or above {floor:g} of full history's"
    if usable.empty:
        return f"No strategy {goal}: none fits its limit at every request."
    keeps = usable[usable["recall_far"] >= floor * reference - _ROUNDING]
    if keeps.empty:
        nearest = usable.sort_values("recall_far", kind="stable").iloc[-1]
        return f"No strategy {goal}; the nearest is {_row(nearest)}."
    best = keeps.sort_values(["cost_usd", "tokens_mean"], kind="stable").iloc[0]
    return f"The cheapest strategy that {goal} is {_row(best)}{_saved(best, full)}."


def _row(row: Any) -> str:
    limit = row["limit"]
    window = f"{limit:.0%} of the recording" if limit <= 1 else f"{limit:,.0f} tokens"
    bounds = f"{row['recall_far_low']:.2f}–{row['recall_far_high']:.2f}"
    recall = f"far recall {row['recall_far']:.2f} ({bounds})"
    return f"{row['strategy']} at {window}: {recall}, ${row['cost_usd']:,.2f}"


def _saved(row: Any, full: pd.DataFrame) -> str:
    if full.empty or not full["cost_usd"].max() > 0:
        return ""
    share = 1 - row["cost_usd"] / full["cost_usd"].max()
    return f", {abs(share):.0%} {'less' if share >= 0 else 'more'} than full history"

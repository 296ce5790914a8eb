"""A verdict is one sentence: the cheapest strategy that keeps what is needed, or that none does.

It counts only strategies that fit their limit at every request and that providers accept as often as the
recordings themselves, and never a control. It goes by the figure itself; the interval stands beside it.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ctxlab.strategies.registry import CONTROLS

__all__ = ["control_in", "control_of", "fits", "keeping", "verdict", "window_of"]

_NEEDED = frozenset({"recall_far", "cost_usd", "overflow_rate", "invalid_rate"})
_ROUNDING = 1e-12
_FEW = 10
"arguments, below which a far recall is an anecdote"
_MANY = 0.05
"share of what a model was to write that was made without it, above which the verdict says so"


def control_in(strategy: str) -> str:
    """The control that a strategy, as text, is or is built on; empty where it is none.

    ``full`` in a pipeline adds nothing and makes no control of it.

    >>> control_in("oracle() | panic()"), control_in("full()"), control_in("full() | panic()")
    ('oracle', 'full', '')
    """
    steps = [step.split("(")[0].strip() for step in strategy.split(" | ")]
    found = [step for step in steps if step in CONTROLS and (step != "full" or len(steps) == 1)]
    return found[0] if found else ""


def control_of(board: pd.DataFrame) -> pd.Series[str]:
    """``control_in`` for each row of a leaderboard."""
    return board["strategy"].map(control_in)


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


def keeping(board: pd.DataFrame, floor: float = 0.95) -> pd.DataFrame:
    """The rows that keep ``floor`` of full history's far recall and could be taken, cheapest first.

    None where a verdict names none.
    """
    if _silence(board):
        return board.iloc[:0]
    usable = board[fits(board) & (control_of(board) == "")]
    keeps = usable[usable["recall_far"] >= floor * _reference(board) - _ROUNDING]
    return keeps.sort_values(["cost_usd", "tokens_mean"], kind="stable")


def verdict(board: pd.DataFrame, floor: float = 0.95) -> str:
    """The sentence for a leaderboard; ``floor`` is a share of full history's far recall."""
    if said := _silence(board):
        return said
    control = control_of(board)
    chosen = board[control == ""]
    usable = chosen[fits(board)[control == ""]]
    goal = f"keeps far recall at or above {floor:g} of full history's"
    if usable.empty:
        fitting = chosen[chosen["overflow_rate"] <= 0]
        why = "none fits its limit at every request"
        if len(fitting):
            refused = fitting["invalid_rate"].min()
            why = f"of those that fit, providers would refuse {refused:.0%} of requests or more"
        return f"No strategy {goal}: {why}."
    keeps = keeping(board, floor)
    if keeps.empty:
        nearest = usable.sort_values("recall_far", kind="stable").iloc[-1]
        chance = _chance(nearest, board[control == "random_drop"])
        return f"No strategy {goal}; the nearest is {_row(nearest)}{chance}{_without(nearest)}."
    best = keeps.iloc[0]
    chance = _chance(best, board[control == "random_drop"])
    row = f"{_row(best)}{_saved(best, board[control == 'full'])}{chance}{_without(best)}"
    return f"The cheapest strategy that {goal} is {row}."


def _silence(board: pd.DataFrame) -> str:
    """Why nothing can be recommended, whatever is compared; empty where something can."""
    if not set(board) >= _NEEDED:
        return "Not all of usage, validity, cost and recall were measured: nothing to recommend."
    if not board["far_arguments"].max() > 0:
        return (
            "Nothing that these agents used had last been said long before, so far recall cannot tell "
            "the strategies apart."
        )
    if board["far_arguments"].max() < _FEW:
        return (
            f"Far recall rests on {board['far_arguments'].max():,.0f} arguments: too little to tell the "
            "strategies apart."
        )
    control = control_of(board)
    if (control != "").all():
        return "Only controls were compared, which are never recommended."
    full = board[control == "full"]
    if len(full) and not full["overflow_rate"].max() > 0:
        return "Full history fits at every request under every limit: nothing needs to be left out."
    return ""


def _reference(board: pd.DataFrame) -> float:
    """Far recall of full history; all of it where that was not compared."""
    full = board[control_of(board) == "full"]
    return float(full["recall_far"].max()) if len(full) else 1.0


def window_of(limit: float) -> str:
    """A limit in words.

    >>> window_of(8000), window_of(0.25)
    ('8,000 tokens', '25% of the recording')
    """
    return f"{limit:.0%} of the recording" if limit <= 1 else f"{limit:,.0f} tokens"


def _row(row: Any) -> str:
    window = window_of(row["limit"])
    low, high = row["recall_far_low"], row["recall_far_high"]
    bounds = "too few clusters for an interval" if pd.isna(low) else f"{low:.2f}–{high:.2f}"
    cost = f"${row['cost_usd']:,.2f}" if row["cost_usd"] > 0 else "at no known price"
    return f"{row['strategy']} at {window}: far recall {row['recall_far']:.2f} ({bounds}), {cost}"


def _saved(row: Any, full: pd.DataFrame) -> str:
    """What it saves beside full history, which would not even fit."""
    if full.empty or not full["cost_usd"].max() > 0 or pd.isna(row["cost_usd"]):
        return ""
    share = 1 - row["cost_usd"] / full["cost_usd"].max()
    more = "less" if share >= 0 else "more"
    return f", {abs(share):.0%} {more} than full history if that fitted"


def _chance(row: Any, random: pd.DataFrame) -> str:
    """A warning where a random drop to the same limit recalls as much."""
    rival = random.loc[random["limit"] == row["limit"], "recall_far"].max()
    if not rival >= row["recall_far"]:
        return ""
    return f", which is no better than a random drop to the same limit ({rival:.2f})"


def _without(row: Any) -> str:
    """A warning where the figures are not those of the model that the strategy names."""
    share = row.get("fallback_rate", 0.0)
    if not share > _MANY:
        return ""
    return f"; {share:.0%} of what its model was to write was made without it"

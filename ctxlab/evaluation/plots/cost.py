"""Plots of cost: what a replay is billed for, and the cost of strategies when forgetting is paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctxlab._utils.numbers import describe_limit, format_usd
from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.plots.base import (
    choose_limit,
    color_of,
    draw_stack,
    finish,
    make_axes,
    place_legend,
    quiet_color,
    say_nothing,
)
from ctxlab.evaluation.verdict import control_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ctxlab.evaluation.replay import Replay
    from ctxlab.evaluation.results import Results

_ENTRIES = {
    "cache_read": "read from the prompt cache",
    "cache_write": "written to the cache",
    "uncached": "uncached input",
    "strategy": "the strategy's own calls",
}
_HATCHES = ("", "//", "..", "xx")


def plot_cost(replay: Replay, *, ax: Axes | None = None) -> Axes:
    """Plot the input cost of a recording as it adds up, by what the provider bills.

    Parameters
    ----------
    replay : Replay
        Replay of one recording.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> ax = ctxlab.plot_cost(ctxlab.replay(recording, "sliding_window()", 8000))
    >>> ax.get_ylabel()
    'input cost so far (USD)'
    """
    ax = make_axes(ax)
    ledger = replay.ledger
    if ledger.empty:
        return say_nothing(ax, "The recording contains no model call, so nothing is billed.")
    if ledger.isna().to_numpy().any():
        name = replay.prepared.model.name
        return say_nothing(ax, f"The prices of {name} are unknown; pass model= to replay.")
    totals = ledger.sum()
    shown = [name for name in _ENTRIES if totals[name] > 0]
    labels = [_ENTRIES[name] for name in shown]
    colors = [color_of(ax, number) for number in range(len(shown))]
    draw_stack(ax, ledger[shown].cumsum().to_numpy(), labels, colors, _HATCHES)
    ax.set_xlabel("request")
    ax.set_ylabel("input cost so far (USD)")
    strategy = short_strategy(repr(replay.trace.strategy))
    limit = describe_limit(float(replay.trace.budget.limit))
    ax.set_title(f"{strategy} within {limit}", loc="left", fontsize="medium")
    place_legend(ax)
    parts = ", ".join(f"{_ENTRIES[name]} ${format_usd(totals[name])}" for name in shown)
    return finish(ax, f"Input cost of {strategy} within {limit}: {parts}.")


def plot_equal_knowledge(
    results: Results, *, limit: float | str | None = None, ax: Axes | None = None
) -> Axes:
    """Plot what each strategy costs if the agent fetches again what it needs and no longer holds.

    The bar is the cost of the recorded requests; the hatched part is what fetching again adds, and the
    number is the needs per 100 requests that no call returns. The cost is a share of the full history's.

    Parameters
    ----------
    results : Results
        Results of ``evaluate(…, closed_loop=True)``.
    limit : float or str, optional
        Limit to show; the smallest one if left out.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Raises
    ------
    SpecError
        If the closed loop was not measured, or the limit was not evaluated.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:1]
    >>> strategies = ["full", "sliding_window()", "rolling_summary | panic"]
    >>> results = ctxlab.evaluate(recordings, strategies, 8000, closed_loop=True)
    >>> len(ctxlab.plot_equal_knowledge(results).get_yticklabels())
    3
    """
    board = results.leaderboard()
    if "closed_usd" not in board:
        raise SpecError("expected results with closed_loop=True; evaluate again with it")
    chosen = choose_limit(board["limit"], limit)
    board = board.assign(control=control_names(board))
    board = board[(board["limit"] == chosen) & board["closed_usd"].notna()]
    board = board[board["control"].isin(["", "full"])].sort_values("closed_usd", ascending=False)
    ax = make_axes(ax, 7.5, 1.4 + 0.34 * max(3, len(board)))
    if board.empty:
        return say_nothing(ax, "The prices of the model are unknown; pass model= to evaluate.")
    full = board.loc[board["control"] == "full", "cost_usd"]
    unit = float(full.iloc[0]) if len(full) else 1.0
    places = np.arange(len(board))
    open_cost = (board["cost_usd"] / unit).to_numpy()
    closed = (board["closed_usd"] / unit).to_numpy()
    ax.barh(places, np.minimum(open_cost, closed), color=color_of(ax, 0), height=0.66,
            label="as recorded")  # fmt: skip
    ax.barh(places, np.maximum(closed - open_cost, 0), left=np.minimum(open_cost, closed),
            color=color_of(ax, 1), hatch="//", edgecolor=ax.get_facecolor(), lw=0, height=0.66,
            label="fetching again")  # fmt: skip
    for place, end, rate in zip(places, closed, board["irrecoverable_rate"], strict=True):
        ax.annotate(f"{100 * rate:.2g} lost for good", (end, place), (4, 0), va="center",
                    textcoords="offset points", color=quiet_color(ax), fontsize="small")  # fmt: skip
    ax.set_yticks(places, [short_strategy(name) for name in board["strategy"]], fontsize="small")
    ax.margins(x=0.22)
    ax.set_xlabel("cost as a share of the full history's" if len(full) else "cost (USD)")
    title = f"within {describe_limit(chosen)}; lost for good: needs per 100 requests"
    ax.set_title(title, loc="left", fontsize="medium")
    place_legend(ax)
    cheapest = short_strategy(board["strategy"].iloc[-1])
    return finish(ax, f"Cost at equal knowledge, {title}. Cheapest: {cheapest}.", grid="x")

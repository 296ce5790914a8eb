"""Survival plot: the share of inserted canaries in view, for example by rounds of compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from ctxlab._utils.numbers import describe_limit, format_share
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.plots.base import (
    choose_limit,
    draw_shares,
    finish,
    line_look,
    make_axes,
    place_legend,
    quiet_color,
    say_nothing,
)
from ctxlab.evaluation.survival import SurvivalResults
from ctxlab.evaluation.verdict import control_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXIS_LABELS = {
    "round": "rounds of compaction since the canary was inserted",
    "distance": "tokens since the canary was inserted",
    "depth": "depth at which the canary was inserted (share of the text)",
}
_MARKERS = ("o", "s", "^", "D")


def plot_survival(
    survival: SurvivalResults,
    by: str = "round",
    *,
    limit: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of canaries in view, with intervals and one line per strategy.

    A hollow point is based on fewer than five clusters and therefore has no interval. Controls are
    grey.

    Parameters
    ----------
    survival : SurvivalResults
        Results of ``measure_survival``.
    by : str, default "round"
        Quantity on the x-axis. ``round``: rounds of compaction since the canary was inserted.
        ``distance``: number of tokens since then. ``depth``: position of the canary as a share of the
        text. With ``depth``, only the last request of each recording counts.
    limit : float, optional
        Limit to show. Required if several limits were evaluated.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Raises
    ------
    SpecError
        If ``limit`` was not evaluated, or is None although several limits were evaluated.
    UnknownName
        If ``by`` is not one of the three quantities.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.measure_survival([recording], ["panic()", "full"], 8000, workers=1)
    >>> axes = ctxlab.plot_survival(found, by="depth")
    >>> axes.get_xlabel()
    'depth at which the canary was inserted (share of the text)'
    """
    if not isinstance(survival, SurvivalResults):
        raise SpecError(
            f"expected SurvivalResults, got {type(survival).__name__}; use plot_frontier for Results"
        )
    require_known("x-axis", by, _AXIS_LABELS)
    board = survival.breakdown(by)
    known = list(dict.fromkeys(board["limit"]))
    if limit not in known and (limit is not None or len(known) > 1):
        told = ", ".join(f"{value:g}" for value in known)
        raise SpecError(f"limit: expected an evaluated limit, got {limit}; choose one of {told}")
    chosen = known[0] if limit is None else limit
    board = board[board["limit"] == chosen]
    ax = make_axes(ax)
    values = list(dict.fromkeys(board[by].sort_values()))
    figure = "survival_end" if by == "depth" else "survival"
    usual = [s for s in board["strategy"].unique() if not control_name(s)]
    for strategy, rows in board.groupby("strategy", sort=False):
        number = usual.index(strategy) if strategy in usual else None
        _draw_strategy(ax, str(strategy), rows, [values.index(v) for v in rows[by]], figure, number)
    ax.set_xticks(range(len(values)), [v if isinstance(v, str) else f"{v:g}" for v in values])
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel(_AXIS_LABELS[by])
    ax.set_ylabel("share of canaries in view (availability)")
    clusters = survival.results.cluster_count
    counted = f"{survival.canary_count:,} canaries, {clusters} clusters"
    title = f"{counted}, within {describe_limit(chosen)}; off-policy replay"
    ax.set_title(title, loc="left", fontsize="medium")
    place_legend(ax)
    return finish(ax, f"Share of canaries in view by {_AXIS_LABELS[by]}. {title}.")


def _draw_strategy(
    ax: Axes, strategy: str, rows: pd.DataFrame, places: list[int], figure: str, number: int | None
) -> None:
    """Draw the line, the points and the intervals of one strategy."""
    look: dict[str, Any] = {"color": quiet_color(ax), "ls": ":", "lw": 1.0}
    mark = "."
    if number is not None:
        look, mark = line_look(ax, number), _MARKERS[number % len(_MARKERS)]
    share = rows[figure].to_numpy()
    ax.plot(places, share, label=short_strategy(strategy), gid=strategy, **look)
    few = (rows["clusters"] < MIN_CLUSTERS).to_numpy()
    for place, value, hollow in zip(places, share, few, strict=True):
        fill = ax.get_facecolor() if hollow else look["color"]
        ax.plot(place, value, mark, ms=5, mfc=fill, mec=look["color"], zorder=3)
    if number is not None:
        # Shift the intervals sideways, so that intervals of different strategies do not overlap.
        beside = [place + 0.05 * (number % 6 - 2.5) for place in places]
        low, high = rows[f"{figure}_low"].to_numpy(), rows[f"{figure}_high"].to_numpy()
        ax.vlines(beside, low, high, color=look["color"], lw=1.1, alpha=0.45, zorder=2)


def plot_canaries(
    survival: SurvivalResults,
    strategy: str,
    *,
    limit: float | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of canaries that one strategy still has at the end, by depth and kind.

    Parameters
    ----------
    survival : SurvivalResults
        Results of ``measure_survival``.
    strategy : str
        Strategy, as text.
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
    UnknownName
        If the strategy was not evaluated.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:2]
    >>> survival = ctxlab.measure_survival(recordings, ["sliding_window()"], [8000])
    >>> ctxlab.plot_canaries(survival, "sliding_window").get_xlabel()
    'depth at which the canary was inserted (share of the text)'
    """
    frame = survival.frame
    names = {short_strategy(str(each)): str(each) for each in frame["strategy"].unique()}
    names |= {each: each for each in names.values()}
    require_known("strategy", strategy, names)
    chosen = choose_limit(frame["limit"], limit)
    here = frame[(frame["strategy"] == names[strategy]) & (frame["limit"] == chosen)]
    ax = make_axes(ax, 6.5, 3.6)
    if here.empty:
        return say_nothing(ax, f"{strategy} has no canaries within {describe_limit(chosen)}.")
    sums = here.groupby(["kind", "depth"], observed=True)[["end_kept", "end"]].sum()
    table = (sums["end_kept"] / sums["end"]).unstack("depth")
    draw_shares(ax, table.to_numpy(float))
    ax.set_xticks(range(len(table.columns)), [f"{depth:g}" for depth in table.columns])
    ax.set_yticks(range(len(table.index)), [str(kind) for kind in table.index])
    ax.set_xlabel(_AXIS_LABELS["depth"])
    title = f"{short_strategy(names[strategy])} within {describe_limit(chosen)}"
    ax.set_title(f"{title}: in view at the end", loc="left", fontsize="medium")
    said = ", ".join(f"{kind} {format_share(float(row.mean()))}" for kind, row in table.iterrows())
    finish(ax, f"Canaries in view at the end for {title}, by kind: {said}.", grid="")
    ax.spines[:].set_visible(False)
    return ax

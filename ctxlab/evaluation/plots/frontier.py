"""Frontier plot: the cost of each strategy against what it keeps, with intervals.

A point is a strategy under a limit. A step line joins the Pareto front: strategies for which no
other one is both cheaper and better.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.plots.colors import COLOR_CYCLE, GRAY, LIGHT_GRAY, TEXT_COLOR
from ctxlab.evaluation.plots.label_placement import Label, place_labels
from ctxlab.evaluation.recommendation import control_names, usable_rows
from ctxlab.evaluation.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXIS_LABELS = {
    "tokens_mean": "tokens a request (mean)",
    "tokens_peak": "tokens of the largest request",
    "cost_usd": "input cost of all requests (USD)",
    "recall": "recall (availability)",
    "recall_near": "near recall (availability)",
    "recall_far": "far recall (availability)",
}
_WIDE_NAME_CHARS = 56
"length of a strategy's text from which on the key has one column"

_CONTROL_MARKERS = {"full": "D", "oracle": "^", "nothing": "v", "random_drop": "s"}


def plot_frontier(
    results: Results,
    *,
    limit: float | Iterable[float] | None = None,
    x: str = "tokens_mean",
    y: str = "recall_far",
    ax: Axes | None = None,
) -> Axes:
    """Plot the leaderboard with cost on the x-axis and recall on the y-axis.

    Hollow points cannot be used as they are: some of their requests overflow, or more are invalid
    than in full history. The step line leaves them out. Controls are grey. The key is outside the
    axes, so create your own figure with ``layout="constrained"``.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    limit : float or iterable of float, optional
        Limits to show. None shows all.
    x : str, default "tokens_mean"
        Column of the leaderboard on the x-axis.
    y : str, default "recall_far"
        Column of the leaderboard on the y-axis; its interval is drawn if it has one.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    SpecError
        If a column or limit is not in the results.
    """
    if not isinstance(results, Results):
        raise _wrong_type_error(results)
    import matplotlib.pyplot as plt

    board = _plot_rows(results, limit, x, y)
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 5.8), layout="constrained")
    numbers = _number_strategies(board)
    best = _frontier_steps(board, x, y)
    ax.step(best[x], best[y], where="post", color=LIGHT_GRAY, lw=1.6, zorder=1)
    bars = _draw_points(ax, board, x, y)
    _format_axes(ax, results, board, x, y)
    _draw_legend(ax, board, len(best) > 0)
    _draw_strategy_key(ax, numbers, _make_caption(results, board, y))
    place_labels(ax, _make_labels(board, best, numbers, x, y), bars)
    return ax


def _wrong_type_error(value: object) -> SpecError:
    kind = type(value).__name__
    own = "; pass its attribute .results" if hasattr(value, "results") else ""
    return SpecError(f"results: expected the Results of ctxlab.evaluate, got {kind}{own}")


def _plot_rows(
    results: Results, limit: float | Iterable[float] | None, x: str, y: str
) -> pd.DataFrame:
    """Return the rows to show, with control, fit and colour."""
    board = results.leaderboard()
    for column in (x, y):
        if column not in board:
            raise UnknownName("column of the leaderboard", column, board.columns)
    if limit is not None:
        wanted = set(limit) if isinstance(limit, Iterable) else {limit}
        if missing := wanted - set(board["limit"]):
            known = ", ".join(f"{value:g}" for value in board["limit"].unique())
            raise SpecError(f"limit {min(missing):g} was not evaluated; choose from {known}")
        board = board[board["limit"].isin(wanted)]
    board = board.assign(control=control_names(board), fits=usable_rows(board)).dropna(
        subset=[x, y]
    )
    if board.empty:
        raise SpecError(f"{y} is unknown for every strategy: no recording has data for it")
    # A point that is the same under several limits gets no limit's colour.
    shared = board.groupby(["strategy", x, y], sort=False)["limit"].transform("nunique") > 1
    color = board["limit"].map(_limit_colors(board)).mask(shared, TEXT_COLOR)
    return board.assign(color=color.mask(board["control"] != "", GRAY))


def _number_strategies(board: pd.DataFrame) -> dict[str, int]:
    """Assign a number to each strategy that is not a control."""
    names = board.loc[board["control"] == "", "strategy"].unique()
    return {name: number for number, name in enumerate(names, 1)}


def _frontier_steps(board: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return the Pareto front of the usable strategies, cheapest first."""
    usable = board[board["fits"] & (board["control"] == "")]
    usable = usable.sort_values([x, y], ascending=[True, False], kind="stable")
    before = usable[y].cummax().shift(fill_value=-np.inf)
    return usable[usable[y] > before]


def _draw_points(ax: Axes, board: pd.DataFrame, x: str, y: str) -> list[tuple[float, float, float]]:
    """Draw markers and intervals; return the intervals."""
    bars = []
    for row in board.sort_values("fits", kind="stable").to_dict("records"):
        color = row["color"]
        low, high = row.get(f"{y}_low", np.nan), row.get(f"{y}_high", np.nan)
        if np.isfinite(low) and np.isfinite(high):
            ax.vlines(row[x], low, high, color=color, lw=1.2, alpha=0.45, zorder=2)
            bars.append((row[x], low, high))
        hollow = not row["control"] and not row["fits"]
        ax.plot(
            row[x],
            row[y],
            marker=_CONTROL_MARKERS.get(row["control"], "o"),
            ms=6,
            mfc="white" if hollow else color,
            mec=color,
            mew=1.2,
            ls="",
            zorder=3,
            gid=f"{row['strategy']} @ {row['limit']:g}",
        )
    return bars


def _make_labels(
    board: pd.DataFrame, best: pd.DataFrame, numbers: dict[str, int], x: str, y: str
) -> list[Label]:
    """Label strategies by number and controls by name; points that coincide share a label."""
    several = board["limit"].nunique() > 1
    labels: list[Label] = []
    for control in (False, True):
        some = board[(board["control"] != "") == control]
        for _, rows in some.groupby([x, y], sort=False):
            winner = bool(rows.index.isin(best.index).any())
            if control:
                name = ", ".join(dict.fromkeys(rows["control"]))
                # A control that is the same under every limit is labelled without one.
                limits = rows["limit"].unique()
                if several and len(limits) == 1:
                    name += f" {_format_limit(limits[0])}"
            else:
                name = ", ".join(dict.fromkeys(str(numbers[s]) for s in rows["strategy"]))
            weight = "bold" if winner else "normal"
            first = rows.iloc[0]
            labels.append(Label(first[x], first[y], name, first["color"], weight))
    return labels


def _format_axes(ax: Axes, results: Results, board: pd.DataFrame, x: str, y: str) -> None:
    """Set scales, axis labels and margins."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    meaning = {score.name: f"{score.meaning} ({score.unit})" for score in results.scores}
    ax.set_xlabel(_AXIS_LABELS.get(x, meaning.get(x, x)))
    ax.set_ylabel(_AXIS_LABELS.get(y, meaning.get(y, y)))
    ax.margins(x=0.08, y=0.08)
    if (board[x] > 0).all():
        # A log scale: equal distances are equal savings, and full history does not squeeze the rest.
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value / 1000:g}k" if value >= 1000 else f"{value:g}")
    )
    ax.grid(color="#EEEEEE", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_legend(ax: Axes, board: pd.DataFrame, steps: bool) -> None:
    """Draw the legend of colours, hollow points and bold numbers above the axes."""
    from matplotlib.lines import Line2D

    looks = [
        (f"limit {_format_limit(limit)}", color, color, "o")
        for limit, color in _limit_colors(board).items()
    ]
    used = board[board["control"] == ""]
    if (used["color"] == TEXT_COLOR).any():
        looks.append(("several limits", TEXT_COLOR, TEXT_COLOR, "o"))
    if not used["fits"].all():
        looks.append(("overflows or is invalid", TEXT_COLOR, "white", "o"))
    if len(used) < len(board):
        looks.append(("control", GRAY, GRAY, "D"))
    names = [name for name, *_ in looks]
    handles = [Line2D([], [], marker=m, ls="", mec=e, mfc=f) for _, e, f, m in looks]
    if steps:
        names.append("bold: none is cheaper and better")
        handles.append(Line2D([], [], color=LIGHT_GRAY, lw=1.6))
    legend = ax.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0, 1.01),
        # Six columns would be wider than the figure.
        ncols=4 if len(names) <= 4 else 3,
        frameon=False,
        fontsize=8,
        handlelength=1.0,
        handletextpad=0.5,
        columnspacing=1.4,
        borderaxespad=0,
        borderpad=0,
    )
    ax.add_artist(legend)
    legend.set_clip_on(False)  # a clipped artist gets no space in the layout


def _draw_strategy_key(ax: Axes, numbers: dict[str, int], caption: str) -> None:
    """Draw the caption and the numbered strategies below the axes."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    names = [f"{number:>2}  {_strip_empty_parentheses(name)}" for name, number in numbers.items()]
    key = ax.legend(
        [Line2D([], [], ls="") for _ in names],
        names,
        title=caption,
        title_fontsize=7,
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans),
        ncols=2 if max(map(len, names), default=0) < _WIDE_NAME_CHARS else 1,
        frameon=False,
        fontsize=8,
        handlelength=0,
        handletextpad=0,
        borderaxespad=0,
        borderpad=0,
    )
    key.get_title().set_color(GRAY)


def _make_caption(results: Results, board: pd.DataFrame, y: str) -> str:
    """Return a caption with the number of recordings and the caveats."""
    recordings = results.requests["recording"].nunique()
    requests = int(board["requests"].max())
    text = (
        f"{recordings:,} recordings in {results.cluster_count:,} clusters, {requests:,} requests."
    )
    if f"{y}_low" in board and results.cluster_count > 1:
        text += " Bars: 95 % bootstrap intervals over clusters."
    text += "\nOff-policy replay."
    if (board["limit"] <= 1).any():
        text += " A limit in % is a share of each recording's length."
    if y.startswith("recall"):
        text += " Recall is availability: an upper bound on what a model recalls."
    return text


def _limit_colors(board: pd.DataFrame) -> dict[float, str]:
    """Return a colour for each limit; a colour map if there are more limits than colours."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    limits = sorted(board["limit"].unique())
    if len(limits) <= len(COLOR_CYCLE):
        return dict(zip(limits, COLOR_CYCLE, strict=False))
    scale = colormaps["viridis"](np.linspace(0, 0.8, len(limits)))
    return {limit: to_hex(color) for limit, color in zip(limits, scale, strict=True)}


def _strip_empty_parentheses(strategy: str) -> str:
    """Return the strategy without empty parentheses."""
    return strategy.replace("()", "")


def _format_limit(value: float) -> str:
    if value <= 1:
        return f"{value:.0%}"
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"

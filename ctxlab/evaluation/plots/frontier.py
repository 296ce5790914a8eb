"""Frontier plot: the cost of each strategy and its recall, with intervals.

Each point is a strategy under a limit. A step line connects the frontier: the strategies for which
no other strategy is both cheaper and better.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ctxlab._utils.numbers import format_limit
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.plots.colors import COLOR_CYCLE, GRAY, LEGEND_STYLE, LIGHT_GRAY, TEXT_COLOR
from ctxlab.evaluation.plots.label_placement import Label, place_labels
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tuning.pareto import pareto_front
from ctxlab.evaluation.verdict import control_names, usable_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXIS_LABELS = {
    "tokens_mean": "tokens per request (mean)",
    "tokens_peak": "tokens of the largest request",
    "cost_usd": "input cost of all requests (USD)",
    "recall": "recall (availability)",
    "recall_near": "near recall (availability)",
    "recall_far": "far recall (availability)",
    HEADLINE_SCORE: f"{HEADLINE_LABEL} (availability)",
}
_WIDE_NAME_CHARS = 56
"the key has one column instead of two if a strategy has at least this many characters"

_CONTROL_MARKERS = {
    "full": "D",
    "oracle": "^",
    "message_oracle": "P",
    "nothing": "v",
    "random_drop": "s",
    "random_decay": "p",
}


def plot_frontier(
    results: Results,
    *,
    limit: float | Iterable[float] | None = None,
    x: str = "tokens_mean",
    y: str = HEADLINE_SCORE,
    ax: Axes | None = None,
) -> Axes:
    """Plot the leaderboard with cost on the x-axis and recall on the y-axis.

    A hollow point is a strategy that cannot be used as it is: some of its requests overflow, or are
    invalid where the full history is valid. The step line ignores these strategies.
    Controls are grey. The key with the names of the strategies is below the axes. If you pass
    ``ax``, create its figure with ``layout="constrained"``, so that the key is not cut off.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    limit : float or iterable of float, optional
        Limits to show. None shows all limits.
    x : str, default "tokens_mean"
        Column of the leaderboard on the x-axis.
    y : str, default HEADLINE_SCORE
        Column of the leaderboard on the y-axis. If the column has an interval, the interval is drawn.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Raises
    ------
    SpecError
        If a column or a limit is not in the results, or no strategy has a value in both columns.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> results = ctxlab.evaluate([recording], ["panic()", "full"], 8000, workers=1)
    >>> axes = ctxlab.plot_frontier(results, x="cost_usd")
    >>> axes.get_ylabel()
    'held far recall (availability)'
    """
    if not isinstance(results, Results):
        raise SpecError(
            f"expected Results as returned by evaluate, got {type(results).__name__}"
            + ("; pass its attribute .results" if hasattr(results, "results") else "")
        )
    import matplotlib.pyplot as plt

    board = _rows(results, limit, x, y)
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 5.8), layout="constrained")
    named = board[board["control"] == ""]
    numbers = dict(zip(named["strategy"].unique(), count(1), strict=False))
    usable = named[named["fits"]]
    best = usable[pareto_front(usable[x], usable[y])].sort_values(x)
    ax.step(best[x], best[y], where="post", color=LIGHT_GRAY, lw=1.6, zorder=1)
    bars = _draw_points(ax, board, x, y)
    _format_axes(ax, results, board, x, y)
    _draw_legend(ax, board, len(best) > 0)
    _draw_strategy_key(ax, numbers, _make_caption(results, board, y))
    place_labels(ax, _make_labels(board, best, numbers, x, y), bars)
    return ax


def _rows(results: Results, limit: float | Iterable[float] | None, x: str, y: str) -> pd.DataFrame:
    """Return the leaderboard rows to show, with the columns ``control``, ``fits`` and ``color``."""
    board = results.leaderboard()
    for column in (x, y):
        require_known("column of the leaderboard", column, board.columns)
    if limit is not None:
        wanted = set(limit) if isinstance(limit, Iterable) else {limit}
        if missing := wanted - set(board["limit"]):
            known = ", ".join(f"{value:g}" for value in board["limit"].unique())
            raise SpecError(f"limit {min(missing):g} was not evaluated; choose from {known}")
        board = board[board["limit"].isin(wanted)]
    board = board.assign(control=control_names(board), fits=usable_rows(board))
    board = board.dropna(subset=[x, y])
    if board.empty:
        raise SpecError(f"no strategy has both a known {x} and a known {y}; choose other columns")
    # A point that is the same under several limits gets the text colour.
    shared = board.groupby(["strategy", x, y], sort=False)["limit"].transform("nunique") > 1
    color = board["limit"].map(_limit_colors(board)).mask(shared, TEXT_COLOR)
    return board.assign(color=color.mask(board["control"] != "", GRAY))


def _draw_points(ax: Axes, board: pd.DataFrame, x: str, y: str) -> list[tuple[float, float, float]]:
    """Draw the markers and the intervals. Return each interval as ``(x, low, high)``."""
    bars = []
    for row in board.sort_values("fits", kind="stable").to_dict("records"):
        color = row["color"]
        low, high = row.get(f"{y}_low", np.nan), row.get(f"{y}_high", np.nan)
        if np.isfinite(low) and np.isfinite(high):
            ax.vlines(row[x], low, high, color=color, lw=1.2, alpha=0.45, zorder=2)
            bars.append((row[x], low, high))
        fill = color if row["control"] or row["fits"] else "white"
        marker = _CONTROL_MARKERS.get(row["control"], "o")
        gid = f"{row['strategy']} @ {row['limit']:g}"
        look = {"marker": marker, "mfc": fill, "mec": color, "ls": "", "gid": gid}
        ax.plot(row[x], row[y], ms=6, mew=1.2, zorder=3, **look)
    return bars


def _make_labels(
    board: pd.DataFrame, best: pd.DataFrame, numbers: dict[str, int], x: str, y: str
) -> list[Label]:
    """Return the labels of all points: numbers for strategies, and names for controls.

    Points at the same position share a label.
    """
    several = board["limit"].nunique() > 1
    labels: list[Label] = []
    for (is_control, *_), rows in board.groupby([board["control"] != "", x, y], sort=False):
        first, limits = rows.iloc[0], rows["limit"].unique()
        names = rows["control"] if is_control else rows["strategy"].map(numbers).map(str)
        name = ", ".join(dict.fromkeys(names))
        # Add the limit to a control's label, unless the point is the same under several limits.
        if is_control and several and len(limits) == 1:
            name += f" {format_limit(limits[0])}"
        weight = "bold" if rows.index.isin(best.index).any() else "normal"
        labels.append(Label(first[x], first[y], name, first["color"], weight, bool(is_control)))
    return labels


def _format_axes(ax: Axes, results: Results, board: pd.DataFrame, x: str, y: str) -> None:
    """Set scales, axis labels and margins."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    meaning = {score.name: f"{score.meaning} ({score.unit})" for score in results.scores}
    ax.set_xlabel(_AXIS_LABELS.get(x, meaning.get(x, x)))
    ax.set_ylabel(_AXIS_LABELS.get(y, meaning.get(y, y)))
    ax.margins(x=0.08, y=0.08)
    if (board[x] > 0).all():
        # On a log scale, equal distances are equal relative savings, and the high cost of full
        # history does not squeeze the other points together.
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
    """Draw the legend above the axes. It explains colours, hollow points and bold numbers."""
    from matplotlib.lines import Line2D

    colors = _limit_colors(board).items()
    looks = [(f"limit {format_limit(limit)}", color, color, "o") for limit, color in colors]
    used = board[board["control"] == ""]
    if (used["color"] == TEXT_COLOR).any():
        looks.append(("several limits", TEXT_COLOR, TEXT_COLOR, "o"))
    if not used["fits"].all():
        looks.append(("overflow or invalid requests", TEXT_COLOR, "white", "o"))
    if len(used) < len(board):
        looks.append(("control", GRAY, GRAY, "D"))
    names = [name for name, *_ in looks]
    handles = [Line2D([], [], marker=m, ls="", mec=e, mfc=f) for _, e, f, m in looks]
    if steps:
        names.append("bold: on the frontier")
        handles.append(Line2D([], [], color=LIGHT_GRAY, lw=1.6))
    look = {**LEGEND_STYLE, "loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderpad": 0}
    look |= {"handlelength": 1.0, "handletextpad": 0.5, "columnspacing": 1.4}
    columns = 4 if len(names) <= 4 else 3  # more columns would be wider than the figure
    legend = ax.legend(handles, names, ncols=columns, **look)
    ax.add_artist(legend)
    legend.set_clip_on(False)  # a clipped artist gets no space in the layout


def _draw_strategy_key(ax: Axes, numbers: dict[str, int], caption: str) -> None:
    """Draw the caption and the key, a list of numbered strategies, below the axes."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    names = [f"{number:>2}  {name.replace('()', '')}" for name, number in numbers.items()]
    wide = max(map(len, names), default=0) >= _WIDE_NAME_CHARS
    below = ax.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans)
    look = {**LEGEND_STYLE, "loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below}
    look |= {"title_fontsize": 7, "alignment": "left", "borderpad": 0}
    look |= {"handlelength": 0, "handletextpad": 0, "ncols": 1 if wide else 2}
    key = ax.legend([Line2D([], [], ls="") for _ in names], names, title=caption, **look)
    key.get_title().set_color(GRAY)


def _make_caption(results: Results, board: pd.DataFrame, y: str) -> str:
    """Return the caption: the size of the data and notes on how to read the plot."""
    recordings = results.recording_count
    requests = int(board["requests"].max())
    clusters = results.cluster_count
    text = f"{recordings:,} recordings in {clusters:,} clusters, {requests:,} requests."
    if f"{y}_low" in board and clusters > 1:
        text += " Bars: 95 % bootstrap intervals over clusters."
    text += "\nOff-policy replay."
    if (board["limit"] <= 1).any():
        text += " A limit in % is a share of each recording's length."
    if y.startswith("recall"):
        text += " Recall is availability: an upper bound on what a model recalls."
    return text


def _limit_colors(board: pd.DataFrame) -> dict[float, str]:
    """Return a colour for each limit, from a colour map if there are more limits than colours."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    limits = sorted(board["limit"].unique())
    if len(limits) <= len(COLOR_CYCLE):
        return dict(zip(limits, COLOR_CYCLE, strict=False))
    scale = colormaps["viridis"](np.linspace(0, 0.8, len(limits)))
    return {limit: to_hex(color) for limit, color in zip(limits, scale, strict=True)}

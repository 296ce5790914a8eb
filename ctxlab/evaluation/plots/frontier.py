"""Frontier plot: the cost of each strategy and its recall, with intervals, one panel for each limit.

Each point is a strategy. A step line connects the frontier: the strategies for which no other strategy
is both cheaper and better.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab._utils.humanize import parse_limit, pluralize
from ctxlab._utils.numbers import describe_limit
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.plots.base import (
    color_of,
    finish,
    join_names,
    make_axes,
    place_legend,
    quiet_color,
    say_nothing,
    text_color,
)
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
MAX_NAMES = 10
"""With more strategies, the main points have numbers, and their names are in the legend, by rank."""
_MIN_NUMBERS, _MAX_NUMBERS = 12, 30
_NAME_LENGTH = 44
_PANEL = (6.4, 4.6)


def plot_frontier(
    results: Results,
    *,
    limit: float | str | Iterable[float | str] | None = None,
    x: str | None = None,
    y: str = HEADLINE_SCORE,
    controls: bool = True,
    ax: Axes | None = None,
) -> Axes | npt.NDArray[Any]:
    """Plot the leaderboard with cost on the x-axis and recall on the y-axis.

    Up to ten strategies are named at their points. With more, those on the frontier of a limit, and the
    best of the others, have numbers, by recall, and a legend has their names. A hollow point is a
    strategy that cannot be used as it is: some of its requests overflow, or are invalid where the full
    history is valid. The bold step line ignores these strategies. Controls are grey; ``nothing``
    is a line at its recall, because it costs next to nothing and would press all other points into a
    corner.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    limit : float, str or iterable of them, optional
        Limits to show, one panel each, such as ``8000`` or ``"8k"``. None shows all limits.
    x : str, optional
        Column of the leaderboard on the x-axis. None takes the cost, or the tokens if it is unknown.
    y : str, default "recall_far_held"
        Column of the leaderboard on the y-axis. If the column has an interval, the interval is drawn.
    controls : bool, default True
        False to leave out controls such as ``full`` and ``oracle``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, for one limit. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes or numpy.ndarray of Axes
        Axes with the plot; an array with one element per limit if several limits are shown.

    Raises
    ------
    SpecError
        If a column or a limit is not in the results, or ``ax`` was passed for several limits.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:2]
    >>> results = ctxlab.evaluate(recordings, ["full", "sliding_window()"], [8000, 16000])
    >>> [panel.get_title(loc="left") for panel in ctxlab.plot_frontier(results)]
    ['within 8,000 tokens', 'within 16,000 tokens']
    """
    if not isinstance(results, Results):
        raise SpecError(
            f"expected Results as returned by evaluate, got {type(results).__name__}"
            + ("; pass its attribute .results" if hasattr(results, "results") else "")
        )
    import matplotlib.pyplot as plt

    board = _rows(results, limit, x, y, controls)
    x = board.attrs["x"]
    limits = list(dict.fromkeys(board["limit"]))
    if ax is not None and len(limits) > 1:
        raise SpecError(
            f"expected one limit for one axes, got {len(limits)}; pass limit=, or leave out ax"
        )
    numbers = _number_strategies(board, x, y)
    if ax is not None:
        _draw_panel(ax, results, board, x, y, numbers)
        _draw_key(ax, numbers, board, _make_caption(results, board, y))
        return ax
    if not limits:
        return say_nothing(make_axes(None), "Only controls were evaluated.")
    columns = min(2, len(limits))
    rows = -(-len(limits) // columns)
    size = (_PANEL[0] * columns, _PANEL[1] * rows)
    _, made = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    panels = made.ravel()
    for panel, each in zip(panels, limits, strict=False):
        _draw_panel(panel, results, board[board["limit"] == each], x, y, numbers)
    figure = panels[0].get_figure(root=True)
    caption = _make_caption(results, board, y)
    if numbers:  # a label of the figure would cover the legend
        _draw_key(figure, numbers, board, caption)
    else:
        figure.supxlabel(caption, x=0.01, ha="left", fontsize="x-small")
    for spare in panels[len(limits) :]:
        spare.remove()
    return panels[0] if len(limits) == 1 else panels[: len(limits)]


def _rows(
    results: Results,
    limit: float | str | Iterable[float | str] | None,
    x: str | None,
    y: str,
    controls: bool,
) -> pd.DataFrame:
    """Return the leaderboard rows to show, with the columns ``control``, ``fits`` and ``name``."""
    board = results.leaderboard()
    if x is None:
        is_priced = "cost_usd" in board and board["cost_usd"].notna().all()
        x = "cost_usd" if is_priced else "tokens_mean"
        if x not in board:
            raise SpecError("expected results with the metric cost or usage; evaluate with one")
    for column in (x, y):
        require_known("column of the leaderboard", column, board.columns)
    if limit is not None:
        asked = [limit] if isinstance(limit, str | float | int) else limit
        wanted = set(map(parse_limit, asked))
        if missing := wanted - set(board["limit"]):
            known = ", ".join(f"{value:g}" for value in board["limit"].unique())
            raise SpecError(f"limit {min(missing):g} was not evaluated; choose from {known}")
        board = board[board["limit"].isin(wanted)]
    board = board.assign(
        control=control_names(board),
        fits=usable_rows(board),
        name=[_clip(short_strategy(each)) for each in board["strategy"]],
    )
    board = board.sort_values("limit", kind="stable")
    if not controls:
        board = board[board["control"] == ""]
    board.attrs["x"] = x
    return board


def _clip(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


def _number_strategies(board: pd.DataFrame, x: str, y: str) -> dict[str, int]:
    """Return the numbers of the strategies that the legend names, by recall; none if there are few.

    These are the strategies on the frontier of a limit, and the best of the others that can be used.
    """
    named = board[(board["control"] == "")].dropna(subset=[x, y])
    if named["strategy"].nunique() <= MAX_NAMES:
        return {}
    usable = named[named["fits"]]
    fronts = [
        rows.loc[pareto_front(rows[x], rows[y]), "strategy"] for _, rows in usable.groupby("limit")
    ]
    best = usable.groupby("strategy", sort=False)[y].mean().sort_values(ascending=False)
    chosen = dict.fromkeys(name for front in fronts for name in front)
    for name in best.index:
        if len(chosen) < _MIN_NUMBERS:
            chosen[name] = None
    ranked = [name for name in best.index if name in chosen][:_MAX_NUMBERS]
    return {str(name): number + 1 for number, name in enumerate(ranked)}


def _draw_panel(
    ax: Axes, results: Results, board: pd.DataFrame, x: str, y: str, numbers: dict[str, int]
) -> Axes:
    title = f"within {describe_limit(board['limit'].iloc[0])}" if len(board) else ""
    known = board.dropna(subset=[x, y])
    points = known[known["control"] != "nothing"]
    if points.empty:
        return say_nothing(ax, f"No strategy has both a known {x} and a known {y}.")
    ax.set_title(title, loc="left", fontsize="medium")
    usable = points[(points["control"] == "") & points["fits"]]
    best = usable[pareto_front(usable[x], usable[y])].sort_values(x)
    _set_axes(ax, results, points, x, y)
    ax.step(best[x], best[y], where="post", color=color_of(ax, 0), lw=2, alpha=0.55, zorder=1)
    bars = _draw_points(ax, points, x, y, numbers)
    _draw_nothing(ax, known, y)
    place_labels(ax, _make_labels(ax, points, best, numbers, x, y), bars)
    return finish(ax, _describe(results, best, x, y, title))


def _set_axes(ax: Axes, results: Results, points: pd.DataFrame, x: str, y: str) -> None:
    """Set scales, limits and labels. The y-axis starts below the lowest point."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    meaning = {score.name: f"{score.meaning} ({score.unit})" for score in results.scores}
    ax.set_xlabel(_AXIS_LABELS.get(x, meaning.get(x, x)))
    ax.set_ylabel(_AXIS_LABELS.get(y, meaning.get(y, y)))
    ax.margins(x=0.12)
    if (points[x] > 0).all():
        # On a log scale, equal distances are equal relative savings, and the high cost of full
        # history does not squeeze the other points together.
        ax.set_xscale("log")
        span = points[x].max() / points[x].min()
        subs = (1, 2, 5) if span > 4 else (1, 1.5, 2, 3, 4, 5, 7)
        ax.xaxis.set_major_locator(LogLocator(subs=subs))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _format_tick(value, x)))
    units = {score.name: score.unit for score in results.scores}
    if units.get(y) == "share":
        low = points.get(f"{y}_low", points[y]).where(points["control"] == "").fillna(points[y])
        lowest = low.min()
        floor = max(0.0, np.floor((lowest - 0.02) * 20) / 20)
        ax.set_ylim(floor - 0.01 * (1 - floor), 1 + 0.03 * (1 - floor))


def _format_tick(value: float, x: str) -> str:
    text = f"{value / 1000:g}k" if value >= 1000 else f"{value:.3g}"
    return f"${text}" if x.endswith("_usd") else text


def _draw_points(
    ax: Axes, points: pd.DataFrame, x: str, y: str, numbers: dict[str, int]
) -> list[tuple[float, float, float]]:
    """Draw the markers and the intervals. Return each interval as ``(x, low, high)``.

    Points without a number or a name are small and have no interval.
    """
    bars = []
    for row in points.sort_values("fits", kind="stable").to_dict("records"):
        color = quiet_color(ax) if row["control"] else color_of(ax, 0)
        is_main = bool(row["control"]) or not numbers or row["strategy"] in numbers
        low, high = row.get(f"{y}_low", np.nan), row.get(f"{y}_high", np.nan)
        if is_main and np.isfinite(low) and np.isfinite(high):
            ax.vlines(row[x], low, high, color=color, lw=1, alpha=0.45, zorder=2)
            bars.append((row[x], low, high))
        fill = color if row["control"] or row["fits"] else ax.get_facecolor()
        look: dict[str, Any] = {"marker": "D" if row["control"] else "o", "mfc": fill, "mec": color}
        look |= {"ms": 6, "mew": 1.3} if is_main else {"ms": 3.5, "mew": 0.8, "alpha": 0.55}
        gid = f"{row['strategy']} @ {row['limit']:g}"
        ax.plot(row[x], row[y], ls="", zorder=3, gid=gid, **look)
    return bars


def _draw_nothing(ax: Axes, board: pd.DataFrame, y: str) -> None:
    """Draw the recall of ``nothing`` as a line, or say that it is below the axis."""
    from matplotlib.transforms import blended_transform_factory

    for level in board.loc[board["control"] == "nothing", y]:
        bottom = ax.get_ylim()[0]
        color = quiet_color(ax)
        at = blended_transform_factory(ax.transAxes, ax.transData)
        look: dict[str, Any] = {"color": color, "fontsize": "small", "ha": "right"}
        if level >= bottom:
            ax.axhline(level, color=color, lw=1, ls=(0, (4, 4)), zorder=0, gid="nothing")
            ax.text(0.995, level, "nothing kept", va="bottom", transform=at, **look)
        else:
            said = f"nothing kept: {level:.2f}".replace("0.", ".")
            ax.text(0.995, 0.01, said, va="bottom", transform=ax.transAxes, **look)


def _make_labels(
    ax: Axes, points: pd.DataFrame, best: pd.DataFrame, numbers: dict[str, int], x: str, y: str
) -> list[Label]:
    """Return the labels of the main points, the frontier first: names, or numbers if there are many."""
    labels: list[Label] = []
    if numbers:
        is_shown = points["strategy"].isin(numbers) | points["control"].isin(["full", "oracle"])
        points = points[is_shown]
    for is_control, rows in points.groupby(points["control"] != "", sort=False):
        for _, same in rows.groupby([x, y], sort=False):
            names = zip(same["strategy"], same["name"], strict=True)
            texts = [str(numbers.get(strategy, name)) for strategy, name in names]
            is_best = bool(same.index.isin(best.index).any())
            color = quiet_color(ax) if is_control else text_color()
            weight = "bold" if is_best else "normal"
            first = same.iloc[0]
            text = ", ".join(dict.fromkeys(texts))
            labels.append(Label(first[x], first[y], text, color, weight, bool(is_control)))
    return sorted(labels, key=lambda label: label.weight != "bold")


def _draw_key(where: Any, numbers: dict[str, int], board: pd.DataFrame, caption: str) -> None:
    """Draw the legend with the names of the numbered strategies, below axes or a figure."""
    if not numbers:
        return
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    shown = dict(zip(board["strategy"], board["name"], strict=True))
    names = [f"{number:>2}  {shown[name]}" for name, number in numbers.items()]
    others = board.loc[board["control"] == "", "strategy"].nunique() - len(numbers)
    title = f"{caption}\nRanked by recall; bold: on the frontier; hollow: does not fit, or refused"
    title += f"; small: {others} others" if others else ""
    handles = [Line2D([], [], ls="") for _ in names]
    look: dict[str, Any] = {
        "frameon": False,
        "fontsize": "small",
        "title": title,
        "handlelength": 0,
    }
    look |= {"handletextpad": 0, "alignment": "left", "title_fontsize": "small"}
    columns = 1 if max(map(len, names)) > 38 and len(names) <= 12 else 2
    if isinstance(where, Figure):
        wide = len(where.axes) > 1
        where.legend(handles, names, loc="outside lower left", ncols=3 if wide else columns, **look)
    else:
        place_legend(where, columns=columns, handles=handles, labels=names, **look)


def _make_caption(results: Results, board: pd.DataFrame, y: str) -> str:
    """Return the size of the data, and what the figures cannot say."""
    said = [
        f"{pluralize(results.recording_count, 'recording')} in "
        f"{pluralize(results.cluster_count, 'cluster')}, {int(board['requests'].max()):,} requests."
    ]
    if f"{y}_low" in board and board[f"{y}_low"].notna().any():
        said.append("Bars: 95 % intervals over clusters.")
    said.append("Off-policy replay.")
    if y.startswith("recall"):
        said.append("Recall is availability: an upper bound on what a model recalls.")
    return " ".join(said)


def _describe(results: Results, best: pd.DataFrame, x: str, y: str, title: str) -> str:
    what = f"{_AXIS_LABELS.get(y, y)} against {_AXIS_LABELS.get(x, x)}, {title}"
    data = (
        f"{pluralize(results.recording_count, 'recording')} in "
        f"{pluralize(results.cluster_count, 'cluster')}"
    )
    front = join_names([*best["name"]]) if len(best) else "no strategy"
    return f"{what}; {data}. On the frontier, the cheapest first: {front}. Off-policy replay."

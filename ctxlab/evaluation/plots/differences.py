"""Forest plot of paired differences between two strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.plots.base import (
    color_of,
    finish,
    make_axes,
    quiet_color,
    say_nothing,
    text_color,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ctxlab.evaluation.comparison import Comparison


def plot_differences(
    comparisons: Comparison | Sequence[Comparison],
    score: str = HEADLINE_SCORE,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot the difference of a score in each comparison with its interval, one line each (forest plot).

    A filled mark is a difference whose interval excludes zero; a hollow one is not settled.

    Parameters
    ----------
    comparisons : Comparison or sequence of Comparison
        Results of ``compare_strategies``.
    score : str, default "recall_far_held"
        Score of the comparisons.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Raises
    ------
    SpecError
        If no comparison has the score.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))
    >>> results = ctxlab.evaluate(recordings, ["sliding_window()", "rolling_summary()"], 8000)
    >>> comparison = ctxlab.compare_strategies(results, "rolling_summary()", "sliding_window()")
    >>> ax = ctxlab.plot_differences(comparison, "tokens_mean")
    >>> ax.get_xlabel()
    'difference of tokens_mean, in % (a − b)'
    """
    several = [comparisons] if hasattr(comparisons, "table") else list(comparisons)
    if not several:
        raise SpecError("expected at least one comparison, got an empty list")
    rows = pd.concat([each.table for each in several], ignore_index=True)
    known = sorted(rows["score"].unique())
    rows = rows[rows["score"] == score]
    if rows.empty:
        raise SpecError(f"score {score!r} was not compared; choose from {', '.join(known)}")
    rows = rows.iloc[::-1]
    ax = make_axes(ax, 7.5, 1.3 + 0.42 * max(2, len(rows)))
    if rows["difference"].isna().all():
        return say_nothing(ax, "No difference is known: the recordings have no values to compare.")
    factor = 100.0 if rows["relative"].any() else 1.0
    is_upper = rows["better"].iloc[0] == "higher"
    places = np.arange(len(rows))
    ax.axvline(0, color=quiet_color(ax), lw=1)
    for place, row in zip(places, rows.to_dict("records"), strict=True):
        settled = row["low"] > 0 or row["high"] < 0
        good = (row["difference"] > 0) == is_upper
        color = color_of(ax, 2 if good else 1) if settled else text_color()
        if np.isfinite(row["low"]):
            ax.hlines(place, factor * row["low"], factor * row["high"], color=color, lw=1.6)
        fill = color if settled else ax.get_facecolor()
        ax.plot(factor * row["difference"], place, "o", ms=7, mfc=fill, mec=color, mew=1.5)
    ax.set_yticks(places, [_label(row) for row in rows.to_dict("records")], fontsize="small")
    ax.set_ylim(-0.6, len(rows) - 0.4)
    unit = ", in %" if factor == 100 else ""
    ax.set_xlabel(f"difference of {score}{unit} (a − b)")
    better = "right is better" if is_upper else "left is better"
    has_bars = rows["low"].notna().any()
    bars = "95 % intervals over clusters" if has_bars else "too few clusters for intervals"
    title = f"{bars}; {better}"
    ax.set_title(title, loc="left", fontsize="medium")
    said = "; ".join(
        f"{_label(row)}: {factor * row['difference']:+.2g}" for row in rows.to_dict("records")
    )
    return finish(ax, f"Differences of {score}{unit}, with {title}. {said}.", grid="x")


def _label(row: dict[object, object]) -> str:
    names = f"{short_strategy(str(row['a']))} − {short_strategy(str(row['b']))}"
    limits = {float(str(row["limit_a"])), float(str(row["limit_b"]))}
    return f"{names}, {' / '.join(f'{each:,.10g}' for each in sorted(limits))}"

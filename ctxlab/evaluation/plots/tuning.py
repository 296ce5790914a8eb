"""Plot of the response to a parameter: how cost and recall change with its values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxlab.errors import require_known
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.plots.base import (
    color_of,
    finish,
    line_look,
    make_axes,
    place_legend,
    quiet_color,
    say_nothing,
    text_color,
)
from ctxlab.evaluation.plots.label_placement import Label, place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ctxlab.evaluation.tuning import TuningResults

_NUMBER = re.compile(r"(\w+)=(\d+(?:\.\d+)?)(?:, )?")


def plot_tuning(
    tuning: TuningResults, x: str = "cost_usd", y: str = HEADLINE_SCORE, *, ax: Axes | None = None
) -> Axes:
    """Plot all configurations that were searched; those that differ in numbers only are joined.

    A hollow point was left before
    the last round, or does not fit. A star marks the choice.

    Parameters
    ----------
    tuning : TuningResults
        Results of ``tune``.
    x, y : str, optional
        Columns of ``tuning.trials``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:4]
    >>> tuning = ctxlab.tune(recordings, ["observation_mask(keep=[1, 3]) | panic"], [8000], holdout=0)
    >>> ctxlab.plot_tuning(tuning).get_xlabel()
    'input cost (USD)'
    """
    ax = make_axes(ax)
    for column in (x, y):
        require_known("column of the trials", column, tuning.trials.columns)
    trials = tuning.trials.dropna(subset=[x, y])
    if trials.empty:
        return say_nothing(ax, f"No configuration has both a known {x} and a known {y}.")
    trials = trials.assign(family=[_family(row) for row in trials.to_dict("records")])
    chosen = tuning.chosen()
    labels: list[Label] = []
    for number, (family, rows) in enumerate(trials.groupby("family", sort=False)):
        rows = rows.sort_values(x)
        look = line_look(ax, number)
        ax.plot(rows[x], rows[y], alpha=0.7, **look, label=str(family) if len(rows) > 1 else "_")
        for row in rows.to_dict("records"):
            fill = look["color"] if not row["left"] else ax.get_facecolor()
            ax.plot(row[x], row[y], "o", ms=6, mfc=fill, mec=look["color"], mew=1.3)
            name = _values(row["strategy"]) if len(rows) > 1 else str(family)
            labels.append(Label(row[x], row[y], name, text_color()))
    if chosen is not None:
        best = trials[(trials["strategy"] == chosen[0]) & (trials["limit"] == chosen[1])]
        ax.plot(best[x], best[y], "*", ms=15, mfc="none", mec=color_of(ax, 1), mew=1.6,
                label="chosen")  # fmt: skip
    ax.margins(0.12)
    names = {"cost_usd": "input cost (USD)", HEADLINE_SCORE: f"{HEADLINE_LABEL} (availability)"}
    ax.set_xlabel(names.get(x, x))
    ax.set_ylabel(names.get(y, y))
    ax.set_title("on the recordings that were searched", loc="left", fontsize="medium",
                 color=quiet_color(ax))  # fmt: skip
    if ax.get_legend_handles_labels()[0]:
        place_legend(ax, columns=1)
    place_labels(ax, labels, [])
    said = f"; chosen: {short_strategy(chosen[0])}" if chosen is not None else ""
    return finish(ax, f"{len(trials)} configurations by {names.get(x, x)} and {y}{said}.")


def _family(row: dict[object, object]) -> str:
    """Return the strategy without its numbers, so that values of a parameter belong together."""
    text = _NUMBER.sub("", short_strategy(str(row["strategy"]))).replace("()", "")
    text = text.replace(", )", ")")
    limit = row["limit"]
    return f"{text}, {limit:,.10g}" if isinstance(limit, float) else text


def _values(strategy: str) -> str:
    """Return the numbers of a strategy; ``default`` if it has none."""
    found = _NUMBER.findall(strategy)
    return ", ".join(f"{name}={value}" for name, value in found) or "default"

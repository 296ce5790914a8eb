"""Plot of counted tokens against billed tokens: how far the counts can be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ctxlab._utils.humanize import pluralize
from ctxlab.evaluation.describe import describe
from ctxlab.evaluation.plots.base import (
    color_of,
    count_axis,
    finish,
    make_axes,
    place_legend,
    quiet_color,
    say_nothing,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ctxlab.messages.types import Recording


def plot_bills(recordings: Iterable[Recording], *, ax: Axes | None = None) -> Axes:
    """Plot the counted tokens of each recording's largest request against the tokens that were billed.

    The counts include the unlogged part, as it is estimated from the first bills. Points on the line
    are counted exactly.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings with the usage that the provider reported.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Examples
    --------
    >>> import ctxlab
    >>> ax = ctxlab.plot_bills(ctxlab.load("bundled:support-desk"))
    >>> ax.get_label()
    'None of the recordings has bills: the usage that a provider reported.'
    """
    ax = make_axes(ax, 5.6, 5.2)
    frame = describe(recordings).recordings
    frame = frame[frame["billed_tokens"].notna() & (frame["billed_tokens"] > 0)]
    if frame.empty:
        return say_nothing(
            ax, "None of the recordings has bills: the usage that a provider reported."
        )
    families = frame["counted_as"].astype(str)
    for number, (name, rows) in enumerate(frame.groupby(families, sort=False)):
        marker = "os^Dvp"[number % 6]
        ax.plot(rows["billed_tokens"], rows["billed_counted"], marker, ms=5, alpha=0.75,
                color=color_of(ax, number), label=str(name), gid=str(name))  # fmt: skip
    both = frame[["billed_tokens", "billed_counted"]].to_numpy(float)
    ends = np.array([both.min() * 0.9, both.max() * 1.1])
    color = quiet_color(ax)
    ax.plot(ends, ends, color=color, lw=1, zorder=0)
    ax.fill_between(ends, ends * 0.9, ends * 1.1, color=color, alpha=0.15, lw=0, zorder=0,
                    label="within 10 %")  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    count_axis(ax, "x")
    count_axis(ax, "y")
    ax.set_xlabel("billed tokens of the largest request")
    ax.set_ylabel("counted tokens")
    place_legend(ax)
    error = (both[:, 1] / both[:, 0] - 1).__abs__()
    median = f"median error {100 * np.median(error):.1f} %"
    ax.set_title(f"{pluralize(len(frame), 'recording')}; {median}", loc="left", fontsize="medium")
    return finish(ax, f"Counted against billed tokens of {len(frame)} recordings; {median}.")

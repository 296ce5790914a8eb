"""Plot of what fills the context: the tokens of requests by role and tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxlab._utils.numbers import format_count
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.plots.base import (
    color_of,
    count_axis,
    draw_stack,
    finish,
    make_axes,
    place_legend,
    plain,
    quiet_color,
    say_nothing,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ctxlab.evaluation.replay import Replay

_MAX_PARTS = 6
_HATCHES = ("", "//", "", "..", "", "xx", "")


def plot_contents(replay: Replay, *, ax: Axes | None = None) -> Axes:
    """Plot what each request is made of: tokens of each role, and of the results of each tool.

    The six largest parts have layers of their own. With the strategy ``full``, this is what fills the
    context of the recording.

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
    >>> ax = ctxlab.plot_contents(ctxlab.replay(recording, "full", 8000))
    >>> [text.get_text() for text in ax.get_legend().get_texts()][:2]
    ['results of read_file', 'assistant']
    """
    ax = make_axes(ax)
    frame = replay.contents
    if frame.empty:
        return say_nothing(ax, "The recording contains no model call, so there are no requests.")
    others = frame.columns[_MAX_PARTS:]
    shown = frame[frame.columns[:_MAX_PARTS]].assign(**{"all others": frame[others].sum(axis=1)})
    if not len(others):
        shown = shown.drop(columns="all others")
    labels = [plain(name) for name in shown.columns]
    colors = [color_of(ax, number) for number in range(len(labels))]
    if len(others):
        colors[-1] = quiet_color(ax)
    draw_stack(ax, shown.to_numpy(), labels, colors, _HATCHES)
    ax.set_xlabel("request")
    ax.set_ylabel("tokens")
    count_axis(ax, "y")
    strategy = short_strategy(repr(replay.trace.strategy))
    title = f"{plain(replay.prepared.recording.id)} through {strategy}"
    ax.set_title(title, loc="left", fontsize="medium")
    place_legend(ax)
    last = shown.iloc[-1]
    parts = ", ".join(
        f"{label} {format_count(tokens)}" for label, tokens in zip(labels, last, strict=True)
    )
    return finish(ax, f"Contents of the requests of {title}. In the last request: {parts} tokens.")

"""Plots of the sizes of requests: over time, and as a distribution against the limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxlab._utils.numbers import describe_limit, format_count
from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.plots.base import (
    MAX_LINES,
    choose_limit,
    count_axis,
    finish,
    line_look,
    make_axes,
    place_legend,
    plain,
    quiet_color,
    say_nothing,
)
from ctxlab.evaluation.replay import Replay
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.verdict import control_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_TICKS = 0.2
"compactions are not marked if more than this share of the requests are compactions"


def plot_request_sizes(replays: Replay | Iterable[Replay], *, ax: Axes | None = None) -> Axes:
    """Plot the tokens of each request over a recording, with the limit and the compactions.

    A mark on a line is a compaction: a request that changes what the previous request sent. If more
    than a fifth of the requests are compactions, none is marked.

    Parameters
    ----------
    replays : Replay or iterable of Replay
        Replays of one recording through one or several strategies.
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
    >>> ax = ctxlab.plot_request_sizes(ctxlab.replay(recording, "rolling_summary | panic", 8000))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('request', 'tokens')
    """
    shown = [replays] if isinstance(replays, Replay) else list(replays)
    ax = make_axes(ax)
    if not shown or not shown[0].trace.tokens:
        return say_nothing(ax, "The recording contains no model call, so there are no requests.")
    for number, replay in enumerate(shown):
        tokens, changed = replay.trace.tokens, replay.compactions["request"].to_numpy()
        few = len(changed) <= _MAX_TICKS * len(tokens)
        marks: dict[str, Any] = {}
        if len(tokens) == 1:
            marks = {"marker": "o"}
        elif few:
            marks = {"marker": "v", "ms": 5, "markevery": changed.tolist()}
        name = short_strategy(repr(replay.trace.strategy))
        ax.plot(tokens, label=name, gid=name, **line_look(ax, number), **marks)
    color = quiet_color(ax)
    for budget in dict.fromkeys(replay.trace.budget for replay in shown):
        limit, room = budget.limit, budget.room
        said = f"limit {limit:,}" + (f" less the reserve: {room:,}" if room < limit else "")
        ax.axhline(room, color=color, lw=1, ls=(0, (4, 4)), gid="limit")
        ax.annotate(said, (1, room), (0, 3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", ha="right", color=color, fontsize="small")  # fmt: skip
    count_axis(ax, "y")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("request")
    ax.set_ylabel("tokens")
    ax.set_title(plain(shown[0].prepared.recording.id), loc="left", fontsize="medium")
    place_legend(ax)
    peaks = "; ".join(
        f"{short_strategy(repr(r.trace.strategy))} at most {format_count(max(r.trace.tokens))}, "
        f"{len(r.compactions)} compactions"
        for r in shown
    )
    return finish(ax, f"Tokens of each request of {shown[0].prepared.recording.id}: {peaks}.")


def plot_size_distribution(
    results: Results, *, limit: float | str | None = None, ax: Axes | None = None
) -> Axes:
    """Plot which share of the requests has at most how many tokens (ECDF), against the limits.

    The line of ``full`` says how many requests would fit without any strategy.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    limit : float or str, optional
        Limit whose strategies are shown; the smallest one if left out. All limits are drawn as
        vertical lines.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Raises
    ------
    SpecError
        If the limit was not evaluated.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:2]
    >>> results = ctxlab.evaluate(recordings, ["full", "sliding_window()"], [8000, 16000])
    >>> ctxlab.plot_size_distribution(results).get_ylabel()
    'share of requests'
    """
    limits = sorted({limit for _, limit in results.configurations})
    chosen = choose_limit(limits, limit)
    ax = make_axes(ax)
    frame = results.requests
    if "overflow" not in frame:
        raise SpecError("expected results with the metric usage; evaluate with it")
    here = frame[frame["limit"] == chosen]
    names = [str(name) for name in here["strategy"].unique()]
    count = len(names)
    names = sorted(names, key=lambda name: control_name(name) not in ("", "full"))[:MAX_LINES]
    for number, name in enumerate(names):
        tokens = np.sort(here.loc[here["strategy"] == name, "tokens"].to_numpy())
        label = short_strategy(name)
        ax.ecdf(tokens, label=label, gid=label, **line_look(ax, number))
    reserve = results.manifest["spec"]["reserve"]
    for each in limits:
        if each > 1:
            ax.axvline(each - reserve, color=quiet_color(ax), lw=1, ls=(0, (4, 4)), gid="limit")
    ax.set_xscale("log")
    count_axis(ax, "x")
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("tokens of a request")
    ax.set_ylabel("share of requests")
    dashed = "all limits, less the reserve" if reserve else "all limits"
    title = f"within {describe_limit(chosen)}; dashed: {dashed}"
    if count > len(names):
        title += f"; {len(names)} of {count} strategies"
    ax.set_title(title, loc="left", fontsize="medium")
    place_legend(ax)
    over = here.loc[here["strategy"] == "full()", "overflow"]
    fits = f" Of the full history, {1 - over.mean():.0%} of the requests fit." if len(over) else ""
    return finish(ax, f"Distribution of the sizes of requests, {title}.{fits}")

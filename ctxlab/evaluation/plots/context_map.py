"""Context map: the state of every message in every request of a replay.

Each row is a request, and each column is a message of the recording. A marker shows a need that was
not in view: a name or value that the agent used in its reply although the request did not contain
it. The row of the marker is this request, and the column is the last message that mentioned the
name or value. Ticks beside the map show the compactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.plots import colors as palette
from ctxlab.evaluation.plots.base import (
    finish,
    join_names,
    make_axes,
    plain,
    quiet_color,
    rule_color,
    text_color,
)
from ctxlab.evaluation.replay import MESSAGE_STATES, Replay

MAX_COMPACTION_SHARE = 0.2
"compactions are not marked if more than this share of the requests are compactions"

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_context_map(replay: Replay, *, ax: Axes | None = None) -> Axes:
    """Plot the state of each message in each request: one row per request, one column per message.

    A cross marks a need that was lost, and a ring marks a need that can be fetched again (see
    ``Replay.needs``). The marker is in the row of the request and in the column of the last message
    that mentioned the needed name or value. The strip above the map shows the role of each message.
    A tick at the right edge marks a compaction: a request that changes what the previous request sent
    (see ``Replay.compactions``). If more than a fifth of the requests are compactions, none is marked.

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

    Raises
    ------
    SpecError
        If the recording contains no model call.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> axes = ctxlab.plot_context_map(ctxlab.replay(recording, "panic()", 8000))
    >>> axes.get_xlabel()
    'message, by position in the recording'
    >>> axes.figure.savefig("map.png")  # doctest: +SKIP
    """
    from matplotlib.colors import to_rgb

    name, positions = replay.prepared.recording.id, replay.prepared.request_positions
    if not positions:
        raise SpecError(f"recording {name!r} contains no model call to plot; choose another one")
    messages = positions[-1]
    # Wide enough for one pixel per message at matplotlib's default resolution.
    ax = make_axes(ax, min(max(8.6, messages / 85), 16), 5.2)
    states = replay.states[:, :messages]
    grounds = {"absent": ax.get_facecolor(), "dropped": rule_color(ax)}
    colors = np.array(
        [to_rgb(grounds.get(state, palette.STATE_COLORS[state])) for state in MESSAGE_STATES]
    )
    ax.imshow(colors[states], aspect="auto", interpolation="nearest")
    missed = _draw_missed_needs(ax, replay)
    marks = missed + _draw_compactions(ax, replay)
    _draw_legend(ax, [MESSAGE_STATES[code] for code in np.unique(states)], marks)
    _draw_role_strip(ax, replay, messages)
    ax.set_xlabel("message, by position in the recording")
    ax.set_ylabel("request")
    limit = replay.trace.context.budget.limit
    title = f"{plain(name)}\n{short_strategy(repr(replay.trace.strategy))}, {limit:,} tokens"
    ax.set_title(title, loc="left", fontsize="medium", pad=16)
    lost = replay.losses["entity"].head(3).tolist()
    said = f"Largest losses: {join_names(lost)}." if lost else "Nothing was lost."
    return finish(ax, f"Context map of {title.replace(chr(10), ' through ')}. {said}", grid="")


def _draw_missed_needs(ax: Axes, replay: Replay) -> list[tuple[str, Any]]:
    """Draw markers for the needs that were not in view. Return labels and handles for the legend."""
    from matplotlib.patheffects import withStroke

    needs = replay.needs
    halo = [withStroke(linewidth=2.5, foreground=ax.get_facecolor())]
    drawn: list[tuple[str, Any]] = []
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "pointer": ("needed, can be fetched", {"marker": "o", "facecolors": "none", "lw": 0.7}),
        "lost": ("needed and lost", {"marker": "x", "lw": 1.4, "path_effects": halo}),
    }
    for tier, (meaning, look) in looks.items():
        # Needs with the same last message and the same request share a marker.
        places = needs.loc[needs["tier"] == tier, ["last", "request"]].drop_duplicates()
        if len(places):
            x, y = places.to_numpy().T
            spots = ax.scatter(x, y, s=18, color=text_color(), gid=tier, zorder=3, **look)
            drawn.append((meaning, spots))
    return drawn


def _draw_compactions(ax: Axes, replay: Replay) -> list[tuple[str, Any]]:
    """Draw a tick for each compaction, unless there are many. Return its label and handle."""
    requests = replay.compactions["request"].to_numpy()
    if not 0 < len(requests) <= MAX_COMPACTION_SHARE * len(replay.trace.tokens):
        return []
    # x is a share of the width of the axes, and y the number of the request.
    look: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "color": text_color()}
    ticks = ax.hlines(requests, 0.98, 1, lw=1.2, gid="compaction", zorder=3, **look)
    return [("compaction", ticks)]


def _draw_legend(ax: Axes, states: list[str], marked: list[tuple[str, Any]]) -> None:
    """Draw the legend in the upper right corner.

    The corner is empty, because early requests do not contain late messages.
    """
    from matplotlib.patches import Patch

    shown = [state for state in states if state != "absent"]
    colors = {**palette.STATE_COLORS, "dropped": rule_color(ax)}
    marks = [(state, Patch(color=colors[state])) for state in shown]
    handles = [handle for _, handle in (*marks, *marked)]
    names = [name for name, _ in (*marks, *marked)]
    ax.add_artist(ax.legend(handles, names, loc="upper right", fontsize="small", frameon=False))


def _draw_role_strip(ax: Axes, replay: Replay, messages: int) -> None:
    """Draw a strip above the map that shows the role of each message."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    roles = [message.role for message in replay.prepared.recording.messages[:messages]]
    strip = ax.inset_axes((0, 1.015, 1, 0.025), sharex=ax)
    colors = [[to_rgb(palette.ROLE_COLORS[role]) for role in roles]]
    strip.imshow(colors, aspect="auto", interpolation="nearest")
    strip.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)
    strip.spines[:].set_color(rule_color(ax))
    used = [role for role in palette.ROLE_COLORS if role in roles]
    handles = [Patch(fc=palette.ROLE_COLORS[role], ec=quiet_color(ax), lw=0.5) for role in used]
    look = {"frameon": False, "borderaxespad": 0, "fontsize": "x-small", "handlelength": 0.9}
    look |= {"columnspacing": 1.0}
    strip.legend(handles, used, loc="lower right", bbox_to_anchor=(1, 1.2), ncols=len(used), **look)

"""The context map shows, for every request of a replay, what became of every message.

A row is a request, a column is a message of the recording. A mark stands where something that the
agent used next had last been said, if the request no longer held it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxlab.errors import SpecError
from ctxlab.evaluation.plots import colors as palette
from ctxlab.evaluation.replay import MESSAGE_STATES, Replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_context_map"]


def plot_context_map(replay: Replay, *, ax: Axes | None = None) -> Axes:
    """Draws requests (downwards) × messages (to the right), coloured by each message's state.

    A cross marks a need that was lost, a ring one that can be fetched (``Replay.needs``). Both
    stand at the request that used it and the message that had last held it. The strip on top says
    whose message it is. Raises ``SpecError`` for a recording without a model call.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import to_rgb

    requests = len(replay.prepared.request_positions)
    if not requests:
        raise SpecError(
            f"{replay.prepared.recording.id} holds no model call, so there is no request"
        )
    messages = replay.prepared.request_positions[-1]
    if ax is None:
        # Wide enough that at matplotlib's own resolution each message has a pixel.
        width = min(max(8.6, messages / 85), 16)
        _, ax = plt.subplots(figsize=(width, 5.2), layout="constrained")
    states = replay.states[:, :messages]
    colors = np.array([to_rgb(palette.STATE_COLORS[state]) for state in MESSAGE_STATES])
    ax.imshow(colors[states], aspect="auto", interpolation="nearest")
    missed = _draw_missed_needs(ax, replay)
    _draw_legend(ax, [MESSAGE_STATES[code] for code in np.unique(states)], missed)
    _draw_role_strip(ax, replay, messages)
    ax.set_xlabel("message, by position in the recording")
    ax.set_ylabel("request")
    ax.spines[["top", "right"]].set_visible(False)
    limit = replay.trace.context.budget.limit
    strategy = repr(replay.trace.strategy).replace("()", "")
    title = f"{replay.prepared.recording.id}\n{strategy}, {limit:,} tokens"
    ax.set_title(title, loc="left", fontsize=9, pad=16)
    return ax


def _draw_missed_needs(ax: Axes, replay: Replay) -> list[tuple[str, Any]]:
    """A mark for every place where something was missed; what each kind means, with its handle."""
    from matplotlib.patheffects import withStroke

    needs = replay.needs
    halo = [withStroke(linewidth=2.5, foreground="white")]
    drawn: list[tuple[str, Any]] = []
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "pointer": ("needed, can be fetched", {"marker": "o", "facecolors": "none", "lw": 0.7}),
        "lost": ("needed and lost", {"marker": "x", "lw": 1.4, "path_effects": halo}),
    }
    for tier, (meaning, look) in looks.items():
        # Several needs may miss the same message at once; they share a mark.
        places = needs.loc[needs["tier"] == tier, ["last", "request"]].drop_duplicates()
        if len(places):
            x, y = places.to_numpy().T
            spots = ax.scatter(x, y, s=18, color=palette.TEXT_COLOR, gid=tier, zorder=3, **look)
            drawn.append((meaning, spots))
    return drawn


def _draw_legend(ax: Axes, states: list[str], missed: list[tuple[str, Any]]) -> None:
    """The states that occur, in the corner above the diagonal, where nothing has been said yet."""
    from matplotlib.patches import Patch

    shown = [state for state in states if state != "absent"]
    handles = [
        *(Patch(color=palette.STATE_COLORS[state]) for state in shown),
        *(m for _, m in missed),
    ]
    names = [*shown, *(meaning for meaning, _ in missed)]
    ax.add_artist(ax.legend(handles, names, loc="upper right", fontsize=8, frameon=False))


def _draw_role_strip(ax: Axes, replay: Replay, messages: int) -> None:
    """A strip above the map, with whose message each column is."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    roles = [message.role for message in replay.prepared.recording.messages[:messages]]
    strip = ax.inset_axes((0, 1.015, 1, 0.025), sharex=ax)
    strip.imshow(
        [[to_rgb(palette.ROLE_COLORS[role]) for role in roles]],
        aspect="auto",
        interpolation="nearest",
    )
    strip.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)
    strip.spines[:].set_color(palette.LIGHT_GRAY)
    used = [role for role in palette.ROLE_COLORS if role in roles]
    handles = [Patch(fc=palette.ROLE_COLORS[role], ec=palette.GRAY, lw=0.5) for role in used]
    strip.legend(
        handles,
        used,
        loc="lower right",
        bbox_to_anchor=(1, 1.2),
        ncols=len(used),
        fontsize=7,
        frameon=False,
        borderaxespad=0,
        handlelength=0.9,
        columnspacing=1.0,
    )

"""Plots that show where a strategy forgets: by distance, and by recording."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab._utils.numbers import describe_limit, format_share
from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.frontend.board import Board, make_heat_map
from ctxlab.evaluation.metrics.recall import FAR_TOKENS
from ctxlab.evaluation.plots.base import (
    MAX_LINES,
    draw_shares,
    finish,
    line_look,
    make_axes,
    place_legend,
    plain,
    quiet_color,
    say_nothing,
)
from ctxlab.evaluation.replay import Replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ctxlab.evaluation.results import Results

_MIN_NEEDS = 5
"a bin with fewer needs is not drawn"
_FIRST_EDGE = 250


def plot_recall_by_distance(replays: Replay | Iterable[Replay], *, ax: Axes | None = None) -> Axes:
    """Plot the share of needs that are held, by the tokens since they were last mentioned.

    Each bin is twice as wide as the one before. Bins with fewer than five needs are left out. Replays of
    the same strategy under the same limit are summed, so recordings can be pooled.

    Parameters
    ----------
    replays : Replay or iterable of Replay
        Replays of one or several recordings.
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
    >>> strategies = ["sliding_window()", "rolling_summary | panic"]
    >>> ax = ctxlab.plot_recall_by_distance(
    ...     ctxlab.replay(recording, strategy, 8000) for strategy in strategies
    ... )
    >>> ax.get_ylabel()
    'share of needs held (availability)'
    """
    shown = [replays] if isinstance(replays, Replay) else list(replays)
    ax = make_axes(ax)
    pooled: dict[str, list[pd.DataFrame]] = {}
    # Under a share of each recording's length, recordings have different limits, and are pooled.
    limits: dict[str, set[int]] = {}
    for replay in shown:
        limits.setdefault(replay.prepared.recording.id, set()).add(replay.trace.budget.limit)
    several = any(len(each) > 1 for each in limits.values())
    for replay in shown:
        name = short_strategy(repr(replay.trace.strategy))
        if several:
            name += f", {replay.trace.budget.limit:,}"
        pooled.setdefault(name, []).append(replay.needs[["gap", "tier"]])
    frames = {name: pd.concat(tables) for name, tables in list(pooled.items())[:MAX_LINES]}
    if not any(map(len, frames.values())):
        return say_nothing(
            ax, "No tool call uses a value of an earlier message; nothing is needed."
        )
    longest = max(int(frame["gap"].max()) for frame in frames.values() if len(frame))
    steps = max(1, int(np.ceil(np.log2(max(longest, _FIRST_EDGE) / _FIRST_EDGE))))
    edges = np.array([0, *(_FIRST_EDGE * 2**step for step in range(steps + 1))])
    shares: dict[str, npt.NDArray[np.float64]] = {}
    for number, (name, frame) in enumerate(frames.items()):
        place = np.searchsorted(edges[1:-1], frame["gap"].to_numpy())
        held = (frame["tier"] == "held").to_numpy()
        sizes = np.bincount(place, minlength=len(edges) - 1)
        sums = np.bincount(place, held, minlength=len(edges) - 1)
        share = np.where(sizes >= _MIN_NEEDS, sums / np.maximum(sizes, 1), np.nan)
        ax.plot(share, marker="o", ms=4, label=name, gid=name, **line_look(ax, number))
        shares[name] = share
    if all(np.isnan(share).all() for share in shares.values()):
        ax.clear()
        return say_nothing(ax, f"No distance has {_MIN_NEEDS} needs, so no share can be said.")
    labels = [f"{edge / 1000:g}k" if edge >= 1000 else str(edge) for edge in edges[1:].tolist()]
    ax.set_xticks(range(len(labels)), labels)
    far = np.searchsorted(edges, FAR_TOKENS) - 0.5
    if far < len(labels):
        ax.axvline(far, color=quiet_color(ax), lw=1, ls=(0, (4, 4)))
        ax.annotate("far →", (far, 0.02), (4, 0), xycoords=("data", "axes fraction"),
                    textcoords="offset points", color=quiet_color(ax), fontsize="small")  # fmt: skip
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("tokens since the last mention, at most")
    ax.set_ylabel("share of needs held (availability)")
    place_legend(ax)
    if len(pooled) > len(frames):
        ax.set_title(f"{len(frames)} of {len(pooled)} strategies", loc="left", fontsize="medium")
    far_shares = {name: share[bisect_left(edges, FAR_TOKENS) :] for name, share in shares.items()}
    said = ", ".join(
        f"{name} {format_share(float(np.nanmin(each)))}"
        for name, each in far_shares.items()
        if not np.isnan(each).all()
    )
    lowest = f" Lowest share of far needs: {said}." if said else ""
    return finish(ax, f"Share of needs held by distance, for {', '.join(frames)}.{lowest}")


def plot_recordings(results: Results, *, ax: Axes | None = None) -> Axes:
    """Plot the share of far needs that each strategy holds in each recording, as a heat map.

    The recordings of which the recommended strategy misses most come first. Of more than forty
    recordings, those with the most losses, some in the middle and the best are shown.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. None creates a figure.

    Returns
    -------
    matplotlib.axes.Axes
        Axes with the plot.

    Raises
    ------
    SpecError
        If recall was not measured.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:2]
    >>> results = ctxlab.evaluate(recordings, ["full", "sliding_window()"], 8000)
    >>> len(ctxlab.plot_recordings(results).get_yticklabels())
    2
    """
    board = Board(results)
    if not board.has_recall:
        raise SpecError("expected results with the metric recall; evaluate with it")
    heat = make_heat_map(board)
    names, columns = heat["recordings"], heat["columns"]
    width, height = 2.8 + 0.75 * len(columns), 1.6 + 0.3 * len(names)
    ax = make_axes(ax, max(5.5, width), max(2.5, height))
    if not names:
        return say_nothing(ax, f"No reply needs anything from over {FAR_TOKENS:,} tokens earlier.")
    values = np.array(
        [[np.nan if c["value"] is None else c["value"] for c in row] for row in heat["cells"]]
    )
    image = draw_shares(ax, values, fontsize="small")
    labels = [board.rows[row]["short"] for row in columns]
    ax.set_xticks(range(len(columns)), labels, rotation=30, ha="right", fontsize="small")
    ax.set_yticks(range(len(names)), [plain(_clip_name(name)) for name in names], fontsize="small")
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.colorbar(image, ax=ax, shrink=0.6, label="far needs held (availability)")
    limit = describe_limit(board.frame["limit"][columns[0]])
    ax.set_title(f"within {limit}", loc="left", fontsize="medium")
    worst = f"{names[0]}: {format_share(values[0, 0])} with {labels[0]}"
    finish(ax, f"Share of far needs held in each recording, within {limit}. {worst}.", grid="")
    ax.spines[:].set_visible(False)
    return ax


def _clip_name(name: str, length: int = 34) -> str:
    return name if len(name) <= length else f"…{name[-length + 1 :]}"

"""Place labels next to their points so that they cover as little as possible.

Labels are placed one after another. Each one tries positions around its point, near ones first, and
takes the best. A label that is far from its point is connected to it by a thin line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ctxlab.evaluation.plots.colors import GRAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

# Distances in points, angles in radians from the right; right and left are the most readable.
_DISTANCES = (7.0, 11.0, 17.0, 25.0, 36.0, 50.0)
_ANGLES = tuple(pi * k / 8 for k in (0, 8, 2, 14, 6, 10, 4, 12, 1, 15, 7, 9, 3, 13, 5, 11))
_MIN_LEADER_DISTANCE = 11.0

_Array = npt.NDArray[np.float64]
"""Pixels: points as x and y; boxes as left, bottom, right and top."""


@dataclass(frozen=True)
class Label:
    """The label of a point, in data coordinates."""

    x: float
    "x of the point"
    y: float
    "y of the point"
    text: str
    "the text"
    color: str = GRAY
    "colour of the text"
    weight: str = "normal"
    "font weight of the text"


def place_labels(
    ax: Axes, labels: Sequence[Label], bars: Sequence[tuple[float, float, float]]
) -> None:
    """Draw labels on axes whose limits and layout are final.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    labels : sequence of Label
        The labels; earlier ones choose their position first.
    bars : sequence of (float, float, float)
        Vertical lines ``(x, low, high)`` in data coordinates that labels should avoid.
    """
    if not labels:
        return
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    pixel = figure.dpi / 72
    points = ax.transData.transform([(label.x, label.y) for label in labels])
    taken = np.concatenate([points - 4 * pixel, points + 4 * pixel], axis=1)
    low = ax.transData.transform([(x, low) for x, low, _ in bars] or np.zeros((0, 2)))
    high = ax.transData.transform([(x, high) for x, _, high in bars] or np.zeros((0, 2)))
    thick = np.array([pixel, 0])
    lines = np.concatenate([low - thick, high + thick], axis=1)
    frame = np.array([ax.get_window_extent().extents])
    for label, point in zip(labels, points, strict=True):
        text = _draw_label(ax, label)
        extent = text.get_window_extent()
        size = np.array([extent.width + 2 * pixel, extent.height + pixel])
        best = (np.inf, np.zeros(2), np.zeros(4))
        for rank, offset in enumerate(_offsets(size, pixel)):
            corner = point + offset - size / 2
            box = np.concatenate([corner, corner + size])
            cost = 4 * _overlap_area(box, taken) + 0.5 * _overlap_area(box, lines)
            cost += 20 * (size.prod() - _overlap_area(box, frame)) + 0.5 * rank * pixel * pixel
            if cost < best[0]:
                best = (cost, offset, box)
        _, offset, box = best
        text.set_position(tuple(offset / pixel))
        taken = np.vstack([taken, box])
        _draw_leader_line(ax, label, offset / pixel, size / pixel)


def _offsets(size: _Array, pixel: float) -> Iterator[_Array]:
    """Yield candidate offsets of a label's centre from its point, in pixels, best first."""
    for distance in _DISTANCES:
        for angle in _ANGLES:
            # The label touches an ellipse around its point.
            yield np.array([cos(angle), sin(angle)]) * (distance * pixel + size / 2)


def _draw_label(ax: Axes, label: Label) -> Annotation:
    from matplotlib.patheffects import withStroke

    text = ax.annotate(
        label.text,
        (label.x, label.y),
        xytext=(0, 0),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=8,
        color=label.color,
        weight=label.weight,
        zorder=6,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )
    text.set_in_layout(False)
    return text


def _draw_leader_line(ax: Axes, label: Label, offset: _Array, size: _Array) -> None:
    """Draw a thin line from a point to the nearest edge of its label, unless it is adjacent."""
    end = offset - np.clip(offset, -size / 2, size / 2)
    if np.hypot(*end) <= _MIN_LEADER_DISTANCE:
        return
    line = ax.annotate(
        "",
        (label.x, label.y),
        xytext=tuple(end),
        textcoords="offset points",
        arrowprops={"arrowstyle": "-", "lw": 0.6, "color": GRAY, "shrinkA": 0, "shrinkB": 3},
        zorder=4,
    )
    line.set_in_layout(False)


def _overlap_area(box: _Array, others: _Array) -> float:
    """Return the total area that a box shares with others, in square pixels."""
    wide = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    high = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    return float((np.clip(wide, 0, None) * np.clip(high, 0, None)).sum())

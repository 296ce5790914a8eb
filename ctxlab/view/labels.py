"""Labels are put beside their points, one after the other, where the least is covered.

Each label tries places around its point, near ones first, and takes the best one. What was given
first has the choice; a label that had to go further away is tied to its point by a thin line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ctxlab.view.palette import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Label", "place"]

_DISTANCES = (7.0, 11.0, 17.0, 25.0, 36.0, 50.0)
_ANGLES = tuple(pi * k / 8 for k in (0, 8, 2, 14, 6, 10, 4, 12, 1, 15, 7, 9, 3, 13, 5, 11))
_TIED = 11.0

Boxes = npt.NDArray[np.float64]
"""Rows of left, bottom, right, top, in pixels."""


@dataclass(frozen=True)
class Label:
    """A text for a point, in data coordinates."""

    x: float
    y: float
    text: str
    color: str = GREY
    weight: str = "normal"


def place(ax: Axes, labels: Sequence[Label], bars: Sequence[tuple[float, float, float]]) -> None:
    """Writes the labels on axes whose limits and layout are final.

    ``bars`` are the vertical lines ``(x, low, high)`` that are better not covered, in data units.
    """
    from matplotlib.patheffects import withStroke

    if not labels:
        return
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    pixel = figure.dpi / 72
    window = ax.get_window_extent()
    frame = np.array([window.x0, window.y0, window.x1, window.y1])
    points = ax.transData.transform([(label.x, label.y) for label in labels])
    taken = np.concatenate([points - 4 * pixel, points + 4 * pixel], axis=1)
    ends = [[ax.transData.transform((x, y)) for y in (low, high)] for x, low, high in bars]
    lines = np.array([(*low, *high) for low, high in ends]).reshape(-1, 4)
    lines += np.array([-1, 0, 1, 0]) * pixel
    for label, (px, py) in zip(labels, points, strict=True):
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
        size = text.get_window_extent()
        width, height = size.width + 2 * pixel, size.height + pixel
        best = (np.inf, 0.0, 0.0, np.zeros(4))
        for distance in _DISTANCES:
            for rank, angle in enumerate(_ANGLES):
                # The label touches a circle round its point, on the side that faces it.
                dx = cos(angle) * (distance * pixel + width / 2)
                dy = sin(angle) * (distance * pixel + height / 2)
                left, bottom = px + dx - width / 2, py + dy - height / 2
                box = np.array([left, bottom, left + width, bottom + height])
                outside = width * height - _overlap(box, frame[None])
                cost = 4 * _overlap(box, taken) + 0.5 * _overlap(box, lines) + 20 * outside
                cost += (distance + 0.2 * rank) * pixel * pixel
                if cost < best[0]:
                    best = (cost, dx / pixel, dy / pixel, box)
        _, dx, dy, box = best
        text.set_position((dx, dy))
        taken = np.vstack([taken, box])
        gap = hypot(max(abs(dx) - width / pixel / 2, 0), max(abs(dy) - height / pixel / 2, 0))
        if gap > _TIED:
            _tie(ax, label, dx, dy, width / pixel, height / pixel)


def _tie(ax: Axes, label: Label, dx: float, dy: float, width: float, height: float) -> None:
    """A thin line from the point to the nearest edge of its label."""
    end = (dx - np.clip(dx, -width / 2, width / 2), dy - np.clip(dy, -height / 2, height / 2))
    line = ax.annotate(
        "",
        (label.x, label.y),
        xytext=end,
        textcoords="offset points",
        arrowprops={"arrowstyle": "-", "lw": 0.6, "color": GREY, "shrinkA": 0, "shrinkB": 3},
        zorder=4,
    )
    line.set_in_layout(False)


def _overlap(box: Boxes, others: Boxes) -> float:
    """The area that a box shares with others, summed, in square pixels."""
    wide = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    high = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    return float((np.clip(wide, 0, None) * np.clip(high, 0, None)).sum())

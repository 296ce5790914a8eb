"""Place labels next to their points so that they cover as little as possible.

Labels are placed one after another. Each label is tried at several positions around its point and
placed where it overlaps least; near positions are preferred. A thin line connects a label to its
point if they are far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ctxlab.evaluation.plots.colors import GRAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

# Distances in points; angles in radians, counted from the right. Right and left come first, because
# labels in these directions are the easiest to read.
_DISTANCES = np.array([7.0, 11.0, 17.0, 25.0, 36.0, 50.0])[:, None, None]
_ANGLES = np.pi / 8 * np.array([0, 8, 2, 14, 6, 10, 4, 12, 1, 15, 7, 9, 3, 13, 5, 11])
_DIRECTIONS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
_MIN_LEADER_DISTANCE = 11.0

_Array = npt.NDArray[np.float64]
"""Coordinates in pixels: x and y of points, or left, bottom, right and top of boxes."""


@dataclass(frozen=True)
class Label:
    """Label of a point in a plot."""

    x: float
    "x of the point, in data coordinates"
    y: float
    "y of the point, in data coordinates"
    text: str
    "text of the label"
    color: str = GRAY
    "colour of the text"
    weight: str = "normal"
    "font weight of the text"
    is_control: bool = False
    "True if the point is a control; labels of controls are placed last"


def place_labels(
    ax: Axes, labels: Sequence[Label], bars: Sequence[tuple[float, float, float]]
) -> None:
    """Draw labels next to their points. Call this function when the rest of the plot is complete.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to draw on.
    labels : sequence of Label
        Labels to place, in this order. The labels of controls are placed after all others.
    bars : sequence of (float, float, float)
        Vertical lines ``(x, low, high)`` in data coordinates that labels should not cover.
    """
    from matplotlib.patheffects import withStroke

    if not labels:
        return
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    labels = sorted(labels, key=attrgetter("is_control"))
    pixel = figure.dpi / 72
    halo = [withStroke(linewidth=2, foreground=ax.get_facecolor())]
    points = ax.transData.transform([(label.x, label.y) for label in labels])
    taken = np.concatenate([points - 4 * pixel, points + 4 * pixel], axis=1)
    low = ax.transData.transform([(x, low) for x, low, _ in bars] or np.zeros((0, 2)))
    high = ax.transData.transform([(x, high) for x, _, high in bars] or np.zeros((0, 2)))
    thick = np.array([pixel, 0])
    lines = np.concatenate([low - thick, high + thick], axis=1)
    frame = np.array([ax.get_window_extent().extents])
    for label, point in zip(labels, points, strict=True):
        look: dict[str, Any] = {"color": label.color, "weight": label.weight, "fontsize": "small"}
        look |= {"ha": "center", "va": "center", "zorder": 6, "path_effects": halo}
        text = _annotate(ax, label, label.text, **look)
        extent = text.get_window_extent()
        size = np.array([extent.width + 2 * pixel, extent.height + pixel])
        # The possible centres of the label lie on ellipses around the point.
        offsets = (_DIRECTIONS * (_DISTANCES * pixel + size / 2)).reshape(-1, 2)
        corners = point + offsets - size / 2
        boxes = np.concatenate([corners, corners + size], axis=1)
        cost = 4 * _overlap_areas(boxes, taken) + 0.5 * _overlap_areas(boxes, lines)
        cost += 20 * (size.prod() - _overlap_areas(boxes, frame))
        cost += 0.5 * np.arange(len(boxes)) * pixel * pixel
        best = cost.argmin()
        text.set_position(tuple(offsets[best] / pixel))
        taken = np.vstack([taken, boxes[best]])
        _draw_leader_line(ax, label, offsets[best] / pixel, size / pixel)


def _annotate(
    ax: Axes, label: Label, text: str, offset: tuple[float, float] = (0, 0), **look: Any
) -> Annotation:
    """Draw a string next to the label's point, at an offset in typographic points.

    The string has no effect on the layout of the figure.
    """
    drawn = ax.annotate(text, (label.x, label.y), offset, textcoords="offset points", **look)
    drawn.set_in_layout(False)
    return drawn


def _draw_leader_line(ax: Axes, label: Label, offset: _Array, size: _Array) -> None:
    """Draw a thin line from a point to the nearest edge of its label, unless the edge is close."""
    end = offset - np.clip(offset, -size / 2, size / 2)
    if np.hypot(*end) > _MIN_LEADER_DISTANCE:
        line = {"arrowstyle": "-", "lw": 0.6, "color": GRAY, "shrinkA": 0, "shrinkB": 3}
        _annotate(ax, label, "", tuple(end), arrowprops=line, zorder=4)


def _overlap_areas(boxes: _Array, others: _Array) -> _Array:
    """Return, for each box, the total area of its overlaps with ``others``, in square pixels."""
    low = np.maximum(boxes[:, None, :2], others[:, :2])
    high = np.minimum(boxes[:, None, 2:], others[:, 2:])
    total: _Array = np.clip(high - low, 0, None).prod(axis=2).sum(axis=1)
    return total

"""Colours of all plots: the Okabe-Ito palette, which colour-blind readers can distinguish.

References
----------
- M. Okabe and K. Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

from typing import Any

_ORANGE, _SKY, _GREEN, _YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
_BLUE, _VERMILION, _PURPLE = "#0072B2", "#D55E00", "#CC79A7"

TEXT_COLOR = "#222222"
"""Colour of text and of markers without a category."""

GRAY = "#777777"
"""Colour of controls and captions."""

LIGHT_GRAY = "#D9D9D9"
"""Colour of guide lines and of dropped messages."""

COLOR_CYCLE: tuple[str, ...] = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY)
"""Colours of categories, in order of use. Yellow is not used, because it is too faint for a point."""

STATE_COLORS: dict[str, str] = {
    "absent": "#FFFFFF",
    "verbatim": _SKY,
    "truncated": _BLUE,
    "stub": _ORANGE,
    "pointer": _YELLOW,
    "summary": _GREEN,
    "rewritten": _PURPLE,
    "dropped": LIGHT_GRAY,
}
"""Colour of each state of a message; the keys are ``ctxlab.evaluation.replay.MESSAGE_STATES``."""

LEGEND_STYLE: dict[str, Any] = {"frameon": False, "fontsize": 8, "borderaxespad": 0}
"""Keyword arguments of ``Axes.legend`` for legends outside the axes."""

ROLE_COLORS: dict[str, str] = {
    "system": TEXT_COLOR,
    "user": _VERMILION,
    "assistant": "#FFFFFF",
    "tool": "#A6A6A6",
}
"""Colour of each message role."""

"""Colours of all plots: the Okabe-Ito palette, which colour-blind readers can distinguish.

References
----------
- M. Okabe and K. Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

_ORANGE, _SKY, _GREEN, _YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
_BLUE, _VERMILION, _PURPLE = "#0072B2", "#D55E00", "#CC79A7"

GRAY = "#777777"
"""Colour of controls and captions."""

COLOR_CYCLE: tuple[str, ...] = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY)
"""Colours of categories, in order of use. Yellow is not used, because it is too faint for a point."""

LIGHT_CYCLE: tuple[str, ...] = (_SKY, _ORANGE, "#4FD0A4", "#E3A6C8", _YELLOW, "#8FB8E8")
"""Colours of categories on a dark ground, in order of use."""

STATE_COLORS: dict[str, str] = {
    "absent": "#FFFFFF",
    "verbatim": _SKY,
    "truncated": _BLUE,
    "stub": _ORANGE,
    "pointer": _YELLOW,
    "summary": _GREEN,
    "rewritten": _PURPLE,
    "dropped": "#D9D9D9",
}
"""Colour of each state of a message; the keys are ``ctxlab.evaluation.replay.MESSAGE_STATES``."""

ROLE_COLORS: dict[str, str] = {
    "system": "#222222",
    "user": _VERMILION,
    "assistant": "#FFFFFF",
    "tool": "#A6A6A6",
}
"""Colour of each message role."""

"""The colours of every plot are those of Okabe and Ito, told apart by colour-blind readers too.

Source: M. Okabe and K. Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

__all__ = ["COLOR_CYCLE", "GRAY", "LIGHT_GRAY", "ROLE_COLORS", "STATE_COLORS", "TEXT_COLOR"]

_ORANGE, _SKY, _GREEN, _YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
_BLUE, _VERMILION, _PURPLE = "#0072B2", "#D55E00", "#CC79A7"

TEXT_COLOR = "#222222"
"""Text and marks."""

GRAY = "#777777"
"""Controls, captions and whatever else is no finding."""

LIGHT_GRAY = "#D9D9D9"
"""Guides, and what is gone."""

COLOR_CYCLE: tuple[str, ...] = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY)
"""Kinds that are told apart by colour alone, in order; yellow is too faint for a point."""

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
"""What became of a message; its keys are ``ctxlab.evaluation.replay.MESSAGE_STATES``."""

ROLE_COLORS: dict[str, str] = {
    "system": TEXT_COLOR,
    "user": _VERMILION,
    "assistant": "#FFFFFF",
    "tool": "#A6A6A6",
}
"""Who said a message."""

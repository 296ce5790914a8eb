"""Where a conversation can be cut."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.messages.types import Message
from ctxlab.messages.validation import UnitTracker


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """The indexes at which a cut separates no call from its results."""
    units = UnitTracker()
    for message in messages:
        units.add(message)
    return [i for i, start in enumerate(units.starts) if start == i]

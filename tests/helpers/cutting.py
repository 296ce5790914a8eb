"""Find positions at which a conversation can be cut."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.messages.types import Message
from ctxlab.messages.validation import UnitTracker


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Return the indexes at which a cut does not separate a tool call from its results."""
    units = UnitTracker()
    for message in messages:
        units.add(message)
    return [i for i, start in enumerate(units.starts) if start == i]

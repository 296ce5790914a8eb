"""Strategy that sends everything; the reference for losses and overflows."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import BaseStrategy


@dataclass(frozen=True, repr=False)
class full(BaseStrategy):
    """Sends every message; no context management.

    Source: agents without context management.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=full(), limit=50, reserve=0))
    100
    """

    def __call__(self, context: Context, /) -> Context:
        """Return the context as it is."""
        return context

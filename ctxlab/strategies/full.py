"""``full`` sends everything: the reference for what there is to lose, and what overflows."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import BaseStrategy

__all__ = ["full"]


@dataclass(frozen=True, repr=False)
class full(BaseStrategy):
    """Everything that was said is sent; nothing is managed.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=full(), limit=50, reserve=0))
    100

    Source: what an agent does that has no context management.
    """

    def __call__(self, context: Context, /) -> Context:
        return context

"""``full`` sends everything: the reference for what there is to lose, and what overflows."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context import Context
from ctxlab.strategies.base import Base

__all__ = ["full"]


@dataclass(frozen=True, repr=False)
class full(Base):
    """Everything that was said is sent; nothing is managed."""

    def __call__(self, context: Context, /) -> Context:
        return context

"""A budget says how many tokens a request may hold: the window, less the reply, less what is fixed."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.tokens.counter import TokenCounter

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget:
    """How many tokens a request may hold.

    >>> Budget(8000, reserve=1000, fixed=503).available
    6497
    """

    limit: int
    "tokens of the context window"
    reserve: int = 0
    "tokens kept free for the reply"
    fixed: int = TokenCounter.REPLY
    "tokens of every request that are no messages: tool definitions and the opening of the reply"

    @property
    def available(self) -> int:
        """Tokens left for messages; 0 where the fixed part alone is too large."""
        return max(0, self.limit - self.reserve - self.fixed)

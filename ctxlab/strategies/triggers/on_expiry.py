"""Wrapper that runs a strategy when the prompt cache has expired."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ctxlab.context.context import Context
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import WrapperStrategy, run_with_target, trigger_tokens

_DEFAULT_LIFETIME = 300.0
"Lifetime in seconds of a cache whose lifetime is unknown: that of the cheaper writes of Anthropic."


@dataclass(frozen=True, repr=False)
class on_expiry(WrapperStrategy):
    """Runs another strategy when the prompt cache has expired, so that an edit makes nothing dearer.

    After a pause that is longer than the lifetime of the cache, the whole request is paid as new input
    anyway. An edit at this moment invalidates nothing and makes the request smaller. Since it also
    removes information, the strategy runs only if the context exceeds ``trigger``. Without a pause,
    the strategy runs only if the request exceeds the available tokens. During a run, its budget is
    ``target``.

    The first request of a conversation counts as a request without a pause, and so does a request whose
    time or whose previous request's time is unknown.

    Source: ctxlab; Claude Code clears tool results after an idle hour for the same reason.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.windows import sliding_window
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"line {i}") for i in range(8)]
    >>> context = Context(Budget(103), History(TokenCounter("gpt-4o"), said))
    >>> strategy = on_expiry(sliding_window(messages=2))
    >>> for length, minute in ((6, 0), (7, 2), (8, 30)):
    ...     context.advance(length)
    ...     context.set_time(datetime(2025, 5, 1, 9, minute, tzinfo=UTC))
    ...     print(strategy(context).tokens)
    ...     context.commit_request(context)
    42
    49
    21
    """

    strategy: Strategy
    "strategy that removes tokens"
    ttl: float | None = None
    """lifetime of the cache in minutes, counted from the previous request; None: the lifetime that the
    model's provider states, or 5 minutes if it is unknown"""
    trigger: float = 0.5
    """size of the context above which the strategy runs at an expiry: up to 1, a share of the
    available tokens; above 1, a number of tokens of the messages; 0: any size"""
    target: float = 0.5
    "budget of the strategy during a run, given in the same way as ``trigger``"

    def __call__(self, context: Context, /) -> Context:
        """Run the wrapped strategy if the cache has expired or the request does not fit."""
        expired = self._is_expired(context) and context.tokens > trigger_tokens(
            context, self.trigger
        )
        if not expired and context.excess <= 0:
            return context
        return run_with_target(context, self.target, self.strategy)

    def _is_expired(self, context: Context) -> bool:
        if context.idle is None:
            return False
        seconds = context.history.model.cache.lifetime or _DEFAULT_LIFETIME
        lifetime = timedelta(seconds=seconds if self.ttl is None else 60 * self.ttl)
        return context.idle > lifetime

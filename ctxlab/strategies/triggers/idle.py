"""Wrapper that runs a strategy after a pause in the conversation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ctxlab.context.context import Context
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import WrapperStrategy


@dataclass(frozen=True, repr=False)
class idle(WrapperStrategy):
    """Runs another strategy at the first request after a pause.

    A pause is the time between two requests, including a long tool call. A request whose time or whose
    previous request's time is unknown never counts as the end of a pause. The wrapped strategy should
    edit the context itself: the edits of a strategy that returns a fork, such as ``panic``, last for
    this one request only.

    The size of the context plays no role. Add a strategy that makes large requests fit.

    Source: Claude Code, which clears old tool results if a session has been idle for an hour, because
    the prompt cache has expired by then.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.windows import sliding_window
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"line {i}") for i in range(4)]
    >>> context = Context(Budget(900), History(TokenCounter("gpt-4o"), said))
    >>> strategy = idle(sliding_window(messages=1), minutes=60)
    >>> for length, hour in ((2, 9), (3, 9), (4, 10)):
    ...     context.advance(length)
    ...     context.set_time(datetime(2025, 5, 1, hour, tzinfo=UTC))
    ...     print([message.content for message in strategy(context).messages])
    ...     context.commit_request(context)
    ['line 0', 'line 1']
    ['line 0', 'line 1', 'line 2']
    ['line 0', 'line 3']
    """

    strategy: Strategy
    "strategy that runs after a pause"
    minutes: float = 60.0
    "minimum number of minutes between the previous request and this one"

    def __call__(self, context: Context, /) -> Context:
        """Run the wrapped strategy if the conversation was idle for long enough."""
        paused = context.idle
        if paused is None or paused < timedelta(minutes=self.minutes):
            return context
        return self.strategy(context)

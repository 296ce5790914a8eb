"""Strategy that keeps the beginning and the end of a conversation and drops the middle."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import BaseStrategy


@dataclass(frozen=True, repr=False)
class first_and_last(BaseStrategy):
    """Keeps the oldest and the newest messages, by count; calls stay with their results.

    The beginning never changes, so at least that part stays in a prompt cache.

    Source: AutoGen's ``HeadAndTailChatCompletionContext``, changed so that calls and results stay
    together.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=first_and_last(first=2, last=2))
    >>> [message["content"] for message in sent]
    ['line 0', 'line 1', 'line 98', 'line 99']
    """

    first: int = 6
    "oldest messages to keep at most; the system prompt and the task are always kept"
    last: int = 20
    "newest messages to keep at most; the newest step is always kept"

    def __call__(self, context: Context, /) -> Context:
        """Drop the messages between the oldest and the newest ones."""
        if context.history_length <= self.first:
            return context
        unit = context.history.unit_starts[self.first]
        start = max(context.first_droppable, context.index_at_or_after(unit))
        cut = context.next_safe_cut(max(start, len(context.entries) - self.last))
        stop = min(context.last_unit_start, cut)
        if stop > start:
            context.drop(start, stop)
        return context

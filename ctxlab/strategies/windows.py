"""Windows keep the newest part of a conversation; they differ in when and where they cut.

The system prompt and the first user message, the task, stay. A cut never parts a tool call from its
results. Both kinds cut in place: what a window has left behind never comes back, since a longer
conversation only moves it on.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy

__all__ = ["chunked_window", "sliding_window"]


@dataclass(frozen=True, repr=False)
class sliding_window(BaseStrategy):
    """The newest messages that fit, cut anew before every request.

    Without parameters it fills the budget. The prompt cache is lost at nearly every cut, since each
    moves the beginning of the window.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=sliding_window(messages=2))
    >>> [message["content"] for message in sent]
    ['line 0', 'line 98', 'line 99']

    Source: seed design "Session Chunking" (``max_history``), and most agent libraries.
    """

    tokens: int | None = None
    "tokens that the whole request's messages may have; None: what the budget allows"
    messages: int | None = None
    "how many messages to keep at most, the task not counted; None: any number"

    def __call__(self, context: Context, /) -> Context:
        room = context.available if self.tokens is None else min(self.tokens, context.available)
        excess, entries = context.tokens - room, context.entries
        if excess <= 0 and self.messages is None:
            return context
        head, tail = context.first_droppable, context.last_unit_start
        stop = head
        if self.messages is not None:
            stop = min(tail, max(head, len(entries) - self.messages))
            excess -= sum(entry.tokens for entry in entries[head:stop])
        while excess > 0 and stop < tail:
            excess -= entries[stop].tokens
            stop += 1
        stop = context.next_safe_cut(stop)
        if stop > head:
            context.drop(head, stop)
        return context


@dataclass(frozen=True, repr=False)
class chunked_window(BaseStrategy):
    """Whole chunks of ``max_history`` messages, from the newest back until ``max_history`` are there.

    It is how a store that keeps a session in chunk files resumes it. Between two cuts the beginning of
    the request stays the same, so a prompt cache lives; the price is that up to twice
    ``max_history`` messages are sent.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=chunked_window(max_history=30))
    >>> len(sent), sent[1]["content"]
    (41, 'line 60')

    Source: seed design "Session Chunking".
    """

    max_history: int = 40
    "messages a chunk, and the fewest to keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_history < 1:
            raise SpecError("chunked_window: max_history is 0; a chunk holds at least one message")

    def __call__(self, context: Context, /) -> Context:
        # The oldest chunk that is still needed begins at the last boundary that leaves max_history.
        taken = context.positions if isinstance(context, Branch) else range(context.history_length)
        first = (len(taken) // self.max_history - 1) * self.max_history
        if first <= 0 or context.strategy_state.get(self) == first:
            return context
        boundary = taken[first]
        head, tail = context.first_droppable, context.last_unit_start
        cut = context.next_safe_cut(context.index_at_or_after(boundary))
        if cut <= tail:  # else the newest unit reaches over the boundary: it is cut off later
            context.strategy_state[self] = first
        if head < min(cut, tail):
            context.drop(head, min(cut, tail))
        return context

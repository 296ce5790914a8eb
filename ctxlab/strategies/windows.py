"""Strategies that keep the newest part of a conversation.

They keep the system prompt and the first user message, which is the task. A cut never separates a
tool call from its results. Both strategies cut in place: dropped messages never come back.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy


@dataclass(frozen=True, repr=False)
class sliding_window(BaseStrategy):
    """Keeps the newest messages that fit, cut anew before every request.

    By default it fills the budget. Nearly every cut invalidates the prompt cache, because it moves
    the start of the window.

    Source: design note "Session Chunking" (``max_history``), and most agent libraries.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=sliding_window(messages=2))
    >>> [message["content"] for message in sent]
    ['line 0', 'line 98', 'line 99']
    """

    tokens: int | None = None
    "tokens that all messages of the request may take; None: what the budget allows"
    messages: int | None = None
    "newest messages to keep at most, without the task; None: no maximum"

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest messages until the rest fits."""
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
    """Keeps the newest messages and cuts only at the boundaries of fixed-size chunks.

    At least ``max_history`` messages, which is the size of a chunk, are kept. A session store that
    writes chunk files resumes a session like this. The start of the request does not change between
    two cuts, so a prompt cache stays valid. In return, up to twice ``max_history`` messages are
    sent.

    Source: design note "Session Chunking".

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=chunked_window(max_history=30))
    >>> len(sent), sent[1]["content"]
    (41, 'line 60')
    """

    max_history: int = 40
    "messages per chunk, and the minimum number of messages to keep"

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid."""
        super().__post_init__()
        if self.max_history < 1:
            raise SpecError("chunked_window: expected a max_history of at least 1, got 0")

    def __call__(self, context: Context, /) -> Context:
        """Drop the chunks before the newest ones."""
        # The oldest chunk to keep starts at the last boundary that leaves max_history messages.
        taken = context.positions if isinstance(context, Branch) else range(context.history_length)
        first = (len(taken) // self.max_history - 1) * self.max_history
        if first <= 0 or context.strategy_state.get(self) == first:
            return context
        boundary = taken[first]
        head, tail = context.first_droppable, context.last_unit_start
        cut = context.next_safe_cut(context.index_at_or_after(boundary))
        if cut <= tail:  # otherwise the newest step spans the boundary and is cut later
            context.strategy_state[self] = first
        if head < min(cut, tail):
            context.drop(head, min(cut, tail))
        return context

"""Strategies that keep the newest part of a conversation.

They also keep the system prompt and the first user message, which states the task. A cut never
separates a tool call from its results. Dropped messages never come back.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy


@dataclass(frozen=True, repr=False)
class sliding_window(BaseStrategy):
    """Keeps the system prompt, the first user message and the newest messages that fit.

    The messages between them are dropped before each request. By default the window fills the budget.
    Once it is full, nearly every request moves its start and so invalidates the prompt cache.

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
    "maximum tokens of all messages of the request; None: as many as the budget allows"
    messages: int | None = None
    """maximum number of newest messages to keep, not counting the system prompt and the first user
    message; None: no maximum"""

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest messages until the request fits."""
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
    """Keeps the system prompt, the first user message and at least ``max_history`` newest messages.

    The messages between them are dropped in chunks of ``max_history``. A chunk is dropped only if as
    many newer messages remain, so fewer than twice ``max_history`` newest messages are sent. The start
    of the request does not change until the next chunk is dropped, so a prompt cache stays valid in
    between.

    Source: design note "Session Chunking".

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=chunked_window(max_history=30))
    >>> len(sent), sent[0]["content"], sent[1]["content"]
    (41, 'line 0', 'line 60')
    """

    max_history: int = 40
    "number of messages per chunk, and minimum number of messages to keep"

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid."""
        super().__post_init__()
        if self.max_history < 1:
            raise SpecError("chunked_window: expected a max_history of 1 or more, got 0")

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest chunks, and keep at least the ``max_history`` newest messages."""
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

"""Strategies that keep the beginning and the end of a conversation and drop the middle."""

from __future__ import annotations

from bisect import bisect_right
from copy import copy
from dataclasses import dataclass
from typing import Any

from ctxlab.context.context import Context
from ctxlab.strategies.base import BaseStrategy


@dataclass(frozen=True, repr=False)
class first_and_last(BaseStrategy):
    """Keeps a fixed number of oldest messages and of newest messages, and drops all others.

    A tool call and its results are kept or dropped together. The oldest messages never change, so a
    prompt cache can always serve them.

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
    """maximum number of oldest messages to keep; the system prompt and the first user message are
    always kept"""
    last: int = 20
    """maximum number of newest messages to keep; the newest message, or the newest tool call with
    its results, is always kept"""

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


@dataclass(frozen=True, repr=False)
class middle_out(BaseStrategy):
    """Drops messages from the middle of the conversation until the request fits.

    A tool call and its results are dropped together, as one step; any other message is a step of
    its own. The selection is made anew for each request, so dropped steps may come back: a large new
    step leaves little room for others, but when it is in the middle, it is dropped itself. The system
    prompt, the first user message and the newest step are always kept.

    Source: AutoGen's ``TokenLimitedChatCompletionContext``, changed so that calls and results stay
    together.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": text} for text in "abcdefg"]
    >>> sent = build_messages(None, talk, strategy=middle_out(tokens=20))
    >>> [message["content"] for message in sent]
    ['a', 'b', 'f', 'g']
    """

    tokens: int | None = None
    "maximum tokens of all messages of the request; None: as many as the budget allows"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context without the steps in the middle, if the request is too large."""
        room = context.available if self.tokens is None else min(self.tokens, context.available)
        if context.tokens <= room:
            return context
        known: _UnitSums | None = context.strategy_state.get(self)
        if known is None or known.version != context.version:
            known = context.strategy_state[self] = _UnitSums(context)
        known.extend(context)
        starts, sums = known.starts, known.sums
        steps = len(sums) - 1
        room -= sum([entry.tokens for entry in context.entries[: starts[0]]])

        def kept_tokens(kept: int) -> int:
            """Return the tokens of the ``kept`` outermost steps, half of them from each end.

            If the number is odd, one more step is taken from the end than from the beginning.
            """
            return sums[kept // 2] + sums[steps] - sums[steps - (kept - kept // 2)]

        kept = max(1, bisect_right(range(steps + 1), room, key=kept_tokens) - 1)
        start, stop = starts[kept // 2], starts[steps - (kept - kept // 2)]
        return context.fork_with(start, stop, []) if start < stop else context


class _UnitSums:
    """Start indices of the steps of a context, and cumulative sums of their tokens.

    A step is a tool call with its results, or any other message. ``sums[i]`` is the number of tokens
    of the first ``i`` steps.
    """

    def __init__(self, context: Context) -> None:
        self.version = context.version
        self.starts = [context.next_safe_cut(context.first_droppable)]
        "index of the first entry of each step, followed by the index after the last step"
        self.sums = [0]

    def __deepcopy__(self, memo: dict[int, Any]) -> _UnitSums:
        """Return a copy that does not share its lists with this object."""
        other = copy(self)
        other.starts, other.sums = self.starts.copy(), self.sums.copy()
        return other

    def extend(self, context: Context) -> None:
        """Add the steps that were appended to the context since the last call."""
        entries, starts, sums = context.entries, self.starts, self.sums
        if len(starts) > 1:  # the newest step may have grown
            starts.pop()
            sums.pop()
        while starts[-1] < len(entries):
            stop = context.next_safe_cut(starts[-1] + 1)
            sums.append(sums[-1] + sum([entry.tokens for entry in entries[starts[-1] : stop]]))
            starts.append(stop)

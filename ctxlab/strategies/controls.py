"""Controls bound what a strategy can score: nothing, chance, and perfect foresight.

They are no strategies for an agent. A strategy that fills the same limit and does not beat
``random_drop`` knows nothing of what matters; none can beat ``oracle``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ctxlab.context.context import Context
from ctxlab.context.history import Form, OracleInfo
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.panic import panic

_LAST_RESORT = panic()

__all__ = ["nothing", "oracle", "random_drop"]


@dataclass(frozen=True, repr=False)
class nothing(BaseStrategy):
    """Only the system prompt, the first user message, and the newest message with its call.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> [message["content"] for message in build_messages(None, talk, strategy=nothing())]
    ['line 0', 'line 99']

    Source: ctxlab; the least that can be sent.
    """

    def __call__(self, context: Context, /) -> Context:
        head, tail = context.first_droppable, context.last_unit_start
        if tail > head:
            context.drop(head, tail)
        return context


@dataclass(frozen=True, repr=False)
class random_drop(BaseStrategy):
    """Messages picked by chance go, with their pairs, until the rest fits.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=random_drop(), limit=63, reserve=0))
    8

    Source: ctxlab; what a strategy must beat that fills the same limit.
    """

    seed: int = 0
    "same seed, same picks"

    def __call__(self, context: Context, /) -> Context:
        state = context.strategy_state.get(self, self.seed)
        while context.excess > 0:
            head, tail = context.first_droppable, context.last_unit_start
            if tail <= head:
                break
            # Knuth's MMIX generator: a number that can be kept in the context and compared.
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            start = head + (state >> 33) % (tail - head)
            while start > head and not context.is_safe_cut(start):
                start -= 1
            context.drop(start, context.next_safe_cut(start + 1))
        context.strategy_state[self] = state
        return context


@dataclass(frozen=True, repr=False)
class oracle(BaseStrategy):
    """Knows what the next action will use: a window, and the lines that will be needed from before it.

    It bounds what any strategy can recall within the budget. For a question it knows the evidence, as
    much of it as fits, and so bounds evidence recall; which answer is right it does not know. Only a
    replay can run it.

    >>> from ctxlab import Message, Recording, ToolCall, replay
    >>> call = ToolCall("c1", "read", '{"path": "src/io.py"}')
    >>> said = (Message("user", "Go"), Message("assistant", "see src/io.py"),
    ...         Message("user", "a long story " * 400), Message("assistant", tool_calls=(call,)))
    >>> replay(Recording("a", said), oracle(), 60).needs["tier"].tolist()
    ['in view']

    Source: ctxlab; Belady's optimal cache replacement is the idea.
    """

    supports_live: ClassVar[bool] = False

    def __call__(self, context: Context, /) -> Context:
        if context.excess <= 0:
            return context
        oracle_info = context.history.oracle_info
        if oracle_info is None:
            raise SpecError("oracle knows the next action only in a replay")
        needed = oracle_info.needed(context.history_length)
        head, tail = context.first_droppable, context.last_unit_start
        base = context.available - sum(entry.tokens for entry in context.entries[:head])
        message, cost, start = None, 0, head
        while True:
            start = _window_start(context, max(start, head), tail, base - cost)
            earliest = context.entries[start].start if start < tail else context.history_length
            wanted = _needed_passages(oracle_info, needed, context.history.head_length, earliest)
            if wanted == message:
                break
            message, cost = wanted, context.history.counter.count_message(wanted) if wanted else 0
        fork = context.fork_with(head, max(head, start), ())
        if message:
            fork.insert(head, message)
        if fork.excess > 0:
            for index in range(fork.last_unit_start, len(fork.entries)):
                fork.rewrite(index, _LAST_RESORT.shorten, Form.TRUNCATED)
        return fork


def _window_start(context: Context, start: int, tail: int, room: int) -> int:
    """The earliest safe cut from ``start`` on whose entries fit into the room, else the tail."""
    if not context.version:  # nothing was edited, so the history has the sums
        before = context.history.tokens_before
        index = bisect_left(before, before[context.history_length] - room, start, tail)
        return min(context.next_safe_cut(index), tail)
    used, index = 0, len(context.entries)
    while index > start:
        used += context.entries[index - 1].tokens
        if used > room:
            break
        index -= 1
    return min(context.next_safe_cut(index), tail)


def _needed_passages(
    oracle_info: OracleInfo, needed: Sequence[tuple[int, str]], first: int, stop: int
) -> Message | None:
    """The passages last mentioned in ``[first, stop)`` of the history, as one message."""
    lines = dict.fromkeys(oracle_info.passage(*need) for need in needed if first <= need[0] < stop)
    return Message("user", "\n".join(lines)) if lines else None

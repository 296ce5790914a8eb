"""Control strategies, whose scores are lower and upper bounds in a comparison.

Controls are meant for evaluations, not for agents. ``random_drop`` gives a lower bound: a strategy that
scores no higher with the same budget does not select relevant messages. ``oracle`` gives an upper
bound, because it knows the next action of the recording.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.panic import panic

_LAST_RESORT = panic()


@dataclass(frozen=True, repr=False)
class full(BaseStrategy):
    """Sends every message of the conversation, without context management.

    Source: agents without context management.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=full(), limit=50, reserve=0))
    100
    """

    def __call__(self, context: Context, /) -> Context:
        """Return the context unchanged."""
        return context


@dataclass(frozen=True, repr=False)
class nothing(BaseStrategy):
    """Keeps only the system prompt, the first user message, and the newest message.

    If the newest message is a tool result, the assistant message with its tool call and all results
    of that message are kept too.

    Source: ctxlab; the smallest request that can be sent.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> [message["content"] for message in build_messages(None, talk, strategy=nothing())]
    ['line 0', 'line 99']
    """

    def __call__(self, context: Context, /) -> Context:
        """Drop all messages between the first user message and the newest unit."""
        head, tail = context.first_droppable, context.last_unit_start
        if tail > head:
            context.drop(head, tail)
        return context


@dataclass(frozen=True, repr=False)
class random_drop(BaseStrategy):
    """Drops randomly chosen messages until the request fits the budget.

    A tool call and its results are dropped together.

    Source: ctxlab; a lower bound for strategies with the same budget.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=random_drop(), limit=63, reserve=0))
    8
    """

    seed: int = 0
    "seed of the random choice"

    def __call__(self, context: Context, /) -> Context:
        """Drop random messages until the request fits the budget."""
        state = context.strategy_state.get(self, self.seed)
        while context.excess > 0:
            head, tail = context.first_droppable, context.last_unit_start
            if tail <= head:
                break
            # Knuth's MMIX generator. Its state is one integer, which can be stored in the context
            # and compared.
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            start = head + (state >> 33) % (tail - head)
            while start > head and not context.is_safe_cut(start):
                start -= 1
            context.drop(start, context.next_safe_cut(start + 1))
        context.strategy_state[self] = state
        return context


@dataclass(frozen=True, repr=False)
class oracle(BaseStrategy):
    """Keeps a recent window and the older lines that the next action will use.

    The strategy reads the next action from the recording, so it works only in a replay. Its recall
    is an upper bound for all strategies with the same budget. For a probe, which is a question about
    the recording, it keeps as many of the messages with the answer as fit. It is told which messages
    these are, but not the answer.

    Source: ctxlab; the idea is Belady's optimal cache replacement.

    Examples
    --------
    >>> from ctxlab import Message, Recording, ToolCall, replay
    >>> call = ToolCall("c1", "read", '{"path": "src/io.py"}')
    >>> said = (Message("user", "Go"), Message("assistant", "the reader is src/io.py"),
    ...         Message("user", "a long story " * 400), Message("assistant", tool_calls=(call,)))
    >>> replay(Recording("a", said), oracle(), 60).needs["tier"].tolist()
    ['held']
    """

    supports_live: ClassVar[bool] = False
    "False: the strategy needs the next action of a recording"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context with a recent window and the lines that the next action uses."""
        if context.excess <= 0:
            return context
        oracle_info = context.history.oracle_info
        if oracle_info is None:
            raise SpecError("oracle needs the next action of a recording; use it only in a replay")
        needed = oracle_info.needed(context.history_length)
        head, tail = context.first_droppable, context.last_unit_start
        base = context.available - sum(entry.tokens for entry in context.entries[:head])
        message, cost, start, first = None, 0, head, context.history.head_length
        while True:
            start = _window_start(context, max(start, head), tail, base - cost)
            earliest = context.entries[start].start if start < tail else context.history_length
            there = (need for need in needed if first <= need[0] < earliest)
            lines = dict.fromkeys(oracle_info.passage(*need) for need in there)
            wanted = Message("user", "\n".join(lines)) if lines else None
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
    """Return the start index of a window with as many of the newest entries as fit ``room`` tokens.

    The window starts at index ``start`` or later, and does not separate a tool call from its
    results. If no such window fits, ``tail`` is returned.
    """
    if not context.version:  # no edits, so the token sums of the history apply
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

"""Control strategies, whose scores are lower and upper bounds in a comparison.

Controls are meant for evaluations, not for agents. ``random_drop`` is the level of chance: a strategy
that scores no higher with the same number of tokens does not select relevant messages. ``oracle`` and
``message_oracle`` give upper bounds, because they know the next action of the recording.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ctxlab.context.context import Context
from ctxlab.context.history import Form, OracleInfo
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.units import Units, droppable_units
from ctxlab.strategies.panic import panic

_LAST_RESORT = panic()

_MAX_MISSED = 1000
_MULTIPLIER = 6364136223846793005
"multiplier of Knuth's MMIX generator of random numbers"


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
    """Keeps randomly chosen messages, chosen anew from the whole conversation at each request.

    The system prompt, the first user message and the newest message are always kept. The others are
    taken in random order, and each one that still fits the budget is kept, so that the budget is
    used; the choice ends when 1,000 in a row do not fit. A message that one request leaves out may be
    back in the next one. A tool call and its results are kept or dropped together. Without a seed, an
    evaluation reports the mean of five seeds and their standard deviation (columns ``…_sd``);
    elsewhere the seed is 0.

    Source: ctxlab; the level of chance for strategies that send as many tokens.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=random_drop(), limit=63, reserve=0))
    8
    """

    seed: int | None = None
    "seed of the random choice; None: an evaluation averages the seeds 0 to 4"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context with a random choice of messages that fits the budget."""
        units = droppable_units(context) if context.excess > 0 else None
        if units is None:
            return context
        tokens, room, chosen, missed = units.tokens, units.room, list[int](), 0
        for index in _shuffle(units.stop - units.first, self.seed or 0, context):
            unit = units.first + index
            if tokens[unit] <= room:
                room -= tokens[unit]
                chosen.append(unit)
                missed = 0
                if room < units.smallest:
                    break
            elif (missed := missed + 1) == _MAX_MISSED:
                break
        return units.select(context, chosen)


@dataclass(frozen=True, repr=False)
class random_decay(BaseStrategy):
    """Drops randomly chosen messages for good, whenever the request exceeds the budget.

    A message that was dropped never returns, so the older a message is, the less likely it is still
    there: a window with a soft edge. A tool call and its results are dropped together. Without a
    seed, an evaluation reports the mean of five seeds, as for ``random_drop``.

    Source: ctxlab; forgetting without a choice, for strategies whose edits persist.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> len(build_messages(None, talk, strategy=random_decay(), limit=63, reserve=0))
    8
    """

    seed: int | None = None
    "seed of the random choice; None: an evaluation averages the seeds 0 to 4"

    def __call__(self, context: Context, /) -> Context:
        """Drop random messages until the request fits the budget."""
        state = context.strategy_state.get(self, self.seed or 0)
        while context.excess > 0:
            head, tail = context.first_droppable, context.last_unit_start
            if tail <= head:
                break
            # Knuth's MMIX generator. Its state is one integer, which can be stored in the context
            # and compared.
            state = (state * _MULTIPLIER + 1442695040888963407) % (1 << 64)
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
        oracle_info = _oracle_info(self, context)
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


@dataclass(frozen=True, repr=False)
class message_oracle(BaseStrategy):
    """Keeps the whole messages that the next action needs, and the newest messages as far as they fit.

    Where ``oracle`` copies single lines, this control keeps or drops whole messages, as a strategy
    without a model does, so its recall is within reach at the same budget. It reads from the
    recording which earlier messages mention what the next action uses, and takes the message, with
    its tool call or results, that adds the most weight per token, until nothing that fits adds any.
    A need weighs one divided by the number of needs of its argument, as in recall. The rest of the
    budget is filled with the newest messages. This is a bound in practice and not a proof: finding
    the best set of messages is a knapsack problem, and this choice is greedy. For a probe, it keeps
    the messages with the answer. It works only in a replay.

    Source: ctxlab; greedy maximum coverage within a budget (Khuller, Moss and Naor, 1999).

    Examples
    --------
    >>> from ctxlab import Message, Recording, ToolCall, replay
    >>> call = ToolCall("c1", "read", '{"path": "src/io.py"}')
    >>> said = (Message("user", "Go"), Message("assistant", "see src/io.py"),
    ...         Message("user", "a long story " * 400), Message("user", "Well?"),
    ...         Message("assistant", tool_calls=(call,)))
    >>> replay(Recording("a", said), message_oracle(), 60).needs["tier"].tolist()
    ['held']
    """

    supports_live: ClassVar[bool] = False
    "False: the strategy needs the next action of a recording"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context with the messages that the next action needs."""
        if context.excess <= 0:
            return context
        oracle_info, units = _oracle_info(self, context), droppable_units(context)
        if units is None:
            return context
        bounds, entries = units.bounds, context.entries
        first = entries[bounds[units.first]].start
        last = context.history.unit_starts[context.history_length - 1]  # the newest unit
        window = _newest_units(units, ())
        oldest = entries[bounds[window[0]]].start if window else last
        # What the head or the newest unit mentions is in every request.
        needs = [
            (weight, places)
            for weight, places in oracle_info.needed_messages(context.history_length)
            if first <= places[0] and places[-1] < last
        ]
        if all(places[-1] >= oldest for _, places in needs):
            return units.select(context, window)
        chosen = _cover_needs(units, needs)
        return units.select(context, chosen + _newest_units(units, chosen))


def _oracle_info(strategy: BaseStrategy, context: Context) -> OracleInfo:
    """Return the source of information of an oracle; raise ``SpecError`` outside of a replay."""
    if context.history.oracle_info is None:
        name = type(strategy).__name__
        raise SpecError(f"{name} needs the next action of a recording; use it only in a replay")
    return context.history.oracle_info


def _newest_units(units: Units, besides: Collection[int]) -> list[int]:
    """Return the newest units that fit into the room that the units in ``besides`` leave."""
    tokens, found = units.tokens, []
    room = units.room - sum([tokens[unit] for unit in besides])
    for unit in range(units.stop - 1, units.first - 1, -1):
        if unit not in besides:
            room -= tokens[unit]
            if room < 0:
                break
            found.append(unit)
    return found[::-1]


def _cover_needs(units: Units, needs: Sequence[tuple[float, Sequence[int]]]) -> list[int]:
    """Choose units that fit and mention needs, by the weight of the needs per token of the unit.

    Each need is given by its weight and the positions of the messages that mention it.
    """
    missing = np.array([weight for weight, _ in needs])
    column = np.repeat(np.arange(len(needs)), [len(places) for _, places in needs])
    positions = np.concatenate([places for _, places in needs])
    places, row_of_place = np.unique(positions, return_inverse=True)
    starts, first, last = units.positions, units.first, units.stop
    stops = [bisect_right(starts, place, first, last) for place in places.tolist()]
    found, row = np.unique(np.array(stops)[row_of_place], return_inverse=True)
    numbers: list[int] = (found - 1).tolist()
    covers = np.zeros((len(numbers), len(needs)))
    covers[row, column] = 1
    tokens, room = np.array([units.tokens[unit] for unit in numbers]), units.room
    chosen: list[int] = []
    while True:
        gain = covers @ missing
        gain[tokens > room] = 0
        best = int((gain / tokens).argmax())
        if gain[best] <= 0:
            return chosen
        chosen.append(numbers[best])
        room -= int(tokens[best])
        missing[covers[best] > 0] = 0


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


_POOL_SIZE = 1 << 15
_BLOCK_SIZE = 1024


@cache
def _random_pool(seed: int) -> npt.NDArray[np.float64]:
    # The stream of RandomState is the same with all versions of numpy.
    return np.random.RandomState(seed % (1 << 32)).random_sample(_POOL_SIZE)


def _shuffle(count: int, seed: int, context: Context) -> Iterator[int]:
    """Yield the numbers below ``count`` in a random order that depends on the seed and the request.

    Only what is asked for is computed, because few messages of a long conversation fit the budget.
    The random numbers are a part of a pool, because a new generator for each request would be slow.
    The part begins at a different place for each request.
    """
    place = (context.history_length * _MULTIPLIER + context.tokens) * _MULTIPLIER >> 32
    place, pool = place % _POOL_SIZE, _random_pool(seed)
    left: list[int] | _Identity = list(range(count)) if count <= _BLOCK_SIZE else _Identity()
    for start in range(0, count, _BLOCK_SIZE):
        here = np.arange(start, min(start + _BLOCK_SIZE, count))
        drawn = here + (pool.take(place + here, mode="wrap") * (count - here)).astype(np.int64)
        for index, other in enumerate(drawn.tolist(), start):
            number, left[other] = left[other], left[index]
            yield number


class _Identity(dict[int, int]):
    """Maps each number to itself, unless another one was stored."""

    def __missing__(self, key: int) -> int:
        return key

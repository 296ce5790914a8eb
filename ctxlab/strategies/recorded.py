"""Strategy that repeats the compactions that a recording's log contains."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Compaction, Message, Substitute
from ctxlab.strategies.base import BaseStrategy

_Items: TypeAlias = tuple[int | Substitute, ...]


@dataclass(frozen=True, repr=False)
class recorded(BaseStrategy):
    """Repeats the compactions that the recorded product wrote into its log.

    Many coding agents, such as Claude Code and Codex, log their compactions. Before the next request,
    the strategy replaces the context by the messages that the product held after the compaction. The
    limit has no effect. A recording without compactions is sent in full.

    The requests are as exact as the log. Content that the product encrypted, or changed without logging
    it, is not known; ``ctxlab describe`` shows how far the requests are from their bills. Where the
    product sent an invalid request, the repeated request is invalid too.

    Source: the recordings themselves.

    Examples
    --------
    >>> from ctxlab import Compaction, Message, Recording, Substitute, replay
    >>> said = tuple(Message(r, f"{r} {i}") for i in range(3) for r in ("user", "assistant"))
    >>> summary = Substitute(Message("user", "two rounds"))
    >>> log = Recording("a", said, compactions=(Compaction(4, (summary,)),))
    >>> [entry.message.content for entry in replay(log, recorded(), 9000).trace.context.entries]
    ['two rounds', 'user 2', 'assistant 2']
    """

    supports_live: ClassVar[bool] = False
    "False: the strategy needs the compactions of a recording"
    deployable: ClassVar[bool] = False
    "False: the strategy repeats what another product did"

    def __call__(self, context: Context, /) -> Context:
        """Apply the recorded compactions that took place since the last request."""
        done: int = context.strategy_state.get(self, 0)
        for compaction in context.history.compactions[done:]:
            if compaction.position > context.history_length:
                break
            done += 1
            _apply(context, compaction)
        context.strategy_state[self] = done
        return context


def _apply(context: Context, compaction: Compaction) -> None:
    """Replace the messages before a compaction by those that the product held after it.

    Messages that stay in the same order keep their entries, so that the prompt cache can serve them.
    Changes are made from the newest to the oldest, so that earlier indices stay valid.
    """
    target, end = compaction.context, _compacted_end(context, compaction)
    found = _match_entries(context.entries[:end], target)
    kept = [(-1, -1), *_longest_ascending(found), (len(target), end)]
    for (before, start), (wanted, stop) in reversed([*pairwise(kept)]):
        if wanted < len(target):
            _update(context, stop, target[wanted], compaction.kind)
        new = [_message_of(context, item) for item in target[before + 1 : wanted]]
        if start + 1 < stop and new:
            context.fold(start + 1, stop, new.pop(0))
            start += 1
        elif start + 1 < stop:
            context.drop(start + 1, stop)
        for message in reversed(new):
            context.insert(start + 1, message)


def _match_entries(entries: list[Entry], target: _Items) -> list[tuple[int, int]]:
    """Return pairs of an index in ``target`` and the index of the entry for the same message."""
    single = {entry.start: index for index, entry in enumerate(entries) if not entry.is_aggregate}
    added = [(i, entry.message) for i, entry in enumerate(entries) if entry.is_aggregate]
    found = []
    for index, item in enumerate(target):
        place = item if isinstance(item, int) else item.source
        if place is not None and place in single:
            found.append((index, single[place]))
        elif isinstance(item, Substitute) and place is None:
            same = next(
                (i for i, (_, message) in enumerate(added) if message == item.message), None
            )
            if same is not None:
                found.append((index, added.pop(same)[0]))
    return found


def _longest_ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of the pairs in which the second numbers ascend.

    >>> _longest_ascending([(0, 7), (1, 3), (2, 4)])
    [(1, 3), (2, 4)]
    """
    ends: list[int] = []
    newest: list[int] = []
    previous: list[int] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        previous.append(newest[length - 1] if length else -1)
        ends[length : length + 1] = [second]
        newest[length : length + 1] = [number]
    best, number = [], newest[-1] if newest else -1
    while number >= 0:
        best.append(pairs[number])
        number = previous[number]
    return best[::-1]


def _update(context: Context, index: int, item: int | Substitute, kind: str) -> None:
    """Replace the message of an entry, unless it is already the message that was sent."""
    message = _message_of(context, item)
    if context.entries[index].message != message:
        form = Form.STUB if kind == "clear" else Form.REWRITTEN
        context.replace(index, message, form)


def _message_of(context: Context, item: int | Substitute) -> Message:
    return context.history[item] if isinstance(item, int) else item.message


def _compacted_end(context: Context, compaction: Compaction) -> int:
    """Return the index of the first entry whose message was recorded after a compaction.

    If there is no such entry, return the number of entries.
    """
    for index, entry in enumerate(context.entries):
        if entry.start >= compaction.position and not entry.is_aggregate:
            return index
    return len(context.entries)

"""Units of a context, for strategies that choose units from the whole conversation at each request.

A unit is an assistant message with tool calls, together with the results of these calls. Any other
message is a unit of its own.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, History


class Units(NamedTuple):
    """Units of a context. A strategy may drop those with the numbers ``first`` to ``stop - 1``.

    The units before them are the head, and those after them are the newest unit and, in a replay,
    units of later requests.
    """

    bounds: list[int]
    "index of the first entry of each unit, followed by the index after the last unit"
    positions: list[int]
    "position in the history of the first message of each unit"
    tokens: list[int]
    "number of tokens of each unit"
    entries: list[list[Entry]]
    "entries of each unit"
    first: int
    "number of the first unit that may be dropped"
    stop: int
    "number of the newest unit"
    room: int
    "number of available tokens that the head and the newest unit leave"
    smallest: int
    "number of tokens that every unit has at least"

    def select(self, context: Context, chosen: Sequence[int]) -> Context:
        """Return a copy of the context without the units that were not chosen.

        Parameters
        ----------
        context : Context
            Context of the units.
        chosen : sequence of int
            Numbers of the chosen units, in any order.

        Returns
        -------
        Context
            Copy for one request, with the head, the chosen units and the newest unit.
        """
        bounds, entries, units = self.bounds, context.entries, self.entries
        kept = entries[: bounds[self.first]]
        kept += chain.from_iterable([units[unit] for unit in sorted(chosen)])
        kept += entries[bounds[self.stop] :]
        tokens = context.available - self.room + sum([self.tokens[unit] for unit in chosen])
        return context.fork_selecting(kept, tokens)


def droppable_units(context: Context) -> Units | None:
    """Return the units of a context that a strategy may drop; None if there are none.

    Parameters
    ----------
    context : Context
        Context with at least one message.

    Returns
    -------
    Units or None
        The units between the head and the newest unit.
    """
    head, tail = context.first_droppable, context.last_unit_start
    if tail <= head:
        return None
    if context.version:
        cuts = (index for index in range(head + 1, tail) if context.is_safe_cut(index))
        bounds = [head, *cuts, tail]
        entries = [context.entries[i:j] for i, j in pairwise(bounds)]
        tokens = [sum([entry.tokens for entry in unit]) for unit in entries]
        room = sum(tokens) - context.excess
        positions = [unit[0].start for unit in entries]
        return Units(bounds, positions, tokens, entries, 0, len(tokens), room, min(tokens))
    found = _units_of_history(context.history)  # no edits: an index is a position
    before, bounds = context.history.tokens_before, found.bounds
    first, stop = bisect_left(bounds, head), bisect_left(bounds, tail)
    room = before[tail] - before[head] - context.excess
    return Units(bounds, bounds, found.tokens, found.entries, first, stop, room, found.smallest)


@dataclass
class _HistoryUnits:
    """Units of a history."""

    bounds: list[int] = field(default_factory=lambda: [0])
    "first position of each unit, followed by the length"
    tokens: list[int] = field(default_factory=list)
    entries: list[list[Entry]] = field(default_factory=list)
    smallest: int = sys.maxsize
    "smallest number of tokens that a unit ever had"


_UNITS: WeakKeyDictionary[History, _HistoryUnits] = WeakKeyDictionary()


def _copied_units(history: History) -> _HistoryUnits:
    """Return the units at the beginning that a copy shares with its original; none for others.

    The preview of a question copies the history, and adds the question.
    """
    parent, copied = history.parent, len(history) - 1
    if parent is None or not 0 < copied <= len(parent):
        return _HistoryUnits()
    if history.entries[copied - 1] is not parent.entries[copied - 1]:
        return _HistoryUnits()
    known = _units_of_history(parent)
    number = bisect_right(known.bounds, copied) - 1  # the last unit may go on in the original
    return _HistoryUnits(
        known.bounds[: number + 1], known.tokens[:number], known.entries[:number], known.smallest
    )


def _units_of_history(history: History) -> _HistoryUnits:
    """Return the units of a history, including those that were added since the last call."""
    units = _UNITS.get(history)
    if units is None:
        units = _UNITS[history] = _copied_units(history)
    bounds, tokens, entries = units.bounds, units.tokens, units.entries
    known, length = bounds[-1], len(history)
    if known < length:  # a live conversation grew; new results may extend or join its last units
        starts, before = history.unit_starts, history.tokens_before
        first = min(starts[known:])
        del bounds[bisect_left(bounds, first) :]
        bounds += [i for i in range(first, length) if starts[i] == i]
        bounds.append(length)
        del tokens[bisect_left(bounds, first) :], entries[bisect_left(bounds, first) :]
        added = list(pairwise(bounds[len(tokens) :]))
        tokens += [before[j] - before[i] for i, j in added]
        entries += [history.entries[i:j] for i, j in added]
        units.smallest = min([units.smallest, *tokens[-len(added) :]])
    return units

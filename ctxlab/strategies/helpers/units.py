"""Units of a context as arrays, for strategies that choose units from the whole conversation.

A unit is an assistant message with tool calls, together with the results of these calls. Any other
message is a unit of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ctxlab.context.context import Context
from ctxlab.context.history import History

IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Units:
    """The units between the head of a context and its newest unit, which strategies never drop."""

    bounds: IntArray
    "index of the first entry of each unit, followed by the index after the last unit"
    tokens: IntArray
    "number of tokens of each unit"
    room: int
    "number of available tokens that the head and the newest unit leave"

    def mask(self, entries: int, chosen: npt.NDArray[np.intp]) -> list[bool]:
        """Return for each entry of the context whether a request with the chosen units contains it.

        Parameters
        ----------
        entries : int
            Number of entries of the context.
        chosen : numpy.ndarray of int
            Indices of the chosen units.

        Returns
        -------
        list of bool
            True for the entries of the head, the chosen units and the newest unit.
        """
        kept = np.zeros(len(self.tokens), dtype=bool)
        kept[chosen] = True
        mask = np.ones(entries, dtype=bool)
        mask[self.bounds[0] : self.bounds[-1]] = np.repeat(kept, np.diff(self.bounds))
        found: list[bool] = mask.tolist()
        return found


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
        entries = context.entries
        inner = [i for i in range(head + 1, tail) if context.is_safe_cut(i)]
        bounds = np.array([head, *inner, tail], dtype=np.int64)
        sums = np.cumsum([0, *(entry.tokens for entry in entries)])
    else:  # no edits, so the arrays of the history apply
        starts, sums = _history_arrays(context.history)
        first, last = starts.searchsorted((head, tail))
        bounds = starts[first : last + 1]
    before = sums[bounds]
    fixed = context.tokens - int(before[-1] - before[0])
    return Units(bounds, np.diff(before), context.available - fixed)


_ARRAYS: WeakKeyDictionary[History, tuple[IntArray, IntArray]] = WeakKeyDictionary()
"""History → first position of each unit, and number of tokens before each position."""


def _history_arrays(history: History) -> tuple[IntArray, IntArray]:
    known = _ARRAYS.get(history)
    if known is None or len(known[1]) != len(history.tokens_before):
        starts = np.array(history.unit_starts, dtype=np.int64)
        starts = np.flatnonzero(starts == np.arange(len(starts)))
        known = _ARRAYS[history] = starts, np.array(history.tokens_before, dtype=np.int64)
    return known

"""Find out which needs each request of a trace holds, names, or can have fetched again.

Algorithm: a mention of an entity that is removed from the context never returns. One number per
mention is therefore enough: the first request without it. A need is in view if, for at least one
earlier mention, this number is greater than the number of the request whose reply uses the entity. A
running maximum over the mentions decides this for all needs at once. Summaries that contain the
entity, and requests that were built on a copy of the context, are examined separately.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import Entry
from ctxlab.evaluation.edited_texts import AGGREGATE, EditedTexts
from ctxlab.evaluation.engine import Trace, distinct_replays
from ctxlab.evaluation.references import NeedIndex

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


class NeedVisibility(NamedTuple):
    """Visibility of each need in each trace: arrays of shape ``(traces, needs)``."""

    in_view: _Bools
    "True if the need is held or named"
    fetchable: _Bools
    "True if the need is not in view but a message that mentioned it can be fetched again"
    held: _Bools
    "True if an unchanged message mentions the need, or a text contains a source line of it"
    similar: _Bools
    """True if the need is a path that is not in view, but the folder and name at its end are, for
    example in another absolute path"""


def measure_need_visibility(needs: NeedIndex, traces: Sequence[Trace]) -> NeedVisibility:
    """Find out which needs of a recording are held, named or fetchable, in each trace.

    Parameters
    ----------
    needs : NeedIndex
        Needs of the recording.
    traces : sequence of Trace
        Traces of the recording, one per configuration.

    Returns
    -------
    NeedVisibility
        Arrays of shape ``(traces, needs)``.
    """
    if not len(needs):
        return NeedVisibility(*np.zeros((4, len(traces), 0), dtype=bool))
    replays, order = distinct_replays(traces)
    index = _TraceMarker(needs)
    requests = len(needs.request_positions)
    dropped = np.array([trace.context.dropped_at for trace in replays])
    held_until = np.minimum(dropped[:, needs.mentions], requests)
    seen_until = held_until.copy()
    for held_row, seen_row, trace in zip(held_until, seen_until, replays, strict=True):
        index.extend_lifetimes(held_row, seen_row, trace)
    held = _first_request_without(needs, held_until, needs.last_mention_row) > needs.request
    first_unseen = partial(_first_request_without, needs, seen_until)
    seen = first_unseen(needs.last_mention_row) > needs.request
    has_similar = needs.similar_row >= 0
    similar = (first_unseen(np.maximum(needs.similar_row, 0)) > needs.request) & has_similar
    pointer = np.zeros_like(seen)
    marks = _Marks(held, seen, similar, pointer)
    for row, trace in enumerate(replays):
        index.mark_fetchable(pointer[row], trace)
        for entry in trace.context.edited_entries:
            if entry.is_aggregate:
                index.mark_summary_entities(marks.of_trace(row), entry)
    index.mark_forked_requests(marks, replays)
    return NeedVisibility(
        seen[order], (pointer & ~seen)[order], held[order], (similar & ~seen)[order]
    )


def _first_request_without(needs: NeedIndex, life: _Ints, last_rows: _Ints) -> _Ints:
    """Return, for each need, the number of the first request that contains none of its mentions.

    Mentions that come after the use of the need are ignored: ``last_rows`` contains the index of the
    last mention that counts. The need is visible in all requests before the returned one. ``life``
    has one row per trace and contains, for each mention, the first request without this mention.
    """
    # Add a larger offset for each entity, so that one running maximum over the mentions of all
    # entities restarts at the first mention of each entity.
    lift = needs.mention_entity * (len(needs.request_positions) + 1)
    running = np.maximum.accumulate(life + lift, axis=1)
    return (running[:, last_rows] - lift[last_rows]).astype(np.int64)


class _Marks(NamedTuple):
    """Visibility of each need, in one trace or with one row per trace, changed in place."""

    held: _Bools
    seen: _Bools
    similar: _Bools
    pointer: _Bools

    def of_trace(self, row: int) -> _Marks:
        return _Marks(*(marks[row] for marks in self))


class _TraceMarker:
    """Marks the needs that the edited messages of a trace show; shared by the traces of a recording."""

    def __init__(self, needs: NeedIndex) -> None:
        self.needs = needs
        self.texts = EditedTexts(needs)
        self.mention_offsets: list[int] = needs.mention_offsets.tolist()
        self.request_offsets: list[int] = needs.request_offsets.tolist()

    def _entities_in(self, entry: Entry) -> frozenset[int]:
        position = AGGREGATE if entry.is_aggregate else entry.start
        return self.texts.entities_in(entry.message, position)

    def extend_lifetimes(self, held_until: _Ints, seen_until: _Ints, trace: Trace) -> None:
        """Extend the lifetime of mentions that the edited version of a message still contains.

        Both arrays contain, for each mention, the first request without it, and are changed in
        place.
        """
        requests = len(self.needs.request_positions)
        for entry in trace.context.edited_entries:
            if entry.is_aggregate or not (kept := self._entities_in(entry)):
                continue
            until = min(entry.until, requests)
            for row in self.texts.rows_by_position.get(entry.start, ()):
                if self.texts.mention_entity[row] in kept and seen_until[row] == entry.since:
                    seen_until[row] = until
                    if held_until[row] == entry.since and self.texts.holds_own_line(
                        entry.message, row
                    ):
                        held_until[row] = until

    def mark_summary_entities(self, marks: _Marks, entry: Entry) -> None:
        """Mark the needs whose entity a summary contains.

        Only the needs of requests that include the summary ``entry`` are considered.
        """
        rows = self.need_rows(entry)
        if rows.start < rows.stop and (kept := self._entities_in(entry)):
            needs = self.needs
            known = np.zeros(len(needs.entities), dtype=bool)
            known[list(kept)] = True
            named = known[needs.entity[rows]]
            marks.seen[rows] |= named
            alias = needs.mention_entity[np.maximum(needs.similar_row[rows], 0)]
            marks.similar[rows] |= (needs.similar_row[rows] >= 0) & known[alias]
            for i in (np.flatnonzero(named & ~marks.held[rows]) + rows.start).tolist():
                first = self.texts.first_quoted_row(entry.message, int(needs.entity[i]))
                marks.held[i] = first <= needs.last_mention_row[i]

    def mark_fetchable(self, pointer: _Bools, trace: Trace) -> None:
        """Mark needs as fetchable if a stub or a table of contents replaces one of their mentions."""
        needs, requests = self.needs, len(self.needs.request_positions)
        dropped_at = trace.context.dropped_at
        until = [0] * len(dropped_at)
        late: list[tuple[Entry, int]] = []
        for entry in trace.context.edited_entries:
            if not entry.form.fetchable:
                continue
            since, end = entry.since, min(entry.until, requests)
            for position in range(entry.start, entry.stop):
                if dropped_at[position] == since or until[position] >= max(since, 1):
                    until[position] = end  # replaced the message itself, or a pointer to it
                else:  # the message was dropped earlier, so some requests have no pointer to it
                    late.append((entry, position))
        if any(until):
            life = np.array(until)[needs.mentions][None]
            first = _first_request_without(needs, life, needs.last_mention_row)
            pointer |= first[0] > needs.request
        for entry, position in late:
            rows = self.need_rows(entry)
            for row in self.texts.rows_by_position.get(position, ()):
                same = needs.entity[rows] == self.texts.mention_entity[row]
                pointer[rows] |= same & (needs.last_mention_row[rows] >= row)

    def need_rows(self, entry: Entry) -> slice:
        """Return the index range of the needs of all requests that include ``entry``."""
        last = len(self.request_offsets) - 1
        since, until = (self.request_offsets[min(r, last)] for r in (entry.since, entry.until))
        return slice(since, until)

    def mark_forked_requests(self, marks: _Marks, traces: Sequence[Trace]) -> None:
        """Set the marks of the requests that were built on a copy of the context (a fork).

        The rows of ``marks`` are the traces.
        """
        forked = [row for row, trace in enumerate(traces) if trace.forked_requests]
        if not forked:
            return
        needs = self.needs
        sizes = needs.last_mention_row + 1 - needs.mention_offsets[needs.entity]
        mentions = np.bincount(needs.request, sizes, len(needs.request_positions))
        cells = (mentions.astype(np.int64) + len(needs.history)) * len(forked)
        # Many requests at once, because a call of numpy takes longer than its work for one request.
        for block in _split_blocks(cells, _MAX_CELLS):
            edited = self._mark_verbatim(marks, block, forked, [traces[row] for row in forked])
            for request, entries in edited.items():
                here = slice(self.request_offsets[request], self.request_offsets[request + 1])
                rows = _ForkRows.of(needs, here)
                for trace, entry in entries:
                    kept = self._entities_in(entry)
                    if kept and not kept.isdisjoint(rows.entities):
                        self._mark_edited_entry(marks.of_trace(trace), rows, entry, kept)

    def _mark_verbatim(
        self, marks: _Marks, block: range, rows: Sequence[int], traces: Sequence[Trace]
    ) -> dict[int, list[tuple[int, Entry]]]:
        """Set the marks of forks of a block of requests, as far as messages of the history decide.

        ``traces`` are the traces with these rows. Return the other entries of the forks by request,
        each with the row of its trace.
        """
        needs, messages, columns = self.needs, len(self.needs.history), len(rows)
        is_fork = np.zeros((len(block), columns), dtype=bool)
        starts: list[int] = []
        counts: list[int] = []
        bases: list[int] = []
        edited: dict[int, list[tuple[int, Entry]]] = {}
        pointed: list[tuple[int, int, Entry]] = []
        for number, request in enumerate(block):
            if self.request_offsets[request] == self.request_offsets[request + 1]:
                continue
            for column, (row, trace) in enumerate(zip(rows, traces, strict=True)):
                entries = trace.forked_requests.get(request)
                if entries is None:
                    continue
                is_fork[number, column] = True
                there = trace.verbatim_in_forks[request]
                starts += there
                counts.append(len(there))
                bases.append(number * messages * columns + column)
                if len(there) < len(entries):
                    texts = [e for e in entries if not e.is_verbatim or e.is_aggregate]
                    edited.setdefault(request, []).extend([(row, entry) for entry in texts])
                    pointed += [(number, column, e) for e in texts if e.form.fetchable]
        here = slice(self.request_offsets[block.start], self.request_offsets[block.stop])
        if not counts:
            return edited
        number_of_need = needs.request[here] - block.start
        chosen = is_fork[number_of_need].T
        own = _Mentions.up_to(needs, needs.last_mention_row[here], number_of_need * messages)
        similar = _Mentions.up_to(needs, needs.similar_row[here], number_of_need * messages)
        verbatim, pointer = np.zeros((2, len(block) * messages, columns), dtype=bool)
        cells = np.array(starts, dtype=np.int64) * columns + np.repeat(bases, counts)
        verbatim.reshape(-1)[cells] = True
        for number, column, entry in pointed:
            first = number * messages
            pointer[first + entry.start : first + entry.stop, column] = True
        seen = own.any_mention(verbatim)
        shown = own.any_mention(pointer) if pointed else np.zeros_like(seen)
        found = _Marks(seen, seen, similar.any_mention(verbatim), shown)
        for old, new in zip(marks, found, strict=True):
            old[rows, here] = np.where(chosen, new, old[rows, here])
        return edited

    def _mark_edited_entry(
        self, marks: _Marks, rows: _ForkRows, entry: Entry, kept: frozenset[int]
    ) -> None:
        """Mark the needs of one request that an edited entry of the request shows."""
        needs = self.needs
        for number in kept & rows.similar_by_entity.keys():
            for i in rows.similar_by_entity[number]:
                similar = int(needs.similar_row[i])
                marks.similar[i] |= entry.is_aggregate or self._row_at(entry, similar) is not None
        for number in kept & rows.by_entity.keys():
            for i in rows.by_entity[number]:
                if marks.held[i]:
                    continue
                last = int(needs.last_mention_row[i])
                if entry.is_aggregate:
                    marks.seen[i] = True
                    marks.held[i] = self.texts.first_quoted_row(entry.message, number) <= last
                elif (row := self._row_at(entry, last)) is not None:
                    marks.seen[i] = True
                    marks.held[i] = self.texts.holds_own_line(entry.message, row)

    def _row_at(self, entry: Entry, last: int) -> int | None:
        """Return the row of the mention in the entry's message, if it is not after row ``last``."""
        number = self.texts.mention_entity[last]
        first = self.mention_offsets[number]
        row = bisect_left(self.texts.mentions, entry.start, first, last + 1)
        return row if row <= last and self.texts.mentions[row] == entry.start else None


_MAX_CELLS = 1 << 22
"maximum number of elements of an array for a block of requests with more than one request"


def _split_blocks(cells: _Ints, most: int) -> Iterator[range]:
    """Split requests into blocks with at most ``most`` cells, or with one request."""
    before = np.cumsum(cells)
    start = done = 0
    while start < len(cells):
        stop = max(int(np.searchsorted(before, done + most, side="right")), start + 1)
        yield range(start, stop)
        start, done = stop, int(before[stop - 1])


class _Mentions(NamedTuple):
    """Mentions before each need of some requests, to look all of them up at once."""

    positions: _Ints
    "positions of the mentions of all needs, one group per need"
    starts: _Ints
    "index of the first element of each group that is not empty"
    filled: _Bools
    "for each need: True if its group is not empty"

    @classmethod
    def up_to(cls, needs: NeedIndex, last_rows: _Ints, shifts: _Ints) -> _Mentions:
        """Collect the mentions up to the given rows; -1 stands for an empty group.

        ``shifts`` contains for each need a number that is added to the positions of its mentions.
        """
        filled = last_rows >= 0
        last = last_rows[filled]
        first = needs.mention_offsets[needs.mention_entity[last]]
        sizes = last + 1 - first
        starts = np.cumsum(sizes) - sizes
        # The rows of all groups: those of one group follow each other, from its first row on.
        rows = np.arange(sizes.sum()) + np.repeat(first - starts, sizes)
        return cls(needs.mentions[rows] + np.repeat(shifts[filled], sizes), starts, filled)

    def any_mention(self, present: _Bools) -> _Bools:
        """Return whether one of the mentions of each need is at a position that is present.

        ``present`` has the shape ``(positions, traces)``, and the result ``(traces, needs)``.
        """
        found = np.zeros((len(self.filled), present.shape[1]), dtype=bool)
        if len(self.starts):
            # Whole rows of traces are copied and combined, which is several times faster than
            # positions in the second dimension.
            there = present.take(self.positions, axis=0)
            found[self.filled] = np.logical_or.reduceat(there, self.starts, axis=0)
        return found.T


class _ForkRows(NamedTuple):
    """Needs of one request by their entities, to find those that an edited entry shows."""

    by_entity: dict[int, list[int]]
    "needs of the request, by index of their entity"
    similar_by_entity: dict[int, list[int]]
    "needs of the request that are paths, by index of the entity with their folder and name"
    entities: frozenset[int]
    "all these indices"

    @classmethod
    def of(cls, needs: NeedIndex, here: slice) -> _ForkRows:
        last, similar = needs.last_mention_row[here].tolist(), needs.similar_row[here].tolist()
        own: dict[int, list[int]] = {}
        alias: dict[int, list[int]] = {}
        for i, (row, alike) in enumerate(zip(last, similar, strict=True), here.start):
            own.setdefault(int(needs.mention_entity[row]), []).append(i)
            if alike >= 0:
                alias.setdefault(int(needs.mention_entity[alike]), []).append(i)
        return cls(own, alias, frozenset({*own, *alias}))

"""Reference recall: whether what the agent used next was still in view.

A need is *in view* where a message that is sent still contains the entity; it is a *pointer* where a
stub or a line of contents stands for a message that held it, so that it can be fetched again; else it
is *lost*. Needs of one argument are averaged first, then arguments, so that a file being written does
not outweigh a hundred short arguments. This is availability: an upper bound on what a model can recall.

How it is worked out: an edit is the only way for an entity to leave the view, so each mention has a
request from which on it is no longer there. A need is in view where the latest such request of any
earlier mention is still to come; a running maximum over mentions answers that for all needs at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import (
    Entry,
    Form,
)
from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    Watcher,
)
from ctxlab.evaluation.metrics.base import (
    Array,
    Column,
    Score,
)
from ctxlab.evaluation.references import Needs
from ctxlab.messages.entities import holds
from ctxlab.messages.types import text_of

__all__ = ["FAR", "Recall", "Tiers", "tiers"]

FAR = 4000
"""Tokens between the last mention of an entity and its use from which on the need counts as far."""

_START = attrgetter("start")

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tiers:
    """For every need, by configuration: shape ``(traces, needs)``."""

    seen: _Bools
    "in view"
    pointer: _Bools
    "not in view, but what held it can be fetched again"


@dataclass(frozen=True)
class Recall:
    """How much of what the next action uses is still in view, near and far."""

    far: int = FAR
    "tokens beyond which a need is far"

    columns = (
        Column("arguments", "arguments that use something said before", "arguments"),
        Column("seen", "of these, in view (an argument counts in parts)", "arguments"),
        Column("pointed", "of these, not in view but fetchable", "arguments"),
        Column("far_arguments", "arguments that use something said long before", "arguments"),
        Column("far_seen", "of these, in view", "arguments"),
        Column("far_pointed", "of these, not in view but fetchable", "arguments"),
        Column("near_arguments", "arguments that use something said recently", "arguments"),
        Column("near_seen", "of these, in view", "arguments"),
        Column("lost", "arguments whose needs are neither in view nor fetchable", "arguments"),
    )
    scores = (
        Score("recall", "share of what is used next that is in view", "share", "ratio", "seen",
              "arguments", interval=True, better="higher"),
        Score("recall_near", "the same for what was last said recently", "share", "ratio",
              "near_seen", "near_arguments", interval=True, better="higher"),
        Score("recall_far", "the same for what was last said more than 4,000 tokens before", "share",
              "ratio", "far_seen", "far_arguments", interval=True, better="higher"),
        Score("pointer_rate", "share that is not in view but can be fetched again", "share", "ratio",
              "pointed", "arguments"),
        Score("lost_rate", "share that is neither in view nor fetchable", "share", "ratio", "lost",
              "arguments", better="lower"),
        Score("far_arguments", "arguments behind recall_far", "arguments", "sum", "far_arguments"),
    )  # fmt: skip
    watchers: ClassVar[Mapping[str, Watcher]] = {}

    def measure(self, tape: Tape, traces: Sequence[Trace]) -> Mapping[str, Array]:
        """See ``columns``."""
        needs = tape.needs
        found = tiers(needs, traces)
        far = needs.gap > self.far
        every = np.ones(len(needs), dtype=bool)
        share = partial(_per_request, needs, len(tape.requests))
        none = np.ones((len(traces), len(needs)), dtype=bool)
        return {
            "arguments": share(every, none),
            "seen": share(every, found.seen),
            "pointed": share(every, found.pointer),
            "far_arguments": share(far, none),
            "far_seen": share(far, found.seen),
            "far_pointed": share(far, found.pointer),
            "near_arguments": share(~far, none),
            "near_seen": share(~far, found.seen),
            "lost": share(every, ~(found.seen | found.pointer)),
        }


def _per_request(needs: Needs, requests: int, chosen: _Bools, hit: _Bools) -> Array:
    """Arguments hit, in parts, by request: ``(traces, requests)``; needs not chosen do not count."""
    result = np.zeros((len(hit), requests))
    if chosen.any():
        counts = np.bincount(needs.argument[chosen], minlength=len(needs.arguments))
        weight = np.where(chosen, 1 / np.maximum(counts[needs.argument], 1), 0.0)
        first = np.flatnonzero(np.diff(needs.request, prepend=-1))
        result[:, needs.request[first]] = np.add.reduceat(hit * weight, first, axis=1)
    return result


def tiers(needs: Needs, traces: Sequence[Trace]) -> Tiers:
    """Which needs are in view, and which can be fetched, in every trace of one recording."""
    if not len(needs):
        nothing = np.zeros((len(traces), 0), dtype=bool)
        return Tiers(nothing, nothing)
    # Traces that share a context are one replay under several budgets.
    contexts = {id(trace.context): trace for trace in traces}
    rows = {key: row for row, key in enumerate(contexts)}
    found = _tiers(needs, list(contexts.values()))
    order = [rows[id(trace.context)] for trace in traces]
    return Tiers(found.seen[order], found.pointer[order])


def _tiers(needs: Needs, traces: Sequence[Trace]) -> Tiers:
    book = _Book(needs)
    requests = len(needs.positions)
    died = np.array([trace.context.died for trace in traces])
    life = np.minimum(died[:, needs.mentions], requests)
    for row, trace in zip(life, traces, strict=True):
        book.prolong(row, trace)
    seen = _latest(needs, life, requests) > needs.request
    pointer = np.zeros_like(seen)
    for row, trace in enumerate(traces):
        book.point(pointer[row], trace)
        for entry in trace.context.edited:
            if entry.wide:
                book.show(seen[row], entry)
        for request, entries in trace.forks.items():
            book.look_at(seen[row], pointer[row], request, entries)
    return Tiers(seen, pointer & ~seen)


def _latest(needs: Needs, life: _Ints, requests: int) -> _Ints:
    """For each need, the latest request until which any earlier mention of it is there."""
    # Each entity's mentions are lifted above those of the entity before, so that one running maximum
    # over all of them starts anew at each entity.
    lift = needs.segment * (requests + 1)
    running = np.maximum.accumulate(life + lift, axis=1)
    return (running[:, needs.upto] - lift[needs.upto]).astype(np.int64)


class _Book:
    """What the traces of one recording share: which edited message still contains which entity."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.kept: dict[tuple[int, int, int], tuple[Entry, frozenset[int]]] = {}
        self.rows: dict[int, list[int]] = {}
        self.mentions: list[int] = needs.mentions.tolist()
        for row, position in enumerate(self.mentions):
            self.rows.setdefault(position, []).append(row)
        # Plain lists: one figure at a time, they are several times faster than arrays.
        self.segment: list[int] = needs.segment.tolist()
        self.entity: list[int] = needs.entity.tolist()
        self.upto: list[int] = needs.upto.tolist()
        self.offset: list[int] = needs.offset.tolist()
        self.starts: list[int] = needs.starts.tolist()

    def contains(self, entry: Entry) -> frozenset[int]:
        """The entities that an edited message still contains."""
        among = None
        if not entry.wide:  # it can only contain what its original mentioned
            rows = self.rows.get(entry.start)
            if not rows:
                return frozenset()
            among = [self.segment[row] for row in rows]
        key = (id(entry.message), entry.start, entry.stop)
        known = self.kept.get(key)
        if known is None:
            known = self.kept[key] = (entry, self.needs.kept_in(entry.message, among))
        return known[1]

    def prolong(self, life: _Ints, trace: Trace) -> None:
        """A mention lives on in the message that replaced its own, where that still contains it."""
        requests = len(self.needs.positions)
        for entry in trace.context.edited:
            if not entry.wide and (kept := self.contains(entry)):
                for row in self.rows.get(entry.start, ()):
                    if self.segment[row] in kept and life[row] == entry.since:
                        life[row] = min(entry.until, requests)

    def show(self, seen: _Bools, entry: Entry) -> None:
        """A summary shows the entities that it contains for as long as it stands."""
        kept = self.contains(entry)
        if not kept:
            return
        needs = self.needs
        rows = slice(*self.starts_between(entry.since, entry.until))
        known = np.zeros(len(needs.entities), dtype=bool)
        known[list(kept)] = True
        seen[rows] |= known[needs.entity[rows]]

    def point(self, pointer: _Bools, trace: Trace) -> None:
        """A stub or a line of contents leads back to the messages that it stands for."""
        needs, requests = self.needs, len(self.needs.positions)
        died = np.array(trace.context.died)
        until = np.zeros(len(died), dtype=np.int64)
        late: list[tuple[Entry, int]] = []
        for entry in trace.context.edited:
            if not entry.form.fetchable:
                continue
            span = slice(entry.start, entry.stop)
            # It took the place of the message itself, or of what led back to it until then.
            direct = (died[span] == entry.since) | (until[span] >= max(entry.since, 1))
            until[span][direct] = min(entry.until, requests)
            # Else the message had been cut before: there is a time between.
            late += [(entry, entry.start + int(i)) for i in np.flatnonzero(~direct)]
        if until.any():
            pointer |= _latest(needs, until[needs.mentions][None], requests)[0] > needs.request
        for entry, position in late:
            rows = slice(*self.starts_between(entry.since, entry.until))
            for row in self.rows.get(position, ()):
                inside = (needs.entity[rows] == self.segment[row]) & (needs.upto[rows] >= row)
                pointer[rows] |= inside

    def starts_between(self, since: int, until: int) -> tuple[int, int]:
        """The needs of the requests from ``since`` up to ``until``, as rows."""
        last = len(self.starts) - 1
        return self.starts[min(since, last)], self.starts[min(until, last)]

    def look_at(
        self, seen: _Bools, pointer: _Bools, request: int, entries: Sequence[Entry]
    ) -> None:
        """A request that was made for itself alone is looked at need by need."""
        rows = range(self.starts[request], self.starts[request + 1])
        if not rows:
            return
        wide = [text_of(entry.message) for entry in entries if entry.wide]
        for i in rows:
            entity, view, fetch = self.entity[i], False, False
            row, first = self.upto[i], self.offset[entity]
            while row >= first and not view:
                position = self.mentions[row]
                index = bisect_right(entries, position, key=_START) - 1
                found = entries[index] if index >= 0 else None
                if found and found.wide and found.stop > position:
                    fetch = fetch or found.form.fetchable
                elif found and found.start == position and not found.wide:
                    view = found.form is Form.VERBATIM or entity in self.contains(found)
                    fetch = fetch or found.form.fetchable
                row -= 1
            if wide and not view:
                view = any(holds(text, self.needs.entities[entity].text) for text in wide)
            seen[i], pointer[i] = view, fetch

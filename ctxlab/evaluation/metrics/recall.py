"""Reference recall: the share of what the agent used next that was still in view.

A need is *in view* if a message of the request still contains the entity. It is a *pointer* if a
stub or a line of a table of contents replaces a message that contained it, so that it can be
fetched again. Otherwise it is *lost*. Needs are averaged within an argument first, then over
arguments, so that writing one long file does not outweigh a hundred short arguments. Recall is
availability: an upper bound on what a model can recall.

Algorithm: an entity leaves the view only by an edit, so each mention has a request from which on it
is gone. A need is in view if any earlier mention outlives the request that uses it. A running
maximum over mentions answers this for all needs at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.evaluation.references import NeedIndex
from ctxlab.messages.entities import contains_entity
from ctxlab.messages.types import message_text

FAR_TOKENS = 4000
"""A need is far if more than this many tokens lie between the last mention of an entity and its
use."""

_START = attrgetter("start")

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


class NeedVisibility(NamedTuple):
    """Visibility of each need in each trace: arrays of shape ``(traces, needs)``."""

    in_view: _Bools
    "True if the need is in view"
    fetchable: _Bools
    "True if the need is not in view but its message can be fetched again"


@dataclass(frozen=True)
class RecallMetric(Metric):
    """Share of what the next action uses that is in view, near and far."""

    far_tokens: int = FAR_TOKENS
    "tokens beyond which a need is far"

    columns = (
        Column("arguments", "arguments that use something mentioned before", "arguments"),
        Column("seen", "arguments in view (an argument counts in parts)", "arguments"),
        Column("pointed", "arguments not in view but fetchable", "arguments"),
        Column("far_arguments", "arguments that use something mentioned long before", "arguments"),
        Column("far_seen", "far arguments in view", "arguments"),
        Column("far_pointed", "far arguments not in view but fetchable", "arguments"),
        Column("near_arguments", "arguments that use something mentioned recently", "arguments"),
        Column("near_seen", "near arguments in view", "arguments"),
        Column("lost", "arguments whose needs are neither in view nor fetchable", "arguments"),
    )
    scores = (
        Score.share("recall", "what was used next that is in view", "seen / arguments").printed(
            "recall\n",
            "recall: what the agent used next that was still in view (availability: an upper bound)",
        ),
        Score.share("recall_near", "recall of recent mentions", "near_seen / near_arguments"),
        Score.share(
            "recall_far",
            f"recall of what was last mentioned more than {FAR_TOKENS:,} tokens before",
            "far_seen / far_arguments",
        ).printed(
            "far recall\n(95 %)",
            f"far recall: recall of what was last mentioned over {FAR_TOKENS:,} tokens before, "
            "with its interval over clusters",
        ),
        Score.rate(
            "pointer_rate", "used next, not in view but fetchable", "pointed / arguments", better=""
        ).printed("pointer\n%", "pointer: not in view but can be fetched again"),
        Score.rate("lost_rate", "used next, not in view or fetchable", "lost / arguments").printed(
            "lost\n%", "lost: neither in view nor fetchable"
        ),
        Score.total("far_arguments", "arguments behind recall_far", "arguments", better=""),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        needs = prepared.needs
        found = measure_need_visibility(needs, traces)
        far = needs.gap_tokens > self.far_tokens
        every = np.ones(len(needs), dtype=bool)
        share = partial(_argument_shares, needs, len(prepared.request_positions))
        none = np.ones((len(traces), len(needs)), dtype=bool)
        return {
            "arguments": share(every, none),
            "seen": share(every, found.in_view),
            "pointed": share(every, found.fetchable),
            "far_arguments": share(far, none),
            "far_seen": share(far, found.in_view),
            "far_pointed": share(far, found.fetchable),
            "near_arguments": share(~far, none),
            "near_seen": share(~far, found.in_view),
            "lost": share(every, ~(found.in_view | found.fetchable)),
        }


recall = RecallMetric()


def _argument_shares(needs: NeedIndex, requests: int, chosen: _Bools, hit: _Bools) -> FloatArray:
    """Return the arguments that are hit, in parts, by request; only chosen needs count."""
    result = np.zeros((len(hit), requests))
    if chosen.any():
        counts = np.bincount(needs.argument[chosen], minlength=len(needs.arguments))
        weight = np.where(chosen, 1 / np.maximum(counts[needs.argument], 1), 0.0)
        first = np.flatnonzero(np.diff(needs.request, prepend=-1))
        result[:, needs.request[first]] = np.add.reduceat(hit * weight, first, axis=1)
    return result


def measure_need_visibility(needs: NeedIndex, traces: Sequence[Trace]) -> NeedVisibility:
    """Find which needs are in view, and which can be fetched, in each trace of one recording.

    Parameters
    ----------
    needs : NeedIndex
        Needs of the recording.
    traces : sequence of Trace
        One trace per configuration.

    Returns
    -------
    NeedVisibility
        Arrays of shape ``(traces, needs)``.
    """
    if not len(needs):
        return NeedVisibility(*np.zeros((2, len(traces), 0), dtype=bool))
    replays, order = distinct_replays(traces)
    index = _EditedEntityIndex(needs)
    requests = len(needs.request_positions)
    dropped = np.array([trace.context.dropped_at for trace in replays])
    life = np.minimum(dropped[:, needs.mentions], requests)
    for row, trace in zip(life, replays, strict=True):
        index.extend_lifetimes(row, trace)
    seen = _last_visible_request(needs, life, requests) > needs.request
    pointer = np.zeros_like(seen)
    for row, trace in enumerate(replays):
        index.mark_fetchable(pointer[row], trace)
        for entry in trace.context.edited_entries:
            if entry.is_aggregate:
                index.mark_summary_entities(seen[row], entry)
        for request, entries in trace.forked_requests.items():
            index.mark_forked_request(seen[row], pointer[row], request, entries)
    return NeedVisibility(seen[order], (pointer & ~seen)[order])


def _last_visible_request(needs: NeedIndex, life: _Ints, requests: int) -> _Ints:
    """Return for each need the last request in which an earlier mention of it is present."""
    # Offset each entity's mentions above those of the previous entity, so that one running maximum
    # over all of them restarts at each entity.
    lift = needs.mention_entity * (requests + 1)
    running = np.maximum.accumulate(life + lift, axis=1)
    return (running[:, needs.last_mention_row] - lift[needs.last_mention_row]).astype(np.int64)


class _EditedEntityIndex:
    """Entities of edited messages, shared by the traces of one recording."""

    def __init__(self, needs: NeedIndex) -> None:
        self.needs = needs
        self.entities_cache: dict[tuple[int, int, int], tuple[Entry, frozenset[int]]] = {}
        self.rows_by_position: dict[int, list[int]] = {}
        self.mentions: list[int] = needs.mentions.tolist()
        for row, position in enumerate(self.mentions):
            self.rows_by_position.setdefault(position, []).append(row)
        # Plain lists: element access is several times faster than in arrays.
        self.mention_entity: list[int] = needs.mention_entity.tolist()
        self.entity: list[int] = needs.entity.tolist()
        self.last_mention_row: list[int] = needs.last_mention_row.tolist()
        self.mention_offsets: list[int] = needs.mention_offsets.tolist()
        self.request_offsets: list[int] = needs.request_offsets.tolist()

    def entities_in_entry(self, entry: Entry) -> frozenset[int]:
        """Return the entities that an edited message still contains."""
        among = None
        if not entry.is_aggregate:  # it can only contain what its original mentioned
            rows = self.rows_by_position.get(entry.start)
            if not rows:
                return frozenset()
            among = [self.mention_entity[row] for row in rows]
        key = (id(entry.message), entry.start, entry.stop)
        if key not in self.entities_cache:  # keep the entry alive, so that its id is not reused
            self.entities_cache[key] = entry, self.needs.find_entities(entry.message, among)
        return self.entities_cache[key][1]

    def extend_lifetimes(self, life: _Ints, trace: Trace) -> None:
        """Extend a mention's life if the message that replaced its own still contains it."""
        requests = len(self.needs.request_positions)
        for entry in trace.context.edited_entries:
            if not entry.is_aggregate and (kept := self.entities_in_entry(entry)):
                for row in self.rows_by_position.get(entry.start, ()):
                    if self.mention_entity[row] in kept and life[row] == entry.since:
                        life[row] = min(entry.until, requests)

    def mark_summary_entities(self, seen: _Bools, entry: Entry) -> None:
        """Mark the needs that a summary keeps in view while it is present."""
        if kept := self.entities_in_entry(entry):
            rows = self.need_rows(entry)
            known = np.zeros(len(self.needs.entities), dtype=bool)
            known[list(kept)] = True
            seen[rows] |= known[self.needs.entity[rows]]

    def mark_fetchable(self, pointer: _Bools, trace: Trace) -> None:
        """Mark the needs whose messages a stub or a table of contents points to."""
        needs, requests = self.needs, len(self.needs.request_positions)
        died = np.array(trace.context.dropped_at)
        until = np.zeros(len(died), dtype=np.int64)
        late: list[tuple[Entry, int]] = []
        for entry in trace.context.edited_entries:
            if not entry.form.fetchable:
                continue
            span = slice(entry.start, entry.stop)
            # It replaced the message itself, or the pointer to it.
            direct = (died[span] == entry.since) | (until[span] >= max(entry.since, 1))
            until[span][direct] = min(entry.until, requests)
            # Otherwise the message was dropped before, and there is a gap between.
            late += [(entry, entry.start + int(i)) for i in np.flatnonzero(~direct)]
        if until.any():
            life = until[needs.mentions][None]
            pointer |= _last_visible_request(needs, life, requests)[0] > needs.request
        for entry, position in late:
            rows = self.need_rows(entry)
            for row in self.rows_by_position.get(position, ()):
                same = needs.entity[rows] == self.mention_entity[row]
                pointer[rows] |= same & (needs.last_mention_row[rows] >= row)

    def need_rows(self, entry: Entry) -> slice:
        """Return the rows of the needs of the requests in which an entry is present."""
        last = len(self.request_offsets) - 1
        since, until = (self.request_offsets[min(r, last)] for r in (entry.since, entry.until))
        return slice(since, until)

    def mark_forked_request(
        self, seen: _Bools, pointer: _Bools, request: int, entries: Sequence[Entry]
    ) -> None:
        """Mark the needs of a request that was built on a fork, one by one."""
        rows = range(self.request_offsets[request], self.request_offsets[request + 1])
        if not rows:
            return
        wide = [message_text(entry.message) for entry in entries if entry.is_aggregate]
        for i in rows:
            entity, view, fetch = self.entity[i], False, False
            row, first = self.last_mention_row[i], self.mention_offsets[entity]
            while row >= first and not view:
                position = self.mentions[row]
                index = bisect_right(entries, position, key=_START) - 1
                found = entries[index] if index >= 0 else None
                if found and found.is_aggregate and found.stop > position:
                    fetch = fetch or found.form.fetchable
                elif found and found.start == position and not found.is_aggregate:
                    view = found.form is Form.VERBATIM or entity in self.entities_in_entry(found)
                    fetch = fetch or found.form.fetchable
                row -= 1
            if wide and not view:
                view = any(contains_entity(text, self.needs.entities[entity].text) for text in wide)
            seen[i], pointer[i] = view, fetch

"""Recall: the share of needs that are in view when the agent uses them.

A need is an entity (such as a path, an identifier or a number) that the agent's next action uses
and that an earlier message mentioned. It is *in view* if a message of the request contains the
entity. It is a *pointer* if a stub or a line of a table of contents replaces a message that
contained the entity, so that the agent can fetch it again. Otherwise it is *lost*. The share is
computed for each argument of a tool call and then averaged over arguments, so that an argument with
many needs, such as the content of a long file, has the same weight as a short one. Recall measures
availability: it is an upper bound on what a model can recall.

Algorithm: a mention of an entity that is removed from the context never returns. One number per
mention is therefore enough: the first request without it. A need is in view if, for at least one
earlier mention, this number is greater than the number of the request whose reply uses the entity. A
running maximum over the mentions decides this for all needs at once. Summaries that contain the
entity, and requests that were built on a copy of the context, are examined separately.
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
"""A need is far if it was last mentioned more than this many tokens before its use."""

HEADLINE_SCORE = "recall_far"
"""Name of the recall score that the verdict, tuning, the gate's examples and the plots use."""

HEADLINE_LABEL = "far recall"
"""The headline score as it is written in sentences."""

_START = attrgetter("start")

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


class NeedVisibility(NamedTuple):
    """Visibility of each need in each trace: arrays of shape ``(traces, needs)``."""

    in_view: _Bools
    "True if the need is in view"
    fetchable: _Bools
    "True if the need is not in view but a message that mentioned it can be fetched again"


@dataclass(frozen=True)
class RecallMetric(Metric):
    """Share of needs that are in view, over all needs, near needs and far needs."""

    far_tokens: int = FAR_TOKENS
    "a need is far if it was last mentioned more than this many tokens before its use"

    columns = (
        Column(
            "arguments",
            "tool-call arguments that contain needs (names or values mentioned earlier)",
            "arguments",
        ),
        Column(
            "seen",
            "share of an argument's needs in view, summed over the arguments",
            "arguments",
        ),
        Column(
            "pointed",
            "share of an argument's needs not in view but fetchable, summed over the arguments",
            "arguments",
        ),
        Column(
            "far_arguments",
            f"arguments with far needs (last mentioned more than {FAR_TOKENS:,} tokens earlier)",
            "arguments",
        ),
        Column(
            "far_seen",
            "share of an argument's far needs in view, summed over the arguments",
            "arguments",
        ),
        Column(
            "far_pointed",
            "share of an argument's far needs not in view but fetchable, summed over the arguments",
            "arguments",
        ),
        Column("near_arguments", "arguments with near needs (needs that are not far)", "arguments"),
        Column(
            "near_seen",
            "share of an argument's near needs in view, summed over the arguments",
            "arguments",
        ),
        Column(
            "lost",
            "share of an argument's needs neither in view nor fetchable, summed over the arguments",
            "arguments",
        ),
    )
    scores = (
        Score.share(
            "recall",
            "share of an argument's needs in view, averaged over arguments",
            "seen / arguments",
        ).printed(
            "recall\n",
            "recall: share of the names and values in the agent's next action that are still in the "
            "request (availability: an upper bound on what a model recalls)",
        ),
        Score.share(
            "recall_near", "recall of needs that are not far", "near_seen / near_arguments"
        ),
        Score.share(
            "recall_far",
            f"recall of far needs (last mentioned more than {FAR_TOKENS:,} tokens earlier)",
            "far_seen / far_arguments",
        ).printed(
            "far recall\n(95 %)",
            "far recall: recall of names and values that were last mentioned more than "
            f"{FAR_TOKENS:,} tokens earlier, with a 95 % interval if there are enough clusters",
        ),
        Score.rate(
            "pointer_rate",
            "share of needs that are not in view but can be fetched again",
            "pointed / arguments",
            better="",
        ).printed(
            "pointer\n%",
            "pointer: share of names and values that are not in the request but can be fetched again",
        ),
        Score.rate(
            "lost_rate",
            "share of needs that are not in view and cannot be fetched again",
            "lost / arguments",
        ).printed(
            "lost\n%", "lost: share of names and values neither in the request nor fetchable"
        ),
        Score.total("far_arguments", "number of arguments with far needs", "arguments", better=""),
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
    """Add up the share of hits of each argument of a tool call, for each trace and request.

    An argument with four needs, three of which are hits, counts as 0.75. ``chosen`` is True for the
    needs to consider. ``hit`` has one row per trace and one column per need.
    """
    result = np.zeros((len(hit), requests))
    if chosen.any():
        counts = np.bincount(needs.argument[chosen], minlength=len(needs.arguments))
        weight = np.where(chosen, 1 / np.maximum(counts[needs.argument], 1), 0.0)
        first = np.flatnonzero(np.diff(needs.request, prepend=-1))
        result[:, needs.request[first]] = np.add.reduceat(hit * weight, first, axis=1)
    return result


def measure_need_visibility(needs: NeedIndex, traces: Sequence[Trace]) -> NeedVisibility:
    """Find out which needs of a recording are in view or can be fetched again, in each trace.

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
        return NeedVisibility(*np.zeros((2, len(traces), 0), dtype=bool))
    replays, order = distinct_replays(traces)
    index = _EditedEntityIndex(needs)
    requests = len(needs.request_positions)
    dropped = np.array([trace.context.dropped_at for trace in replays])
    life = np.minimum(dropped[:, needs.mentions], requests)
    for row, trace in zip(life, replays, strict=True):
        index.extend_lifetimes(row, trace)
    seen = _first_request_without(needs, life, requests) > needs.request
    pointer = np.zeros_like(seen)
    for row, trace in enumerate(replays):
        index.mark_fetchable(pointer[row], trace)
        for entry in trace.context.edited_entries:
            if entry.is_aggregate:
                index.mark_summary_entities(seen[row], entry)
        for request, entries in trace.forked_requests.items():
            index.mark_forked_request(seen[row], pointer[row], request, entries)
    return NeedVisibility(seen[order], (pointer & ~seen)[order])


def _first_request_without(needs: NeedIndex, life: _Ints, requests: int) -> _Ints:
    """Return, for each need, the number of the first request that contains none of its mentions.

    Mentions that come after the use of the need are ignored. The need is visible in all requests before
    the returned one. ``life`` has one row per trace and contains, for each mention, the first request
    without this mention.
    """
    # Add a larger offset for each entity, so that one running maximum over the mentions of all
    # entities restarts at the first mention of each entity.
    lift = needs.mention_entity * (requests + 1)
    running = np.maximum.accumulate(life + lift, axis=1)
    return (running[:, needs.last_mention_row] - lift[needs.last_mention_row]).astype(np.int64)


class _EditedEntityIndex:
    """Index of the entities in edited messages, shared by the traces of one recording."""

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
        """Return the indices of the entities that an edited message contains."""
        among = None
        if not entry.is_aggregate:  # search only for the entities of the original message
            rows = self.rows_by_position.get(entry.start)
            if not rows:
                return frozenset()
            among = [self.mention_entity[row] for row in rows]
        key = (id(entry.message), entry.start, entry.stop)
        if key not in self.entities_cache:  # keep the entry alive, so that its id is not reused
            self.entities_cache[key] = entry, self.needs.find_entities(entry.message, among)
        return self.entities_cache[key][1]

    def extend_lifetimes(self, life: _Ints, trace: Trace) -> None:
        """Extend the lifetime of mentions that the edited version of a message still contains.

        ``life`` contains, for each mention, the first request without it, and is changed in place.
        """
        requests = len(self.needs.request_positions)
        for entry in trace.context.edited_entries:
            if not entry.is_aggregate and (kept := self.entities_in_entry(entry)):
                for row in self.rows_by_position.get(entry.start, ()):
                    if self.mention_entity[row] in kept and life[row] == entry.since:
                        life[row] = min(entry.until, requests)

    def mark_summary_entities(self, seen: _Bools, entry: Entry) -> None:
        """Set ``seen`` for the needs whose entity a summary contains.

        Only the needs of requests that include the summary ``entry`` are considered.
        """
        if kept := self.entities_in_entry(entry):
            rows = self.need_rows(entry)
            known = np.zeros(len(self.needs.entities), dtype=bool)
            known[list(kept)] = True
            seen[rows] |= known[self.needs.entity[rows]]

    def mark_fetchable(self, pointer: _Bools, trace: Trace) -> None:
        """Mark needs as fetchable if a stub or a table of contents replaces one of their mentions."""
        needs, requests = self.needs, len(self.needs.request_positions)
        died = np.array(trace.context.dropped_at)
        until = np.zeros(len(died), dtype=np.int64)
        late: list[tuple[Entry, int]] = []
        for entry in trace.context.edited_entries:
            if not entry.form.fetchable:
                continue
            span = slice(entry.start, entry.stop)
            # The entry replaced the message itself, or an earlier pointer to the message.
            direct = (died[span] == entry.since) | (until[span] >= max(entry.since, 1))
            until[span][direct] = min(entry.until, requests)
            # Otherwise the message was dropped earlier, so some requests have no pointer to it.
            late += [(entry, entry.start + int(i)) for i in np.flatnonzero(~direct)]
        if until.any():
            life = until[needs.mentions][None]
            pointer |= _first_request_without(needs, life, requests)[0] > needs.request
        for entry, position in late:
            rows = self.need_rows(entry)
            for row in self.rows_by_position.get(position, ()):
                same = needs.entity[rows] == self.mention_entity[row]
                pointer[rows] |= same & (needs.last_mention_row[rows] >= row)

    def need_rows(self, entry: Entry) -> slice:
        """Return the index range of the needs of all requests that include ``entry``."""
        last = len(self.request_offsets) - 1
        since, until = (self.request_offsets[min(r, last)] for r in (entry.since, entry.until))
        return slice(since, until)

    def mark_forked_request(
        self, seen: _Bools, pointer: _Bools, request: int, entries: Sequence[Entry]
    ) -> None:
        """Mark needs as seen or fetchable, in one request built on a copy of the context (a fork)."""
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

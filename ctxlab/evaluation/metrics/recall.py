"""Recall: the share of needs that a request still holds when the agent uses them.

A need is an entity (such as a path, an identifier or a number) that the agent's next action uses
and that an earlier message mentioned. In a request, a need is in one of four tiers:

- *held*: a message that mentions the entity is in the request unchanged, or another text contains a
  source line of the entity word for word (see ``ctxlab.evaluation.source_lines``);
- *named*: another text contains the entity, but no source line of it;
- *pointer*: a stub or a line of a table of contents replaces a message that mentioned the entity, so
  that the agent can fetch it again;
- *lost*: none of these.

Recall counts needs that are held or named, held recall only those that are held. A bare list of names
has a high recall and no held recall. The shares are computed for each argument of a tool call and then
averaged over arguments, so that an argument with many needs, such as the content of a long file, has
the same weight as a short one. Recall measures availability: it is an upper bound on what a model can
recall.

A far need was last mentioned more than 4,000 tokens before its use. Far recall considers only the
needs that the user or a tool mentioned first. What the agent itself mentioned first is reported
apart, because strategies that shorten only tool results keep it by construction.

Algorithm: a mention of an entity that is removed from the context never returns. One number per
mention is therefore enough: the first request without it. A need is in view if, for at least one
earlier mention, this number is greater than the number of the request whose reply uses the entity. A
running maximum over the mentions decides this for all needs at once. Summaries that contain the
entity, and requests that were built on a copy of the context, are examined separately.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.evaluation.references import ORIGINS, NeedIndex
from ctxlab.evaluation.source_lines import entities_in_line, message_segments, searchable_text
from ctxlab.messages.entities import Entity

FAR_TOKENS = 4000
"""A need is far if it was last mentioned more than this many tokens before its use."""

HEADLINE_SCORE = "recall_far_held"
"""Name of the recall score that the verdict, tuning, the gate's examples and the plots use."""

HEADLINE_LABEL = "held far recall"
"""The headline score as it is written in sentences."""

NAME_USE_REQUESTS = 20
"""A name in a text that a strategy wrote is used if one of this many next actions uses it."""

_ORIGIN_NAMES = {"user": "user", "tool": "tool", "assistant": "agent"}
"""Name of an origin in columns, by role of the message that mentioned the entity first."""

_FIRST_SAID = {
    "user": "mentioned first by the user",
    "tool": "mentioned first by a tool result",
    "agent": "mentioned first by the agent",
}

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


def _far_columns(origin: str) -> tuple[Column, ...]:
    """Return the columns of far needs with one origin."""
    first = _FIRST_SAID[origin]
    return (
        Column(f"far_arguments_{origin}", f"arguments with far needs {first}", "arguments"),
        Column(
            f"far_seen_{origin}",
            f"share of an argument's far needs {first} that are in view, summed over the arguments",
            "arguments",
        ),
        Column(
            f"far_held_{origin}",
            f"share of an argument's far needs {first} that are held, summed over the arguments",
            "arguments",
        ),
    )


def _argument_column(name: str, needs: str, state: str) -> Column:
    meaning = f"share of an argument's {needs} {state}, summed over the arguments"
    return Column(name, meaning, "arguments")


_FAR = "far needs (not first mentioned by the agent)"


@dataclass(frozen=True)
class RecallMetric(Metric):
    """Share of needs that are held or named, over all needs, near needs and far needs."""

    far_tokens: int = FAR_TOKENS
    "a need is far if it was last mentioned more than this many tokens before its use"

    columns = (
        Column(
            "arguments",
            "tool-call arguments that contain needs (names or values mentioned earlier)",
            "arguments",
        ),
        _argument_column("seen", "needs", "in view"),
        _argument_column("held", "needs", "held"),
        _argument_column("pointed", "needs", "not in view but fetchable"),
        _argument_column("lost", "needs", "neither in view nor fetchable"),
        Column(
            "far_arguments",
            f"arguments with far needs (last mentioned more than {FAR_TOKENS:,} tokens earlier, "
            "and not first mentioned by the agent)",
            "arguments",
        ),
        _argument_column("far_seen", _FAR, "in view"),
        _argument_column("far_held", _FAR, "held"),
        _argument_column("far_pointed", _FAR, "not in view but fetchable"),
        _argument_column("far_similar", _FAR, "not in view except for folder and name"),
        *(column for origin in _FIRST_SAID for column in _far_columns(origin)),
        Column("near_arguments", "arguments with near needs (needs that are not far)", "arguments"),
        _argument_column("near_seen", "near needs", "in view"),
        Column("names_written", "names in texts that the strategy wrote for the request", "names"),
        Column(
            "names_used",
            f"names in these texts that the next {NAME_USE_REQUESTS} recorded actions use",
            "names",
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
            "recall_held", "share of an argument's needs that are held", "held / arguments"
        ),
        Score.share(
            "recall_near", "recall of needs that are not far", "near_seen / near_arguments"
        ),
        Score.share(
            "recall_far_held",
            "share of far needs (mentioned first by the user or a tool, and last more than "
            f"{FAR_TOKENS:,} tokens earlier) that are held: an unchanged message or a quoted line "
            "shows them",
            "far_held / far_arguments",
        ).printed(
            "held far\n(95 %)",
            "held far: share of names and values that the user or a tool mentioned first, and that "
            f"were last mentioned more than {FAR_TOKENS:,} tokens earlier, which the request still "
            "shows in an unchanged message or a quoted line, with a 95 % interval if there are "
            "enough clusters",
        ),
        Score.share(
            "recall_far", "share of far needs that are held or named", "far_seen / far_arguments"
        ).printed(
            "or\nnamed", "or named: the same with names and values that are only listed by name"
        ),
        *(
            Score.share(
                f"recall_far_held_{origin}",
                f"share of far needs {first} that are held",
                f"far_held_{origin} / far_arguments_{origin}",
            )
            for origin, first in _FIRST_SAID.items()
        ),
        *(
            Score.share(
                f"recall_far_{origin}",
                f"share of far needs {first} that are held or named",
                f"far_seen_{origin} / far_arguments_{origin}",
            )
            for origin, first in _FIRST_SAID.items()
        ),
        Score.rate(
            "similar_rate",
            "share of far needs that are not in view, but whose folder and name are",
            "far_similar / far_arguments",
            better="",
        ),
        Score.rate(
            "name_precision",
            "share of the names in texts written by the strategy that the agent used within "
            f"{NAME_USE_REQUESTS} requests",
            "names_used / names_written",
            better="higher",
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
        gap = needs.gap_tokens > self.far_tokens
        own = needs.origin == ORIGINS.index("assistant")
        far = gap & ~own
        every = np.ones(len(needs), dtype=bool)
        share = partial(_argument_shares, needs, len(prepared.request_positions))
        none = np.ones((len(traces), len(needs)), dtype=bool)
        by_origin = {}
        for role, origin in _ORIGIN_NAMES.items():
            chosen = gap & (needs.origin == ORIGINS.index(role))
            by_origin[f"far_arguments_{origin}"] = share(chosen, none)
            by_origin[f"far_seen_{origin}"] = share(chosen, found.in_view)
            by_origin[f"far_held_{origin}"] = share(chosen, found.held)
        written, used = count_written_names(needs, traces)
        return {
            "arguments": share(every, none),
            "seen": share(every, found.in_view),
            "held": share(every, found.held),
            "pointed": share(every, found.fetchable),
            "lost": share(every, ~(found.in_view | found.fetchable)),
            "far_arguments": share(far, none),
            "far_seen": share(far, found.in_view),
            "far_held": share(far, found.held),
            "far_pointed": share(far, found.fetchable),
            "far_similar": share(far, found.similar),
            **by_origin,
            "near_arguments": share(~gap, none),
            "near_seen": share(~gap, found.in_view),
            "names_written": written,
            "names_used": used,
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
    index = _EditedEntityIndex(needs)
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
    for row, trace in enumerate(replays):
        marks = _Marks(held[row], seen[row], similar[row], pointer[row])
        index.mark_fetchable(pointer[row], trace)
        for entry in trace.context.edited_entries:
            if entry.is_aggregate:
                index.mark_summary_entities(marks, entry)
        for request, entries in trace.forked_requests.items():
            index.mark_forked_request(marks, request, entries)
    return NeedVisibility(
        seen[order], (pointer & ~seen)[order], held[order], (similar & ~seen)[order]
    )


def count_written_names(needs: NeedIndex, traces: Sequence[Trace]) -> tuple[FloatArray, FloatArray]:
    """Count the names in texts that strategies wrote, and those that the agent used soon afterwards.

    A text is counted with the first request that contains it. Shortened messages are not counted,
    because the strategy did not choose their names.

    Parameters
    ----------
    needs : NeedIndex
        Needs of the recording.
    traces : sequence of Trace
        Traces of the recording, one per configuration.

    Returns
    -------
    (numpy.ndarray, numpy.ndarray)
        Number of names written and number of names used, of shape ``(traces, requests)``.
    """
    requests = len(needs.request_positions)
    replays, order = distinct_replays(traces)
    written, used = np.zeros((2, len(replays), requests))
    texts = _WrittenTexts(needs)
    for row, trace in enumerate(replays):
        edited = ((entry.since, (entry,)) for entry in trace.context.edited_entries)
        for request, entries in chain(edited, trace.forked_requests.items()):
            if request < requests:
                count, soon = texts.count_names(entries, request)
                written[row, request] += count
                used[row, request] += soon
    return written[order], used[order]


class _WrittenTexts:
    """Names in the texts that strategies wrote, shared by the traces of one recording."""

    def __init__(self, needs: NeedIndex) -> None:
        self.needs = needs
        self.known: dict[int, tuple[Entry, int, list[Sequence[int]]]] = {}
        self.line_names: dict[str, frozenset[str]] = {}

    def count_names(self, entries: Iterable[Entry], request: int) -> tuple[int, int]:
        """Return the number of names that a strategy wrote, and of those that are used soon."""
        written = soon = 0
        for entry in entries:
            if entry.form is Form.VERBATIM or entry.form is Form.TRUNCATED:
                continue
            found = self.known.get(id(entry.message)) or self._find_names(entry)
            written += found[1]
            if found[2]:
                soon += sum([_is_used_soon(use, request) for use in found[2]])
        return written, soon

    def _find_names(self, entry: Entry) -> tuple[Entry, int, list[Sequence[int]]]:
        """Return the number of distinct names in an entry, and the uses of those that are used.

        A use is the number of the request whose reply contains the name.
        """
        lines = searchable_text(message_segments(entry.message)).split("\n")
        names = frozenset().union(*map(self._names_in_line, lines))
        used = self.needs.requests_by_use
        found = entry, len(names), [used[name] for name in names if name in used]
        self.known[id(entry.message)] = found  # with the entry, so that its id is not reused
        return found

    def _names_in_line(self, line: str) -> frozenset[str]:
        if (found := self.line_names.get(line)) is None:
            normalize = self.needs.normalize
            found = frozenset(normalize(entity).text for entity in entities_in_line(line))
            self.line_names[line] = found
        return found


def _is_used_soon(uses: Sequence[int], request: int) -> bool:
    at = bisect_left(uses, request)
    return at < len(uses) and uses[at] < request + NAME_USE_REQUESTS


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
    """Visibility of each need in one trace, changed in place."""

    held: _Bools
    seen: _Bools
    similar: _Bools
    pointer: _Bools


class _EditedEntityIndex:
    """Index of the entities in edited messages, shared by the traces of one recording."""

    def __init__(self, needs: NeedIndex) -> None:
        self.needs = needs
        self.entities_cache: dict[tuple[int, int, int], tuple[Entry, frozenset[int]]] = {}
        self.text_cache: dict[int, tuple[Entry, str]] = {}
        self.lines_cache: dict[int, list[tuple[str, frozenset[int]]]] = {}
        self.line_entities: dict[str, frozenset[int]] = {}
        self.line_rows: dict[tuple[str, int], tuple[int, list[tuple[int, str]]]] = {}
        self.own_cache: dict[tuple[int, int], bool] = {}
        self.quoted_cache: dict[tuple[int, int], int] = {}
        self.rows_by_position: dict[int, list[int]] = {}
        self.mentions: list[int] = needs.mentions.tolist()
        for row, position in enumerate(self.mentions):
            self.rows_by_position.setdefault(position, []).append(row)
        # Plain lists: element access is several times faster than in arrays.
        self.mention_entity: list[int] = needs.mention_entity.tolist()
        self.mention_offsets: list[int] = needs.mention_offsets.tolist()
        self.request_offsets: list[int] = needs.request_offsets.tolist()
        self.fork_rows: dict[int, _ForkRows] = {}

    def entities_in_entry(self, entry: Entry) -> frozenset[int]:
        """Return the indices of the entities that an edited message contains."""
        key = (id(entry.message), entry.start, entry.stop)
        known = self.entities_cache.get(key)
        if known is not None:
            return known[1]
        found: Collection[int]
        if entry.is_aggregate:
            found = frozenset().union(*[numbers for _, numbers in self.lines(entry)])
        else:  # search only for the entities of the original message
            rows = self.rows_by_position.get(entry.start, ())
            found = self.needs.find_entities(entry.message, [self.mention_entity[r] for r in rows])
        # Keep the entry alive, so that the id of its message is not reused.
        self.entities_cache[key] = entry, frozenset(found)
        return self.entities_cache[key][1]

    def lines(self, entry: Entry) -> Sequence[tuple[str, frozenset[int]]]:
        """Return the lines of a summary that contain entities, with the indices of these.

        Summaries of consecutive requests have most lines in common, so a line is searched once.
        """
        key = id(entry.message)
        if key not in self.lines_cache:
            known, lines = self.line_entities, self.entry_text(entry).split("\n")
            for line in lines:
                if line not in known:
                    known[line] = self.needs.find_entities_in_text(line)
            self.lines_cache[key] = [(line, known[line]) for line in lines if known[line]]
        return self.lines_cache[key]

    def entry_text(self, entry: Entry) -> str:
        """Return the text of an edited message."""
        key = id(entry.message)
        if key not in self.text_cache:
            text = searchable_text(message_segments(entry.message))
            self.text_cache[key] = entry, text
        return self.text_cache[key][1]

    def holds_own_line(self, entry: Entry, row: int) -> bool:
        """Return whether an edited message still shows a line of the original with a mention."""
        key = (id(entry.message), row)
        if key not in self.own_cache:
            text, entity = self.entry_text(entry), self.needs.entities[self.mention_entity[row]]
            places = self.offsets(entity, text)
            lines = self.needs.source_lines(row)
            self.own_cache[key] = any(
                line.held_in(text, at, entity.text) for line in lines for at in places
            )
        return self.own_cache[key]

    def first_quoted_row(self, entry: Entry, number: int) -> int:
        """Return the index of the first mention of which a text quotes a line.

        It is the number of all mentions if the text quotes none.
        """
        key = (id(entry.message), number)
        if key not in self.quoted_cache:
            first, text = len(self.mentions), self.entry_text(entry)
            for line, numbers in self.lines(entry):
                if number not in numbers:
                    continue
                row, bare = self.quoted_rows(line, number)
                wider = (row for row, pair in bare if pair in text)
                first = min(first, row, next(wider, first))
            self.quoted_cache[key] = first
        return self.quoted_cache[key]

    def quoted_rows(self, line: str, number: int) -> tuple[int, Sequence[tuple[int, str]]]:
        """Find the first mention of which a line of a summary quotes a source line.

        Return its index, or the number of all mentions, and the earlier mentions whose source line
        is bare: the index of each, and a pair of lines that the summary must contain.
        """
        key = line, number
        if key not in self.line_rows:
            entity = self.needs.entities[number]
            places, first = self.offsets(entity, line), len(self.mentions)
            bare: list[tuple[int, str]] = []
            for source, row in self.needs.entity_lines(number).items():
                if not source.tool and source.text not in line:
                    continue  # excludes most sources fast
                if any(source.held_in(line, at, entity.text) for at in places):
                    first = row
                    break
                if any(source.matches(line, at) for at in places):
                    bare += [(row, pair) for pair in source.informative_pairs(entity.text)]
            self.line_rows[key] = first, bare
        return self.line_rows[key]

    def offsets(self, entity: Entity, text: str) -> list[int]:
        """Return the offsets of all mentions of an entity in a text."""
        found, at = [], self.needs.find_offset(entity, text)
        while at >= 0:
            found.append(at)
            at = self.needs.find_offset(entity, text, at + len(entity.text))
        return found

    def extend_lifetimes(self, held_until: _Ints, seen_until: _Ints, trace: Trace) -> None:
        """Extend the lifetime of mentions that the edited version of a message still contains.

        Both arrays contain, for each mention, the first request without it, and are changed in
        place.
        """
        requests = len(self.needs.request_positions)
        for entry in trace.context.edited_entries:
            if entry.is_aggregate or not (kept := self.entities_in_entry(entry)):
                continue
            until = min(entry.until, requests)
            for row in self.rows_by_position.get(entry.start, ()):
                if self.mention_entity[row] in kept and seen_until[row] == entry.since:
                    seen_until[row] = until
                    if held_until[row] == entry.since and self.holds_own_line(entry, row):
                        held_until[row] = until

    def mark_summary_entities(self, marks: _Marks, entry: Entry) -> None:
        """Mark the needs whose entity a summary contains.

        Only the needs of requests that include the summary ``entry`` are considered.
        """
        rows = self.need_rows(entry)
        if rows.start < rows.stop and (kept := self.entities_in_entry(entry)):
            needs = self.needs
            known = np.zeros(len(needs.entities), dtype=bool)
            known[list(kept)] = True
            named = known[needs.entity[rows]]
            marks.seen[rows] |= named
            alias = needs.mention_entity[np.maximum(needs.similar_row[rows], 0)]
            marks.similar[rows] |= (needs.similar_row[rows] >= 0) & known[alias]
            for i in (np.flatnonzero(named & ~marks.held[rows]) + rows.start).tolist():
                first = self.first_quoted_row(entry, int(needs.entity[i]))
                marks.held[i] = first <= needs.last_mention_row[i]

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
            first = _first_request_without(needs, life, needs.last_mention_row)
            pointer |= first[0] > needs.request
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

    def mark_forked_request(self, marks: _Marks, request: int, entries: Sequence[Entry]) -> None:
        """Set the marks of one request that was built on a copy of the context (a fork)."""
        here = slice(self.request_offsets[request], self.request_offsets[request + 1])
        if here.start == here.stop:
            return
        if request not in self.fork_rows:
            self.fork_rows[request] = _ForkRows.of(self.needs, here)
        own, similar = self.fork_rows[request][:2]
        verbatim, pointer = np.zeros((2, len(self.needs.history)), dtype=bool)
        edited = [e for e in entries if e.form is not Form.VERBATIM or e.is_aggregate]
        whole = [e.start for e in entries if e.form is Form.VERBATIM and not e.is_aggregate]
        verbatim[whole] = True
        for entry in edited:
            if entry.form.fetchable:
                pointer[entry.start : entry.stop] = True
        marks.held[here] = own.any_mention(verbatim)
        marks.seen[here] = marks.held[here]
        marks.pointer[here] = own.any_mention(pointer)
        marks.similar[here] = similar.any_mention(verbatim)
        for entry in edited:
            self._mark_edited_entry(marks, request, entry)

    def _mark_edited_entry(self, marks: _Marks, request: int, entry: Entry) -> None:
        """Mark the needs of one request that an edited entry of the request shows."""
        kept = self.entities_in_entry(entry)
        if not kept:
            return
        needs, rows = self.needs, self.fork_rows[request]
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
                    marks.held[i] = self.first_quoted_row(entry, number) <= last
                elif (row := self._row_at(entry, last)) is not None:
                    marks.seen[i] = True
                    marks.held[i] = self.holds_own_line(entry, row)

    def _row_at(self, entry: Entry, last: int) -> int | None:
        """Return the row of the mention in the entry's message, if it is not after row ``last``."""
        number = self.mention_entity[last]
        first = self.mention_offsets[number]
        row = bisect_left(self.mentions, entry.start, first, last + 1)
        return row if row <= last and self.mentions[row] == entry.start else None


class _Mentions(NamedTuple):
    """Mentions before each need of one request, to look all of them up at once."""

    positions: _Ints
    "positions of the mentions of all needs, one group per need"
    starts: _Ints
    "index of the first element of each group that is not empty"
    filled: _Bools
    "for each need: True if its group is not empty"

    @classmethod
    def up_to(cls, needs: NeedIndex, last_rows: Iterable[int]) -> _Mentions:
        """Collect the mentions up to the given rows; -1 stands for an empty group."""
        groups = [
            needs.mentions[needs.mention_offsets[needs.mention_entity[last]] : last + 1]
            if last >= 0
            else needs.mentions[:0]
            for last in last_rows
        ]
        sizes = np.array([len(group) for group in groups])
        starts = np.cumsum([0, *sizes])[:-1]
        return cls(np.concatenate(groups), starts[sizes > 0], sizes > 0)

    def any_mention(self, present: _Bools) -> _Bools:
        """Return for each need whether one of its mentions is at a position that is present."""
        found = np.zeros(len(self.filled), dtype=bool)
        if len(self.starts):
            found[self.filled] = np.logical_or.reduceat(present[self.positions], self.starts)
        return found


class _ForkRows(NamedTuple):
    """Mentions of the needs of one request, and of their folders with names."""

    own: _Mentions
    similar: _Mentions
    by_entity: dict[int, list[int]]
    "needs of the request, by index of their entity"
    similar_by_entity: dict[int, list[int]]
    "needs of the request that are paths, by index of the entity with their folder and name"

    @classmethod
    def of(cls, needs: NeedIndex, here: slice) -> _ForkRows:
        last, similar = needs.last_mention_row[here].tolist(), needs.similar_row[here].tolist()
        own: dict[int, list[int]] = {}
        alias: dict[int, list[int]] = {}
        for i, (row, alike) in enumerate(zip(last, similar, strict=True), here.start):
            own.setdefault(int(needs.mention_entity[row]), []).append(i)
            if alike >= 0:
                alias.setdefault(int(needs.mention_entity[alike]), []).append(i)
        return cls(_Mentions.up_to(needs, last), _Mentions.up_to(needs, similar), own, alias)

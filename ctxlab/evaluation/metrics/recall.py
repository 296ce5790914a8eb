"""Recall: the share of needs that a request still holds when the agent uses them.

A need is an entity (such as a path, an identifier or a number) that the agent's next action uses
and that an earlier message mentioned. In a request, a need is in one of four tiers:

- *held*: a message that mentions the entity is in the request unchanged, or another text contains a
  source line of the entity word for word (see ``ctxlab.messages.source_lines``);
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
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.evaluation.references import ORIGINS, NeedIndex
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.source_lines import entities_in_line, message_segments, searchable_text

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
        Column(
            "names_written",
            "names in texts that the strategy wrote for the request",
            "names",
            integer=True,
        ),
        Column(
            "names_used",
            f"names in these texts that the next {NAME_USE_REQUESTS} recorded actions use",
            "names",
            integer=True,
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
        verbatim = trace.verbatim_in_forks
        forked = (
            (request, entries)
            for request, entries in trace.forked_requests.items()
            if len(verbatim[request]) < len(entries)
        )
        for request, entries in chain(edited, forked):
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
        for entry in [entry for entry in entries if not entry.is_verbatim]:
            if entry.form is Form.TRUNCATED:
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
        names: set[str] = set()
        for line in lines:
            found_names = self.line_names.get(line)
            names |= self._names_in_line(line) if found_names is None else found_names
        used = self.needs.requests_by_use
        found = entry, len(names), [used[name] for name in names if name in used]
        self.known[id(entry.message)] = found  # with the entry, so that its id is not reused
        return found

    def _names_in_line(self, line: str) -> frozenset[str]:
        normalize = self.needs.normalize
        found = frozenset(normalize(entity).text for entity in entities_in_line(line))
        self.line_names[line] = found
        return found


def _is_used_soon(uses: Sequence[int], request: int) -> bool:
    at = bisect_left(uses, request)
    return at < len(uses) and uses[at] < request + NAME_USE_REQUESTS

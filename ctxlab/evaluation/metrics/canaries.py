"""Visibility of canaries: facts inserted into a recording to test if a strategy keeps them.

A canary is *in view* if a message of the request contains its value as whole words. A summary that
kept these words but lost their meaning counts too. Some canaries replace an older value. Such a
canary is *stale* if the older value is in view and the new value is not.

Algorithm: each value was inserted into one message. It is in view until this message is edited or
dropped, and also while an edited message or a summary contains it. Each edited message is searched
only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.canaries import Canary, read_canaries
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.messages.types import Message, message_text

_Bools = npt.NDArray[np.bool_]


class CanaryVisibility(NamedTuple):
    """Visibility of each canary of a recording, by trace and request."""

    canaries: tuple[Canary, ...]
    "the canaries of the recording"
    said_before: _Bools
    "True if the canary precedes the request; array of shape ``(canaries, requests)``"
    in_view: _Bools
    "True if the value of the canary is in view; shape ``(traces, canaries, requests)``"
    stale: _Bools
    "True if the older value is in view and the new value is not; same shape as ``in_view``"
    both_in_view: _Bools
    "True if both the older and the new value are in view; same shape as ``in_view``"


class CanaryMetric(Metric):
    """Share of canaries in view, over all requests after each canary, and at the last request.

    The share over all requests is usually higher than the share at the last request, because the
    requests soon after a canary contain its value under almost every strategy.
    """

    columns = (
        Column("canaries", "canaries inserted before the request", "canaries", integer=True),
        Column(
            "canaries_kept",
            "canaries inserted before the request that are in view",
            "canaries",
            integer=True,
        ),
        Column(
            "canaries_end",
            "`canaries` at the last request; 0 at all other requests",
            "canaries",
            integer=True,
        ),
        Column(
            "canaries_end_kept",
            "`canaries_kept` at the last request; 0 at all other requests",
            "canaries",
            integer=True,
        ),
        Column(
            "canaries_superseded",
            "canaries with an older and a newer value",
            "canaries",
            integer=True,
        ),
        Column(
            "canaries_stale", "canaries with only the older value in view", "canaries", integer=True
        ),
        Column(
            "canaries_both",
            "canaries with the older and the new value in view",
            "canaries",
            integer=True,
        ),
        Column(
            "canaries_superseded_end",
            "`canaries_superseded` at the last request; 0 at all other requests",
            "canaries",
            integer=True,
        ),
        Column(
            "canaries_stale_end",
            "`canaries_stale` at the last request; 0 at all other requests",
            "canaries",
            integer=True,
        ),
    )
    scores = (
        Score.share(
            "survival",
            "share of canaries in view, over all requests after each canary",
            "canaries_kept / canaries",
        ),
        Score.share(
            "survival_end",
            "share of canaries in view at the last request",
            "canaries_end_kept / canaries_end",
        ).printed(
            "canaries kept\n(95 %)",
            "canaries kept: share of canaries in the last request of each recording",
        ),
        Score.rate(
            "stale_rate",
            "among canaries with an older and a newer value: share with only the older value in view",
            "canaries_stale / canaries_superseded",
        ),
        Score.rate(
            "stale_rate_end",
            "stale_rate at the last request",
            "canaries_stale_end / canaries_superseded_end",
        ),
        Score.rate(
            "both_rate",
            "among canaries with an older and a newer value: share with both values in view",
            "canaries_both / canaries_superseded",
            better="",
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        found = measure_canary_visibility(prepared, traces)
        shape = (len(traces), len(prepared.request_positions))
        old = np.array([canary.old is not None for canary in found.canaries], dtype=bool)
        last = np.arange(shape[1]) == shape[1] - 1
        said = np.broadcast_to(found.said_before.sum(axis=0, dtype=np.float64), shape)
        replaced = np.broadcast_to(found.said_before[old].sum(axis=0, dtype=np.float64), shape)
        kept, stale, both = (
            each.sum(axis=1, dtype=np.float64)
            for each in (found.in_view, found.stale, found.both_in_view)
        )
        return {
            "canaries": said,
            "canaries_kept": kept,
            "canaries_end": said * last,
            "canaries_end_kept": kept * last,
            "canaries_superseded": replaced,
            "canaries_stale": stale,
            "canaries_both": both,
            "canaries_superseded_end": replaced * last,
            "canaries_stale_end": stale * last,
        }


canaries = CanaryMetric()


def measure_canary_visibility(
    prepared: PreparedRecording, traces: Sequence[Trace]
) -> CanaryVisibility:
    """Find out which canaries of a recording are in view in each request of each trace.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording that was replayed.
    traces : sequence of Trace
        Traces of the recording, one per configuration.

    Returns
    -------
    CanaryVisibility
        Canaries of the recording, and arrays with their visibility.
    """
    canaries = read_canaries(prepared.recording)
    requests = np.array(prepared.request_positions, dtype=np.int64)
    places = np.array([canary.position for canary in canaries], dtype=np.int64)
    said = requests > places[:, None]
    values = [_PlantedValue(canary.value, canary.position) for canary in canaries]
    older = [
        _PlantedValue(canary.old, canary.old_position)
        if canary.old is not None and canary.old_position is not None
        else None
        for canary in canaries
    ]
    book = _EditedTextIndex([*values, *(value for value in older if value)], requests)
    kept, old = np.zeros((2, len(traces), len(canaries), len(requests)), dtype=bool)
    if canaries:
        replays, order = distinct_replays(traces)
        in_view = np.array([book.values_in_view(trace) for trace in replays])[order]
        kept = in_view[:, : len(canaries)]
        old[:, [value is not None for value in older]] = in_view[:, len(canaries) :]
    kept &= said
    old &= said
    return CanaryVisibility(canaries, said, kept, old & ~kept, old & kept)


class _PlantedValue(NamedTuple):
    text: str
    position: int


class _EditedTextIndex:
    """Index of the canary values in edited messages, shared by the traces of one recording."""

    def __init__(self, values: Sequence[_PlantedValue], requests: npt.NDArray[np.int64]) -> None:
        self.positions = np.array([value.position for value in values], dtype=np.int64)
        self.first_requests = np.searchsorted(requests, self.positions, side="right")
        "number of the first request after the message with each value"
        self.numbers = np.arange(len(requests))
        self.row_by_position = {value.position: row for row, value in enumerate(values)}
        # Search for the last word of each value first: most messages contain none of these words.
        self.search_terms = [(r, t.split()[-1], padded_words(t)) for r, (t, _) in enumerate(values)]
        self.cache: dict[int, tuple[Message, list[int]]] = {}

    def values_in_view(self, trace: Trace) -> _Bools:
        """Return an array of shape ``(values, requests)`` that is True where a value is in view."""
        died = np.array(trace.context.dropped_at)[self.positions]
        seen = (self.numbers >= self.first_requests[:, None]) & (self.numbers < died[:, None])
        for entry in trace.context.edited_entries:
            seen[self.values_in_message(entry.message), entry.since : entry.until] = True
        for request, entries in trace.forked_requests.items():
            seen[:, request] = False
            for entry in entries:
                if not entry.is_verbatim:
                    seen[self.values_in_message(entry.message), request] = True
                elif (row := self.row_by_position.get(entry.start)) is not None:
                    seen[row, request] = True
        return seen

    def values_in_message(self, message: Message) -> list[int]:
        """Return the indices of the values that an edited message contains."""
        known = self.cache.get(id(message))
        if known is None:
            text = message_text(message)
            folded = text.casefold()
            found = [(row, words) for row, last, words in self.search_terms if last in folded]
            said = padded_words(text) if found else ""
            held = [row for row, words in found if words in said]
            # Keep the message alive, so that its id is not reused.
            known = self.cache[id(message)] = (message, held)
        return known[1]

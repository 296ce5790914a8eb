"""Visibility of planted canaries in each request, and of old values that outlive the new ones.

A canary is in view if a message of the request contains its value as whole words. It therefore
survives in a summary that kept the words but lost their meaning. A canary with a superseded value
is *stale* if the old value is in view and the new one is not.

Algorithm: a value is in one message only, so it is in view until that message is edited, and after
that in any edited text that still contains it. Each edited text is searched once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.history import Form
from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.canaries import Canary, read_canaries
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.messages.types import Message, message_text

_Bools = npt.NDArray[np.bool_]


class CanaryVisibility(NamedTuple):
    """Visibility of each canary of a recording in each trace and request."""

    canaries: tuple[Canary, ...]
    "the canaries of the recording"
    said_before: _Bools
    "True if the canary precedes the request: shape ``(canaries, requests)``"
    in_view: _Bools
    "True if its value is in view: shape ``(traces, canaries, requests)``"
    stale: _Bools
    "True if only its old value is in view: same shape as ``in_view``"
    both_in_view: _Bools
    "True if both values are in view: same shape as ``in_view``"


class CanaryMetric(Metric):
    """Share of canaries in view, over all requests after each one, and at the last request.

    Requests soon after a canary flatter every strategy, because recent values are in view under all
    of them.
    """

    columns = (
        Column("canaries", "canaries planted before the request", "canaries"),
        Column("canaries_kept", "canaries in view", "canaries"),
        Column("canaries_end", "canaries at the last request", "canaries"),
        Column("canaries_end_kept", "canaries in view at the last request", "canaries"),
        Column("canaries_superseded", "canaries that replace an older value", "canaries"),
        Column("canaries_stale", "canaries with only the older value in view", "canaries"),
        Column("canaries_both", "canaries with both values in view", "canaries"),
        Column("canaries_superseded_end", "superseding canaries at the last request", "canaries"),
        Column("canaries_stale_end", "stale canaries at the last request", "canaries"),
    )
    scores = (
        Score.share("survival", "canaries in view, request by request", "canaries_kept / canaries"),
        Score.share(
            "survival_end", "canaries in view at the end", "canaries_end_kept / canaries_end"
        ).printed(
            "canaries kept\n(95 %)",
            "canaries kept: share of canaries in view at the end of each recording",
        ),
        Score.rate(
            "stale_rate", "only the older value in view", "canaries_stale / canaries_superseded"
        ),
        Score.rate(
            "stale_rate_end",
            "only the older value in view at the end",
            "canaries_stale_end / canaries_superseded_end",
        ),
        Score.rate(
            "both_rate", "both values in view", "canaries_both / canaries_superseded", better=""
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
    """Find which canaries of a recording are in view in each request of each trace.

    Parameters
    ----------
    prepared : PreparedRecording
        The recording that was replayed.
    traces : sequence of Trace
        One trace per configuration.

    Returns
    -------
    CanaryVisibility
        Arrays by canary and request.
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
    """Values in edited texts, shared by the traces of one recording."""

    def __init__(self, values: Sequence[_PlantedValue], requests: npt.NDArray[np.int64]) -> None:
        self.positions = np.array([value.position for value in values], dtype=np.int64)
        self.first_requests = np.searchsorted(requests, self.positions, side="right")
        "the first request after each value"
        self.numbers = np.arange(len(requests))
        self.row_by_position = {value.position: row for row, value in enumerate(values)}
        # Search for a value's last word first: most texts contain none.
        self.search_terms = [(r, t.split()[-1], padded_words(t)) for r, (t, _) in enumerate(values)]
        self.cache: dict[int, tuple[Message, list[int]]] = {}

    def values_in_view(self, trace: Trace) -> _Bools:
        """Return whether each value is in view in each request: shape ``(search_terms, requests)``."""
        died = np.array(trace.context.dropped_at)[self.positions]
        seen = (self.numbers >= self.first_requests[:, None]) & (self.numbers < died[:, None])
        for entry in trace.context.edited_entries:
            seen[self.values_in_message(entry.message), entry.since : entry.until] = True
        for turn, entries in trace.forked_requests.items():
            seen[:, turn] = False
            for entry in entries:
                if entry.form is not Form.VERBATIM:
                    seen[self.values_in_message(entry.message), turn] = True
                elif (row := self.row_by_position.get(entry.start)) is not None:
                    seen[row, turn] = True
        return seen

    def values_in_message(self, message: Message) -> list[int]:
        """Return the values that an edited message contains."""
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

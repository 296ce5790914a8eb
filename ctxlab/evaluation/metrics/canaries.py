"""Which planted canaries are still in view, request by request, and which old values outlive the new.

A canary is in view where a message that is sent holds its value as whole words. So it survives in a
summary that kept the words, even one that lost their sense. A canary of a superseded value is *stale*
where the old value is in view and the new one is not.

How it is worked out: a value stands in one message only, so it is in view until that message is edited,
and then in whatever edited text still holds it. Each edited text is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import Form
from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.canaries import Canary, read_canaries
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score
from ctxlab.messages.types import Message, message_text

__all__ = ["CanaryMetric", "CanaryVisibility", "measure_canary_visibility"]

_Bools = npt.NDArray[np.bool_]


class CanaryVisibility(NamedTuple):
    """For every canary of a recording, by configuration and request."""

    canaries: tuple[Canary, ...]
    said_before: _Bools
    "whether it had been said before the request: ``(canaries, requests)``"
    in_view: _Bools
    "whether its value is in view: ``(traces, canaries, requests)``"
    stale: _Bools
    "whether only the value before it is; of the same shape, like the next"
    both_in_view: _Bools
    "whether the value before it is too"


class CanaryMetric:
    """How many canaries are in view, over all requests after each was said, and at the last request.

    Near requests flatter every strategy: a value that was said just now is in view under any of them.
    """

    columns = (
        Column("canaries", "planted canaries that have been said before", "canaries"),
        Column("canaries_kept", "of these, in view", "canaries"),
        Column("canaries_end", "the same, at the last request alone", "canaries"),
        Column("canaries_end_kept", "of these, in view", "canaries"),
        Column(
            "canaries_superseded", "of the canaries, those that replace an older value", "canaries"
        ),
        Column("canaries_stale", "of these, only the older value is in view", "canaries"),
        Column("canaries_both", "of these, both values are in view", "canaries"),
        Column(
            "canaries_superseded_end",
            "those that replace one, at the last request alone",
            "canaries",
        ),
        Column("canaries_stale_end", "of these, only the older value is in view", "canaries"),
    )
    scores = (
        Score(
            "survival",
            "share of planted canaries in view, over all requests after them",
            "share",
            "ratio",
            "canaries_kept",
            "canaries",
            interval=True,
            better="higher",
        ),
        Score(
            "survival_end",
            "the same at the end of each recording",
            "share",
            "ratio",
            "canaries_end_kept",
            "canaries_end",
            interval=True,
            better="higher",
            heading="canaries kept\n(95 %)",
            legend="canaries kept: share in view at the end of each recording",
        ),
        Score(
            "stale_rate",
            "share of superseded values in view without the new one",
            "share",
            "ratio",
            "canaries_stale",
            "canaries_superseded",
            better="lower",
        ),
        Score(
            "stale_rate_end",
            "the same at the end of each recording",
            "share",
            "ratio",
            "canaries_stale_end",
            "canaries_superseded_end",
            better="lower",
        ),
        Score(
            "both_rate",
            "share of superseded values in view beside the new one",
            "share",
            "ratio",
            "canaries_both",
            "canaries_superseded",
        ),
    )
    observers: ClassVar[Mapping[str, RequestObserver]] = {}

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """See ``columns``; all are 0 where nothing was planted."""
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
    """Which canaries of a recording are in view in every request of every trace."""
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
    shape = (len(traces), len(canaries), len(requests))
    kept, old = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    if canaries:
        # Traces that share a context are one replay under several budgets.
        seen: dict[int, _Bools] = {}
        replaced = [value is not None for value in older]
        for row, trace in enumerate(traces):
            key = id(trace.context)
            if key not in seen:
                seen[key] = book.values_in_view(trace)
            kept[row], old[row, replaced] = np.split(seen[key], [len(canaries)])
    kept &= said
    old &= said
    return CanaryVisibility(canaries, said, kept, old & ~kept, old & kept)


class _PlantedValue(NamedTuple):
    text: str
    position: int


class _EditedTextIndex:
    """What the traces of one recording share: which edited text holds which values."""

    def __init__(self, values: Sequence[_PlantedValue], requests: npt.NDArray[np.int64]) -> None:
        self.positions = np.array([value.position for value in values], dtype=np.int64)
        self.first_requests = np.searchsorted(requests, self.positions, side="right")
        "the first request after each"
        self.request_numbers = np.arange(len(requests))
        self.row_by_position = {value.position: row for row, value in enumerate(values)}
        # A value's last word sieves: most texts hold none.
        self.search_terms = [
            (r, v.text.split()[-1], padded_words(v.text)) for r, v in enumerate(values)
        ]
        self.cache: dict[int, tuple[Message, list[int]]] = {}

    def values_in_view(self, trace: Trace) -> _Bools:
        """Whether each value is in view in each request: ``(search_terms, requests)``."""
        died = np.array(trace.context.dropped_at)[self.positions]
        seen = (self.request_numbers >= self.first_requests[:, None]) & (
            self.request_numbers < died[:, None]
        )
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
        """The values that an edited message holds."""
        known = self.cache.get(id(message))
        if known is None:
            text = message_text(message)
            folded = text.casefold()
            found = [(row, words) for row, last, words in self.search_terms if last in folded]
            said = padded_words(text) if found else ""
            held = [row for row, words in found if words in said]
            # The message is kept beside the answer, so that its id is not given to another.
            known = self.cache[id(message)] = (message, held)
        return known[1]

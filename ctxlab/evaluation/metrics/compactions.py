"""Compactions as events: requests that change what the previous request sent.

A request is a compaction if it does not begin with all messages of the previous request. A strategy
that edits its context rarely makes few compactions, and a strategy that shortens one more message
before each request makes one at each request. The first request of a recording is never one, because
nothing was sent before it. A message that is shortened before it is sent for the first time changes
nothing that was sent, so it is no compaction either.

All figures follow from the trace of a replay: the sizes of the requests, their unchanged prefixes,
and the request before which each message of the history was edited. No message is counted or
compared again. ``find_compactions`` returns one row per compaction, and the metric ``compactions``
summarises them per request and configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from typing_extensions import override

from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.messages.file_access import is_tool_error
from ctxlab.messages.tool_lookups import FetchTarget, parse_fetch_target

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]

SMALL_SHARE = 0.1
"""A compaction that frees a smaller share of the request than this is small."""

READ_AGAIN_REQUESTS = 10
"""Number of requests, from the compaction on, in which repeated tool calls are counted."""

COMPACTION_KINDS: tuple[str, ...] = (
    *(
        form.value
        for form in (Form.SUMMARY, Form.POINTER, Form.STUB, Form.TRUNCATED, Form.REWRITTEN)
    ),
    *("drop", "panic", "rebuilt"),
)
"""Kinds of compactions.

The first five are forms of messages (``Form``): a message of this form replaced others for good. If
there are several, the first form in this order is the kind. Otherwise the kind is ``panic`` if panic
truncation shortened the request, ``rebuilt`` if the strategy built this request or the previous one
on a copy of the context, so that its edits hold for one request only, and else ``drop``: messages
were removed for good.
"""

_KIND_CODES = {kind: code for code, kind in enumerate(COMPACTION_KINDS)}


class CompactionRows(NamedTuple):
    """Compactions of one recording under all configurations: arrays with one element per compaction."""

    configuration: _Ints
    "index of the trace (strategy and limit)"
    request: _Ints
    "number of the request"
    position: _Ints
    "position in the recording of the message that answers the request"
    tokens_before: _Ints
    "tokens of the previous request and of the messages that were recorded since"
    tokens_after: _Ints
    "tokens of the request"
    rewritten_share: FloatArray
    "share of the request's message tokens that follow its unchanged prefix"
    kind: _Ints
    "index into ``COMPACTION_KINDS``"
    requests_until_next: FloatArray
    "number of requests until the next compaction; nan for the last one"
    requests_until_limit: FloatArray
    "number of requests until one has at least ``tokens_before`` tokens; nan if none has"
    read_again: _Ints
    "number of tool calls that fetch again what the compaction removed"

    @classmethod
    def concatenate(cls, parts: Sequence[CompactionRows]) -> CompactionRows:
        """Concatenate the compactions of several recordings.

        Parameters
        ----------
        parts : sequence of CompactionRows
            Compactions of each recording; at least one.

        Returns
        -------
        CompactionRows
            All compactions, in order.
        """
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def columns(self) -> dict[str, Any]:
        """Return the columns of a table with one row per compaction.

        Returns
        -------
        dict
            Arrays by name of the column. ``freed`` is ``tokens_before - tokens_after``, and
            ``freed_share`` its share of ``tokens_before``. ``configuration`` is left out.
        """
        freed = self.tokens_before - self.tokens_after
        return {
            "request": self.request,
            "position": self.position,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "freed": freed,
            "freed_share": freed / self.tokens_before,
            "rewritten_share": self.rewritten_share,
            "kind": pd.Categorical.from_codes(self.kind.tolist(), pd.Index(COMPACTION_KINDS)),
            "requests_until_next": pd.Series(self.requests_until_next).astype("Int64"),
            "requests_until_limit": pd.Series(self.requests_until_limit).astype("Int64"),
            "read_again": self.read_again,
        }


class CompactionMetric(Metric):
    """How often a strategy changes what it sent before, and how much each change frees."""

    columns = (
        Column(
            "compacted",
            "1 if the request changes what the previous request sent",
            "0 or 1",
            integer=True,
        ),
        Column(
            "freed_tokens",
            "tokens that the compaction freed; negative if it added some",
            "tokens",
            integer=True,
        ),
        Column(
            "rewritten_tokens",
            "tokens of the messages after the unchanged prefix, if the request is a compaction",
            "tokens",
            integer=True,
        ),
        Column(
            "compacted_tokens",
            "tokens of all messages, if the request is a compaction",
            "tokens",
            integer=True,
        ),
        Column(
            "small_compaction",
            f"1 if the compaction freed under {SMALL_SHARE:.0%} of the request, or added tokens",
            "0 or 1",
            integer=True,
        ),
        Column(
            "requests_since_compaction",
            "requests since the previous compaction, if the request is a compaction and not the first",
            "requests",
            integer=True,
        ),
        Column(
            "repeated_compaction",
            "1 if the request is a compaction and not the first of the recording",
            "0 or 1",
            integer=True,
        ),
    )
    scores = (
        Score.rate(
            "compaction_rate",
            "share of requests that change what the previous request sent",
            "compacted",
            "",
        ),
        Score.mean(
            "freed_mean",
            "mean number of tokens that a compaction freed",
            "tokens",
            "freed_tokens / compacted",
            "",
        ),
        Score.rate(
            "rewritten_share",
            "share of the message tokens of compactions that follow the unchanged prefix",
            "rewritten_tokens / compacted_tokens",
            "",
        ),
        Score.rate(
            "small_share",
            f"share of compactions that freed under {SMALL_SHARE:.0%} of the request, or added tokens",
            "small_compaction / compacted",
            "",
        ),
        Score.mean(
            "requests_between",
            "mean number of requests from a compaction to the next one of the same recording",
            "requests",
            "requests_since_compaction / repeated_compaction",
            "",
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        found = _Changes.of(prepared, traces)
        row, request = np.nonzero(found.compacted)
        again = np.flatnonzero(np.diff(row) == 0) + 1
        since = np.zeros_like(found.tokens)
        since[row[again], request[again]] = np.diff(request)[again - 1]
        small = found.before - found.tokens < SMALL_SHARE * found.before
        figures = {
            "compacted": found.compacted,
            "freed_tokens": (found.before - found.tokens) * found.compacted,
            "rewritten_tokens": (found.messages - found.unchanged) * found.compacted,
            "compacted_tokens": found.messages * found.compacted,
            "small_compaction": found.compacted & small,
            "requests_since_compaction": since,
            "repeated_compaction": since > 0,
        }
        return {name: values.astype(np.float64) for name, values in figures.items()}


compactions = CompactionMetric()


def find_compacted_requests(traces: Sequence[Trace]) -> _Bools:
    """Find the requests that do not begin with all messages of the previous request.

    Parameters
    ----------
    traces : sequence of Trace
        Traces of one recording; at least one.

    Returns
    -------
    numpy.ndarray of shape (traces, requests)
        True for each compaction. The first request is none.
    """
    sent = _message_tokens(traces)
    unchanged = np.array([trace.unchanged_prefix_tokens for trace in traces], dtype=np.int64)
    found = np.zeros(sent.shape, dtype=bool)
    found[:, 1:] = unchanged[:, 1:] < sent[:, :-1]
    return found


def find_compactions(prepared: PreparedRecording, traces: Sequence[Trace]) -> CompactionRows:
    """Find the compactions of the traces of one recording.

    A compaction is a request that does not begin with all messages of the previous request.
    ``read_again`` counts tool calls in the replies to the compacted request and to the nine requests
    after it. A call counts if it fetches the same target (``ctxlab.messages.tool_lookups``) as an
    earlier call whose result is verbatim in the previous request and not in this one. Results that
    are errors are left out. The calls are those of the recorded agent, which saw the requests of the
    strategy ``recorded`` and of no other strategy.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording that was replayed.
    traces : sequence of Trace
        Traces of the recording, one per configuration.

    Returns
    -------
    CompactionRows
        Compactions, ordered by trace, then by request.

    Examples
    --------
    >>> from ctxlab import Message, Recording, replay
    >>> said = tuple(Message(r, f"{r} {i}") for i in range(4) for r in ("user", "assistant"))
    >>> close = replay(Recording("talk", said), "sliding_window(messages=3)", 9000)
    >>> rows = find_compactions(close.prepared, [close.trace])
    >>> freed = rows.tokens_before - rows.tokens_after
    >>> rows.request.tolist(), rows.position.tolist(), freed.tolist()
    ([2, 3], [5, 7], [7, 14])
    >>> [COMPACTION_KINDS[code] for code in rows.kind], rows.requests_until_next.tolist()
    (['drop', 'drop'], [1.0, nan])
    """
    if not traces or not prepared.request_positions:
        return CompactionRows(*_empty_columns())
    replays, order = distinct_replays(traces)
    found = _Changes.of(prepared, replays)
    row, request = np.nonzero(found.compacted)
    before, after = found.before[row, request], found.tokens[row, request]
    messages, unchanged = found.messages[row, request], found.unchanged[row, request]
    until_next = np.full(len(row), np.nan)
    follows = np.flatnonzero(np.diff(row) == 0)
    until_next[follows] = np.diff(request)[follows]
    kinds = [
        _find_kinds(prepared, each)[hits]
        for each, hits in zip(replays, found.compacted, strict=True)
    ]
    rows = CompactionRows(
        row,
        request,
        np.array(prepared.request_positions)[request],
        before,
        after,
        (messages - unchanged) / np.maximum(messages, 1),
        np.concatenate(kinds),
        until_next,
        _requests_until(found.tokens, row, request, before),
        _count_read_again(prepared, replays, found.compacted)[row, request],
    )
    # Traces of a strategy that never reads its budget share a replay, and so its compactions.
    bounds = np.searchsorted(row, np.arange(len(replays) + 1))
    chosen = [np.arange(bounds[place], bounds[place + 1]) for place in order]
    configuration = np.repeat(np.arange(len(order)), [len(each) for each in chosen])
    picked = CompactionRows(*(values[np.concatenate(chosen)] for values in rows))
    return picked._replace(configuration=configuration)


class _Changes(NamedTuple):
    """Sizes of the requests of several traces: arrays of shape ``(traces, requests)``."""

    compacted: _Bools
    "True if the request changes what the previous request sent"
    before: _Ints
    "tokens of the previous request and of the messages recorded since"
    tokens: _Ints
    "tokens of the request"
    messages: _Ints
    "tokens of the messages of the request"
    unchanged: _Ints
    "tokens of the unchanged prefix"

    @classmethod
    def of(cls, prepared: PreparedRecording, traces: Sequence[Trace]) -> _Changes:
        tokens, unchanged = (
            np.array([getattr(trace, name) for trace in traces], dtype=np.int64)
            for name in ("tokens", "unchanged_prefix_tokens")
        )
        recorded = np.array(list(map(prepared.history.full_tokens, prepared.request_positions)))
        before = tokens.copy()
        before[:, 1:] = tokens[:, :-1] + np.diff(recorded)
        compacted = find_compacted_requests(traces)
        return cls(compacted, before, tokens, _message_tokens(traces), unchanged)


def _message_tokens(traces: Sequence[Trace]) -> _Ints:
    """Return the number of tokens of the messages of each request, by trace."""
    tokens = np.array([trace.tokens for trace in traces], dtype=np.int64)
    fixed: _Ints = np.array([trace.budget.fixed for trace in traces], dtype=np.int64)
    return tokens - fixed[:, None]


def _empty_columns() -> Iterator[npt.NDArray[Any]]:
    real = ("rewritten_share", "requests_until_next", "requests_until_limit")
    return (
        np.zeros(0, np.float64 if name in real else np.int64) for name in CompactionRows._fields
    )


def _find_kinds(prepared: PreparedRecording, trace: Trace) -> _Ints:
    """Return the kind that each request of a trace has if it is a compaction.

    Only edits of messages that the previous request contained count.
    """
    positions, requests = prepared.request_positions, len(prepared.request_positions)
    kinds = np.full(requests, _KIND_CODES["drop"])
    for request in trace.forked_requests:
        kinds[request : request + 2] = _KIND_CODES["rebuilt"]
    for request, event in trace.context.events:
        if event == "panic":
            kinds[request] = _KIND_CODES["panic"]
    for entry in trace.context.edited_entries:
        since = entry.since
        if 0 < since < entry.until and entry.start < positions[since - 1]:
            code = _KIND_CODES.get(entry.form, _KIND_CODES["rewritten"])
            kinds[since] = min(kinds[since], code)
    return kinds


def _requests_until(sizes: _Ints, row: _Ints, request: _Ints, wanted: _Ints) -> FloatArray:
    """Return how many requests after ``request`` the first one with a size of ``wanted`` comes.

    ``sizes`` has the shape ``(replays, requests)``. The result is nan if no request is so large.

    >>> sizes = np.array([[5, 2, 3, 5, 9]])
    >>> same = np.zeros(3, dtype=np.int64)
    >>> _requests_until(sizes, same, np.array([0, 1, 3]), np.array([5, 4, 10])).tolist()
    [3.0, 2.0, nan]
    """
    requests = sizes.shape[1]
    largest = [sizes]  # largest[k][i]: the largest size of the 2**k requests from i on
    while (step := 1 << (len(largest) - 1)) < requests:
        longer = largest[-1].copy()
        np.maximum(longer[:, :-step], largest[-1][:, step:], out=longer[:, :-step])
        largest.append(longer)
    at = request + 1
    for level in reversed(range(len(largest))):
        here = np.minimum(at, requests - 1)
        smaller = (at < requests) & (largest[level][row, here] < wanted)
        at = np.where(smaller, np.minimum(at + (1 << level), requests), at)
    return np.where(at < requests, at - request, np.nan)


def _count_read_again(
    prepared: PreparedRecording, traces: Sequence[Trace], compacted: _Bools
) -> _Ints:
    """Count, for each trace and compaction, the calls that soon fetch again what it removed."""
    counts = np.zeros(compacted.shape, dtype=np.int64)
    if not compacted.any():
        return counts
    fetches = _RepeatedFetches(prepared)
    for row, trace in enumerate(traces):
        for request, target in fetches.find_removed(trace, compacted[row]):
            counts[row, request] += fetches.calls[request][target]
    return counts


class _RepeatedFetches:
    """Targets of tool calls that later calls fetch again, in one recording.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording with its history.
    """

    def __init__(self, prepared: PreparedRecording) -> None:
        history, self.positions = prepared.history, prepared.request_positions
        numbers: dict[FetchTarget | None, int] = {None: -1}
        number_of_call: dict[int, int] = {}
        requests: dict[int, list[int]] = {}
        for request, position in enumerate(self.positions):
            for call in history[position].tool_calls:
                number = numbers.setdefault(parse_fetch_target(call), len(numbers))
                number_of_call[id(call)] = number
                if number >= 0:
                    requests.setdefault(number, []).append(request)
        self.results: dict[int, list[tuple[int, Entry]]] = {}
        "positions and entries of the results of each target, by number of the target"
        for place, call in history.calls_by_result.items():
            known = number_of_call.get(id(call))
            number = numbers.get(parse_fetch_target(call), -1) if known is None else known
            fetched_later = number >= 0 and place < self.positions[requests[number][-1]]
            if fetched_later and not is_tool_error(history[place]):
                self.results.setdefault(number, []).append((place, history.entries[place]))
        self.calls: dict[int, dict[int, int]] = {}
        "number of calls in the replies to a request and to those soon after it, by target"
        for number in self.results:
            for at in requests[number]:
                for request in range(max(0, at - READ_AGAIN_REQUESTS + 1), at + 1):
                    calls = self.calls.setdefault(request, {})
                    calls[number] = calls.get(number, 0) + 1

    def find_removed(self, trace: Trace, compacted: _Bools) -> set[tuple[int, int]]:
        """Return the targets that are fetched again soon after one of their results was removed.

        A compaction removed a result if the previous request contains it verbatim, and the request
        itself does not. Each element is a request and the number of a target.
        """
        dropped_at, forks = trace.context.dropped_at, trace.forked_requests
        near = [at for at in np.flatnonzero(compacted).tolist() if at in self.calls]
        # Edits of a copy of the context are not recorded, so its requests are searched.
        copied = [at for at in near if at in forks or at - 1 in forks]
        usual = {*near}.difference(copied)
        found = {
            (at, target)
            for target, results in self.results.items()
            for place, _ in results
            if (at := dropped_at[place]) in usual
            and target in self.calls[at]
            and place < self.positions[at - 1]
        }
        sent: dict[int, set[Entry]] = {}
        for request in copied:
            both = request - 1, request
            sent = {at: sent.get(at) or set(forks[at]) for at in both if at in forks}
            for target in self.calls[request]:
                for place, entry in self.results[target]:
                    if place >= self.positions[request - 1]:
                        break
                    # All contexts share the verbatim entries of the history.
                    before, now = (
                        entry in sent[at] if at in sent else dropped_at[place] > at for at in both
                    )
                    if before and not now:
                        found.add((request, target))
                        break
        return found

"""Evidence from recorded compactions: what an agent fetched again after it was lost.

The metrics call something lost if no message of the request contains it. That is availability,
computed without a model. Recordings in which the agent's own product compacted show the
consequences: which of the files, commands and searches from before are fetched again afterwards,
and which are used without that. This is an observation, not an experiment: a summary mentions what
the work continues with, so what it mentions may be fetched again more often for that reason alone.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import pandas as pd
from msgspec import structs

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.comparison.stratified import StratifiedDifference, stratified_difference
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.messages.entities import contains_entity, find_entities
from ctxlab.messages.file_access import is_tool_error, parse_file_access
from ctxlab.messages.tool_lookups import FetchTarget, parse_fetch_target
from ctxlab.messages.types import Compaction, Recording, check_recordings, message_text
from ctxlab.strategies.recorded import recorded
from ctxlab.strategies.registry import parse_strategy
from ctxlab.tokens.model_choice import ModelChoice

_AGE_EDGES = (8_000, 32_000)
"tokens since something was last fetched, at which age groups are split"

_ToolUse: TypeAlias = tuple[int, FetchTarget | None, str | None]
"""The request, the target and the file of a tool call."""

_COLUMNS = (
    *("recording", "cluster", "point", "how", "kind", "key", "times", "gap", "seen", "named"),
    *("content", "span", "again", "used", "first"),
)


def find_refetches(
    recordings: Iterable[Recording], model: str | None = None, *, control_every: int | None = None
) -> pd.DataFrame:
    """List what was fetched before each recorded compaction, and whether it is fetched again.

    The recording is replayed through ``recorded``, and the first request after each compaction is
    examined.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings.
    model : str, optional
        Model whose tokenizer counts. None takes the model of each recording.
    control_every : int, optional
        Also examine one in this many requests without a compaction. Their ``how`` is ``none``, and
        they list what was fetched since the last compaction.

    Returns
    -------
    pandas.DataFrame
        One row per compaction and fetched target, with these columns:

        - ``recording``, ``cluster``; ``point``: number of the compaction in its recording
        - ``how``: ``summary``, ``clear`` or ``none``
        - ``kind``, ``key``: the target, see ``ctxlab.messages.tool_lookups``
        - ``times``: how often it was fetched before; ``gap``: tokens since the last fetch
        - ``seen``: whether the request contains it as the metrics look for it: a file's whole path,
          or every entity of a command or search (None if it has none)
        - ``named``: whether the request contains at least a file's last name
        - ``content``: whether a result of fetching it is still in the request verbatim
        - ``span``: requests until the next compaction or the end
        - ``again``, ``used``: the first of these requests that fetches it again, and (files only)
          that refers to it in any call, counted from 0; nan if there is none
        - ``first``: what the first such call does: ``fetches`` the file, ``looks`` at it in a
          search or a command, or ``edits`` it unseen
    """
    check_recordings(recordings)
    models = ModelChoice(model)
    prepared = (PreparedRecording(each, models.counter_for(each)) for each in recordings)
    rows = [row for each in prepared for row in _rows(each, control_every)]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    kinds = dict.fromkeys(("seen", "named", "content"), "boolean")
    return frame.astype(kinds | dict.fromkeys(("again", "used"), "float64"))


def refetch_evidence(refetches: pd.DataFrame, within_requests: int | None = None) -> pd.DataFrame:
    """Compare how often lost and kept targets are fetched again.

    Parameters
    ----------
    refetches : pandas.DataFrame
        Result of ``find_refetches``.
    within_requests : int, optional
        Consider only this many requests after each compaction.

    Returns
    -------
    pandas.DataFrame
        One row per ``question`` with the fields of a ``StratifiedDifference``: ``first`` is the
        share of lost targets, ``second`` that of kept ones. Targets are compared within each
        compaction or, for the comparison with requests without one, within each recording;
        ``matched`` names the strata.
    """
    after = refetches[refetches["how"] != "none"]
    files = after[after["kind"] == "file"]
    # Results lost in a compaction, and results kept where there was none, of the same recording.
    either = refetches["content"] == (refetches["how"] == "none")
    beside = refetches[either & (refetches["kind"] == "file")]
    again = "fetched again: "
    asked = [
        (again + "whole name lost", after, "seen", "again", "compaction"),
        (again + "whole name lost", after, "seen", "again", "compaction, age"),
        (again + "file not even named", files, "named", "again", "compaction"),
        (again + "file not even named", files, "named", "again", "compaction, age"),
        (again + "result gone", after, "content", "again", "compaction"),
        ("looked at first, if used: path lost", files, "seen", "looked", "compaction"),
        (again + "result gone, beside no compaction", beside, "content", "again", "recording"),
        ("looked at first, if used: result gone", beside, "content", "looked", "recording"),
        ("looked at first, if used: result gone", beside, "content", "looked", "recording, age"),
    ]
    return pd.DataFrame(
        {"question": question, "matched": matched}
        | _compare_groups(things, kept, outcome, matched, within_requests)._asdict()
        for question, things, kept, outcome, matched in asked
    )


def _compare_groups(
    things: pd.DataFrame, kept: str, outcome: str, matched: str, within_requests: int | None
) -> StratifiedDifference:
    """Compare the targets for which ``kept`` is False with those for which it is True."""
    near = float("inf") if within_requests is None else within_requests
    unit, _, age = matched.partition(", ")
    things = things[things[kept].notna()]
    if outcome == "looked":
        things = things[things["used"] < near]
        hit = things["first"] != "edits"
    else:
        if unit == "recording" and within_requests is not None:
            # Otherwise the two groups are observed for different times.
            things = things[things["span"] >= within_requests]
        hit = things["again"] < near
    strata = things[["recording", "point"] if unit == "compaction" else ["recording"]]
    if age:
        ages = pd.cut(things["gap"], [-1, *_AGE_EDGES, float("inf")])
        strata = strata.assign(age=ages.astype(str))
    return stratified_difference(hit, ~things[kept].astype(bool), strata, things["cluster"])


def with_simulated_compactions(
    recording: Recording,
    strategy: str = "rolling_summary(tokens=400)",
    limit: float = 0.5,
    model: str | None = None,
) -> Recording:
    """Return a recording with the compactions that a strategy would have made.

    This is a placebo: the agent lost nothing, so any difference in ``refetch_evidence`` comes from
    what a summary chooses to mention. The strategy must not call a model. The recording's own
    compactions are removed.

    Parameters
    ----------
    recording : Recording
        The recording.
    strategy : str, optional
        A strategy that writes summaries.
    limit : float, default 0.5
        Tokens, or a fraction of the recording's length.
    model : str, optional
        Model whose tokenizer counts.

    Returns
    -------
    Recording
        A copy with simulated compactions.
    """
    prepared = PreparedRecording(recording, ModelChoice(model).counter_for(recording))
    trace = replay_trace(prepared, parse_strategy(strategy), prepared.make_budget(limit))
    summaries = [e for e in trace.context.edited_entries if e.form is Form.SUMMARY]
    starts = [prepared.request_positions[entry.since] for entry in summaries]
    made = tuple(
        Compaction(start, summary=entry.message.text, kept=tuple(range(entry.stop, start)))
        for start, entry in zip(starts, summaries, strict=True)
    )
    return structs.replace(recording, compactions=made)


class _Point(NamedTuple):
    """A request after which targets may be fetched again."""

    request: int
    how: str
    since: int
    "position from which on a target counts as fetched before"
    until: int
    "the request at which the next compaction takes effect, or one past the last"


def _rows(prepared: PreparedRecording, control_every: int | None) -> Iterator[dict[str, Any]]:
    points = _find_points(prepared, control_every)
    if not points:
        return
    wanted = {point.request for point in points}

    def observe(sent: Context) -> Sequence[Entry]:
        return tuple(sent.entries) if sent.request_index in wanted else ()

    budget = prepared.make_budget(prepared.longest_request_tokens + 1)
    trace = replay_trace(prepared, recorded(), budget, {"sent": observe})
    uses = [
        (request, parse_fetch_target(call), (file := parse_file_access(call)) and file.path)
        for request, position in enumerate(prepared.request_positions)
        for call in prepared.history[position].tool_calls
    ]
    before = prepared.history.tokens_before
    for number, point in enumerate(points):
        sent = trace.observations["sent"][point.request]
        texts = [message_text(entry.message) for entry in sent]
        verbatim = {entry.start for entry in sent if entry.form is Form.VERBATIM}
        for thing, results in _fetched_before(prepared, point).items():
            is_file = thing.kind == "file"
            entities = [thing.key] if is_file else [e.text for e in find_entities(thing.key)]
            yield {
                "recording": prepared.recording.id,
                "cluster": prepared.recording.cluster or prepared.recording.id,
                "point": number,
                "how": point.how,
                "kind": thing.kind,
                "key": thing.key,
                "times": len(results),
                "gap": before[prepared.request_positions[point.request]] - before[results[-1] + 1],
                "seen": _all_in_view(texts, entities),  # as in reference recall
                "named": _all_in_view(texts, [posixpath.basename(thing.key)] if is_file else []),
                "content": not verbatim.isdisjoint(results),
                "span": point.until - point.request,
                **_first_reuse(uses, point, thing),
            }


def _find_points(prepared: PreparedRecording, control_every: int | None) -> list[_Point]:
    """Return the requests after compactions, and optionally requests without one."""
    requests, made = len(prepared.request_positions), prepared.history.compactions
    starts = [bisect_left(prepared.request_positions, each.position) for each in made]
    points = [
        _Point(start, each.kind, 0, end)
        for start, each, end in zip(starts, made, [*starts[1:], requests], strict=False)
        if start < end
    ]
    if control_every is not None:
        begins = zip([0, *starts], [0, *(each.position for each in made)], strict=True)
        for (begin, since), end in zip(begins, [*starts, requests], strict=True):
            controls = range(begin + control_every, end, control_every)
            points += [_Point(request, "none", since, end) for request in controls]
    return points


def _fetched_before(prepared: PreparedRecording, point: _Point) -> dict[FetchTarget, list[int]]:
    """Return the targets fetched before, with the positions of the results; skip failed fetches."""
    here = prepared.request_positions[point.request]
    found: dict[FetchTarget, list[int]] = {}
    for position, call in prepared.history.calls_by_result.items():
        if not point.since <= position < here or is_tool_error(prepared.history[position]):
            continue
        if thing := parse_fetch_target(call):
            found.setdefault(thing, []).append(position)
    return found


def _all_in_view(texts: Sequence[str], words: Sequence[str]) -> bool | None:
    if not words:
        return None
    return all(any(contains_entity(text, word) for text in texts) for word in words)


def _first_reuse(uses: Sequence[_ToolUse], point: _Point, thing: FetchTarget) -> dict[str, Any]:
    """Return when a target is first fetched and used again within the observed span."""
    again = used = first = None
    for request, fetched, path in uses:
        if not point.request <= request < point.until:
            continue
        after = request - point.request
        if again is None and fetched == thing:
            again = after
        if used is None and thing.kind == "file" and (does := _classify_use(fetched, path, thing)):
            used, first = after, does
    return {"again": again, "used": used, "first": first}


def _classify_use(fetched: FetchTarget | None, path: str | None, file: FetchTarget) -> str | None:
    """Return what a call does with a file; None if it does not refer to it."""
    if fetched == file:
        return "fetches"
    if path == file.key:
        return "edits"
    return "looks" if fetched is not None and contains_entity(fetched.key, file.key) else None

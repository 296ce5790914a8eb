"""What a recorded agent lost in a compaction can be checked against what it then fetched again.

The metrics call a thing lost where nothing that is sent contains it. That is availability, worked out
without a model. Logs in which the agent's own product compacted say what came of it: which of the files
read, commands run and searches made before are read, run and made again after, and which are used
without that. It is an observation, not an experiment: a summary mentions what the work goes on with, so
what it mentions may be fetched again more often for that reason alone.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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

__all__ = ["find_refetches", "refetch_evidence", "with_simulated_compactions"]

_AGE_EDGES = (8_000, 32_000)
"tokens since a thing was last fetched, by which like is compared with like"

_COLUMNS = (
    *("recording", "cluster", "point", "how", "kind", "key", "times", "gap", "seen", "named"),
    *("content", "span", "again", "used", "first"),
)


def find_refetches(
    recordings: Iterable[Recording], model: str | None = None, *, control_every: int | None = None
) -> pd.DataFrame:
    """A row for each thing fetched before each recorded compaction: was it in view, and what came then.

    The recording is replayed through ``recorded``, and the first request after a compaction is
    looked at. Columns: ``point``, number of the compaction in its recording; ``how``, ``summary``
    or ``clear``; ``kind`` and ``key`` of what was fetched (see ``ctxlab.messages.tool_lookups``);
    ``times`` it was fetched before; ``gap``, tokens since the last of them; ``seen``, whether what
    is sent contains it as the metrics look for it: a file's whole path, of a command or a search
    every typed token (None where it has none); ``named``, whether it contains at least a file's
    last name; ``content``, whether a result of fetching it still stands word for word; ``span``,
    requests until the next compaction or the end; ``again`` and ``used``, the first of these at
    which it is fetched again, and (files only) at which any call is about it, counted from 0; NaN
    where none is; ``first``, what that first call does: it ``fetches`` the file, ``looks`` at it in
    a search or a command, or ``edits`` it unseen.

    ``control_every``: beside them, points at which nothing was compacted, one in so many requests, for
    comparison: ``how`` is ``none``, and things are those fetched since the last compaction.
    ``model``: whose tokenizer counts.
    """
    check_recordings(recordings)
    models = ModelChoice(model)
    rows = [
        row
        for each in recordings
        for row in _rows(PreparedRecording.from_recording(each, models), control_every)
    ]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    kinds = dict.fromkeys(("seen", "named", "content"), "boolean")
    return frame.astype(kinds | dict.fromkeys(("again", "used"), "float64"))


def refetch_evidence(refetches: pd.DataFrame, within_requests: int | None = None) -> pd.DataFrame:
    """A row for each way to ask: is what was lost fetched again more often than what was not?

    ``refetches`` is what ``find_refetches`` gives. ``within_requests``: look at so many requests
    after each point only. Each row is a ``StratifiedDifference`` with its ``question``: ``first``
    is the share of things that were lost,
    ``second`` of those that were not, compared within each compaction (or, where the points without one
    are the comparison, within each recording), ``matched`` says what else was held equal.
    """
    after = refetches[refetches["how"] != "none"]
    files = after[after["kind"] == "file"]
    # Results gone at a compaction beside results that stand where there was none, in one recording.
    beside = refetches[
        (refetches["kind"] == "file") & (refetches["content"] == (refetches["how"] == "none"))
    ]
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
    rows = []
    for question, rows_of, rule, outcome, matched in asked:
        found = _compare_groups(rows_of, rule, outcome, matched, within_requests)
        rows.append({"question": question, "matched": matched, **found._asdict()})
    return pd.DataFrame(rows)


def _compare_groups(
    things: pd.DataFrame, rule: str, outcome: str, matched: str, within_requests: int | None
) -> StratifiedDifference:
    near = float("inf") if within_requests is None else within_requests
    things = things[things[rule].notna()]
    if outcome == "looked":
        things = things[things["used"] < near]
        hit = things["first"] != "edits"
    else:
        if matched.startswith("recording") and within_requests is not None:
            things = things[
                things["span"] >= within_requests
            ]  # else the two are not watched for as long
        hit = things["again"] < near
    by = ["recording", "point"] if matched.startswith("compaction") else ["recording"]
    strata = things[by]
    if matched.endswith("age"):
        strata = strata.assign(
            age=pd.cut(things["gap"], [-1, *_AGE_EDGES, float("inf")]).astype(str)
        )
    return stratified_difference(hit, ~things[rule].astype(bool), strata, things["cluster"])


def with_simulated_compactions(
    recording: Recording,
    strategy: str = "rolling_summary(tokens=400)",
    limit: float = 0.5,
    model: str | None = None,
) -> Recording:
    """The recording as if its system had compacted where a strategy would have, with its summaries.

    A placebo: the agent had lost nothing, so whatever ``evidence`` finds here comes of what a summary
    chooses to mention. The strategy asks no model. Compactions of its own are left out.
    """
    prepared = PreparedRecording.from_recording(recording, ModelChoice(model))
    made = [
        Compaction(
            prepared.request_positions[entry.since],
            summary=entry.message.text,
            kept=tuple(range(entry.stop, prepared.request_positions[entry.since])),
        )
        for entry in replay_trace(
            prepared, parse_strategy(strategy), prepared.make_budget(limit)
        ).context.edited_entries
        if entry.form is Form.SUMMARY
    ]
    return structs.replace(recording, compactions=tuple(made))


class _ObservedRequest(NamedTuple):
    """A request after which things may be fetched again."""

    request: int
    how: str
    since: int
    "position from which on things count as fetched before"
    until: int
    "the request at which the next compaction takes effect, or one past the last"


class _ToolUse(NamedTuple):
    """A call as far as it matters here."""

    request: int
    fetched: FetchTarget | None
    path: str | None


def _rows(prepared: PreparedRecording, control_every: int | None) -> Iterator[dict[str, Any]]:
    points = _find_observed_requests(prepared, control_every)
    if not points:
        return
    wanted = {point.request for point in points}

    def observe(sent: Context) -> Sequence[Entry]:
        return tuple(sent.entries) if sent.request_index in wanted else ()

    trace = replay_trace(
        prepared,
        recorded(),
        prepared.make_budget(prepared.longest_request_tokens + 1),
        {"sent": observe},
    )
    acts = _list_tool_uses(prepared)
    before = prepared.history.tokens_before
    for number, point in enumerate(points):
        sent = trace.observations["sent"][point.request]
        texts = [message_text(entry.message) for entry in sent]
        verbatim = {entry.start for entry in sent if entry.form is Form.VERBATIM}
        for thing, results in _fetched_before(prepared, point).items():
            yield {
                "recording": prepared.recording.id,
                "cluster": prepared.recording.cluster or prepared.recording.id,
                "point": number,
                "how": point.how,
                "kind": thing.kind,
                "key": thing.key,
                "times": len(results),
                "gap": before[prepared.request_positions[point.request]] - before[results[-1] + 1],
                "seen": _all_in_view(texts, _required_tokens(thing)),
                "named": _all_in_view(texts, _file_names(thing)),
                "content": not verbatim.isdisjoint(results),
                "span": point.until - point.request,
                **_first_reuse(acts, point, thing),
            }


def _find_observed_requests(
    prepared: PreparedRecording, control_every: int | None
) -> list[_ObservedRequest]:
    """Where it was compacted, and on request where it was not."""
    requests = len(prepared.request_positions)
    made = [
        (bisect_left(prepared.request_positions, c.position), c)
        for c in prepared.history.compactions
    ]
    ends = [*(request for request, _ in made[1:]), *([requests] if made else [])]
    points = [
        _ObservedRequest(request, each.kind, 0, end)
        for (request, each), end in zip(made, ends, strict=True)
        if request < end
    ]
    if control_every is not None:
        begins = [(0, 0), *((request, each.position) for request, each in made)]
        for (begin, since), (end, _) in zip(begins, [*begins[1:], (requests, 0)], strict=True):
            points += [
                _ObservedRequest(r, "none", since, end)
                for r in range(begin + control_every, end, control_every)
            ]
    return points


def _list_tool_uses(prepared: PreparedRecording) -> list[_ToolUse]:
    return [
        _ToolUse(
            request,
            parse_fetch_target(call),
            touch.path if (touch := parse_file_access(call)) else None,
        )
        for request, position in enumerate(prepared.request_positions)
        for call in prepared.history[position].tool_calls
    ]


def _fetched_before(
    prepared: PreparedRecording, point: _ObservedRequest
) -> dict[FetchTarget, list[int]]:
    """What was fetched before, with the positions of the results; what failed fetched nothing."""
    here = prepared.request_positions[point.request]
    found: dict[FetchTarget, list[int]] = {}
    for position, call in prepared.history.calls_by_result.items():
        if not point.since <= position < here or is_tool_error(prepared.history[position]):
            continue
        if thing := parse_fetch_target(call):
            found.setdefault(thing, []).append(position)
    return found


def _required_tokens(thing: FetchTarget) -> list[str]:
    """What must be in view for the thing to be: its typed tokens, as reference recall has them."""
    if thing.kind == "file":
        return [thing.key]
    return [entity.text for entity in find_entities(thing.key)]


def _file_names(thing: FetchTarget) -> list[str]:
    return [posixpath.basename(thing.key)] if thing.kind == "file" else []


def _all_in_view(texts: Sequence[str], words: Sequence[str]) -> bool | None:
    if not words:
        return None
    return all(any(contains_entity(text, word) for text in texts) for word in words)


def _first_reuse(
    acts: Sequence[_ToolUse], point: _ObservedRequest, thing: FetchTarget
) -> dict[str, Any]:
    """When it is fetched and used again before the point's end."""
    again = used = first = None
    for act in acts:
        if not point.request <= act.request < point.until:
            continue
        same, on = act.fetched == thing, act.request - point.request
        again = on if same and again is None else again
        if used is None and thing.kind == "file" and (does := _classify_use(act, thing)):
            used, first = on, does
    return {"again": again, "used": used, "first": first}


def _classify_use(act: _ToolUse, file: FetchTarget) -> str | None:
    """What a call does with a file; None where it is not about it."""
    if act.fetched == file:
        return "fetches"
    if act.path == file.key:
        return "edits"
    return (
        "looks" if act.fetched is not None and contains_entity(act.fetched.key, file.key) else None
    )

"""After recorded compactions, test if agents fetch again the content that the metrics call lost.

The metrics call an entity lost if no message of the request contains it. They measure availability
and do not call a model. Recordings that contain compactions show the consequences of a loss. For
each file, command and search that the agent fetched before a compaction, they show whether the agent
fetched it again afterwards. For files, they also show whether the agent used the file without
fetching it again.

This is an observational comparison, not an experiment. A summary mentions the files that the agent
continues to work on, and the agent may fetch these files again more often for that reason alone.
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
from ctxlab.evaluation.references import NeedIndex
from ctxlab.messages.entities import Entity, contains_entity, find_entities
from ctxlab.messages.file_access import is_tool_error, parse_file_access
from ctxlab.messages.tool_lookups import FetchTarget, parse_fetch_target
from ctxlab.messages.types import (
    Compaction,
    Recording,
    Substitute,
    check_recordings,
    message_text,
)
from ctxlab.strategies.recorded import recorded
from ctxlab.strategies.registry import parse_strategy
from ctxlab.tokens.model_choice import ModelChoice

_AGE_EDGES = (8_000, 32_000)
"boundaries of the age groups, in tokens since the last fetch"

_ToolUse: TypeAlias = tuple[int, FetchTarget | None, str | None]
"""Tool call: number of its request, fetched target (or None), path of the accessed file (or None)."""

_COLUMNS = (
    *("recording", "cluster", "point", "how", "kind", "key", "times", "gap", "seen", "named"),
    *("content", "span", "again", "used", "first"),
)


def find_refetches(
    recordings: Iterable[Recording], model: str | None = None, *, control_every: int | None = None
) -> pd.DataFrame:
    """List the targets fetched before each recorded compaction, and whether agents fetched them again.

    A target is what a tool call fetched: a file, command, search or lookup. Each recording is
    replayed through the strategy ``recorded``, and the first request after each compaction is
    examined.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings with compactions.
    model : str, optional
        Model whose tokenizer counts the tokens. None takes the model of each recording.
    control_every : int, optional
        For comparison, also examine every ``control_every``-th request between compactions. These
        rows have the value ``none`` in the column ``how``, and list the targets fetched since the
        last compaction.

    Returns
    -------
    pandas.DataFrame
        One row per examined request and target, with these columns:

        - ``recording``, ``cluster``: names of the recording and its cluster
        - ``point``: index of the examined request among the examined requests of its recording
        - ``how``: kind of the compaction directly before the request: ``summary``, or ``clear`` if
          tool results were removed. The requests that ``control_every`` adds have the value
          ``none``
        - ``kind``, ``key``: kind and name of the target (see ``ctxlab.messages.tool_lookups``)
        - ``times``: number of earlier fetches of the target
        - ``gap``: number of tokens since the last fetch
        - ``seen``: True if the request contains the whole path of the file, or every entity in the
          ``key`` of another target; None if this key has no entity
        - ``named``: True if the request contains the name of the file without its folders; None
          for other targets
        - ``content``: True if a result of an earlier fetch is in the request verbatim
        - ``span``: number of requests until the next compaction or the end of the recording
        - ``again``: number of requests from the examined request to the first one that fetches the
          target again; nan if no request does
        - ``used``: number of requests from the examined request to the first one that uses the file
          in any tool call; nan if no request does
        - ``first``: what the tool call of ``used`` does: it ``fetches`` the file, ``edits`` the
          file without fetching it, or ``looks`` for the file: a search, command or lookup names it

    Examples
    --------
    >>> from ctxlab import Compaction, Message, Recording, Substitute, ToolCall
    >>> call = ToolCall("c1", "read", '{"path": "src/a.py"}')
    >>> before = (
    ...     Message("user", "Look into src/a.py."),
    ...     Message("assistant", tool_calls=(call,)),
    ...     Message("tool", "x = 1", tool_call_id="c1"),
    ... )
    >>> again = Message("assistant", tool_calls=(ToolCall("c2", "read", '{"path": "src/a.py"}'),))
    >>> summary = Compaction(3, (Substitute(Message("user", "So far: nothing.")),))
    >>> recording = Recording("r", (*before, again), compactions=(summary,))
    >>> find_refetches([recording])[["key", "how", "seen", "again"]].values.tolist()
    [['src/a.py', 'summary', False, 0.0]]
    """
    check_recordings(recordings)
    models = ModelChoice(model)
    prepared = (PreparedRecording(each, models.counter_for(each)) for each in recordings)
    rows = [row for each in prepared for row in _rows(each, control_every)]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    kinds = dict.fromkeys(("seen", "named", "content"), "boolean")
    return frame.astype(kinds | dict.fromkeys(("again", "used"), "float64"))


def refetch_evidence(refetches: pd.DataFrame, within_requests: int | None = None) -> pd.DataFrame:
    """Compare how often agents fetch again what a compaction removed (lost targets) or kept.

    Parameters
    ----------
    refetches : pandas.DataFrame
        Table that ``find_refetches`` returned.
    within_requests : int, optional
        Count only fetches and uses within this many requests from the examined one. None counts
        all until the next compaction.

    Returns
    -------
    pandas.DataFrame
        One row per comparison (``question``) with the fields of a ``StratifiedDifference``. Each
        question names what the examined request lacks of a lost target and contains of a kept one:
        its whole name or path (``seen`` of ``find_refetches``), the file's name (``named``), or its
        result (``content``). ``first`` is the share of lost targets that were fetched again, and
        ``second`` is the share of kept targets that were fetched again. Questions that start with
        ``looked at first, if used`` compare only files that the agent used: the shares are those
        of files that the agent fetched or looked for before any edit. ``matched`` names what the
        compared targets have in common: the compaction or the recording, and in some rows also a
        similar ``age`` (number of tokens since the last fetch). In rows matched by recording, the
        lost files come from requests after compactions, and the kept files come from the requests
        that ``control_every`` adds.
    """
    after = refetches[refetches["how"] != "none"]
    files = after[after["kind"] == "file"]
    # Compare results lost in a compaction with results kept in requests without a compaction.
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
        (
            again + "result gone, compared with no compaction",
            beside,
            "content",
            "again",
            "recording",
        ),
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
    """Compare lost and kept targets; ``kept`` names the column that is True for kept targets."""
    near = float("inf") if within_requests is None else within_requests
    unit, _, age = matched.partition(", ")
    things = things[things[kept].notna()]
    if outcome == "looked":
        things = things[things["used"] < near]
        hit = things["first"] != "edits"
    else:
        if unit == "recording" and within_requests is not None:
            # Without this filter the two groups would be observed over different numbers of requests.
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
    """Copy a recording with its compactions replaced by those that a strategy would have made.

    Use recordings without compactions; recorded compactions are removed from the copy. The copy is a
    placebo for ``refetch_evidence``: the agent lost nothing at the simulated compactions. A difference
    between targets that a summary omits and targets that it mentions therefore comes only from the
    choice of targets that it mentions. The strategy must not call a model.

    Parameters
    ----------
    recording : Recording
        Recording to copy.
    strategy : str, optional
        Strategy that writes summaries.
    limit : float, default 0.5
        Limit of the strategy, in tokens or as a fraction of the recording's length.
    model : str, optional
        Model whose tokenizer counts the tokens. None takes the model of the recording.

    Returns
    -------
    Recording
        Copy of the recording with simulated compactions.
    """
    prepared = PreparedRecording(recording, ModelChoice(model).counter_for(recording))
    trace = replay_trace(prepared, parse_strategy(strategy), prepared.make_budget(limit))
    summaries = [e for e in trace.context.edited_entries if e.form is Form.SUMMARY]
    starts = [prepared.request_positions[entry.since] for entry in summaries]
    system = [i for i, each in enumerate(recording.messages) if each.role == "system"]
    made = tuple(
        Compaction(
            start,
            (
                *(place for place in system if place < entry.stop),
                Substitute(entry.message),
                *range(entry.stop, start),
            ),
        )
        for start, entry in zip(starts, summaries, strict=True)
    )
    return structs.replace(recording, compactions=made)


class _Point(NamedTuple):
    """A request to examine: the first after a compaction, or one between compactions for comparison."""

    request: int
    "number of the request"
    how: str
    "kind of the compaction; ``none`` for a request between compactions"
    since: int
    "position of the first message whose fetches count as earlier fetches"
    until: int
    "number of the first request after the next compaction, or the number of requests"


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
        verbatim = {entry.start for entry in sent if entry.is_verbatim}
        for thing, results in _fetched_before(prepared, point).items():
            is_file = thing.kind == "file"
            entities = [Entity("path", thing.key)] if is_file else find_entities(thing.key)
            entities = [prepared.needs.normalize(entity) for entity in entities]
            name = [Entity("identifier", posixpath.basename(thing.key))] if is_file else []
            yield {
                "recording": prepared.recording.id,
                "cluster": prepared.recording.cluster or prepared.recording.id,
                "point": number,
                "how": point.how,
                "kind": thing.kind,
                "key": thing.key,
                "times": len(results),
                "gap": before[prepared.request_positions[point.request]] - before[results[-1] + 1],
                "seen": _all_in_view(prepared.needs, texts, entities),  # as in the metric recall
                "named": _all_in_view(prepared.needs, texts, name),
                "content": not verbatim.isdisjoint(results),
                "span": point.until - point.request,
                **_first_reuse(uses, point, thing),
            }


def _find_points(prepared: PreparedRecording, control_every: int | None) -> list[_Point]:
    """List the first request after each compaction, and optionally requests between compactions."""
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
    """Map each target fetched before ``point.request`` to the positions of its results.

    Fetches before ``point.since`` and tool errors are left out.
    """
    here = prepared.request_positions[point.request]
    found: dict[FetchTarget, list[int]] = {}
    for position, call in prepared.history.calls_by_result.items():
        if not point.since <= position < here or is_tool_error(prepared.history[position]):
            continue
        if thing := parse_fetch_target(call):
            found.setdefault(thing, []).append(position)
    return found


def _all_in_view(needs: NeedIndex, texts: Sequence[str], entities: Sequence[Entity]) -> bool | None:
    if not entities:
        return None
    return all(any(needs.find_offset(each, text) >= 0 for text in texts) for each in entities)


def _first_reuse(uses: Sequence[_ToolUse], point: _Point, thing: FetchTarget) -> dict[str, Any]:
    """Find the first request that fetches a target again, and the first that uses it.

    The requests from ``point.request`` to before ``point.until`` are searched. Uses are searched
    only for files (see ``_classify_use``).
    """
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
    """Classify how a tool call uses a file; None if it does not use the file.

    ``fetches``: the call reads the file. ``edits``: it operates on the file itself but does not
    read it; usually it writes the file. ``looks``: it fetches something else, such as the output of
    a command or search, and names the file in its arguments.
    """
    if fetched == file:
        return "fetches"
    if path == file.key:
        return "edits"
    return "looks" if fetched is not None and contains_entity(fetched.key, file.key) else None

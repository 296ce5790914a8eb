"""Tests of the replay in a closed loop: what holds for every strategy, and what does not."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from generated import (
    conversations,
    limits,
    prepare_messages,
    strange_conversations,
    with_times,
)
from generated_agents import OLDER_RETURNS_MORE, WRITTEN_AT_ONCE, recordings
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS

from ctxlab.context.context import Context
from ctxlab.evaluation.closed_loop import ClosedTrace, RefetchIndex, replay_closed_loop
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.closed_loop import MAX_REFETCHES, ClosedLoopMetric
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.repeatable_calls import RepeatableCalls
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

PANICS = [spec for spec in SPECS if spec.endswith(("panic()", "panic(protect=2)"))]
COUNTS = ["refetches", "irrecoverable", "irrecoverable_agent", "unrecovered"]
WINDOWS = [f"sliding_window(tokens={tokens})" for tokens in (20, 60, 120, 250, 500, 1000)]
AS_RECORDING = conversations().map(lambda messages: Recording("r", messages))


def measure(
    recording: Recording, strategies: str | list[str], limit: int = 10**6, max_refetches: int = 5
) -> pd.DataFrame:
    """Return a row for each request of each strategy."""
    closed_loop = ClosedLoopMetric(max_refetches=max_refetches)
    metrics = ["cost", "usage"]
    results = evaluate(
        [recording],
        strategies,
        limit,
        metrics=[*metrics, closed_loop],
        workers=1,
        progress=False,
    )
    return results.requests


def close(
    prepared: PreparedRecording, spec: str, limit: int
) -> tuple[ClosedTrace, list[list[Message]]]:
    """Replay a recording in a closed loop and return the trace and the messages of all requests."""
    requests: list[list[Message]] = []

    def look(context: Context) -> None:
        requests.append(list(context.messages))

    index = RefetchIndex(prepared, RepeatableCalls.default())
    budget = prepared.make_budget(limit)
    closed = replay_closed_loop(
        prepared, parse_strategy(spec), budget, index, MAX_REFETCHES, observer=look
    )
    return closed, requests


def tool(name: str, result: str, **arguments: object) -> list[Message]:
    call = ToolCall("c", name, json.dumps(arguments))
    return [Message("assistant", tool_calls=(call,)), Message("tool", result, tool_call_id="c")]


# ---------------------------------------------------------------------------- true of every recording


@given(recording=recordings() | AS_RECORDING)
def test_full_history_lacks_nothing_and_costs_what_it_costs_in_the_open_loop(
    recording: Recording,
) -> None:
    rows = measure(recording, "full") if recording.request_positions else pd.DataFrame()
    if len(rows):
        assert not rows[[*COUNTS, "refetches_named", "irrecoverable_named"]].to_numpy().any()
        check_equals_the_open_loop(rows)


def check_equals_the_open_loop(rows: pd.DataFrame) -> None:
    pairs = {
        "closed_usd": "cost_usd",
        "closed_usd_named": "cost_usd",
        "closed_tokens": "tokens",
        "closed_priced": "priced_tokens",
        "closed_cached": "cached",
    }
    for closed, opened in pairs.items():
        np.testing.assert_allclose(rows[closed], rows[opened], rtol=1e-12)


@given(messages=with_times(conversations()))
def test_a_repeated_call_takes_no_time(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    times: list[datetime | None] = []
    replay_closed_loop(
        prepared,
        parse_strategy("tool_stubs(keep=0)"),
        prepared.make_budget(10**6),
        RefetchIndex(prepared, RepeatableCalls.default()),
        MAX_REFETCHES,
        observer=lambda sent: times.append(sent.now),
    )
    seen = [now for i, now in enumerate(times) if not i or now != times[i - 1]]
    trace = replay_trace(
        prepared,
        parse_strategy("full"),
        prepared.make_budget(10**6),
        {"now": lambda sent: sent.now},
    )
    opened = trace.observations["now"]
    assert seen == [now for i, now in enumerate(opened) if not i or now != opened[i - 1]]


@given(
    recording=recordings() | AS_RECORDING,
    spec=st.sampled_from([spec for spec in SPECS if "random" not in spec]),
    limit=limits(),
)
def test_without_repeated_calls_a_closed_loop_is_an_open_loop(
    recording: Recording, spec: str, limit: int, counter: TokenCounter
) -> None:
    if not recording.request_positions:
        return
    rows = measure(recording, spec, limit, max_refetches=0)
    assert not rows[["refetches", "refetches_named", "refetches_changed"]].to_numpy().any()
    check_equals_the_open_loop(rows)
    prepared = PreparedRecording(recording, counter)
    if recording.model == "gpt-4o" or recording.model is None:
        lost = np.zeros(len(rows))
        needs = prepared.needs
        trace = replay_trace(prepared, parse_strategy(spec), prepared.make_budget(limit))
        view = measure_need_visibility(needs, [trace])
        missing = zip(needs.request, needs.entity, ~view.held[0], strict=True)
        for request, _ in {(r, e) for r, e, is_missing in missing if is_missing}:
            lost[request] += 1
        assert (rows[COUNTS[1:]].sum(axis=1) == lost).all()


@given(recording=recordings() | AS_RECORDING)
def test_without_repeated_calls_a_larger_window_never_makes_more_irrecoverable(
    recording: Recording,
) -> None:
    if not recording.request_positions:
        return
    rows = measure(recording, WINDOWS, max_refetches=0)
    sums = rows.groupby("strategy", observed=True, sort=False)[COUNTS].sum()
    for smaller, larger in pairwise(WINDOWS):
        for column in COUNTS:
            assert sums[column][larger] <= sums[column][smaller]


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=conversations() | strange_conversations() | recordings().map(lambda r: r.messages))
def test_the_loop_ends_for_every_strategy(
    spec: str, messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    for limit in (1, 150, 900, 10**6):
        closed, requests = close(prepared, spec, limit)
        by_action = np.bincount(
            np.array(closed.recorded_requests, int), minlength=len(prepared.request_positions)
        )
        assert len(by_action) == len(closed.unrecovered) == len(prepared.request_positions)
        assert ((by_action >= 1) & (by_action <= MAX_REFETCHES + 1)).all()
        assert sum(by_action) == len(requests)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", PANICS)
@given(messages=conversations() | recordings().map(lambda r: r.messages), limit=limits())
def test_with_panic_last_requests_are_valid_and_fit_or_are_reported_as_stuck(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    closed, requests = close(prepared, spec, limit)
    stuck = {number for number, event in closed.trace.context.events if event == "stuck"}
    sent = enumerate(zip(closed.trace.tokens, requests, strict=True))
    assert stuck == {number for number, (tokens, said) in sent if tokens > limit and said}
    if prepared.valid:
        assert not any(map(find_violations, requests))
        assert not any(closed.trace.violation_counts)


# ------------------------------------------------------------------ true of most recordings, not of all

FILLER = "step of the build is done\n" * 9


def test_a_larger_window_can_make_more_irrecoverable() -> None:
    # The smaller window repeats the search, whose call names ORD-4471, and the larger one need not.
    said = [Message("user", "Mend it."), Message("assistant", "What?"), Message("user", "ORD-4471")]
    said += tool("grep", "src/orders.py:3: the refund is late", pattern="ORD-4471")
    said += tool("bash", FILLER, command="make") + tool("bash", FILLER, command="make")
    said += tool("edit_file", "done", path="src/orders.py")
    said += tool("refund", "done", order="ORD-4471")
    recording = Recording("r", tuple(said))
    rows = measure(recording, ["sliding_window(messages=4)", "sliding_window(messages=6)"])
    sums = rows.groupby("strategy", observed=True, sort=False)[COUNTS].sum()
    assert sums["refetches"].tolist() == [1, 0]
    assert sums["irrecoverable"].tolist() == [0, 1]


def test_names_can_suffice_and_more_calls_be_repeated() -> None:
    # If the agent needs the line of src/all.py, it searches again, and the result also has the names
    # that it needs next. If the name in the stub suffices, it looks them up later, one by one.
    def found(**hit: str) -> str:
        return json.dumps({"results": [hit, {"text": FILLER}]})

    said = [Message("user", "Mend it.")]
    text = "parse_rows and load_tax are both late in this file"
    said += tool("get_hits", found(path="src/all.py", text=text), number=1)
    for number, name in enumerate(("parse_rows", "load_tax", "send_mail"), 2):
        said += tool("get_hits", found(text=f"nobody has checked {name} yet"), number=number)
    said += tool("make", "done", target="src/all.py")
    said += tool("make", "done", targets=["parse_rows", "load_tax"])
    rows = measure(Recording("r", tuple(said)), "tool_stubs(keep=2)")
    assert (rows["refetches"].sum(), rows["refetches_named"].sum()) == (1, 2)
    assert rows["closed_usd_named"].sum() > rows["closed_usd"].sum()


# --------------------------------------------------------------------------------------- single rules


def test_the_result_that_most_needs_name_is_fetched_first() -> None:
    # A window of one step holds only the last result that was fetched.
    rows = measure(OLDER_RETURNS_MORE, "sliding_window(messages=2)")
    assert rows["refetches"].sum() == 2
    assert rows["unrecovered"].sum() == 2


def test_a_file_that_the_same_message_writes_can_be_read_again() -> None:
    rows = measure(WRITTEN_AT_ONCE, "sliding_window(messages=2)")
    assert (rows["refetches"].sum(), rows["unrecovered"].sum()) == (1, 0)


@pytest.mark.parametrize(("outcome", "changed"), [("done", 1), ("Error: no such text", 0)])
def test_an_edit_that_failed_changes_no_file(outcome: str, changed: int) -> None:
    said = [Message("user", "Mend it.")]
    said += tool("read_file", "def parse_rows(rows): return rows", path="src/io.py")
    said += tool("edit_file", outcome, path="src/io.py") + tool("bash", FILLER, command="make")
    said += tool("bash", "done", command="run parse_rows")
    rows = measure(Recording("r", tuple(said)), "sliding_window(messages=2)")
    assert rows["refetches"].sum() == 1
    assert rows["refetches_changed"].sum() == changed


@pytest.mark.parametrize(
    ("outcome", "fetched"), [("written", 0), ("Error: read-only file system", 1)]
)
def test_a_file_that_was_written_anew_is_not_read_again(outcome: str, fetched: int) -> None:
    said = [Message("user", "Mend it.")]
    said += tool("read_file", "def parse_rows(rows): return rows", path="src/io.py")
    said += tool("write_file", outcome, path="src/io.py") + tool("bash", FILLER, command="make")
    said += tool("bash", "done", command="run parse_rows")
    rows = measure(Recording("r", tuple(said)), "sliding_window(messages=2)")
    assert rows["refetches"].sum() == fetched
    assert rows["unrecovered"].sum() == 1 - fetched


@given(recording=recordings(), limit=limits())
def test_each_repeated_call_has_a_new_id(
    recording: Recording, limit: int, counter: TokenCounter
) -> None:
    prepared = PreparedRecording(recording, counter)
    closed, _ = close(prepared, "sliding_window()", limit)
    added = [
        call.id
        for message, place in zip(closed.history, closed.history.recorded_positions, strict=True)
        for call in message.tool_calls
        if place < 0
    ]
    recorded = {call.id for message in recording.messages for call in message.tool_calls}
    assert len(set(added)) == len(added)
    assert not recorded & set(added)

"""Tests of ``recorded``, which repeats the compactions of the recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compacting import cleared, summarised
from generated import conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.formats import load
from ctxlab.messages.types import (
    CLEARED_RESULT_TEXT,
    Compaction,
    Message,
    Recording,
    Substitute,
    ToolCall,
    Usage,
)
from ctxlab.strategies import parse_strategy, recorded
from ctxlab.tokens.billing import sum_recorded_context
from ctxlab.tokens.counter import TokenCounter


def said(role: str, text: str, **fields: object) -> Message:
    return Message(role, text, **fields)  # type: ignore[arg-type]


CALL = said("assistant", "", tool_calls=(ToolCall("c", "read"),))
RESULT = said("tool", "a long result", tool_call_id="c")
CHAT = (
    said("system", "s"),
    said("user", "one"),
    CALL,
    RESULT,
    said("assistant", "two"),
    said("user", "three"),
    said("assistant", "four"),
)


def sent(*compactions: Compaction, counter: TokenCounter) -> list[list[str]]:
    """Replay ``recorded`` and return the texts of each request."""
    prepared = PreparedRecording(Recording("r", CHAT, compactions=compactions), counter)
    return [[m.text for m in request.messages] for request in run(prepared, "recorded", 10_000)[1]]


def test_a_summary_stands_where_what_it_replaced_had_stood(counter: TokenCounter) -> None:
    *_, last = sent(summarised(CHAT, 6, "so far", (4, 5)), counter=counter)
    assert last == ["s", "so far", "two", "three"]


def test_what_was_not_kept_goes_where_there_is_no_summary(counter: TokenCounter) -> None:
    *_, last = sent(summarised(CHAT, 5, kept=(1, 4)), counter=counter)
    assert last == ["s", "one", "two", "three"]


def test_it_takes_effect_at_the_first_request_after_it(counter: TokenCounter) -> None:
    first, second, third = sent(summarised(CHAT, 4, "so far"), counter=counter)
    assert first == ["s", "one"]
    assert second == ["s", "so far"]
    assert third == ["s", "so far", "two", "three"]


def test_a_later_summary_takes_the_place_of_an_earlier_one(counter: TokenCounter) -> None:
    *_, last = sent(summarised(CHAT, 4, "early"), summarised(CHAT, 6, "late"), counter=counter)
    assert last == ["s", "late"]


def test_a_summary_that_dropped_nothing_stands_first(counter: TokenCounter) -> None:
    *_, last = sent(summarised(CHAT, 6, "so far", (1, 2, 3, 4, 5)), counter=counter)
    assert last == ["s", "so far", "one", "", "a long result", "two", "three"]


def test_cleared_results_are_stubs_and_their_calls_stay(counter: TokenCounter) -> None:
    prepared = PreparedRecording(
        Recording("r", CHAT, compactions=(cleared(CHAT, 4, ["c"]),)), counter
    )
    trace, requests = run(prepared, "recorded", 10_000)
    assert requests[1].messages[3].text == CLEARED_RESULT_TEXT
    assert [entry.form for entry in trace.context.edited_entries] == [Form.STUB]
    assert not any(trace.violation_counts)


def test_a_recording_without_compactions_is_sent_whole(counter: TokenCounter) -> None:
    assert sent(counter=counter)[-1] == [m.text for m in CHAT[:-1]]


def test_a_kept_result_without_its_call_is_an_invalid_request(counter: TokenCounter) -> None:
    prepared = PreparedRecording(
        Recording("r", CHAT, compactions=(Compaction(4, (1, 3)),)), counter
    )
    assert replay_trace(prepared, recorded(), prepared.make_budget(10_000)).violation_counts[
        1:
    ] == [1, 1]


@st.composite
def compacted(draw: st.DrawFn) -> Recording:
    messages = draw(conversations())
    billed = tuple(
        m.replace(usage=Usage(input=1)) if m.role == "assistant" else m for m in messages
    )
    made = []
    for position in sorted(draw(st.lists(st.integers(0, len(messages)), max_size=4))):
        places = draw(st.permutations(range(position)))[: draw(st.integers(0, position))]
        context: list[int | Substitute] = []
        for place in places:  # kept, changed or added messages, in any order
            text = draw(st.sampled_from([None, "so far", "a longer summary of it"]))
            source = draw(st.sampled_from([None, place]))
            changed = Substitute(messages[place].replace(content=text), source)
            context.append(place if text is None else changed)
        kind = draw(st.sampled_from(["summary", "clear"]))
        made.append(Compaction(position, tuple(context), kind))  # type: ignore[arg-type]
    return Recording("r", billed, compactions=tuple(made))


@given(recording=compacted())
def test_what_it_sends_is_what_bills_are_compared_with(
    recording: Recording, counter: TokenCounter
) -> None:
    agree(recording, counter)


@given(recording=compacted())
def test_the_request_after_a_compaction_has_exactly_its_messages(
    recording: Recording, counter: TokenCounter
) -> None:
    prepared = PreparedRecording(recording, counter)
    _, requests = run(prepared, "recorded", 10**9)
    messages = recording.messages
    for position, request in zip(prepared.request_positions, requests, strict=True):
        done = [c for c in recording.compactions if c.position <= position]
        since = done[-1].position if done else 0
        held = done[-1].sent_messages(messages) if done else []
        assert list(request.messages) == [*held, *messages[since:position]]


@pytest.mark.recordings(smoke=True)
@pytest.mark.parametrize("folder", ["claude-code-entireio", "pi-mono"])
def test_real_sessions_send_what_bills_are_compared_with(recorded: Path, folder: str) -> None:
    if not (recorded / folder).is_dir():
        pytest.skip(f"no {folder} beside the others")
    counter = TokenCounter("claude-opus-4-5")
    compactions = 0
    for recording in load(recorded / folder, on_error="skip"):
        compactions += len(recording.compactions)
        agree(recording, counter)
    assert compactions


def agree(recording: Recording, counter: TokenCounter) -> None:
    prepared = PreparedRecording(recording, counter)
    trace = replay_trace(prepared, parse_strategy("recorded"), prepared.make_budget(10**9))
    amounts = np.array([[counter.count_message(m)] for m in recording.messages], np.float64)
    totals, _ = sum_recorded_context(
        recording, amounts, lambda message: [counter.count_message(message)]
    )
    billed = [
        tokens - prepared.fixed_tokens
        for tokens, position in zip(trace.tokens, prepared.request_positions, strict=True)
        if recording.messages[position].usage is not None
    ]
    assert [int(total) for total in totals[:, 0]] == billed

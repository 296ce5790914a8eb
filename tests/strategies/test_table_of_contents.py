"""Tests of ``contents``: listed turns, stable blocks, removal of the oldest, and lines by a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import Sent, run

from ctxlab.context.history import Entry, Form
from ctxlab.context.turns import (
    MAX_HEADLINE_CHARS,
    TurnLabel,
    contents_label,
    steps_between,
    turn_span,
)
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_trace
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.llm.base import Request
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies import contents
from ctxlab.strategies.base import models_used
from ctxlab.tokens.counter import TokenCounter

LINES = re.compile(r"(\d+(?=\. )|\d+\.\d+(?= ))\.? (.+)")


def talk(turns: int, words: int = 60) -> list[Message]:
    said = [Message("system", "Be brief.")]
    for n in range(1, turns + 1):
        said.append(Message("user", f"Task {n}: look at file_{n:04}.py"))
        said.append(Message("assistant", f"Done with {n}. " + "word " * words))
    return said


def blocks(sent: Sent) -> list[Entry]:
    return [entry for entry in sent.entries if entry.form is Form.POINTER]


def listed(entry: Entry) -> dict[str, str]:
    head, *lines = entry.message.text.splitlines()
    assert head == "Contents of earlier turns; get_turn(turn) gives one in full:"
    found = [LINES.fullmatch(line) for line in lines]
    assert all(found)
    return {match[1]: match[2] for match in found if match}


@given(messages=conversations(turns=6), limit=limits(), share=st.sampled_from([0.1, 0.2, 0.4]))
def test_a_block_lists_each_step_that_it_stands_for_in_a_line_of_at_most_100_characters(
    messages: tuple[Message, ...], limit: int, share: float, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, contents(0.3, share, share), limit)
    history = prepared.history
    for sent in requests:
        for entry in blocks(sent):
            lines = listed(entry)
            steps = steps_between(history, entry.start, entry.stop)
            shown = {str(contents_label(history, step, sent.position)): step for step in steps}
            # A turn that was listed when it was incomplete keeps the labels of its steps.
            plain = {str(step): step for step in steps}
            assert [(shown | plain)[label] for label in lines] == list(steps)
            assert all(len(line) <= MAX_HEADLINE_CHARS for line in lines.values())


@given(messages=conversations(turns=6), limit=limits())
def test_it_acts_only_when_the_context_is_full_and_only_on_what_is_older_than_the_newest_unit(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = prepared.make_budget(limit)
    trace, requests = run(prepared, contents(0.6, 0.4, 0.2), budget)
    fired = {entry.since for entry in trace.context.edited_entries}
    for turn, sent in enumerate(requests):
        newest = prepared.history.unit_starts[sent.position - 1] if sent.position else 0
        assert [e.start for e in sent.entries if e.start >= newest] == [
            *range(newest, sent.position)
        ]
        head = [e.start for e in sent.entries[: prepared.history.head_length]]
        assert head == [*range(min(prepared.history.head_length, sent.position))]
        if turn in fired:
            before = requests[turn - 1].entries if turn else []
            grown = sum(e.tokens for e in before) + sum(
                prepared.history.entries[i].tokens
                for i in range(requests[turn - 1].position if turn else 0, sent.position)
            )
            assert grown > 0.6 * budget.available


def test_steps_of_a_long_turn_are_listed_by_their_labels(counter: TokenCounter) -> None:
    said = [
        Message("user", "Fix the parser"),
        Message("assistant", "Done."),
        Message("user", "Test it"),
    ]
    for n in range(40):
        call = ToolCall(f"c{n}", "run", f'{{"command": "test {n}"}}')
        said.append(Message("assistant", None, tool_calls=(call,)))
        said.append(Message("tool", "word " * 60, tool_call_id=f"c{n}"))
    client = ScriptedClient(
        lambda request: "\n".join(f"{n} line of {n}" for n in asked_for(request))
    )
    prepared = PreparedRecording(Recording("r", tuple(said)), counter, client)
    for strategy, line in (
        (contents(share=0.3), "run test 1"),
        (contents(share=0.3, model="gpt-4o"), "line of 2.2"),
    ):
        first, *_ = blocks(run(prepared, strategy, 2500)[1][-1])
        lines = listed(first)
        assert list(lines)[:4] == ["1", "2.1", "2.2", "2.3"]
        assert lines["2.2"] == line


def test_a_block_is_not_touched_again_and_the_next_one_stands_behind_it(
    counter: TokenCounter,
) -> None:
    trace, requests = run(prepare_messages(talk(110), counter), contents(share=0.4), 4000)
    seen = [[entry.message for entry in blocks(sent)] for sent in requests]
    assert len(seen[-1]) > 3
    for less, more in pairwise(seen):
        assert more[: len(less)] == less
    # The request before a compaction and the one after share everything up to the new block.
    for (before, after), unchanged in zip(
        pairwise(requests), trace.unchanged_prefix_tokens[1:], strict=True
    ):
        kept = [*before.entries[:2], *blocks(before)]
        assert unchanged >= sum(entry.tokens for entry in kept)
        assert after.entries[: len(kept)] == kept


def test_the_oldest_blocks_leave_a_line_that_says_how_far_nothing_is_listed_and_is_no_pointer(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(talk(200), counter)
    _, requests = run(prepared, contents(share=0.1), 3000)
    sent = requests[-1]
    gone = sent.entries[2]
    assert gone.form is Form.SUMMARY
    match = re.fullmatch(
        r"Earlier turns that are no longer listed: 1 to (\d+)\.", gone.message.text
    )
    assert match
    assert gone.stop == turn_span(prepared.history, TurnLabel(int(match[1])))[1]
    assert next(iter(listed(sent.entries[3]))) == str(int(match[1]) + 1)
    assert sum(e.tokens for e in [gone, *blocks(sent)]) <= 0.1 * 3000
    assert not any(entry.form.fetchable for entry in sent.entries if entry.start < gone.stop)


def test_what_is_listed_can_be_fetched_and_what_is_not_is_lost(counter: TokenCounter) -> None:
    def asks(path: str) -> list[Message]:
        call = ToolCall("c", "read", f'{{"path": "{path}"}}')
        return [Message("user", "And now?"), Message("assistant", None, tool_calls=(call,))]

    facts = [Message("user", "go")]
    for n in range(60):
        facts += [Message("user", f"Look {n}\nin src/file_{n:04}.py"), Message("assistant", "Yes")]
        facts.append(Message("user", "word " * 60))
    old, new = (
        prepare_messages([*facts, *asks(f"src/file_{n}.py")], counter) for n in ("0001", "0045")
    )
    for prepared, there in ((old, False), (new, True)):
        trace = replay_trace(prepared, contents(share=0.2), prepared.make_budget(1500))
        found = measure_need_visibility(prepared.needs, [trace])
        assert not found.in_view.any()
        assert found.fetchable.all() == found.fetchable.any() == there


def test_contents_that_are_longer_than_what_they_stand_for_are_rejected(
    counter: TokenCounter,
) -> None:
    short = [Message("user", "go")]
    for _ in range(200):
        short += [Message("user", "ok"), Message("assistant", "a")]
    trace, requests = run(prepare_messages(short, counter), contents(0.9, 0.88, 0.4), 300)
    assert "contents rejected: not shorter than the messages they replace" in {
        event for _, event in trace.context.events
    }
    assert all(
        entry.tokens < tokens_of(trace.context.history.tokens_before, entry)
        for sent in requests
        for entry in blocks(sent)
    )


def tokens_of(before: Sequence[int], entry: Entry) -> int:
    return before[entry.stop] - before[entry.start]


# --- with a model ------------------------------------------------------------------------------


def asked_for(request: Request) -> list[str]:
    return re.findall(r"^Turn ([\d.]+)$", request.messages[-1].text, re.MULTILINE)


def replay(client: ScriptedClient, counter: TokenCounter) -> tuple[Trace, Sequence[Sent]]:
    prepared = PreparedRecording(Recording("r", tuple(talk(90))), counter, client)
    return run(prepared, contents(model="gpt-4o", share=0.3), 4000)


def test_a_model_is_asked_once_a_block_for_all_of_its_lines(counter: TokenCounter) -> None:
    client = ScriptedClient(
        lambda request: "\n".join(f"{n}. model's line {n}" for n in asked_for(request))
    )
    trace, requests = replay(client, counter)
    standing = blocks(requests[-1])
    assert len(client.requests) == len(standing) > 1
    for request, entry in zip(client.requests, standing, strict=True):
        assert listed(entry) == {n: f"model's line {n}" for n in asked_for(request)}
        assert request.messages[0].text.startswith("You write the table of contents")
    assert len(trace.context.model_calls) == len(client.requests)
    assert models_used(contents(model="gpt-4o")) == ("gpt-4o",)


def test_lines_that_are_missing_or_too_long_are_extracted_and_that_is_reported(
    counter: TokenCounter,
) -> None:
    def answer(request: Request) -> str:
        first, second, third, *_ = asked_for(request)
        return (
            f"<think>1. no\n</think>Here:\n- Turn {first}: short\n{second}. {'long ' * 30}\n"
            f"999. not asked for\n{third}) also short"
        )

    client = ScriptedClient(answer)
    trace, requests = replay(client, counter)
    entry, numbers = blocks(requests[-1])[1], asked_for(client.requests[1])
    lines = listed(entry)
    assert lines[numbers[0]] == "short"
    assert lines[numbers[1]] == f"Task {numbers[1]}: look at file_{int(numbers[1]):04}.py"
    assert lines[numbers[2]] == "also short"
    assert "999" not in lines
    missing = f"{len(numbers) - 2} of {len(numbers)} lines missing or too long"
    assert f"contents fallback: {missing}" in [event for _, event in trace.context.events]


def test_without_an_answer_the_lines_are_extracted_and_the_reason_is_reported(
    counter: TokenCounter,
) -> None:
    client = ScriptedClient(lambda request: ModelUnavailable("busy"))
    trace, requests = replay(client, counter)
    plain = run(prepare_messages(talk(90), counter), contents(share=0.3), 4000)[1]
    assert [s.messages for s in requests] == [s.messages for s in plain]
    assert "contents fallback: busy" in [event for _, event in trace.context.events]


def test_a_refusal_is_raised(counter: TokenCounter) -> None:
    with pytest.raises(ModelRequestRejected, match="wrong key"):
        replay(ScriptedClient(lambda request: ModelRequestRejected("wrong key")), counter)


def test_what_a_model_is_asked_fits_into_four_fifths_of_its_window(counter: TokenCounter) -> None:
    client = ScriptedClient(lambda request: "")
    prepared = PreparedRecording(Recording("r", tuple(talk(900, words=300))), counter, client)
    replay_trace(prepared, contents(model="gpt-4"), prepared.make_budget(100_000))
    assert client.requests
    for request in client.requests:
        assert counter.count_request(request.messages) + (request.max_tokens or 0) <= 0.8 * 8192


def test_a_prompt_that_is_nowhere_is_refused() -> None:
    with pytest.raises(SpecError, match=r"unknown prompt 'nowhere\.md'"):
        contents(prompt="nowhere.md")

"""Tests of previews: they equal the request that would be sent, and leave no trace."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compacting import summarised
from generated import TOOLS, conversations, limits, strange_conversations
from hypothesis import given, settings
from hypothesis import strategies as st
from replaying import SPECS

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Entry, Form, History
from ctxlab.context.preview import preview_question
from ctxlab.errors import EditError, StrategyError
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_trace, replay_traces
from ctxlab.evaluation.metrics.strategy_calls import collect_strategy_calls
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, Probe, Recording, ToolCall, Usage
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.base import BaseStrategy, models_used
from ctxlab.strategies.baselines import BASELINES
from ctxlab.tokens.counter import TokenCounter

QUESTIONS = ("What is in src/io.py?", "Who is Mia Li?", "x" * 400, "HAT136 and 512?")
TALK = tuple(Message(r, f"{i} word word word") for i in range(9) for r in ("user", "assistant"))
ACTING = [spec for spec in SPECS if not spec.startswith("oracle")]


def places() -> st.SearchStrategy[list[int | None]]:
    """Positions of questions in any order, with duplicates and invalid positions."""
    return st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=6)


def probed(messages: tuple[Message, ...], at: list[int | None]) -> Recording:
    probes = [
        Probe(str(i), QUESTIONS[i % len(QUESTIONS)], evidence=(0,) if messages else (), position=p)
        for i, p in enumerate(at)
    ]
    return Recording("r", messages, TOOLS, probes=tuple(probes))


def left(entry: Entry) -> tuple[Any, ...]:
    return (entry.message, entry.tokens, entry.form, entry.start, entry.stop, entry.since,
            entry.until)  # fmt: skip


def what_it_left(trace: Trace) -> list[Any]:
    context = trace.context
    return [
        *(
            trace.tokens,
            trace.message_counts,
            trace.unchanged_prefix_tokens,
            trace.system_prompt_tokens,
            trace.last_message_tokens,
            trace.violation_counts,
        ),
        {
            turn: [left(entry) for entry in entries]
            for turn, entries in trace.forked_requests.items()
        },
        *(context.events, context.model_calls, context.dropped_at, context.tokens, context.version),
        [left(entry) for entry in context.edited_entries],
        [left(entry) for entry in context.entries],
        (
            context.request_index,
            context.history_length,
            context.maybe_invalid,
            context.unchanged_tokens,
        ),
    ]


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=conversations() | strange_conversations(), at=places(), limit=limits())
def test_a_replay_that_asks_leaves_the_very_same_requests(
    spec: str,
    messages: tuple[Message, ...],
    at: list[int | None],
    limit: int,
    counter: TokenCounter,
) -> None:
    recording = probed(messages, at)
    asking, silent = (
        PreparedRecording(recording, counter),
        PreparedRecording(recording, counter, format_probe=None),
    )
    traces = [
        replay_trace(prepared, parse_strategy(spec), prepared.make_budget(limit))
        for prepared in (asking, silent)
    ]
    assert what_it_left(traces[0]) == what_it_left(traces[1])
    assert len(asking.history) == len(messages)
    seen = [
        measure_need_visibility(prepared.needs, [t])
        for prepared, t in zip((asking, silent), traces, strict=True)
    ]
    assert np.array_equal(seen[0].in_view, seen[1].in_view)
    assert np.array_equal(seen[0].fetchable, seen[1].fetchable)
    assert (len(traces[0].preview_entries), traces[1].preview_entries) == (len(at), [])


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", ACTING)
@given(messages=conversations(), at=places(), limit=limits())
def test_what_is_previewed_is_what_would_be_sent_if_it_had_been_said(
    spec: str,
    messages: tuple[Message, ...],
    at: list[int | None],
    limit: int,
    counter: TokenCounter,
) -> None:
    prepared = PreparedRecording(probed(messages, at), counter)
    trace = replay_trace(prepared, parse_strategy(spec), prepared.make_budget(limit))
    for number, entries in enumerate(trace.preview_entries):
        said = messages[: prepared.probe_position(number)]
        really = PreparedRecording(
            Recording(
                "r", (*said, prepared.probe_messages[number], Message("assistant", "?")), TOOLS
            ),
            counter,
        )
        sent: list[list[Message]] = []
        replay_trace(
            really,
            parse_strategy(spec),
            really.make_budget(limit),
            {"sent": lambda c: sent.append(c.messages)},  # noqa: B023
        )
        assert [entry.message for entry in entries] == sent[-1]
        assert sum(entry.tokens for entry in entries) == sum(map(counter.count_message, sent[-1]))


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=8)
@given(messages=conversations(), at=places(), limit=st.sampled_from([700, 1500, 10**6]))
def test_what_products_do_is_previewed_too(
    name: str,
    messages: tuple[Message, ...],
    at: list[int | None],
    limit: int,
    counter: TokenCounter,
) -> None:
    if models_used(parse_strategy(name)):
        pytest.skip("it asks a model")
    recording = probed(messages, at)
    asking, silent = (
        PreparedRecording(recording, counter),
        PreparedRecording(recording, counter, format_probe=None),
    )
    traces = [
        replay_trace(prepared, parse_strategy(name), prepared.make_budget(limit))
        for prepared in (asking, silent)
    ]
    assert what_it_left(traces[0]) == what_it_left(traces[1])


def test_questions_are_answered_in_the_order_of_the_probes(counter: TokenCounter) -> None:
    prepared = PreparedRecording(probed(TALK, [None, 3, 0, 99]), counter)
    trace = replay_trace(prepared, parse_strategy("full"), prepared.make_budget(10**6))
    assert [len(entries) - 1 for entries in trace.preview_entries] == [18, 3, 0, 18]
    said = [entries[-1].message.content for entries in trace.preview_entries]
    assert said == [probe.question for probe in prepared.recording.probes]


def test_the_caller_says_how_a_question_is_put(counter: TokenCounter) -> None:
    prepared = PreparedRecording(
        probed(TALK, [None]),
        counter,
        format_probe=lambda probe: Message("user", f"Answer in one word. {probe.question}"),
    )
    (entries,) = replay_trace(
        prepared, parse_strategy("nothing"), prepared.make_budget(99)
    ).preview_entries
    assert entries[-1].message.content == f"Answer in one word. {QUESTIONS[0]}"
    assert entries[-1].tokens == counter.count_message(entries[-1].message)


def test_only_a_user_message_is_previewed(counter: TokenCounter) -> None:
    context = Context(Budget(99), History(counter, TALK))
    with pytest.raises(EditError, match="got role 'assistant'"):
        preview_question(context, Message("assistant", "why?"))


def test_an_oracle_holds_the_evidence_that_fits_shortest_first(counter: TokenCounter) -> None:
    said = [Message("user", "hello"), *(Message("user", f"fact {i} " * i) for i in range(1, 9))]
    talk = (
        *said,
        Message("assistant", "ok"),
        Message("user", "bye " * 30),
        Message("assistant", "."),
    )
    probe = Probe("q", "Which?", evidence=(0, 8, 3, 5))
    prepared = PreparedRecording(Recording("r", talk, probes=(probe,)), counter)
    sizes = [counter.count_message(m) for m in talk]
    for room, wanted in ((0, ()), (sizes[3], (3,)), (sizes[3] + sizes[5], (3, 5))):
        limit = (
            prepared.fixed_tokens
            + sizes[0]
            + counter.count_message(prepared.probe_messages[0])
            + room
        )
        trace = replay_trace(prepared, parse_strategy("oracle"), prepared.make_budget(limit))
        (entries,) = trace.preview_entries
        assert sum(e.tokens for e in entries) + prepared.fixed_tokens <= limit
        text = "\n".join(e.message.text for e in entries)
        assert [p for p in (3, 5, 8) if talk[p].text.strip() in text] == list(wanted)


class _State:
    def __init__(self) -> None:
        self.seen: list[str] = []


@dataclass(frozen=True, repr=False)
class remembers(BaseStrategy):
    """Strategy that modifies an object of its own, as custom strategies may do."""

    kept: str = "list"

    def __call__(self, context: Context, /) -> Context:
        if self.kept == "lock":
            context.strategy_state.setdefault(self, threading.Lock())
            return context
        state = context.strategy_state.setdefault(self, (_State(), context.history, {"all": []}))
        assert state[1] is context.history
        state[0].seen.append(context.messages[-1].text)
        state[2]["all"].append(len(context.messages))
        return context


def test_what_a_strategy_remembers_is_its_own_in_a_preview(counter: TokenCounter) -> None:
    prepared = PreparedRecording(probed(TALK[:4], [2, None, None]), counter)
    trace = replay_trace(prepared, remembers(), prepared.make_budget(99))
    state, _, lengths = trace.context.strategy_state[remembers()]
    assert state.seen == ["0 word word word", "1 word word word"]
    assert lengths == {"all": [1, 3]}


def test_what_cannot_be_copied_is_named(counter: TokenCounter) -> None:
    prepared = PreparedRecording(probed(TALK[:4], [None]), counter)
    with pytest.raises(
        StrategyError, match=r"value of remembers\(kept='lock'\) in strategy_state cannot"
    ):
        replay_trace(prepared, remembers("lock"), prepared.make_budget(99))


def test_replays_are_shared_by_budgets_only_where_no_question_looked_at_one(
    counter: TokenCounter,
) -> None:
    @dataclass(frozen=True, repr=False)
    class looks_when_asked(BaseStrategy):
        def __call__(self, context: Context, /) -> Context:
            if context.messages[-1].text in QUESTIONS and context.excess > 0:
                context.drop(0, context.last_unit_start)
            return context

    for at, sizes in (([None], [1, 19]), ([], [])):
        prepared = PreparedRecording(probed(TALK, at), counter)
        traces = replay_traces(
            prepared, [looks_when_asked()], [prepared.make_budget(20), prepared.make_budget(10**6)]
        )
        assert [len(entries) for trace in traces for entries in trace.preview_entries] == sizes
        assert (traces[0].context is traces[1].context) == (not at)


def test_a_model_that_is_asked_in_a_preview_is_in_the_ledger_of_the_question(
    counter: TokenCounter,
) -> None:
    reply = Reply(Message("assistant", "A summary."), Usage(input=100, output=5), 0.5)
    talk = tuple(m.replace(content=str(m.content) * 5) for m in TALK)
    spec = "rolling_summary(0.9, 0.3, 2, model='gpt-4o-mini', tokens=30)"
    client = ScriptedClient(reply, reply)
    prepared = PreparedRecording(probed(talk, [None, None, 1]), counter, client)
    # Every request just does without a summary, and with a question more it does not.
    available = int(sum(map(counter.count_message, talk[:-1])) / 0.9) + 1
    trace = replay_trace(
        prepared, parse_strategy(spec), prepared.make_budget(available + prepared.fixed_tokens)
    )
    assert trace.context.model_calls == []
    assert [len(ledger.model_calls) for ledger in trace.preview_ledgers] == [1, 1, 0]
    assert collect_strategy_calls([trace]).calls == [
        call for each in trace.preview_ledgers for call in each.model_calls
    ]
    assert [len(made) for made in collect_strategy_calls([trace]).texts_by_strategy.values()] == [2]


def test_a_compaction_behind_the_question_has_not_happened_yet(counter: TokenCounter) -> None:
    compactions = (summarised(TALK, 3, "one"), summarised(TALK, 5, "two"))
    recording = probed(TALK, [4, 5])
    prepared = PreparedRecording(
        Recording("r", TALK, probes=recording.probes, compactions=compactions), counter
    )
    first, second = replay_trace(
        prepared, parse_strategy("recorded"), prepared.make_budget(99)
    ).preview_entries
    assert first[0].message.content == "one"
    assert second[0].message.content == "two"


def test_questions_at_one_place_are_rewritten_each_by_itself(counter: TokenCounter) -> None:
    @dataclass(frozen=True, repr=False)
    class shouts(BaseStrategy):
        def __call__(self, context: Context, /) -> Context:
            for index in range(len(context.entries)):
                context.rewrite(index, _loud, Form.REWRITTEN)
            return context

    prepared = PreparedRecording(probed(TALK, [2, 2, None]), counter)
    trace = replay_trace(prepared, shouts(), prepared.make_budget(99))
    said = [entries[-1].message.content for entries in trace.preview_entries]
    assert said == [probe.question.upper() for probe in prepared.recording.probes]
    assert trace.preview_entries[0][:2] != trace.context.entries[:2]
    assert [e.message for e in trace.preview_entries[0][:2]] == [
        e.message for e in trace.context.entries[:2]
    ]


def _loud(message: Message, _: ToolCall | None) -> Message:
    return message.replace(content=message.text.upper())

"""An aside sends what would really be sent for one question more, and leaves no trace of it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from generated import TOOLS, conversations, limits, strange_conversations
from hypothesis import given, settings
from hypothesis import strategies as st
from replaying import SPECS

from ctxlab.context.budget import Budget
from ctxlab.context.context import Context
from ctxlab.context.history import (
    Entry,
    Form,
    History,
)
from ctxlab.context.preview import aside
from ctxlab.errors import (
    EditError,
    StrategyError,
)
from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    play,
    play_all,
)
from ctxlab.evaluation.metrics.recall import tiers
from ctxlab.evaluation.metrics.strategy_calls import asked_in
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Reply
from ctxlab.messages.types import (
    Compaction,
    Message,
    Probe,
    Recording,
    ToolCall,
    Usage,
)
from ctxlab.strategies import parse
from ctxlab.strategies.base import (
    Base,
    models_asked,
)
from ctxlab.strategies.baselines import BASELINES
from ctxlab.tokens.counter import TokenCounter

QUESTIONS = ("What is in src/io.py?", "Who is Mia Li?", "x" * 400, "HAT136 and 512?")
TALK = tuple(Message(r, f"{i} word word word") for i in range(9) for r in ("user", "assistant"))
ACTING = [spec for spec in SPECS if not spec.startswith("oracle")]


def places() -> st.SearchStrategy[list[int | None]]:
    """Where questions are put, in any order; several at one place, and places that there are not."""
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
        *(trace.tokens, trace.messages, trace.unchanged, trace.opening, trace.newest, trace.faults),
        {turn: [left(entry) for entry in entries] for turn, entries in trace.forks.items()},
        *(context.events, context.spent, context.died, context.tokens, context.version),
        [left(entry) for entry in context.edited],
        [left(entry) for entry in context.entries],
        (context.turn, context.length, context.strange, context.unchanged),
    ]


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
    asking, silent = Tape(recording, counter), Tape(recording, counter, ask=None)
    traces = [play(tape, parse(spec), tape.budget(limit)) for tape in (asking, silent)]
    assert what_it_left(traces[0]) == what_it_left(traces[1])
    assert len(asking.history) == len(messages)
    seen = [tiers(tape.needs, [t]) for tape, t in zip((asking, silent), traces, strict=True)]
    assert np.array_equal(seen[0].seen, seen[1].seen)
    assert np.array_equal(seen[0].pointer, seen[1].pointer)
    assert (len(traces[0].asides), traces[1].asides) == (len(at), [])


@pytest.mark.parametrize("spec", ACTING)
@given(messages=conversations(), at=places(), limit=limits())
def test_what_is_sent_aside_is_what_would_be_sent_if_it_had_been_said(
    spec: str,
    messages: tuple[Message, ...],
    at: list[int | None],
    limit: int,
    counter: TokenCounter,
) -> None:
    tape = Tape(probed(messages, at), counter)
    trace = play(tape, parse(spec), tape.budget(limit))
    for number, entries in enumerate(trace.asides):
        said = messages[: tape.place(number)]
        really = Tape(
            Recording("r", (*said, tape.questions[number], Message("assistant", "?")), TOOLS),
            counter,
        )
        sent: list[list[Message]] = []
        play(really, parse(spec), really.budget(limit), {"sent": lambda c: sent.append(c.messages)})  # noqa: B023
        assert [entry.message for entry in entries] == sent[-1]
        assert sum(entry.tokens for entry in entries) == sum(map(counter.message, sent[-1]))


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=8)
@given(messages=conversations(), at=places(), limit=st.sampled_from([700, 1500, 10**6]))
def test_what_products_do_is_asked_aside_too(
    name: str,
    messages: tuple[Message, ...],
    at: list[int | None],
    limit: int,
    counter: TokenCounter,
) -> None:
    if models_asked(parse(name)):
        pytest.skip("it asks a model")
    recording = probed(messages, at)
    asking, silent = Tape(recording, counter), Tape(recording, counter, ask=None)
    traces = [play(tape, parse(name), tape.budget(limit)) for tape in (asking, silent)]
    assert what_it_left(traces[0]) == what_it_left(traces[1])


def test_questions_are_answered_in_the_order_of_the_probes(counter: TokenCounter) -> None:
    tape = Tape(probed(TALK, [None, 3, 0, 99]), counter)
    trace = play(tape, parse("full"), tape.budget(10**6))
    assert [len(entries) - 1 for entries in trace.asides] == [18, 3, 0, 18]
    said = [entries[-1].message.content for entries in trace.asides]
    assert said == [probe.question for probe in tape.recording.probes]


def test_the_caller_says_how_a_question_is_put(counter: TokenCounter) -> None:
    tape = Tape(
        probed(TALK, [None]),
        counter,
        ask=lambda probe: Message("user", f"Answer in one word. {probe.question}"),
    )
    (entries,) = play(tape, parse("nothing"), tape.budget(99)).asides
    assert entries[-1].message.content == f"Answer in one word. {QUESTIONS[0]}"
    assert entries[-1].tokens == counter.message(entries[-1].message)


def test_only_the_user_asks_aside(counter: TokenCounter) -> None:
    context = Context(Budget(99), History(counter, TALK))
    with pytest.raises(EditError, match="of the assistant's"):
        aside(context, Message("assistant", "why?"))


def test_an_oracle_holds_the_evidence_that_fits_shortest_first(counter: TokenCounter) -> None:
    said = [Message("user", "hello"), *(Message("user", f"fact {i} " * i) for i in range(1, 9))]
    talk = (
        *said,
        Message("assistant", "ok"),
        Message("user", "bye " * 30),
        Message("assistant", "."),
    )
    probe = Probe("q", "Which?", evidence=(0, 8, 3, 5))
    tape = Tape(Recording("r", talk, probes=(probe,)), counter)
    sizes = [counter.message(m) for m in talk]
    for room, wanted in ((0, ()), (sizes[3], (3,)), (sizes[3] + sizes[5], (3, 5))):
        limit = tape.fixed + sizes[0] + counter.message(tape.questions[0]) + room
        trace = play(tape, parse("oracle"), tape.budget(limit))
        (entries,) = trace.asides
        assert sum(e.tokens for e in entries) + tape.fixed <= limit
        text = "\n".join(e.message.text for e in entries)
        assert [p for p in (3, 5, 8) if talk[p].text.strip() in text] == list(wanted)


class _State:
    def __init__(self) -> None:
        self.seen: list[str] = []


@dataclass(frozen=True, repr=False)
class remembers(Base):
    """Keeps an object that it changes, as strategies of other people may."""

    kept: str = "list"

    def __call__(self, context: Context, /) -> Context:
        if self.kept == "table":
            context.notes.setdefault(self, sqlite3.connect(":memory:"))
            return context
        state = context.notes.setdefault(self, (_State(), context.history, {"all": []}))
        assert state[1] is context.history
        state[0].seen.append(context.messages[-1].text)
        state[2]["all"].append(len(context.messages))
        return context


def test_what_a_strategy_remembers_is_its_own_in_an_aside(counter: TokenCounter) -> None:
    tape = Tape(probed(TALK[:4], [2, None, None]), counter)
    trace = play(tape, remembers(), tape.budget(99))
    state, _, lengths = trace.context.notes[remembers()]
    assert state.seen == ["0 word word word", "1 word word word"]
    assert lengths == {"all": [1, 3]}


def test_what_cannot_be_copied_is_named(counter: TokenCounter) -> None:
    tape = Tape(probed(TALK[:4], [None]), counter)
    with pytest.raises(StrategyError, match=r"remembers\(kept='table'\) keeps in its notes cannot"):
        play(tape, remembers("table"), tape.budget(99))


def test_replays_are_shared_by_budgets_only_where_no_question_looked_at_one(
    counter: TokenCounter,
) -> None:
    @dataclass(frozen=True, repr=False)
    class looks_when_asked(Base):
        def __call__(self, context: Context, /) -> Context:
            if context.messages[-1].text in QUESTIONS and context.excess > 0:
                context.drop(0, context.tail)
            return context

    for at, sizes in (([None], [1, 19]), ([], [])):
        tape = Tape(probed(TALK, at), counter)
        traces = play_all(tape, [looks_when_asked()], [tape.budget(20), tape.budget(10**6)])
        assert [len(entries) for trace in traces for entries in trace.asides] == sizes
        assert (traces[0].context is traces[1].context) == (not at)


def test_a_model_that_is_asked_aside_is_on_the_account_of_the_question(
    counter: TokenCounter,
) -> None:
    reply = Reply(Message("assistant", "A summary."), Usage(input=100, output=5), 0.5)
    talk = tuple(m.replace(content=str(m.content) * 5) for m in TALK)
    spec = "rolling_summary(0.9, 0.3, 2, model='gpt-4o-mini', tokens=30)"
    tape = Tape(probed(talk, [None, None, 1]), counter, ScriptedClient(reply, reply))
    # Every request just does without a summary, and with a question more it does not.
    available = int(sum(map(counter.message, talk[:-1])) / 0.9) + 1
    trace = play(tape, parse(spec), tape.budget(available + tape.fixed))
    assert trace.context.spent == []
    assert [len(account.spent) for account in trace.accounts] == [1, 1, 0]
    assert asked_in([trace]).spent == [call for each in trace.accounts for call in each.spent]
    assert [len(made) for made in asked_in([trace]).written.values()] == [2]


def test_a_compaction_behind_the_question_has_not_happened_yet(counter: TokenCounter) -> None:
    compactions = (Compaction(3, summary="one"), Compaction(5, summary="two"))
    recording = probed(TALK, [4, 5])
    tape = Tape(Recording("r", TALK, probes=recording.probes, compactions=compactions), counter)
    first, second = play(tape, parse("recorded"), tape.budget(99)).asides
    assert first[0].message.content == "one"
    assert second[0].message.content == "two"


def test_questions_at_one_place_are_rewritten_each_by_itself(counter: TokenCounter) -> None:
    @dataclass(frozen=True, repr=False)
    class shouts(Base):
        def __call__(self, context: Context, /) -> Context:
            for index in range(len(context.entries)):
                context.rewrite(index, _loud, Form.REWRITTEN)
            return context

    tape = Tape(probed(TALK, [2, 2, None]), counter)
    trace = play(tape, shouts(), tape.budget(99))
    said = [entries[-1].message.content for entries in trace.asides]
    assert said == [probe.question.upper() for probe in tape.recording.probes]
    assert trace.asides[0][:2] != trace.context.entries[:2]
    assert [e.message for e in trace.asides[0][:2]] == [
        e.message for e in trace.context.entries[:2]
    ]


def _loud(message: Message, _: ToolCall | None) -> Message:
    return message.replace(content=message.text.upper())

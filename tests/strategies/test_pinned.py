"""Tests of pinned: what it keeps stays verbatim in every request, whatever the wrapped strategy does."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from inspect import signature
from typing import Any

import pytest
from generated import TOOLS, conversations, limits, prepare_messages, strange_conversations
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from known_baselines import ACTING
from replaying import Sent, run, strategies

from ctxlab import ContextManager, evaluate
from ctxlab.context.context import Budget, Context
from ctxlab.context.hidden_entries import run_without
from ctxlab.context.history import History
from ctxlab.errors import EditError, SpecError, StrategyError
from ctxlab.evaluation.canaries import plant_canaries, read_canaries
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.metrics.compactions import find_compacted_requests
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import (
    STRATEGIES,
    observation_mask,
    panic,
    parse_strategy,
    pinned,
    sliding_window,
    when_it_pays,
)
from ctxlab.strategies.base import BaseStrategy, Strategy
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.registry import CONTROLS
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

LIMIT = 7000
PLANTED = "stays as it is unless"
IMAGE = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
INNER = {
    "pinned": "pinned(sliding_window(), users=False, match='nothing that was said')",
    "recent_images": "recent_images(keep=1)",
    "shorten_arguments": "shorten_arguments(keep=2, limit=20, chars=5)",
    **{name: f"{name}({given})" for name, given in ACTING.items()},
    "adk.compaction": "adk.compaction(compaction_interval=1)",
    "openhands.amortized": "openhands.amortized(max_size=40)",
    "pydantic_ai.sliding": "pydantic_ai.sliding(trigger=('messages', 40), keep=('messages', 20))",
}
"""Parameters under which a strategy compacts the long conversation at least ten times."""
NEVER_COMPACTS = {"deepagents.offload", "mini_swe_agent", "tool_result_cap", "offload", "idle"}
"""Strategies that send everything, that shorten a message only before it is first sent, or that wait for
a pause, which the conversation does not have."""
NEEDS_USERS = {"cline"}
"""Strategies that cut only at user messages, so they do nothing if all of these are hidden."""
MATCH = "HAT136|src/io"


def spelled(name: str) -> str:
    """Return an expression of a strategy. Triggers get a strategy that removes messages."""
    is_trigger = name in STRATEGIES and "strategy" in signature(STRATEGIES[name]).parameters
    return INNER.get(name, f"{name}(observation_mask(keep=1))" if is_trigger else name)


def long_conversation() -> Recording:
    """Return a conversation of an agent that works through a list, with many reads, edits and tests."""
    messages = [Message("system", "You mend a program."), Message("user", "Mend the shop. " * 9)]
    number = 0
    for part in range(30):
        for step in range(8):
            number += 1
            ids = [f"c{number}{letter}" for letter in "ab"[: 1 + (step % 4 == 1)]]
            tool, arguments = (
                ("read_file", {"path": f"src/part_{number % 7}.py"}),
                ("bash", {"command": f"make test_{number}"}),
                ("edit_file", {"path": f"src/part_{number % 7}.py", "new": f"line {number} " * 20}),
            )[step % 3]
            calls = tuple(ToolCall(id, tool, json.dumps(arguments)) for id in ids)
            messages.append(Message("assistant", f"Step {number} begins.", calls))
            lines = f"value_{number} = {number * 7}  # nobody has checked this\n" * 12
            said: Any = f"output {number}\n{lines}"
            if step == 7:
                said = ({"type": "text", "text": said}, IMAGE)
            messages += [Message("tool", said, tool_call_id=id) for id in ids]
        messages.append(Message("assistant", f"Part {part} is mended, and the tests pass. " * 3))
        messages.append(Message("user", f"Go on with part {part + 1}."))
    return Recording("long", (*messages, Message("assistant", "All of it is mended.")))


COMPACTING = [name for name in (*STRATEGIES, *BASELINES) if name not in CONTROLS]
RISKY = [
    "rolling_summary",
    "sliding_window",
    "in_batches",
    "claude_code",
    "cline",
    "adk.compaction",
]
"""Strategies that summarise, drop and wait, that need user messages, and that send invalid requests."""


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("names", [RISKY, COMPACTING], ids=["risky", "every"])
def test_planted_rules_survive_ten_compactions_of_every_strategy(
    names: list[str], counter: TokenCounter
) -> None:
    recording = plant_canaries(long_conversation(), 20, "constraint")
    canaries = read_canaries(recording)
    assert {canary.role for canary in canaries} == {"user", "tool"}
    client = ScriptedClient("The agent mended some parts of the program, one after the other.")
    model = find_model("claude-sonnet-4-5")
    prepared = PreparedRecording(recording, counter, client, format_probe=None, model=model)
    for name in names:
        users, inner = name not in NEEDS_USERS, parse_strategy(spelled(name))
        strategy = pinned(inner, users=users, match=PLANTED)
        trace, requests = run(prepared, strategy, LIMIT)
        (changed,) = find_compacted_requests([trace])
        rounds = int(changed.sum())
        assert rounds >= 10 or name in NEVER_COMPACTS, (name, rounds)
        is_valid = True
        changed[-1] = True  # between two compactions a request only grows
        for number in changed.nonzero()[0].tolist():
            sent, tokens = requests[number], trace.tokens[number]
            shown = "\n".join(sent.texts)
            said = [each for each in canaries if each.position < sent.position]
            assert all(each.value in shown for each in said), (name, sent.position)
            assert tokens == counter.count_request(sent.messages)
            is_valid = is_valid and not find_violations(sent.messages)
        if not is_valid:  # the strategy sends invalid requests by itself
            alone = run(prepared, inner, LIMIT)[1]
            assert any(find_violations(sent.messages) for sent in alone), name


@dataclass(frozen=True, repr=False)
class says_if_it_fits(BaseStrategy):
    """Strategy that runs another one and reports if its request exceeds the budget that it sees."""

    strategy: Strategy

    def __call__(self, context: Context, /) -> Context:
        sent = self.strategy(context)
        if sent.excess > 0:
            context.report("inside: too large")
        return sent


def kept_positions(messages: tuple[Message, ...], strategy: pinned, sent: Sent) -> list[int]:
    """Return the positions of the units with a message to keep, found in the simplest way."""
    history = sent.context.history
    starts, whole = history.unit_starts, history.entries
    units: dict[int, list[int]] = {}
    for position in range(sent.position):
        units.setdefault(starts[position], []).append(position)
    found = []
    for unit in units.values():
        notes = [
            strategy.quote(messages[p], None)
            for p in unit
            if messages[p].role != "system" or p >= history.head_length
        ]
        small = sum(whole[p].tokens for p in unit) <= strategy.max_tokens
        if small and any(notes):
            found += unit
    return sorted(found)


@settings(max_examples=60)
@given(
    messages=conversations() | strange_conversations(),
    inner=strategies(),
    limit=limits(),
    max_tokens=st.sampled_from([0, 60, 2000]),
    match=st.sampled_from([None, MATCH]),
    users=st.booleans(),
)
def test_what_is_kept_is_verbatim_and_in_order_and_the_books_are_right(
    messages: tuple[Message, ...],
    inner: Strategy,
    limit: int,
    max_tokens: int,
    match: str | None,
    users: bool,
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(messages, counter)
    strategy = pinned(says_if_it_fits(inner), users, True, match, max_tokens)
    try:
        trace, requests = run(prepared, strategy, limit)
    except StrategyError as error:
        if "the messages to keep have" not in str(error):
            raise
        reject()
    _, plain = run(prepared, inner, limit)
    over = {request for request, event in trace.context.events if event == "inside: too large"}
    before: list[Message] = []
    for number, (sent, without) in enumerate(zip(requests, plain, strict=True)):
        assert trace.tokens[number] == counter.count_request(sent.messages)
        at = {entry.start: i for i, entry in enumerate(sent.entries) if not entry.is_aggregate}
        kept = kept_positions(messages, strategy, sent)
        assert all(sent.messages[at[position]] is messages[position] for position in kept)
        assert [at[position] for position in kept] == sorted(at[position] for position in kept)
        assert len(at) == sum(not entry.is_aggregate for entry in sent.entries)
        starts = [entry.start for entry in sent.entries]
        assert starts == sorted(starts)
        if not find_violations(without.messages) and not find_violations(messages[: sent.position]):
            assert not find_violations(sent.messages)
        assert bool(trace.violation_counts[number]) == bool(find_violations(sent.messages))
        assert trace.tokens[number] <= limit or number in over
        same = 0
        while same < min(len(before), len(sent.messages)) and before[same] == sent.messages[same]:
            same += 1
        assert trace.unchanged_prefix_tokens[number] == sum(
            map(counter.count_message, sent.messages[:same])
        )
        before = sent.messages


@settings(max_examples=40)
@given(messages=conversations(), inner=strategies(), limit=limits())
def test_lookups_find_what_a_summary_around_a_kept_message_covers(
    messages: tuple[Message, ...], inner: Strategy, limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    context = Context(prepared.make_budget(limit), prepared.history)
    for position in prepared.request_positions:
        context.advance(position)
        try:
            sent = pinned(inner, match=MATCH)(context)
        except StrategyError:
            reject()
        for place in range(position):
            covering = [e for e in sent.entries if e.start <= place < e.stop]
            index = sent.find_index(place)
            if not covering:
                assert index is None
            else:
                narrowest = min(covering, key=lambda entry: entry.stop - entry.start)
                assert index is not None
                assert sent.entries[index] is narrowest
        context.commit_request(sent)


@settings(max_examples=30)
@given(messages=conversations(), inner=strategies(), limit=limits())
def test_what_is_sent_live_is_what_a_replay_sends(
    messages: tuple[Message, ...], inner: Strategy, limit: int, counter: TokenCounter
) -> None:
    strategy = pinned(inner, match=MATCH, max_tokens=100)
    prepared = PreparedRecording(Recording("r", messages, TOOLS), counter)
    try:
        _, requests = run(prepared, strategy, prepared.make_budget(limit))
        # The generated messages have no times, so the replay knows none.
        given: dict[str, Any] = {"tools": TOOLS, "limit": limit, "reserve": 0}
        manager = ContextManager(strategy, "gpt-4o", **given, clock=lambda: None)
    except (SpecError, StrategyError):
        reject()
    position = 0
    for sent in requests:
        manager.extend(messages[position : sent.position])
        position = sent.position
        assert manager.request() == [m.to_dict() for m in sent.messages]


@settings(max_examples=60)
@given(messages=conversations(), inner=strategies(), limit=limits())
def test_the_message_that_is_answered_stays_verbatim(
    messages: tuple[Message, ...], inner: Strategy, limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    strategy = pinned(inner, users=False, systems=False, newest=True)
    trace, requests = run(prepared, strategy, limit)
    _, plain = run(prepared, inner, limit)
    history, system = prepared.history, counter.count_request(())
    for number, (sent, without) in enumerate(zip(requests, plain, strict=True)):
        assert trace.tokens[number] == counter.count_request(sent.messages)
        users = [i for i in range(sent.position) if messages[i].role == "user"]
        if users and users[-1] >= history.head_length:
            fits = history.entries[users[-1]].tokens + system <= limit
            assert not fits or any(each is messages[users[-1]] for each in sent.messages)
        if not find_violations(without.messages) and not find_violations(messages[: sent.position]):
            assert not find_violations(sent.messages)


@given(messages=conversations(), limit=limits(), inner=strategies())
def test_with_nothing_to_keep_it_sends_what_the_wrapped_strategy_sends(
    messages: tuple[Message, ...], limit: int, inner: Strategy, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    wrapper = pinned(inner, users=False, systems=False)
    one, requests = run(prepared, wrapper, limit)
    other, expected = run(prepared, inner, limit)
    assert [sent.messages for sent in requests] == [sent.messages for sent in expected]
    assert one.unchanged_prefix_tokens == other.unchanged_prefix_tokens
    assert one.context.version == other.context.version


@pytest.mark.parametrize("inner", ["observation_mask(keep=1)", "rolling_summary(0.4, 0.2)"])
def test_triggers_can_try_it_and_it_can_keep_messages_from_triggers(
    inner: str, counter: TokenCounter
) -> None:
    prepared = PreparedRecording(long_conversation(), counter)
    rules = [i for i, m in enumerate(prepared.history) if m.role == "user"]
    removes = parse_strategy(inner)
    for strategy in (when_it_pays(pinned(removes)), pinned(when_it_pays(removes))):
        trace, requests = run(prepared, strategy, LIMIT)
        assert {event for _, event in trace.context.events} >= {"compacted: pays"}
        for sent in requests:
            there = {e.start for e in sent.entries if not e.is_aggregate}
            assert {rule for rule in rules if rule < sent.position} <= there


TALK = [
    Message("system", "Be brief."),
    Message("user", "Go"),
    *(Message("assistant", f"Step {i} is done, and step {i + 1} begins.") for i in range(6)),
    Message("user", "Never touch b.py"),
    *(Message("assistant", f"Step {i} is done, and step {i + 1} begins.") for i in range(6, 12)),
]


def asked(messages: list[Message], strategy: Strategy, limit: int) -> list[str]:
    context = Context(Budget(limit), History(TokenCounter("gpt-4o"), messages))
    context.advance(len(messages))
    return [message.text for message in strategy(context).messages]


def test_of_a_long_message_the_matching_lines_stay_when_it_goes() -> None:
    call = ToolCall("c", "read", "{}")
    text = "A page of text. " * 200 + "\nNever touch b.py\n" + "A page of text. " * 200
    read = [Message("assistant", tool_calls=(call,)), Message("tool", text, tool_call_id="c")]
    strategy = pinned(sliding_window(messages=2), match="Never touch", max_tokens=100)
    later = [Message("assistant", f"Step {i}") for i in range(3)]
    talk = [Message("user", "Go"), *read]
    assert asked(talk, strategy, 9000)[1:] == ["", text]
    said = asked([*talk, *later], strategy, 9000)
    note = "[Quoted from an earlier tool result]\nNever touch b.py"
    assert said == ["Go", note, "Step 1", "Step 2"]


def test_of_a_long_user_message_the_beginning_stays_when_it_goes() -> None:
    long = Message("user", "Do this first. " + "A page of text. " * 300)
    talk = [*TALK[:5], long, *TALK[9:]]
    said = asked(talk, pinned(sliding_window(messages=2), max_tokens=300), 900)
    assert said[:2] == ["Be brief.", "Go"]
    assert said[2].startswith("[Beginning of an earlier user message]\nDo this first. A page")
    assert len(said[2]) < 900


def test_a_summary_of_both_sides_stands_before_the_message_and_is_found_behind_it() -> None:
    context = Context(Budget(250), History(TokenCounter("gpt-4o"), TALK))
    context.advance(len(TALK))
    rule = context.history.entries[8]

    def fold(context: Context) -> Context:
        context.fold(2, 12, Message("user", "Eleven steps were done."))
        return context

    run_without(context, [rule], fold)
    assert [m.text for m in context.messages[2:5]] == [
        "Eleven steps were done.", "Never touch b.py", "Step 10 is done, and step 11 begins.",
    ]  # fmt: skip
    assert [context.find_index(position) for position in (7, 8, 9, 12, 13)] == [2, 3, 2, 2, 4]
    context.fold(2, 4, Message("user", "Shorter"))
    assert context.find_index(12) == 2


def test_hidden_messages_take_room_and_are_given_in_order() -> None:
    context = Context(Budget(100, fixed=3), History(TokenCounter("gpt-4o"), TALK))
    context.advance(len(TALK))
    first, second = context.history.entries[1], context.history.entries[8]

    def look(context: Context) -> Context:
        hidden = first.tokens + second.tokens
        assert (context.available, context.budget.fixed) == (97 - hidden, 3 + hidden)
        assert first not in context.entries
        return context

    run_without(context, [first, second], look)
    assert (context.available, context.budget.fixed, context.version) == (97, 3, 0)
    with pytest.raises(EditError, match="in order of position"):
        run_without(context, [second, first], look)


def test_what_an_earlier_strategy_dropped_or_shortened_is_put_back() -> None:
    strategy = parse_strategy("sliding_window(messages=1)") | pinned(panic())
    assert asked(TALK, strategy, 900) == ["Be brief.", "Go", "Never touch b.py", TALK[-1].text]


def test_a_head_that_is_dropped_is_put_back_and_hidden_from_then_on(counter: TokenCounter) -> None:
    prepared = PreparedRecording(long_conversation(), counter)
    _, requests = run(prepared, pinned(parse_strategy("pydantic_ai.sliding")), LIMIT)
    assert all(prepared.history[1] in sent.messages for sent in requests)


def test_what_does_not_fit_is_one_clear_error_that_names_the_recording() -> None:
    recording = Recording("rules", (*TALK, Message("user", "b " * 1000), Message("assistant", "?")))
    with pytest.raises(StrategyError, match=r"message 16 of rules: pinned: .*raise the limit"):
        evaluate([recording], [pinned(observation_mask())], 500, workers=1)


def test_it_is_a_value_and_refuses_what_is_no_pattern() -> None:
    strategy = parse_strategy("pinned(sliding_window() | panic(), match='a|b', max_tokens=9)")
    assert repr(strategy) == "pinned(sliding_window() | panic(), match='a|b', max_tokens=9)"
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    with pytest.raises(SpecError, match="expected a regular expression for match, got '\\('"):
        pinned(panic(), match="(")

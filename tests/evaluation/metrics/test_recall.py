"""Tests that recall equals the result of a plain search through the texts of each request."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from generated import TOOLS, conversations, limits, prepare_messages, strange_conversations
from hypothesis import example, given
from hypothesis import strategies as st
from replaying import (
    SPECS,
    fetchable_by_eye,
    held_by_eye,
    run,
    seen_by_eye,
    similar_by_eye,
    strategies,
)

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.metrics import FAR_TOKENS
from ctxlab.evaluation.metrics.recall import RecallMetric
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import Strategy, as_strategy, parse_strategy
from ctxlab.tokens.counter import TokenCounter


def reads(path: str, id: str = "c1") -> Message:
    return Message("assistant", None, tool_calls=(ToolCall(id, "read", f'{{"path": "{path}"}}'),))


def check(prepared: PreparedRecording, strategy: Strategy, limit: int) -> None:
    trace, sent = run(prepared, strategy, limit)
    found = measure_need_visibility(prepared.needs, [trace])
    seen, fetchable = seen_by_eye(prepared, sent), fetchable_by_eye(prepared, sent)
    assert found.in_view[0].tolist() == seen.tolist()
    assert found.fetchable[0].tolist() == (fetchable & ~seen).tolist()
    assert found.held[0].tolist() == held_by_eye(prepared, sent).tolist()
    assert (found.held <= found.in_view).all()
    assert found.similar[0].tolist() == (similar_by_eye(prepared, sent) & ~seen).tolist()


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=conversations(), limit=limits())
def test_a_need_is_in_view_where_a_text_that_is_sent_holds_it(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    check(prepare_messages(messages, counter), parse_strategy(spec), limit)


@given(strange_conversations(), strategies(), limits())
def test_the_same_holds_in_conversations_that_no_provider_accepts(
    counter: TokenCounter, messages: tuple[Message, ...], strategy: Strategy, limit: int
) -> None:
    check(prepare_messages(messages, counter), strategy, limit)


KEEP = st.lists(st.integers(0, 40), unique=True, max_size=12)


@given(messages=conversations(), order=KEEP, again=KEEP, limit=limits())
def test_the_same_holds_for_plain_functions(
    messages: tuple[Message, ...],
    order: list[int],
    again: list[int],
    limit: int,
    counter: TokenCounter,
) -> None:
    def pick(old: list[Message]) -> list[Message]:
        return [*(old[i] for i in order if i < len(old)), Message("user", "HAT136 stood here")]

    def pick_again(old: list[Message]) -> list[Message]:
        return [
            old[i].replace(content="512") if i % 5 == 4 else old[i] for i in again if i < len(old)
        ]

    prepared = prepare_messages(messages, counter)
    for strategy in (
        as_strategy(pick),
        as_strategy(pick) | as_strategy(pick_again),
        parse_strategy("panic") | pick,
    ):
        check(prepared, strategy, limit)


def test_a_summary_shows_what_it_says_in_a_request_that_panics_too(counter: TokenCounter) -> None:
    class summary_then_fork:
        def __call__(self, context: Context) -> Context:
            if context.history_length == 5:
                context.fold(0, 3, Message("user", "earlier: src/io.py"))
            return context.fork()

    talk = [
        Message("user", "look at src/io.py"),
        Message("assistant", "yes"),
        Message("user", "so?"),
    ]
    prepared = prepare_messages(
        [*talk, Message("assistant", "hm"), Message("user", "go"), reads("src/io.py")], counter
    )
    check(prepared, summary_then_fork(), 10**6)


def test_nothing_is_fetchable_before_its_stub_stands_there(counter: TokenCounter) -> None:
    talk = [
        Message("user", "go"),
        reads("x"),
        Message("tool", "a" * 99 + " src/io.py", tool_call_id="c1"),
    ]
    again = [reads("src/io.py"), Message("tool", "b" * 99, tool_call_id="c1"), reads("src/io.py")]
    prepared = prepare_messages([*talk, *again], counter)
    check(prepared, parse_strategy("tool_result_cap(chars=50) | observation_mask(keep=1)"), 10**6)


def test_one_message_may_stand_for_several(counter: TokenCounter) -> None:
    both = Message("user", "src/io.py and HAT136")

    class same_for_all:
        def __call__(self, context: Context) -> Context:
            for index in range(context.history_length - 1):
                if context.entries[index].form is Form.VERBATIM:
                    context.replace(index, both)
            return context

    talk = [Message("user", "see src/io.py"), Message("user", "fly HAT136"), Message("user", "go")]
    check(prepare_messages([*talk, reads("HAT136")], counter), same_for_all(), 10**6)


def test_an_inserted_message_outlives_an_edit_on_its_left(counter: TokenCounter) -> None:
    class inserts_then_drops:
        def __call__(self, context: Context) -> Context:
            fork = context.fork()
            fork.insert(2, Message("user", "noted: HAT136"))
            fork.drop(1, 2)
            return fork

    talk = [Message("user", "go"), Message("user", "fly HAT136"), Message("user", "now")]
    check(prepare_messages([*talk, reads("HAT136")], counter), inserts_then_drops(), 10**6)


@given(messages=conversations(), far=st.sampled_from([0, 20, 100, FAR_TOKENS]), limit=limits())
@example(messages=(), far=0, limit=1)
def test_an_argument_is_averaged_first(
    messages: tuple[Message, ...], far: int, limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter, TOOLS)
    traces = [
        replay_trace(prepared, parse_strategy(s), prepared.make_budget(limit))
        for s in ("full", "sliding_window()", "nothing")
    ]
    needs, found = prepared.needs, measure_need_visibility(prepared.needs, traces)
    columns = RecallMetric(far).measure(prepared, traces)
    for row in range(len(traces)):
        naive: dict[str, dict[int, float]] = {name: defaultdict(float) for name in columns}
        roles = np.array([needs.get_need(i).origin_role for i in range(len(needs))])
        gap = needs.gap_tokens > far
        groups = {
            ("", ""): gap | ~gap,
            ("near_", ""): ~gap,
            ("far_", ""): gap & (roles != "assistant"),
            ("far_", "_user"): gap & (roles == "user"),
            ("far_", "_tool"): gap & (roles == "tool"),
            ("far_", "_agent"): gap & (roles == "assistant"),
        }
        states = {
            "arguments": np.ones(len(needs)),
            "seen": found.in_view[row],
            "held": found.held[row],
            "pointed": found.fetchable[row],
            "lost": ~found.in_view[row] & ~found.fetchable[row],
            "similar": found.similar[row],
        }
        for (prefix, suffix), chosen in groups.items():
            by_argument: dict[int, list[int]] = defaultdict(list)
            for i in np.flatnonzero(chosen):
                by_argument[needs.argument[i]].append(int(i))
            for argument, members in by_argument.items():
                request = needs.arguments[argument].request
                for name, state in states.items():
                    if (column := f"{prefix}{name}{suffix}") in naive:
                        naive[column][request] += np.mean(state[members])
        for name in set(columns) - {"names_written", "names_used"}:
            expected = [naive[name][r] for r in range(len(prepared.request_positions))]
            np.testing.assert_allclose(columns[name][row], expected, atol=1e-9)


@given(messages=conversations(), limit=limits())
def test_full_history_recalls_everything_and_nothing_recalls_least_of_the_cuts(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    specs = (
        "nothing",
        "sliding_window()",
        "random_drop()",
        "chunked_window(max_history=3)",
        "full",
    )
    traces = [
        replay_trace(prepared, parse_strategy(spec), prepared.make_budget(limit)) for spec in specs
    ]
    found = measure_need_visibility(prepared.needs, traces)
    for shown in (found.in_view, found.held):
        assert shown[-1].all()
        assert all((shown[0] <= row).all() for row in shown)


LESS_TO_MORE = (
    [f"sliding_window(tokens={n})" for n in (50, 200, 500, 1500, 9000)],
    [f"sliding_window(messages={n})" for n in (0, 1, 3, 8, 30)],
    [f"observation_mask(keep={n})" for n in (0, 1, 3, 10)],
    [f"tool_stubs(keep={n})" for n in (0, 1, 3, 10)],
    [f"tool_result_cap(chars={n}, marker='')" for n in (0, 50, 400, 4000)],
)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("specs", LESS_TO_MORE, ids=lambda specs: specs[0].split("(")[0])
@given(messages=conversations())
def test_keeping_more_never_recalls_less(
    specs: list[str], messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    found = measure_need_visibility(
        prepared.needs,
        [replay_trace(prepared, parse_strategy(s), prepared.make_budget(10**6)) for s in specs],
    )
    for shown in (found.in_view, found.held):
        for less, more in pairwise(shown):
            assert (less <= more).all()

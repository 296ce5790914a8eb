"""The columns of usage and validity are what a look at each request gives."""

from __future__ import annotations

import numpy as np
from generated import TOOLS, conversations, limits, strange_conversations, tape_of
from hypothesis import given
from hypothesis import strategies as st
from replaying import run, strategies

from ctxlab.context import Context
from ctxlab.conversation import Message, ToolCall
from ctxlab.metrics import METRICS, Usage, Validity
from ctxlab.models import find_model
from ctxlab.strategies import Strategy, full
from ctxlab.tape import play
from ctxlab.tokens import TokenCounter
from ctxlab.validity import check


@given(
    messages=conversations() | strange_conversations(),
    strategy=strategies(),
    limit=limits(),
    reserve=st.sampled_from([0, 30, 10**7]),
)
def test_every_request_is_measured_as_it_was_sent(
    messages: tuple[Message, ...],
    strategy: Strategy,
    limit: int,
    reserve: int,
    counter: TokenCounter,
) -> None:
    tape = tape_of(messages, counter, TOOLS)
    trace, requests = run(tape, strategy, tape.budget(limit, reserve))
    usage, validity = Usage().measure(tape, [trace]), Validity().measure(tape, [trace])
    for i, sent in enumerate(requests):
        tokens = counter.request(sent.messages, TOOLS)
        assert usage["tokens"][0, i] == tokens
        assert usage["messages"][0, i] == len(sent.messages)
        assert usage["over"][0, i] == max(0, tokens - (limit - reserve))
        assert usage["overflow"][0, i] == (tokens > limit - reserve)
        assert usage["panicked"][0, i] == ((i, "panic") in trace.context.events)
        assert validity["invalid"][0, i] == bool(check(sent.messages))


def test_a_strategy_that_parts_pairs_is_counted_for_as_long_as_they_are_parted(
    counter: TokenCounter,
) -> None:
    class drops_the_first_call:
        def __call__(self, context: Context) -> Context:
            if context.turn == 1:
                context.drop(1, 2)
            if context.turn == 3:
                context.drop(1, 2)
            return context

    talk = [Message("user", "go")]
    for i in range(5):
        talk.append(Message("assistant", None, tool_calls=(ToolCall(f"c{i}", "f"),)))
        talk.append(Message("tool", "42", tool_call_id=f"c{i}"))
    tape = tape_of(talk, counter)
    trace = play(tape, drops_the_first_call(), tape.budget(1000))
    assert Validity().measure(tape, [trace])["invalid"].tolist() == [[0, 1, 1, 0, 0]]


def test_columns_and_scores_explain_themselves_and_have_names_of_their_own(
    counter: TokenCounter,
) -> None:
    model = find_model("gpt-4o")
    tape = tape_of((Message("user", "a"), Message("assistant", "b")), counter)
    trace = play(tape, full(), tape.budget(9))
    names: list[str] = []
    for make in METRICS.values():
        metric = make(model)
        measured = metric.measure(tape, [trace, trace])
        assert list(measured) == [column.name for column in metric.columns]
        assert all(np.shape(values) == (2, 1) for values in measured.values())
        names += measured
        for part in (*metric.columns, *metric.scores):
            assert part.meaning
            assert part.unit
    assert len(set(names)) == len(names)

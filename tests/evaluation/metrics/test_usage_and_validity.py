"""Tests of the columns for usage and validity against a plain look at each request."""

from __future__ import annotations

import numpy as np
from generated import TOOLS, conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run, strategies

from ctxlab.context.context import Context
from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.tokens import UsageMetric
from ctxlab.evaluation.metrics.validity import ValidityMetric
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import Strategy, full, parse_strategy
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model


@given(
    messages=conversations() | strange_conversations(),
    strategy=strategies(),
    limit=limits(),
    reserve=st.sampled_from([0, 30, 10**7]),
    model=st.sampled_from(["gpt-4o", "claude-sonnet-4-5"]),
)
def test_every_request_is_measured_as_it_was_sent_and_by_the_rules_of_its_provider(
    messages: tuple[Message, ...],
    strategy: Strategy,
    limit: int,
    reserve: int,
    model: str,
    counter: TokenCounter,
) -> None:
    prepared = PreparedRecording(Recording("r", messages, TOOLS), counter, model=find_model(model))
    trace, requests = run(prepared, strategy, prepared.make_budget(limit, reserve))
    usage, validity = (
        UsageMetric().measure(prepared, [trace]),
        ValidityMetric().measure(prepared, [trace]),
    )
    for i, sent in enumerate(requests):
        tokens = counter.count_request(sent.messages, TOOLS)
        assert usage["tokens"][0, i] == tokens
        assert usage["messages"][0, i] == len(sent.messages)
        assert usage["over"][0, i] == max(0, tokens - (limit - reserve))
        assert usage["overflow"][0, i] == (tokens > limit - reserve)
        assert usage["panicked"][0, i] == ((i, "panic") in trace.context.events)
        assert validity["faults"][0, i] == len(find_violations(sent.messages, prepared.provider))
        assert validity["invalid"][0, i] == bool(validity["faults"][0, i])
        whole = find_violations(messages[: prepared.request_positions[i]], prepared.provider)
        assert validity["newly_invalid"][0, i] == (bool(validity["faults"][0, i]) and not whole)


def test_a_strategy_that_parts_pairs_is_counted_for_as_long_as_they_are_parted(
    counter: TokenCounter,
) -> None:
    class drops_the_first_call:
        def __call__(self, context: Context) -> Context:
            if context.request_index == 1:
                context.drop(1, 2)
            if context.request_index == 3:
                context.drop(1, 2)
            return context

    talk = [Message("user", "go")]
    for i in range(5):
        talk.append(Message("assistant", None, tool_calls=(ToolCall(f"c{i}", "f"),)))
        talk.append(Message("tool", "42", tool_call_id=f"c{i}"))
    prepared = prepare_messages(talk, counter)
    trace = replay_trace(prepared, drops_the_first_call(), prepared.make_budget(1000))
    assert ValidityMetric().measure(prepared, [trace])["invalid"].tolist() == [[0, 1, 1, 0, 0]]


def test_columns_and_scores_explain_themselves_and_have_names_of_their_own(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages((Message("user", "a"), Message("assistant", "b")), counter)
    trace = replay_trace(prepared, full(), prepared.make_budget(9))
    names: list[str] = []
    for metric in METRICS.values():
        measured = metric.measure(prepared, [trace, trace])
        assert list(measured) == [column.name for column in metric.columns]
        assert all(np.shape(values) == (2, 1) for values in measured.values())
        names += measured
        for part in (*metric.columns, *metric.scores):
            assert part.meaning
            assert part.unit
    assert len(set(names)) == len(names)


def chat(turns: int = 60) -> Recording:
    """Return a long chat that needs several summaries to stay within 600 tokens."""
    talk = [Message(r, f"{i} " + "word " * 20) for i in range(turns) for r in ("user", "assistant")]
    return Recording("chat", tuple(talk))


def a_summary(request: object) -> str:
    return "## Goal\nKeep counting."


def busy(request: object) -> ModelUnavailable:
    return ModelUnavailable("busy")


def test_what_a_model_was_to_write_is_counted_by_whether_it_did(counter: TokenCounter) -> None:
    spec = parse_strategy("rolling_summary(model='gpt-4o-mini') | panic()")
    for answer, share in ((a_summary, 0), (busy, 1)):
        prepared = PreparedRecording(chat(), counter, ScriptedClient(answer))
        trace = replay_trace(prepared, spec, prepared.make_budget(600))
        found = UsageMetric().measure(prepared, [trace])
        summaries = sum(event == "summary" for _, event in trace.context.events)
        assert found["written"].sum() == summaries > 3
        assert found["fallbacks"].sum() == share * summaries
        assert (found["written"] == found["strategy_calls"]).all()


def test_a_text_counts_once_however_many_of_its_parts_failed(counter: TokenCounter) -> None:
    class reports:
        def __call__(self, context: Context) -> Context:
            if context.request_index == 0:
                context.report("summary fallback: part 1 of 3: busy")
                context.report("summary fallback: part 2 of 3: busy")
                context.report("summary rejected: not shorter than the messages it replaces")
            if context.request_index == 1:
                context.report("contents fallback: busy")
                context.record_call("m", Reply(Message("assistant", "x")))
                context.report("summary")
            if (
                context.request_index == 2
            ):  # such as embeddings, of which nothing is reported where they come
                context.record_call("m", Reply(Message("assistant", "")))
            if context.request_index == 3:  # no model was asked
                context.report("summary")
            return context

    prepared = PreparedRecording(chat(4), counter)
    found = UsageMetric().measure(
        prepared, [replay_trace(prepared, reports(), prepared.make_budget(10**6))]
    )
    assert found["written"].tolist() == [[1, 2, 1, 0]]
    assert found["fallbacks"].tolist() == [[1, 1, 0, 0]]


def test_the_manifest_says_what_was_asked_and_why_it_was_done_without() -> None:
    def every_third(request: object) -> str | ModelUnavailable:
        numbers.append(len(numbers))
        if len(numbers) % 3:
            return ModelUnavailable(f"busy for {len(numbers)} s")
        return a_summary(request)

    numbers: list[int] = []
    asks = "rolling_summary(model='gpt-4o-mini') | panic()"
    results = evaluate(
        [chat(), chat(50)], (asks, "rolling_summary | panic"), 600, workers=1,
        client=ScriptedClient(every_third), progress=False,
    )  # fmt: skip
    row, other = (line for _, line in results.leaderboard().iterrows())
    told = results.manifest["fallbacks"]
    assert list(told) == [asks]
    assert (told[asks]["fallbacks"], told[asks]["kinds"]) == (
        row["fallbacks"],
        {"summary": row["fallbacks"]},
    )
    assert told[asks]["reasons"] == {"busy for 1 s": row["fallbacks"]}
    assert row["fallback_rate"] == row["fallbacks"] / told[asks]["written"]
    assert results.manifest["calls"]["gpt-4o-mini"]["calls"] == row["strategy_calls"]
    assert np.isnan(other["fallback_rate"])
    assert results.manifest["calls"].keys() == {"gpt-4o-mini"}

"""Tests of the Semantic Kernel baselines."""

from __future__ import annotations

import pytest
from generated import conversations, prepare_messages, strange_conversations
from hypothesis import given
from replaying import run
from small_talk import firsts, last, played, said, steps, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter


def test_up_to_target_and_threshold_nothing_goes() -> None:
    spec = "semantic_kernel.truncation(target_count=4, threshold_count=2)"
    assert last(spec, said(3), 10**6) == said(3)
    assert len(last(spec, [*said(3), Message("user", "go")], 10**6)) < 7


def test_the_cut_moves_back_to_a_users_message_within_the_threshold() -> None:
    messages = [*said(3), Message("user", "go")]
    spec = "semantic_kernel.truncation(target_count=2, threshold_count={})"
    assert firsts(last(spec.format(0), messages, 10**6)) == ["assistant 2", "go"]
    assert firsts(last(spec.format(2), messages, 10**6)) == ["user 2", "assistant 2", "go"]


def test_the_first_system_message_stays_and_counts() -> None:
    messages = [Message("system", "Be brief."), *said(4)]
    sent = last("semantic_kernel.truncation(target_count=3)", messages, 10**6)
    assert firsts(sent) == ["Be brief.", "user 3", "assistant 3"]
    assert firsts(last("semantic_kernel.truncation(target_count=1)", messages, 10**6)) == [
        "Be brief."
    ]


def test_a_run_of_an_agent_loses_its_task_and_nothing_else() -> None:
    trace, sent = played("semantic_kernel.truncation(target_count=5)", task(20), 10**6)
    assert sent[-1].messages == [task(20)[0], *steps(20)]
    assert trace.violation_counts[-1]


def test_a_summary_leaves_out_calls_and_results_and_stands_for_them() -> None:
    messages = [*said(1, 3), *steps(2), *said(2, 3)]
    sent = last("semantic_kernel.summarization(target_count=3)", messages, 10**6)
    assert sent[0].role == "assistant"
    assert "user 0" in sent[0].text
    assert "step" not in sent[0].text
    assert firsts(sent[1:]) == ["assistant 0", "user 1", "assistant 1"]
    spec = "semantic_kernel.summarization(target_count=3, include_function_content_in_summary=True)"
    assert "step 1" in last(spec, messages, 10**6)[0].text


def test_calls_alone_are_not_summarised() -> None:
    messages = [*steps(3), *said(1)]
    assert last("semantic_kernel.summarization(target_count=2)", messages, 10**6) == messages


def test_the_summary_is_written_again_at_every_request_though_nothing_was_added() -> None:
    trace, sent = played("semantic_kernel.summarization(target_count=4)", task(10), 10**6)
    summaries = [turn for turn, event in trace.context.events if event == "summary"]
    assert len(summaries) > 5
    assert {s.messages[1].text for s in sent[summaries[0] :]} == {"- user: Fix the bug"}


@given(messages=conversations() | strange_conversations())
def test_totals_are_true_and_the_system_prompt_stays(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    for name in ("truncation", "summarization"):
        spec = f"semantic_kernel.{name}(target_count=3, threshold_count=1)"
        trace, requests = run(prepare_messages(messages, counter), spec, 10**6)
        for sent, tokens in zip(requests, trace.tokens, strict=True):
            assert tokens == counter.count_request(sent.messages)
            if sent.position and messages[0].role == "system":
                assert sent.messages[0] == messages[0]


def test_a_target_of_nothing_is_refused_as_the_package_does() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        parse_strategy("semantic_kernel.truncation(target_count=0)")

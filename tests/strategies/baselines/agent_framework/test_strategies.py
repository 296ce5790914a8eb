"""Tests of the Microsoft Agent Framework baselines: groups of messages stay or go whole."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run
from small_talk import firsts, last, played, said, steps, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

AF = "agent_framework."


def test_truncation_counts_the_results_of_a_step_as_one() -> None:
    spec = AF + "truncation(max_n=6, compact_to=4)"
    assert len(last(spec, task(2, parallel=3), 10**6)) == 2 + 2 * 4
    assert firsts(last(spec, task(3), 10**6)) == [*("Be brief.", "step 2", "result 2")]


def test_truncation_can_keep_the_task() -> None:
    spec = AF + "truncation(max_n=6, compact_to=6, preserve_first_user_group=True)"
    trace, sent = played(spec, task(9), 10**6)
    assert all("Fix the bug" in s.texts for s in sent)
    assert not any(trace.violation_counts)


def test_truncation_never_leaves_nothing() -> None:
    spec = AF + "truncation(max_n=1, compact_to=1, preserve_system=False)"
    assert firsts(last(spec, task(3), 10**6)) == ["step 2", "result 2"]


def test_the_window_keeps_groups_and_system_messages() -> None:
    late = [*task(3), Message("user", "more"), Message("system", "Late."), *steps(1, 3)]
    sent = last(AF + "sliding_window(keep_last_groups=2)", late, 10**6)
    assert firsts(sent) == ["Be brief.", "more", "Late.", "step 3", "result 3"]
    sent = last(AF + "sliding_window(keep_last_groups=1, preserve_system=False)", late, 10**6)
    assert firsts(sent) == ["step 3", "result 3"]


def test_forty_messages_of_plain_steps_are_twenty_groups() -> None:
    window = last(AF + "sliding_window", task(30), 10**6)
    assert window == last("autogen.buffered", task(30), 10**6)


def test_older_steps_go_and_all_else_stays() -> None:
    messages = [*task(3), *said(1), *steps(2, 3)]
    sent = last(AF + "selective_tool_calls(keep_last_tool_call_groups=1)", messages, 10**6)
    assert firsts(sent) == [
        *("Be brief.", "Fix the", "user 0", "assistant 0", "step 4", "result 4")
    ]


def test_older_steps_become_a_quote_of_their_results() -> None:
    trace, sent = played(AF + "tool_results", task(3, lines=1), 10**6)
    assert firsts(sent[-1].messages, 4) == [
        *("Be brief.", "Fix the bug", "[Tool results: read: result"),
        *("[Tool results: read: result", "step 2", "result 2 a line"),
    ]
    assert sent[-1].messages[2].text == "[Tool results: read: result 0\na line of text]"
    assert not any(trace.violation_counts)


def test_a_quote_has_4096_characters_at_most() -> None:
    quote = last(AF + "tool_results", task(2, lines=2000), 10**6)[2].text
    assert len(quote) in (4095, 4096)
    assert quote.endswith("... [truncated]]")


def test_at_half_of_the_window_steps_are_folded_and_at_four_fifths_groups_go() -> None:
    spec = AF + "context_window(max_context_window_tokens=2000)"
    trace, sent = played(spec, task(60, lines=2), 10**6)
    folded = [any("[Tool results" in text for text in s.texts) for s in sent]
    gone = ["Fix the bug" not in s.texts for s in sent]
    assert False in folded
    assert folded.index(True) < gone.index(True)
    assert sum(map(bool, trace.violation_counts)) == sum(s.messages[1].role != "user" for s in sent)


def test_four_newest_steps_are_never_folded() -> None:
    sent = last(AF + "context_window(max_context_window_tokens=1400)", task(12), 10**6)
    assert firsts(sent)[-8:] == [f"{what} {i}" for i in range(8, 12) for what in ("step", "result")]


def test_a_summary_stands_for_all_but_the_newest_four_messages() -> None:
    trace, sent = played(AF + "summarization", said(6, 3), 10**6)
    assert sent[3].messages[0].role == "assistant"
    assert firsts(sent[-1].messages[1:])[-3:] == ["assistant 4", "user 5", "assistant 5"]
    assert trace.violation_counts[-1]  # it begins with the assistant


def test_a_group_too_long_for_the_summariser_is_passed_over_where_it_is_the_oldest() -> None:
    messages = [*steps(1, lines=3000), *steps(9, 1)]
    sent = last(AF + "summarization", messages, 10**6)
    assert firsts(sent)[:2] == ["step 0", "result 0"]
    assert len(sent) == 2 + 1 + 4


def test_behind_a_summary_such_a_group_ends_all_summarising_though_a_model_is_still_asked() -> None:
    messages = [Message("user", "go"), *steps(1, lines=3000), *steps(9, 1)]
    trace, sent = played(AF + "summarization", messages, 10**6)
    assert sent[-1].texts[0] == "- user: go"
    assert sent[-1].messages[1:] == messages[1:]
    assert len(trace.context.events) > 5


@given(
    messages=conversations(),
    limit=limits(),
    spec=st.sampled_from(
        [
            "context_window()",
            "truncation(max_n=4, compact_to=2)",
            "sliding_window(keep_last_groups=2)",
            "selective_tool_calls()",
            "tool_results(keep_last_tool_call_groups=2)",
            "summarization()",
        ]
    ),
)
def test_no_pair_is_ever_parted(
    messages: tuple[Message, ...], limit: int, spec: str, counter: TokenCounter
) -> None:
    trace, requests = run(prepare_messages(messages, counter), AF + spec, limit)
    for sent, tokens in zip(requests, trace.tokens, strict=True):
        assert tokens == counter.count_request(sent.messages)
        assert {v.rule for v in find_violations(sent.messages)} <= {"starts_with_user"}


@pytest.mark.parametrize(
    "spec",
    ["truncation(max_n=2, compact_to=3)", "sliding_window(keep_last_groups=0)", "summarization(0)"],
)
def test_what_the_package_refuses_is_refused(spec: str) -> None:
    with pytest.raises(SpecError, match="at least 1"):
        parse_strategy(AF + spec.replace("(0)", "(target_count=0)"))

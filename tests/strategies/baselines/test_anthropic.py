"""Tests of the baselines for Anthropic's context editing and compaction, as documented."""

from __future__ import annotations

from itertools import pairwise

from small_talk import firsts, last, played, steps, task

from ctxlab.messages.types import Message

CLEARED = "[tool result cleared]"


def cleared(messages: list[Message]) -> list[bool]:
    return [m.text == CLEARED for m in messages if m.role == "tool"]


def test_up_to_the_trigger_nothing_is_cleared_then_all_but_the_newest_three() -> None:
    spec, messages = "anthropic.clear_tool_uses(trigger=600)", task(30)
    trace, sent = played(spec, messages, 10**6)
    assert len(sent) == len(trace.tokens)
    whole, _ = played("full", messages, 10**6)
    for request, tokens in zip(sent, whole.tokens, strict=True):
        marks = cleared(request.messages)
        old = max(0, len(marks) - 3) if tokens > 600 else 0
        assert marks == [i < old for i in range(len(marks))]


def test_a_server_that_remembers_its_edits_clears_seldom() -> None:
    trigger = 3000
    options = f"trigger={trigger}, keep=0"
    (sticky, sent), (moving, _) = (
        played(f"anthropic.clear_tool_uses({options}, sticky={sticky})", task(30, lines=60), 10**6)
        for sticky in (True, False)
    )
    assert max(sticky.tokens) <= trigger
    edits = [
        sum(cleared(after.messages)) > sum(cleared(before.messages))
        for before, after in pairwise(sent)
    ]
    assert 0 < sum(edits) < len(edits) / 2
    assert sum(sticky.unchanged_prefix_tokens) > sum(moving.unchanged_prefix_tokens)


def test_by_default_it_begins_at_100_000_tokens() -> None:
    assert not any(cleared(last("anthropic.clear_tool_uses", task(60), 10**6)))
    assert sum(cleared(last("anthropic.clear_tool_uses", task(60, lines=600), 10**6))) == 57


def test_too_small_a_saving_clears_nothing() -> None:
    spec = "anthropic.clear_tool_uses(trigger=2, clear_at_least=300)"
    # A result has about 50 tokens.
    assert not any(cleared(last(spec, task(8), 10**6)))
    assert sum(cleared(last(spec, task(20), 10**6))) == 17


def test_excluded_tools_are_never_cleared() -> None:
    messages = [Message("user", "go"), *steps(6, tool="search"), *steps(6, 6, tool="read")]
    spec = "anthropic.clear_tool_uses(trigger=2, exclude_tools=('search',))"
    assert cleared(last(spec, messages, 10**6)) == [False] * 6 + [True] * 3 + [False] * 3


def test_inputs_are_cleared_on_request() -> None:
    spec = "anthropic.clear_tool_uses(trigger=2, clear_tool_inputs=True)"
    trace, sent = played(spec, task(6, parallel=2), 10**6)
    arguments = [[c.arguments for c in m.tool_calls] for m in sent[-1].messages if m.tool_calls]
    # Twelve uses: nine are cleared, and the fifth step's second call stays.
    assert [[a == "{}" for a in few] for few in arguments] == [
        *[[True, True]] * 4,
        [True, False],
        [False, False],
    ]
    assert not any(trace.violation_counts)
    plain = last("anthropic.clear_tool_uses(trigger=2)", task(6), 10**6)
    assert all("file" in c.arguments for m in plain for c in m.tool_calls)


def test_compaction_leaves_the_system_prompt_and_one_summary() -> None:
    spec = "anthropic.compaction(trigger=400)"
    trace, sent = played(spec, task(9), 10**6)
    assert firsts(sent[-1].messages[:2]) == ["Be brief.", "Summary of"]
    assert max(trace.tokens) < 400
    assert not any(trace.violation_counts)
    untouched = last("anthropic.compaction", task(50), 10**6)
    assert len(untouched) == 2 + 2 * 50

"""Tests of the baselines of pydantic-ai-harness on small conversations."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run
from small_talk import firsts, last, played, said, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

CLEARED, SUPERSEDED = "[tool result cleared]", "[superseded file read]"


def results(messages: list[Message]) -> list[str]:
    return [message.text.split("\n")[0] for message in messages if message.role == "tool"]


def test_above_the_threshold_all_results_but_the_newest_are_cleared() -> None:
    clear = "pydantic_ai_harness.clear_tool_results(max_fraction=None, max_tokens={}, keep_pairs=2)"
    messages = task(5)
    whole, _ = played("full", messages, 10**6)
    assert results(last(clear.format(whole.tokens[-1]), messages, 10**6))[0] == "result 0"
    assert results(last(clear.format(100), messages, 10**6)) == [
        *(CLEARED, CLEARED, CLEARED, "result 3", "result 4")
    ]


def test_nothing_is_cleared_to_save_less_than_the_minimum() -> None:
    clear = "pydantic_ai_harness.clear_tool_results(max_fraction=0.01, min_clear_tokens={})"
    assert CLEARED in results(last(clear.format(20), task(5), 10**4))
    assert CLEARED not in results(last(clear.format(2000), task(5), 10**4))


def test_only_an_earlier_read_of_the_same_file_is_blanked() -> None:
    messages = task(3)
    again = ToolCall("again", "read", '{"path": "src/file0.py"}')
    part = ToolCall("part", "read", '{"path": "src/file1.py", "offset": 7}')
    messages.append(Message("assistant", tool_calls=(again, part)))
    messages += [Message("tool", "result", tool_call_id=id) for id in ("again", "part")]
    assert results(last("pydantic_ai_harness.deduplicate_reads", messages, 10**6)) == [
        *(SUPERSEDED, "result 1", "result 2", "result", "result")
    ]


def test_the_summary_comes_last_and_only_if_clearing_does_not_suffice() -> None:
    tiered = "pydantic_ai_harness.tiered(target_tokens={}, keep_pairs=1, keep_messages=3)"
    messages = task(12)
    whole, _ = played("full", messages, 10**6)
    cleared = last(tiered.format(whole.tokens[-1] - 100), messages, 10**6)
    assert results(cleared)[0] == CLEARED
    assert not any("conversation_summary" in message.text for message in cleared)
    summarised = last(tiered.format(300), messages, 10**6)
    assert firsts(summarised, 1)[:3] == ["Be", "Fix", "<conversation_summary>"]
    assert summarised[1] == messages[1]


def test_a_conversation_has_one_summary_at_most() -> None:
    spec = "pydantic_ai_harness.tiered(target_tokens=300, keep_messages=4)"
    _, sent = played(spec, said(30), 10**6)
    for request in sent:
        summaries = [text for text in request.texts if text.startswith("<conversation_summary>")]
        assert len(summaries) <= 1
    assert sent[-1].messages[0] == said(30)[0]


def test_two_thresholds_are_refused() -> None:
    with pytest.raises(SpecError, match="at most one of target_tokens and target_fraction"):
        parse_strategy("pydantic_ai_harness.tiered(target_fraction=0.5)")


@given(messages=conversations(), limit=limits())
def test_pairs_stay_whole_and_totals_are_true(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    for spec in (
        "clear_tool_results(max_fraction=0.3)",
        "tiered(target_tokens=99, keep_messages=2)",
    ):
        prepared = prepare_messages(messages, counter)
        trace, requests = run(prepared, f"pydantic_ai_harness.{spec}", limit)
        assert not any(trace.violation_counts)
        for sent, tokens in zip(requests, trace.tokens, strict=True):
            assert tokens == counter.count_request(sent.messages)

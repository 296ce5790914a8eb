"""Tests of the baselines of OpenAI's Responses API, as documented."""

from __future__ import annotations

from small_talk import firsts, last, played, steps, task

from ctxlab.messages.types import Message


def test_truncation_drops_the_oldest_messages_but_not_the_instructions() -> None:
    messages = [*task(6), Message("user", "And now?")]
    size = played("full", messages, 10**6)[0].tokens[-1]
    for excess, dropped in ((0, 0), (1, 1), (20, 3)):  # the task, then a call with its result
        sent = last("openai.truncation_auto", messages, size - excess)
        assert sent == [messages[0], *messages[1 + dropped :]]


def test_the_newest_step_is_sent_even_if_it_does_not_fit() -> None:
    sent = last("openai.truncation_auto", [*task(3), *steps(1, first=3, lines=900)], 500)
    assert firsts(sent) == ["Be brief.", "step 3", "result 3"]


def test_compaction_leaves_the_instructions_and_one_item() -> None:
    trace, sent = played("openai.compact(trigger=400)", task(9), 10**6)
    assert firsts(sent[-1].messages[:2]) == ["Be brief.", "Summary of"]
    assert max(trace.tokens) < 400

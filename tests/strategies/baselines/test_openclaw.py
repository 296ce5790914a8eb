"""Tests of the OpenClaw baselines: pruning after a pause, server-side clearing, compaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from small_talk import COUNTER, firsts, last, played, steps, task

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import History
from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy

_PLACEHOLDER = "[Old tool result content cleared]"


def lengths(
    messages: list[Message], window: int, minutes: int, spec: str = "openclaw"
) -> list[int]:
    """Return the lengths of the tool results of a request that follows a pause."""
    context = Context(Budget(window), History(COUNTER, messages))
    start = datetime(2026, 11, 1, 9, tzinfo=UTC)
    for length, time in ((2, start), (len(messages), start + timedelta(minutes=minutes))):
        context.advance(length)
        context.set_time(time)
        context.commit_request(parse_strategy(spec)(context))
    return [len(m.text) for m in context.messages if m.role == "tool"]


def test_after_an_idle_hour_long_results_before_the_last_three_steps_are_trimmed() -> None:
    messages = task(6, lines=400)  # 6,000 characters each, 12,000 tokens together
    for minutes, trimmed in ((59, 0), (60, 3)):
        found = lengths(messages, 20_000, minutes)
        assert [length < 3200 for length in found] == [True] * trimmed + [False] * (6 - trimmed)


def test_below_three_tenths_of_the_window_nothing_is_trimmed() -> None:
    assert min(lengths(task(6, lines=400), 50_000, 60)) > 6000


def test_above_half_of_the_window_the_oldest_are_cleared_until_it_is_reached() -> None:
    messages = task(30, lines=400)  # 27 of them trimmed to 3,075 characters each
    found = lengths(messages, 40_000, 60)
    cleared = [length == len(_PLACEHOLDER) for length in found]
    assert cleared == sorted(cleared, reverse=True)
    assert 0 < sum(cleared) < 27
    # 17 results have 50,000 characters when they are trimmed; 16 have not.
    for number, clears in ((20, True), (19, False)):
        found = lengths(task(number, lines=400), 20_000, 60)
        assert (len(_PLACEHOLDER) in found) == clears


def test_a_reserve_of_a_quarter_of_the_window_is_only_guarded_when_the_user_speaks() -> None:
    spec = "openclaw(keep_recent_tokens=200)"
    assert played(spec, task(11), 1000)[0].context.events == []
    spoken = [*task(11), Message("assistant", "ok"), Message("user", "And now?")]
    sent = last(spec, spoken, 1000)
    assert firsts(sent)[1] == "Summary of"
    assert sent[-1].text == "And now?"


def test_with_a_key_the_api_clears_above_a_share_of_the_window() -> None:
    spec = "openclaw.api_key(min_trigger=400, keep_recent_tokens=200)"
    sent = last(spec, [*task(0), *steps(8)], 2000)
    texts = [m.text for m in sent if m.role == "tool"]
    assert ["cleared" in text for text in texts] == [True] * 5 + [False] * 3
    assert not any("cleared" in m.text for m in last(spec, [*task(0), *steps(8)], 4000))

"""Tests of the one-line representations of recordings and counters."""

from __future__ import annotations

from ctxlab.messages.types import Compaction, Message, Recording
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.profiles import UNCALIBRATED

TURN = (Message("user", "long " * 9000), Message("assistant", "ho"))


def test_a_recording_shows_itself_in_one_line() -> None:
    plain = Recording("a", TURN)
    assert repr(plain) == "<Recording a: 2 messages, 1 request>"
    compacted = Recording("b/c", TURN * 600, model="m", compactions=(Compaction(2), Compaction(4)))
    assert repr(compacted) == "<Recording b/c: 1,200 messages, 600 requests, m, 2 compactions>"


def test_a_counter_shows_how_far_it_can_be_trusted() -> None:
    assert repr(TokenCounter("gpt-4o", UNCALIBRATED)) == "TokenCounter('gpt-4o', exact)"
    claude = "claude-opus-4-5"
    assert repr(TokenCounter(claude, UNCALIBRATED)) == f"TokenCounter('{claude}', approximate)"
    assert repr(TokenCounter(claude)) == f"TokenCounter('{claude}', calibrated)"

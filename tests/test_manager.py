"""A live conversation is managed by the strategies of the lab, and sends what a replay would."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from generated import TOOLS, conversations, limits, tape_of
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS, run

from ctxlab import ContextManager, build_messages, count_tokens
from ctxlab.conversation import Message
from ctxlab.errors import SpecError
from ctxlab.tokens import TokenCounter

LIVE = [spec for spec in SPECS if "oracle" not in spec]


@given(messages=conversations(), limit=limits(), spec=st.sampled_from(LIVE))
def test_what_is_sent_live_is_what_a_replay_sends(
    messages: tuple[Message, ...], limit: int, spec: str, counter: TokenCounter
) -> None:
    tape = tape_of(messages, counter, TOOLS)
    trace, requests = run(tape, spec, tape.budget(limit))
    manager = ContextManager(spec, "gpt-4o", tools=TOOLS, limit=limit, reserve=0)
    position = 0
    for tokens, sent in zip(trace.tokens, requests, strict=True):
        manager.extend(messages[position : sent.position])
        position = sent.position
        assert manager.request() == [m.to_dict() for m in sent.messages]
        assert manager.tokens == tokens
    assert manager.events == trace.context.events


@given(messages=conversations(), limit=limits(), spec=st.sampled_from(LIVE))
def test_a_framework_that_hands_over_everything_each_time_gets_the_same(
    messages: tuple[Message, ...], limit: int, spec: str
) -> None:
    wire = [m.to_dict() for m in messages]
    live, synced = (ContextManager(spec, "gpt-4o", limit=limit, reserve=0) for _ in range(2))
    for end, message in enumerate(wire, 1):
        live.append(message)
        if message["role"] in ("user", "tool"):
            synced.sync(json.loads(json.dumps(wire[:end])))
            assert synced.request() == live.request()
    assert len(synced.history) <= len(live.history)


def test_a_conversation_that_was_edited_begins_anew() -> None:
    manager = ContextManager("rolling_summary() | panic()", "gpt-4o", limit=500, reserve=0)
    talk = [{"role": "user", "content": f"{i} " + "word " * 40} for i in range(30)]
    manager.sync(talk)
    assert manager.request()[1]["content"].startswith("Summary")
    manager.sync([*talk[:2], {"role": "user", "content": "Start over."}])
    assert [m["content"] for m in manager.request()][-1] == "Start over."
    assert len(manager.history) == 3


def test_what_a_strategy_left_alone_is_sent_as_it_was_given() -> None:
    given_: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        "thinking_blocks": [{"type": "thinking", "thinking": "…", "signature": "s"}],
        "_compacted": True,
    }
    manager = ContextManager("full", "gpt-4o")
    manager.extend([{"role": "user", "content": "Hello"}, given_])
    sent = manager.request()[1]
    assert sent == {key: value for key, value in given_.items() if key != "_compacted"}


def test_a_stub_carries_no_bookkeeping_to_the_model() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    manager = ContextManager("tool_stubs(keep=0)", "gpt-4o")
    manager.extend(
        [
            {"role": "user", "content": "Read"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "line\n" * 200},
        ]
    )
    assert "_compacted" not in json.dumps(manager.request())
    assert manager.left_out == [2]


def test_tool_definitions_and_the_reply_take_room() -> None:
    talk = [{"role": "user", "content": "word " * 30} for _ in range(50)]
    plain = build_messages("You are a test agent.", talk, limit=1000, reserve=0, model="gpt-4")
    tools = [*TOOLS] * 10
    fewer = build_messages(
        "You are a test agent.", talk, tools, limit=1000, reserve=0, model="gpt-4"
    )
    assert len(fewer) < len(plain)
    assert count_tokens(fewer, "gpt-4", tools) <= 1000
    reserved = build_messages("You are a test agent.", talk, limit=1000, reserve=400, model="gpt-4")
    assert count_tokens(reserved, "gpt-4") <= 600


def test_seed_002_messages_that_exceed_the_context_are_truncated_and_not_sent_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    huge = [{"role": "tool", "content": "x" * 50_000, "tool_call_id": "1"}] * 10
    with caplog.at_level(logging.WARNING):
        sent = build_messages("You are a test agent.", huge, model="gpt-4", strategy="panic()")
    assert count_tokens(sent, "gpt-4") < 8192
    assert sent[0] == {"role": "system", "content": "You are a test agent."}
    assert sent[-1]["role"] == "tool"
    assert "panic" in caplog.text


def test_a_request_that_is_too_large_all_the_same_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        build_messages(None, [{"role": "user", "content": "word " * 500}], limit=100, reserve=0)
    assert "tokens over the budget" in caplog.text


def test_a_strategy_that_asks_a_model_is_given_the_client_and_bad_ones_are_refused() -> None:
    with pytest.raises(SpecError, match="did you mean"):
        ContextManager("rolling_sumary()")
    with pytest.raises(ValueError, match="role"):
        ContextManager().append({"content": "who?"})


def test_what_happened_is_a_recording_again() -> None:
    manager = ContextManager("full", "gpt-4o", tools=TOOLS)
    manager.extend([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])
    recording = manager.recording("today")
    assert (recording.id, recording.model, recording.tools) == ("today", "gpt-4o", TOOLS)
    assert recording.requests == (1,)

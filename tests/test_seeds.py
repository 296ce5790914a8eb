"""Tests of the examples and acceptance criteria of the seed designs for strategies and model access.

The name of each test contains the seed and the section. The tests of each module cover the details.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from talking import talking

from ctxlab import ContextManager, build_messages, count_tokens, find_model
from ctxlab.context.turns import MAX_HEADLINE_CHARS, TurnLabel
from ctxlab.errors import ModelRequestRejected
from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import Request
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import tool_result_cap
from ctxlab.strategies.tool_stubs import STUB_KEY, make_stub

CALL = ToolCall("c1", "search_vault", '{"query": "notes"}')
SYSTEM = {"role": "system", "content": "You help with notes."}


def result(content: str) -> Message:
    return Message("tool", content, tool_call_id="c1")


def asked(text: str, size: int = 60) -> list[dict[str, Any]]:
    """Return a user message and a turn of an agent with one call."""
    call = CALL.to_dict() | {"id": f"call-{text}"}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": f"{text}: " + "found " * size, "tool_call_id": call["id"]},
        {"role": "assistant", "content": f"About {text}."},
    ]


# --- 000, hybrid session management ---------------------------------------------------------------


def test_000_a_stub_reads_as_the_example_of_the_design() -> None:
    """Seed 000, testing 4."""
    hits = [{"path": p, "text": "…" * 99} for p in ("Notes/foo.md", "Notes/bar.md", *"abc")]
    stub = make_stub(result(json.dumps({"results": hits})), CALL)
    assert stub is not None
    said = json.loads(stub.text)
    assert (said["tool"], said["status"], said["summary"]) == (
        "search_vault",
        "success",
        "5 results",
    )
    assert said["files"][:2] == ["Notes/foo.md", "Notes/bar.md"]


def test_000_a_failure_keeps_its_error_and_other_text_about_200_characters() -> None:
    failed = make_stub(
        result(json.dumps({"ok": False, "error": "no such note", "log": "x" * 500})), CALL
    )
    plain = make_stub(result("word " * 200), CALL)
    assert failed is not None
    assert plain is not None
    assert json.loads(failed.text)["error"] == "no such note"
    assert json.loads(failed.text)["status"] == "error"
    assert 150 < len(json.loads(plain.text)["summary"]) <= 200


def test_000_what_is_compacted_is_not_compacted_again_and_the_mark_is_never_sent() -> None:
    """Seed 000, testing 7."""
    stub = make_stub(result("word " * 200), CALL)
    assert stub is not None
    assert stub.extra[STUB_KEY]
    assert make_stub(stub, CALL) is None
    manager = ContextManager("tool_stubs()", "gpt-4o")
    manager.extend([SYSTEM, *asked("one"), {"role": "user", "content": "two"}])
    for _ in range(2):
        assert STUB_KEY not in json.dumps(manager.request())


def test_000_a_result_is_truncated_at_4000_characters_with_the_marker() -> None:
    """Seed 000, testing 6."""
    cap = tool_result_cap()
    assert cap.cut(result("x" * 4000), None) is None
    cut = cap.cut(result("x" * 4001), None)
    assert cut is not None
    assert cut.text == "x" * 4000 + "\n\n[truncated]"


def test_000_the_same_file_continues_another_starts_anew_and_switching_back_resumes() -> None:
    """Seed 000, testing 1; Seed 000, testing 2; Seed 000, testing 3."""
    manager = ContextManager("file_sessions(carry=0)", "gpt-4o")
    manager.append(SYSTEM)
    seen: list[list[str]] = []
    for text, file in (("hello", "a.md"), ("one", "a.md"), ("two", "b.md"), ("three", "a.md")):
        for wire in asked(text):
            if wire["role"] == "assistant" and wire.get("content"):
                sent = manager.request()
                seen.append([m["content"] for m in sent if m["role"] == "user"])
            message = message_from_dict(wire)
            manager.append(message.replace(file=file) if message.role == "user" else message)
    assert seen == [
        ["hello"],
        ["hello", "one"],
        ["hello", "two"],  # the task stays in every session; what was done for it does not
        ["hello", "one", "three"],
    ]


# --- 001, session chunking ------------------------------------------------------------------------


def test_001_the_newest_chunks_are_loaded_until_max_history_messages_are_there() -> None:
    talk = [{"role": "user", "content": str(i)} for i in range(100)]
    for length in range(1, 100):
        sent = build_messages(None, talk[:length], strategy="chunked_window(max_history=10)")
        texts = [m["content"] for m in sent]
        cut = len(texts) > 1 and texts[1] != "1"
        kept = texts[1:] if cut else texts  # the first message, the task, stays
        assert min(10, length) <= len(kept) <= 20
        assert kept == [str(i) for i in range(length - len(kept), length)]
        assert int(kept[0]) % 10 == 0 or length <= 20


# --- 002, robustness ------------------------------------------------------------------------------


def test_002_10_2_a_rate_limit_is_retried_three_times_at_most_with_a_growing_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002, criterion 2; Seed 002, scenario 1."""
    question = Request("openai/gpt-4o-mini", (Message("user", "test"),))
    with talking([429, 429, "Success"]) as server, caplog.at_level(logging.INFO, "ctxlab.llm"):
        client = LiteLLMClient(server.address, "k", retries=3, delay=0.01, backoff=2.0)
        reply = client.complete(question)
    assert reply.text == "Success"
    assert (reply.attempts, server.attempts) == (3, 3)
    assert caplog.text.count("429") >= 2


def test_002_10_2_a_wrong_key_is_refused_at_once() -> None:
    with talking([401]) as server:
        client = LiteLLMClient(server.address, "k", retries=3, delay=0.01)
        with pytest.raises(ModelRequestRejected):
            client.complete(Request("openai/gpt-4o-mini", (Message("user", "test"),)))
        assert server.attempts == 1


def test_002_10_5_tool_definitions_reduce_the_context_that_is_available() -> None:
    """Seed 002, scenario 4."""
    schema = {"type": "object", "properties": {f"field_{i}": {"type": "string"} for i in range(20)}}
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": schema}}
        for i in range(30)
    ]
    assert count_tokens([], "gpt-4", tools) > 3
    talk = [message for i in range(50) for message in asked(str(i))]
    without = build_messages("system", talk, model="gpt-4")
    tooled = build_messages("system", talk, tools, model="gpt-4")
    assert len(tooled) <= len(without)
    assert count_tokens(tooled, "gpt-4", tools) < 8192


def test_002_10_6_limits_are_those_of_the_model_and_not_a_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002, criterion 6."""
    model = "openrouter/google/gemini-3-flash-preview"
    assert find_model(model).limit == 1_048_576
    with caplog.at_level("INFO", "ctxlab.agent"):
        ContextManager(model=model)
    assert f"context limit of {model}: 1,048,576 tokens (litellm, " in caplog.text


def test_002_10_8_huge_results_are_cut_and_nothing_is_sent_that_overflows() -> None:
    """Seed 002, scenario 3."""
    huge = [{"role": "tool", "content": "x" * 50_000, "tool_call_id": "1"}] * 10
    for strategy in ("panic()", "rolling_summary() | panic()"):
        sent = build_messages("You are a test agent.", huge, model="gpt-4", strategy=strategy)
        assert count_tokens(sent, "gpt-4") < 8192
        assert sent[0] == {"role": "system", "content": "You are a test agent."}


# --- 003, table of contents -----------------------------------------------------------------------


def test_003_older_turns_are_numbered_lines_of_100_characters_at_most() -> None:
    """Seed 003, summaries."""
    talk = [
        SYSTEM,
        *(message for i in range(40) for message in asked(f"topic {i} " + "more " * 40)),
    ]
    sent = build_messages(None, talk, strategy="contents()", limit=4000, reserve=0)
    (block,) = (m["content"] for m in sent if "get_turn" in str(m["content"]))
    lines = [line for line in block.splitlines() if line[:1].isdigit()]
    labels = [TurnLabel.parse(line.split()[0]) for line in lines]
    every = [TurnLabel(turn, step) for turn in range(1, 41) for step in (1, 2)]
    assert labels == every[every.index(labels[0]) :][: len(labels)]
    assert all(len(line.split(" ", 1)[1]) <= MAX_HEADLINE_CHARS for line in lines)
    assert any("topic" in line for line in lines)
    assert find_violations([message_from_dict(m) for m in sent]) == []


# --- 004, workspace sessions ----------------------------------------------------------------------


def test_004_what_is_resumed_is_a_capped_summary_and_a_bounded_window_in_valid_order() -> None:
    talk = [SYSTEM, *(message for i in range(60) for message in asked(f"topic {i}", size=400))]
    strategy = (
        "tool_result_cap(chars=1000) | rolling_summary(trigger=0, keep_recent=20, tokens=300)"
    )
    sent = build_messages(None, talk, strategy=strategy, model="gpt-4o")
    summary, recent = sent[2], sent[3:]
    assert summary["content"].startswith("Summary")
    assert count_tokens(summary["content"], "gpt-4o") <= 320
    assert 0 < len(recent) <= 20
    assert all(len(m["content"] or "") <= 1000 + len("\n\n[truncated]") for m in recent)
    assert find_violations([message_from_dict(m) for m in sent]) == []

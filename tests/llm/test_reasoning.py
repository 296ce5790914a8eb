"""Hidden reasoning returns to the provider that needs it, in its own form, and to no other provider."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import Reply, Request
from ctxlab.llm.reasoning import (
    REASONING_RETURNS,
    STATE_KEY,
    find_reasoning_return,
    messages_with_reasoning,
)
from ctxlab.messages.openai_format import message_from_row, row_from_message
from ctxlab.messages.types import Message, ToolCall

LOOK = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": LOOK}},)
SENT_KEYS = ("thinking_blocks", "reasoning_content", "provider_specific_fields")


@contextmanager
def serving(body: Any, events: list[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a server with a fixed reply, whole and as a stream; yield its URL and the requests it got."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.append(request)
            streamed = request.get("stream") or "stream" in self.path.lower()
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/event-stream" if streamed else "application/json"
            )
            self.end_headers()
            if not streamed:
                self.wfile.write(json.dumps(body).encode())
                return
            for event in events:
                name = f"event: {event['type']}\n" if "type" in event else ""
                self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()


THINKING = {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "c2VjcmV0"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a.py"}}
CLAUDE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-8",
    "content": [THINKING, REDACTED, CALL],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 5, "output_tokens": 9},
}
CLAUDE_EVENTS = [
    {"type": "message_start", "message": {**CLAUDE, "content": []}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": ""},
    },
    *(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": t},
        }
        for t in ("Look ", "first.")
    ),
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "c2ln"},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": REDACTED},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {**CALL, "input": {}}},
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"path": "a.py"}'},
    },
    {"type": "content_block_stop", "index": 2},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
]
PART = {"functionCall": {"name": "look", "args": {"path": "a.py"}}, "thoughtSignature": "c2ln"}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [PART]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 9, "totalTokenCount": 14},
}
DEEPSEEK_CALL = {
    "id": "call_1",
    "type": "function",
    "index": 0,
    "function": {"name": "look", "arguments": '{"path": "a.py"}'},
}
DEEPSEEK_SAID = {
    "role": "assistant",
    "reasoning_content": "Look first.",
    "tool_calls": [DEEPSEEK_CALL],
}
DEEPSEEK = {
    "id": "m",
    "object": "chat.completion",
    "created": 1,
    "model": "deepseek-v4-flash",
    "choices": [
        {"index": 0, "message": {**DEEPSEEK_SAID, "content": None}, "finish_reason": "tool_calls"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14},
}
DEEPSEEK_EVENTS = [
    {
        "id": "m",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "deepseek-v4-flash",
        "choices": [{"index": 0, "delta": DEEPSEEK_SAID, "finish_reason": "tool_calls"}],
    }
]


def ask(model: str, url: str, messages: tuple[Message, ...], stream: bool) -> Message:
    """Send a request to a server on loopback, and return the reply's message."""
    client = LiteLLMClient(api_base=url, api_key="k", retries=0)
    request = Request(model, messages, TOOLS, max_tokens=5000)
    if not stream:
        return client.complete(request).message
    *_, reply = client.stream(request)
    assert isinstance(reply, Reply)
    return reply.message


def two_requests(
    model: str, body: Any, events: list[Any], stream: bool, later: str | None = None
) -> Any:
    """Get a reply with a tool call, store and load it, and return the request with the result."""
    asked = Message("user", "Where?")
    with serving(body, events) as (url, got):
        reply = message_from_row(
            json.loads(json.dumps(row_from_message(ask(model, url, (asked,), stream))))
        )
        result = Message("tool", "x = 1", tool_call_id=reply.tool_calls[0].id)
        ask(later or model, url, (asked, reply, result), stream)
    return got[-1]


@pytest.mark.e2e
@pytest.mark.parametrize("stream", [False, True])
def test_claude_gets_its_thinking_blocks_back_unchanged(stream: bool) -> None:
    sent = two_requests("anthropic/claude-opus-4-8", CLAUDE, CLAUDE_EVENTS, stream)
    content = sent["messages"][1]["content"]
    assert [part for part in content if "thinking" in part["type"]] == [THINKING, REDACTED]


@pytest.mark.e2e
@pytest.mark.parametrize("stream", [False, True])
def test_gemini_gets_the_signature_of_a_call_back_with_the_call(stream: bool) -> None:
    sent = two_requests("gemini/gemini-3-pro-preview", GEMINI, [GEMINI], stream)
    parts = [part for content in sent["contents"] for part in content["parts"]]
    (call,) = (part for part in parts if "functionCall" in part or "function_call" in part)
    assert call["thoughtSignature"] == "c2ln"
    assert json.dumps(sent).count("c2ln") == 1  # not in the id of the call, too


@pytest.mark.e2e
@pytest.mark.parametrize("stream", [False, True])
def test_deepseek_gets_the_reasoning_of_a_reply_with_calls_back(stream: bool) -> None:
    sent = two_requests("deepseek/deepseek-v4-flash", DEEPSEEK, DEEPSEEK_EVENTS, stream)
    assert sent["messages"][1]["reasoning_content"] == "Look first."


@pytest.mark.e2e
def test_another_provider_gets_no_reasoning() -> None:
    sent = two_requests(
        "deepseek/deepseek-v4-flash", DEEPSEEK, DEEPSEEK_EVENTS, False, later="openai/gpt-4o"
    )
    assert "Look first." not in json.dumps(sent)


MODELS = (
    *("claude-opus-4-8", "bedrock/anthropic.claude-opus-4-8", "gemini/gemini-3-pro", "gpt-5"),
    *("deepseek/deepseek-v4-flash", "deepseek/deepseek-v3.2", "moonshot/kimi-k2.6", "zai/glm-4.7"),
    *("openai/gpt-4o", "openrouter/anthropic/claude-opus-4-8", "ollama/qwen3", "xai/grok-4"),
)
PROVIDERS = sorted({name for rule in REASONING_RETURNS for name in rule.providers} | {"openai"})
STATES = st.fixed_dictionaries(
    {"provider": st.sampled_from(PROVIDERS)},
    optional={
        "thinking_blocks": st.just([THINKING]),
        "signatures": st.just(["s"]),
        "call_signatures": st.just(["s"]),
    },
)
REPLIES = st.builds(
    lambda calls, reasoning, state: Message(
        "assistant", "Yes.", calls, reasoning=reasoning, extra={STATE_KEY: state}
    ),
    st.sampled_from([(), (ToolCall("c1", "look"),)]),
    st.sampled_from([None, "Hm."]),
    STATES,
)


@given(st.lists(st.just(Message("user", "Go on.")) | REPLIES), st.sampled_from(MODELS))
def test_only_the_provider_that_thought_gets_its_reasoning(
    messages: list[Message], model: str
) -> None:
    rule = find_reasoning_return(model)
    for message, wire in zip(messages, messages_with_reasoning(messages, model), strict=True):
        added = [key for key in SENT_KEYS if key in wire]
        added += [key for call in wire.get("tool_calls", ()) for key in SENT_KEYS if key in call]
        if added:
            assert rule is not None
            assert message.extra[STATE_KEY]["provider"] in rule.providers
        bare = {key: value for key, value in wire.items() if key not in SENT_KEYS}
        bare_calls = [call.to_dict() for call in message.tool_calls]
        assert bare | ({"tool_calls": bare_calls} if bare_calls else {}) == message.to_dict()


def test_reasoning_of_an_earlier_turn_is_sent_only_where_the_provider_keeps_it() -> None:
    for model, expected in (("deepseek/deepseek-v4-pro", [1, 3]), ("deepseek/deepseek-v3.2", [3])):
        reply = Message(
            *("assistant", "Yes.", (ToolCall("c1", "look"),)),
            reasoning="Hm.",
            extra={STATE_KEY: {"provider": "deepseek"}},
        )
        asked = Message("user", "Go on.")
        sent = messages_with_reasoning([asked, reply, asked, reply], model)
        assert [i for i, wire in enumerate(sent) if "reasoning_content" in wire] == expected

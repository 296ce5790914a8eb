"""Images of tool results are sent in the form that the provider accepts."""

from __future__ import annotations

import pytest
from talking import talking

from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import Request
from ctxlab.llm.tool_images import move_tool_images
from ctxlab.messages.types import Message, ToolCall

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
PIXEL += "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
CALLS = tuple(ToolCall(id, "look", "{}") for id in ("c1", "c2"))
SEEN = ({"type": "text", "text": "seen"}, IMAGE)
MESSAGES = (
    Message("user", "look twice"),
    Message("assistant", None, tool_calls=CALLS),
    Message("tool", SEEN, tool_call_id="c1"),
    Message("tool", "nothing there", tool_call_id="c2"),
)


def test_openai_gets_the_images_after_the_last_result_of_the_reply() -> None:
    with talking("It is red.") as server:
        client = LiteLLMClient(api_base=server.address, api_key="k")
        client.complete(Request("openai/gpt-5", MESSAGES))
    sent = server.calls[0].body["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[2]["content"] == "seen\n[The image follows in the next message]"
    assert sent[3]["content"] == "nothing there"
    text, image = sent[4]["content"]
    assert "c1" in text["text"]
    assert image == IMAGE


def test_a_message_between_two_results_is_never_added() -> None:
    wire = [each.to_dict() for each in (*MESSAGES[1:], Message("assistant", "Red."))]
    roles = [each["role"] for each in move_tool_images(wire, "gpt-5")]
    assert roles == ["assistant", "tool", "tool", "user", "assistant"]


@pytest.mark.parametrize("model", ["claude-opus-4-8", "anthropic/claude-opus-4-8"])
def test_anthropic_gets_the_images_in_the_result(model: str) -> None:
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig

    wire = move_tool_images([each.to_dict() for each in MESSAGES], model)
    assert wire == [each.to_dict() for each in MESSAGES]
    body = AnthropicConfig().transform_request(model, wire, {}, {}, {})
    result = body["messages"][2]["content"][0]
    assert [part["type"] for part in result["content"]] == ["text", "image"]


def test_gemini_3_gets_the_images_in_the_result() -> None:
    wire = [each.to_dict() for each in MESSAGES]
    assert move_tool_images(wire, "gemini/gemini-3-pro") == wire
    assert len(move_tool_images(wire, "gemini/gemini-2.5-pro")) == 5


def test_the_given_messages_are_not_changed() -> None:
    wire = [each.to_dict() for each in MESSAGES]
    move_tool_images(wire, "gpt-5")
    assert wire == [each.to_dict() for each in MESSAGES]

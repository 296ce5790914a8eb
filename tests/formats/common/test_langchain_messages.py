"""Tests that a LangChain message reads the same in each of its serialized forms."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ctxlab.formats.common.langchain_messages import message_from_langchain
from ctxlab.messages.types import Message, ToolCall, Usage

CALL = {"name": "ls", "args": {"path": "."}, "id": "c", "type": "tool_call"}
TAKEN = (ToolCall("c", "ls", '{"path":"."}'),)


def read(value: Any) -> Message:
    return message_from_langchain(value, lambda reason: pytest.fail(reason))


def read_and_lost(value: Any) -> tuple[Message, Counter[str]]:
    lost: Counter[str] = Counter()
    return message_from_langchain(value, lambda reason: lost.update([reason])), lost


def constructor(name: str, **kwargs: Any) -> dict[str, Any]:
    id = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": id, "kwargs": kwargs}


@pytest.mark.parametrize(
    "form",
    [
        constructor("AIMessageChunk", content="hi", type="AIMessageChunk"),
        {"type": "ai", "data": {"content": "hi", "type": "ai", "response_metadata": {}}},
        {"type": "ai", "content": "hi", "additional_kwargs": {}},
        {"type": "chat", "role": "assistant", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
    ],
)
def test_every_form_is_the_same_message(form: Any) -> None:
    assert read(form) == Message("assistant", "hi")


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_calls": [CALL]},
        {"tool_calls": [CALL], "content": [{"type": "tool_use", "id": "c", "name": "ls"}]},
        {"tool_calls": [CALL], "content": [{"type": "input_json_delta", "partial_json": "{"}]},
        {"content": [{"type": "tool_use", "id": "c", "name": "ls", "input": {"path": "."}}]},
        {
            "tool_calls": [CALL],
            "additional_kwargs": {"tool_calls": [{"id": "c", "function": {"name": "ls"}}]},
        },
        {
            "additional_kwargs": {
                "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": '{"path":"."}'}}]
            }
        },
    ],
)
def test_a_call_that_is_said_three_times_is_one(fields: dict[str, Any]) -> None:
    assert read(constructor("AIMessage", **{"content": ""} | fields)).tool_calls == TAKEN


def test_a_call_whose_arguments_are_no_json_keeps_its_text() -> None:
    broken = {"name": "ls", "args": '{"path', "id": "d", "error": "cut"}
    message = read(constructor("AIMessage", tool_calls=[CALL], invalid_tool_calls=[broken]))
    assert message.tool_calls == (*TAKEN, ToolCall("d", "ls", '{"path'))


def test_a_function_call_goes_by_its_name() -> None:
    call = {"function_call": {"name": "ls", "arguments": "{}"}}
    assert read({"type": "ai", "content": "", "additional_kwargs": call}).tool_calls[0].id == "ls"
    assert read({"type": "function", "name": "ls", "content": "a"}).tool_call_id == "ls"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning_content", "reasoning_content": {"text": "hm"}},
    ],
)
def test_thinking_is_no_content(block: dict[str, Any]) -> None:
    message = read({"type": "ai", "content": [block, {"type": "text", "text": "hi"}]})
    assert (message.content, message.reasoning) == ("hi", "hm")
    kwargs = {"reasoning_content": "hm"}
    assert read({"type": "ai", "content": "", "additional_kwargs": kwargs}).reasoning == "hm"


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "image_url", "image_url": "data:image/png;base64,AA"},
        {"type": "image", "base64": "AA", "mime_type": "image/png"},
        {"type": "image", "source_type": "base64", "data": "AA", "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
    ],
)
def test_images_of_every_api_are_one(image: dict[str, Any]) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert read({"type": "human", "content": [image]}).content == (part,)


def test_usage_tells_the_cached_from_the_others() -> None:
    details = {"cache_read": 30, "cache_creation": 0, "ephemeral_5m_input_tokens": 8}
    usage = {"input_tokens": 50, "output_tokens": 9, "input_token_details": details}
    message = read({"type": "ai", "content": "", "usage_metadata": usage})
    assert message.usage == Usage(input=12, cache_read=30, cache_write=8, output=9)
    told = {"token_usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    older = read({"type": "ai", "content": "", "response_metadata": told})
    assert older.usage == Usage(input=7, output=1)


def test_a_failed_result_says_so_and_its_artifact_is_counted() -> None:
    form = constructor("ToolMessage", content="no", tool_call_id="c", status="error", artifact=1)
    message, lost = read_and_lost(form)
    assert message == Message("tool", "no", tool_call_id="c", extra={"is_error": True})
    assert lost == {"artifact of a tool result": 1}


def test_what_has_no_place_is_counted_by_its_type() -> None:
    content = [{"type": "server_tool_use", "name": "search"}, {"type": "file", "file_id": "f"}]
    message, lost = read_and_lost({"type": "ai", "content": content})
    assert message.content is None
    assert lost == {"block of type server_tool_use": 1, "block of type file": 1}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("hi", "a message must be an object, got str"),
        ({"type": "remove", "data": {"id": "1"}}, "got 'remove'"),
        (constructor("AIMessage") | {"kwargs": None}, "must be an object, got NoneType"),
        ({"type": "ai", "content": [1]}, "a block of content must be an object, got int"),
        ({"type": "ai", "content": "", "tool_calls": 1}, "tool_calls must be a list, got int"),
    ],
)
def test_what_is_wrong_is_said(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(value)

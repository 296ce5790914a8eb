"""Tests of recorded HTTP traffic: model calls are read as a request log without their wrappers."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.formats import load
from ctxlab.messages.types import Recording, Usage

ASK = {"role": "user", "content": 'Read "a.py"\nnow – please.'}
CALL = {"id": "c1", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x = 'C:\\new'\n"}
DONE = {"role": "assistant", "content": "One line."}
USAGE = {"prompt_tokens": 9, "completion_tokens": 2}
BODIES = [
    {"model": "gpt-5", "messages": [ASK]},
    {"model": "gpt-5", "messages": [ASK, CALLED, RESULT]},
]
ANSWERS = [{"choices": [{"message": each}], "usage": USAGE} for each in (CALLED, DONE)]
PAIRS: list[tuple[Any, Any]] = list(zip(BODIES, ANSWERS, strict=True))


def as_bytes(value: Any) -> str:
    return repr(json.dumps(value, ensure_ascii=False).encode())[2:-1]


def as_base64(value: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(value).encode())).decode()


def exchanges(key: str, encode: Callable[[Any], Any]) -> list[Any]:
    return [
        {"request": {"method": "POST", key: encode(sent)}, "response": {key: encode(got)}}
        for sent, got in PAIRS
    ]


def har_entry(sent: Any, got: Any) -> Any:
    response = {"content": {"text": as_base64(got), "encoding": "base64"}}
    return {"request": {"postData": {"text": json.dumps(sent)}}, "response": response}


WRAPPERS: dict[str, list[Any]] = {
    "objects": exchanges("body", lambda value: value),
    "strings": exchanges("body", json.dumps),
    "lists": [exchanges("body", json.dumps)],
    "VCR": [{"version": 1, "interactions": exchanges("body", lambda v: {"string": json.dumps(v)})}],
    "Betamax": [
        {"http_interactions": exchanges("body", lambda v: {"base64_string": as_base64(v)})}
    ],
    "HAR": [{"log": {"entries": [har_entry(*pair) for pair in PAIRS]}}],
    "mitmproxy": exchanges("content", as_bytes),
    "mitmproxy in Base64": exchanges("content", as_base64),
    "Bedrock": [
        {"recordId": str(n), "modelInput": sent, "modelOutput": got}
        for n, (sent, got) in enumerate(PAIRS)
    ],
    "LiteLLM": [
        {"messages": json.dumps(sent["messages"]), "model": "gpt-5", "response": json.dumps(got)}
        for sent, got in PAIRS
    ],
    "LiteLLM's proxy": [
        {"messages": {}, "proxy_server_request": {"body": sent}, "response": got}
        for sent, got in PAIRS
    ],
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_log_becomes_the_conversation_said_once(
    read: Callable[..., list[Recording]], name: str
) -> None:
    (found,) = read(*WRAPPERS[name])
    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert [m.content for m in found.messages] == [
        ASK["content"],
        None,
        RESULT["content"],
        "One line.",
    ]
    assert [m.usage for m in found.messages[1::2]] == [Usage(input=9, output=2)] * 2
    assert (found.format, found.model, found.skipped) == ("openai", "gpt-5", {})


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ({"recorded_at": "Thu, 01 Jan 1970 00:01:00 GMT"}, 60),
        ({"startedDateTime": "1970-01-01T00:01:00.000Z"}, 60),
        ({"startTime": 1_700_000_000_000}, 1_700_000_000),
    ],
)
def test_the_time_of_an_exchange_is_that_of_its_answer(
    read: Callable[..., list[Recording]], time: dict[str, Any], seconds: float
) -> None:
    (found,) = read(exchanges("body", json.dumps)[0] | time)
    assert found.messages[1].time == seconds


def test_the_counts_of_a_spend_log_are_the_usage_if_the_response_has_none(
    read: Callable[..., list[Recording]],
) -> None:
    response = {"choices": [{"message": DONE}]}
    (found,) = read({"messages": json.dumps([ASK]), "response": response, **USAGE})
    assert found.messages[1].usage == Usage(input=9, output=2)


def test_a_page_of_spend_logs_is_read_from_the_oldest_request(
    read: Callable[..., list[Recording]],
) -> None:
    page = [
        {"request_id": str(n), "call_type": "acompletion", "spend": 0, "startTime": f"2025-01-0{n}"}
        | {"messages": "{}", "proxy_server_request": json.dumps(sent), "response": got}
        for n, (sent, got) in enumerate(PAIRS, start=1)
    ]
    (found,) = read({"data": page[::-1], "total": 2})
    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.skipped == {}


def test_exchanges_with_other_services_are_counted(read: Callable[..., list[Recording]]) -> None:
    other = {
        "request": {"method": "GET", "uri": "/v1/models", "body": None},
        "response": {"body": ""},
    }
    (found,) = read({"interactions": [other, *exchanges("body", json.dumps), other]})
    assert found.skipped == {"exchange without chat messages": 2}
    assert len(found.messages) == 4


def test_a_failed_exchange_is_counted(read: Callable[..., list[Recording]]) -> None:
    refused = exchanges("body", json.dumps)[0] | {"response": {"body": '{"error": "overloaded"}'}}
    (found,) = read(refused, *exchanges("body", json.dumps))
    assert found.skipped == {"response without a message": 1, "request made again": 1}
    assert len(found.messages) == 4


@pytest.mark.parametrize("kind", ["openai", "anthropic", "LiteLLM"])
def test_a_body_that_is_longer_than_the_head_is_recognised_by_its_endpoint(
    read: Callable[..., list[Recording]], kind: str
) -> None:
    body = json.dumps(
        {"model": "m", "messages": [ASK, DONE, {"role": "user", "content": "x" * 300_000}]}
    )
    url = {
        "openai": "https://example.com/v1/chat/completions",
        "anthropic": "/v1/messages?beta=true",
    }
    if kind == "LiteLLM":
        row = {
            "request_id": "r",
            "call_type": "acompletion",
            "spend": 0,
            "proxy_server_request": body,
        }
        (found,) = read(row | {"response": {}})
    else:
        request = {"method": "POST", "uri": url[kind], "body": body}
        (found,) = read({"interactions": [{"request": request, "response": {"body": "{}"}}]})
    assert found.format == ("anthropic" if kind == "anthropic" else "openai")
    assert len(found.messages) == 3


def stream(*events: Any) -> str:
    return "".join(f"event: x\r\ndata: {json.dumps(event)}\r\n\r\n" for event in events)


def test_a_streamed_completion_is_assembled(read: Callable[..., list[Recording]]) -> None:
    def chunk(**delta: Any) -> dict[str, Any]:
        return {"created": 17, "choices": [{"index": 0, "delta": delta}]}

    def call(index: int, **function: str) -> dict[str, Any]:
        id = {"id": f"c{index}"} if "name" in function else {}
        return chunk(tool_calls=[{"index": index, "function": function, **id}])

    text = stream(
        chunk(role="assistant", reasoning_content="hm"),
        chunk(content="I "),
        chunk(content="read."),
        call(0, name="read", arguments=""),
        call(0, arguments='{"path":'),
        call(1, name="ls", arguments="{}"),
        call(0, arguments=' "a.py"}'),
        {"choices": [], "usage": USAGE},
    )
    row = {"request": {"body": BODIES[0]}, "response": {"body": text + "data: [DONE]\n\n"}}
    (_, answer) = read(row)[0].messages
    assert (answer.content, answer.reasoning, answer.time) == ("I read.", "hm", 17)
    calls = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
    assert calls == [("c0", "read", '{"path": "a.py"}'), ("c1", "ls", "{}")]
    assert answer.usage == Usage(input=9, output=2)


def test_a_streamed_message_is_assembled(read: Callable[..., list[Recording]]) -> None:
    def delta(index: int, kind: str, **values: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind} | values}

    def start(index: int, **block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    text = stream(
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        start(0, type="thinking", thinking=""),
        delta(0, "thinking_delta", thinking="hm"),
        start(1, type="text", text=""),
        delta(1, "text_delta", text="I "),
        delta(1, "text_delta", text="read."),
        start(2, type="tool_use", id="t1", name="read", input={}),
        delta(2, "input_json_delta", partial_json='{"path":'),
        delta(2, "input_json_delta", partial_json='"a.py"}'),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 8},
        },
        {"type": "message_stop"},
    )
    body = {"model": "claude", "system": "Be brief.", "messages": [ASK]}
    (found,) = read({"request": {"body": body}, "response": {"body": text}})
    answer = found.messages[2]
    assert (answer.content, answer.reasoning) == ("I read.", "hm")
    assert [(c.id, c.name, c.arguments) for c in answer.tool_calls] == [
        ("t1", "read", '{"path":"a.py"}')
    ]
    assert answer.usage == Usage(input=5, output=8)
    assert found.format == "anthropic"


def recorder_files(calls: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Return the calls as rows of a request log, and as files of recorders."""
    url = "https://example.com/v1/chat/completions"
    vcr = [
        {
            "request": {"uri": url, "body": json.dumps(sent)},
            "response": {"body": {"string": json.dumps(got)}},
        }
        for sent, got in calls
    ]
    flows = [
        {"request": {"content": as_bytes(sent)}, "response": {"content": as_bytes(got)}}
        for sent, got in calls
    ]
    return {
        "plain": [{"request": sent, "response": got} for sent, got in calls],
        "VCR": [{"interactions": vcr}],
        "mitmproxy": flows,
        "HAR": [{"log": {"entries": [har_entry(*call) for call in calls]}}],
    }


@pytest.mark.recordings(smoke=True)
@pytest.mark.parametrize("name", ["VCR", "mitmproxy", "HAR"])
def test_real_calls_are_the_same_recordings_with_and_without_wrappers(
    data: Path, tmp_path: Path, name: str
) -> None:
    folder = data / "openhands"
    if not folder.is_dir():
        pytest.skip("the folder of real recordings has no OpenHands calls")
    calls = []
    for path in sorted(folder.rglob("*.json"))[:6]:
        call = json.loads(path.read_bytes())
        if isinstance(call, dict) and "messages" in call and "response" in call:
            calls.append(({"model": "m", "messages": call["messages"]}, call["response"]))
    files = recorder_files(calls)
    found = []
    for kind in ("plain", name):
        path = tmp_path / f"{kind}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in files[kind]))
        found.append([(r.messages, r.compactions, r.tools) for r in load(path)])
    assert found[0]
    assert found[0] == found[1]

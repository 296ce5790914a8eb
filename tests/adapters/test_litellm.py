"""Tests of the litellm adapter: chat completions are edited, other calls are not changed."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest
from talking import talking

from ctxlab.adapters.litellm import ContextHook
from ctxlab.llm import ScriptedClient
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.validation import find_violations

SAID = [
    {"role": role, "content": f"{role} {i} " + "word " * 60}
    for i in range(12)
    for role in ("user", "assistant")
]
TALK: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, *SAID[:-1]]


@pytest.mark.e2e
@pytest.mark.filterwarnings("default")
def test_a_call_that_goes_out_holds_the_managed_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        litellm, "callbacks", [ContextHook("rolling_summary() | panic()", limit=600, reserve=0)]
    )
    with talking("Done.") as server:
        reply: Any = asyncio.run(
            litellm.acompletion(
                "openai/gpt-4o", messages=TALK, api_base=server.address, api_key="k", num_retries=0
            )
        )
        (call,) = server.calls
    assert reply.choices[0].message.content == "Done."
    assert call.messages[0].text == "Be brief."
    assert call.messages[2].text.startswith("Summary of")
    assert call.messages[-1].text == TALK[-1]["content"]
    assert call.violations == []
    assert call.prompt <= 600


def test_chat_completions_alone_are_managed() -> None:
    hook = ContextHook("sliding_window(messages=4)")
    data = {"model": "gpt-4o", "messages": TALK, "temperature": 0.5}
    managed = asyncio.run(hook.async_pre_call_deployment_hook(data, "acompletion"))
    assert managed["temperature"] == 0.5
    assert len(managed["messages"]) < len(TALK) == len(data["messages"])
    assert managed["messages"][-1] is TALK[-1]
    assert find_violations([message_from_dict(m) for m in managed["messages"]], "openai") == []
    other = {"model": "e", "input": ["text"]}
    assert asyncio.run(hook.async_pre_call_deployment_hook(other, "aembedding")) is other


def test_a_conversation_is_remembered_through_all_hooks_of_a_request() -> None:
    client = ScriptedClient(lambda _: "## Goal\nRead.")
    hook = ContextHook(
        "rolling_summary(model='gpt-4o') | panic", limit=2000, reserve=0, client=client
    )

    async def turn(messages: list[dict[str, Any]]) -> None:
        data: dict[str, Any] = {"model": "gpt-4o", "messages": messages}
        # The proxy calls the first; a try that failed is made again with what it was made with.
        data = await hook.async_pre_call_hook(None, None, data, "acompletion") or data
        for _ in range(2):
            data = await hook.async_pre_call_deployment_hook(data, "acompletion")

    for end in range(2, 80, 2):
        words = [dict(m, content=f"{i} {m['content']}") for i, m in enumerate(SAID * 4)]
        asyncio.run(turn([TALK[0], *words[: end - 1]]))
    assert 2 <= len(client.requests) <= 6
    assert len(hook._conversations._conversations) == 1


def test_a_router_manages_a_request_once_and_for_the_model_that_it_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = ContextHook("panic()")
    monkeypatch.setattr(litellm, "callbacks", [hook])
    long = [{"role": "user", "content": f"{i} " + "word " * 600} for i in range(30)]
    with talking("Done.") as server:
        params = {"model": "openai/gpt-4", "api_base": server.address, "api_key": "k"}
        router = litellm.Router([{"model_name": "mine", "litellm_params": params}], num_retries=0)
        asyncio.run(router.acompletion("mine", messages=long))
        (call,) = server.calls
    (known,) = hook._conversations._conversations
    assert known.model == "openai/gpt-4"
    assert known.manager.recording("r").request_positions == ()
    assert len(known.received) == 30
    assert call.prompt <= 8192


def test_a_reply_as_litellm_gave_it_and_a_role_of_a_providers_own_are_taken() -> None:
    hook = ContextHook("observation_mask(keep=0)", "gpt-4o")
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Go"},
        litellm.Message(role="assistant", content=None, tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c", "content": "line\n" * 99, "cache_control": {"a": 1}},
        {"role": "critic", "content": "Why?"},
        {"role": "user", "content": "Go on"},
    ]
    data = {"model": "gpt-4o", "messages": said}
    sent = asyncio.run(hook.async_pre_call_deployment_hook(data, "acompletion"))["messages"]
    assert [a is b for a, b in zip(sent, said, strict=True)] == [True] * 3 + [False] + [True] * 2
    assert sent[3]["content"].startswith("[output left out")
    assert sent[3]["cache_control"] == {"a": 1}


def test_messages_that_are_out_of_reach_are_said(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(ContextHook().async_pre_call_deployment_hook({"model": "m"}, "acompletion"))
    assert "by keyword" in caplog.text

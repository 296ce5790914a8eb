"""Every call through litellm is managed before it is made; what is no chat completion is left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest
from talking import talking

from ctxlab.adapters.litellm import ContextHook
from ctxlab.conversation import Message
from ctxlab.validity import check

SAID = [
    {"role": role, "content": f"{role} {i} " + "word " * 60}
    for i in range(12)
    for role in ("user", "assistant")
]
TALK: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, *SAID[:-1]]


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


def test_the_proxys_hook_manages_chat_completions_alone() -> None:
    hook = ContextHook("sliding_window(messages=4)")
    data = {"model": "gpt-4o", "messages": TALK, "temperature": 0.5}
    managed = asyncio.run(hook.async_pre_call_hook(None, None, data, "completion"))
    assert managed["temperature"] == 0.5
    assert len(managed["messages"]) < len(TALK) == len(data["messages"])
    assert managed["messages"][-1] is TALK[-1]
    assert check([Message.from_dict(m) for m in managed["messages"]], "openai") == []
    other = {"model": "e", "input": ["text"]}
    assert asyncio.run(hook.async_pre_call_hook(None, None, other, "embeddings")) is other


def test_messages_that_are_out_of_reach_are_said(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(ContextHook().async_pre_call_deployment_hook({"model": "m"}, "acompletion"))
    assert "by keyword" in caplog.text

"""A LangChain agent runs to its end while its model sees what the strategy makes of its messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ctxlab.conversation import Message
from ctxlab.tokens import TokenCounter
from ctxlab.validity import check

pytest.importorskip("langchain", reason="langchain is not installed: pip install 'ctxlab[test]'")

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult

from ctxlab.adapters.langchain import ContextMiddleware

STEPS = 12


class Scripted(BaseChatModel):
    """Calls the tool a dozen times, then says it is done; remembers what it was asked."""

    asked: list[list[BaseMessage]]
    tools: list[Any]

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages)
        step = len(self.asked)
        calls = [{"name": "read", "args": {"path": f"src/{step}.py"}, "id": f"c{step}"}]
        said = AIMessage(
            "" if step <= STEPS else "Done.", tool_calls=calls if step <= STEPS else []
        )
        return ChatResult(generations=[ChatGeneration(message=said)])

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.tools.extend(tools)
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"


def read(path: str) -> str:
    """Reads a file."""
    return f"{path}\n" + "line of text\n" * 100


def ours(messages: list[BaseMessage]) -> list[Message]:
    return [Message.from_dict(m) for m in convert_to_openai_messages(messages)]


@pytest.mark.parametrize("in_async", [False, True])
def test_the_model_sees_a_managed_context_and_the_state_keeps_everything(in_async: bool) -> None:
    model = Scripted(asked=[], tools=[])
    middleware = ContextMiddleware("observation_mask(keep=2) | panic()", "gpt-4o", limit=2000)
    agent = create_agent(model, tools=[read], system_prompt="You read.", middleware=[middleware])
    asked = {"messages": [{"role": "user", "content": "Read them all."}]}
    config: Any = {"recursion_limit": 100}
    state = asyncio.run(agent.ainvoke(asked, config)) if in_async else agent.invoke(asked, config)
    assert state["messages"][-1].content == "Done."
    results = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    assert len(results) == STEPS
    assert all(len(m.content) > 1000 for m in results)
    counter = TokenCounter("gpt-4o")
    for sent in map(ours, model.asked):
        assert check(sent) == []
        assert counter.request(sent) <= 2000
        long = [m for m in sent if m.role == "tool" and len(m.text) > 1000]
        assert len(long) <= 2
    assert ours(model.asked[-1])[0].text == "You read."


def test_what_is_left_alone_is_the_very_message_and_tools_take_room() -> None:
    model = Scripted(asked=[], tools=[])
    middleware = ContextMiddleware("full", "gpt-4o")
    agent = create_agent(model, tools=[read], middleware=[middleware])
    state = agent.invoke({"messages": [("user", "Go")]}, {"recursion_limit": 100})
    assert all(any(sent is kept for kept in state["messages"]) for sent in model.asked[-1])
    (known,) = middleware._conversations._known
    assert known.manager.tools[0]["function"]["name"] == "read"
    assert known.manager.budget.fixed > 20

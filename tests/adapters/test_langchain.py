"""Tests of the LangChain middleware: the agent finishes, and its model gets the edited messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.counter import TokenCounter

pytest.importorskip(
    "langchain", reason="langchain is not installed: run pip install '.[test]' in a clone of ctxlab"
)

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, dynamic_prompt
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult

from ctxlab.adapters.langchain import ContextMiddleware, _model_name, _to_message

STEPS = 12


class Scripted(BaseChatModel):
    """Model that calls the tool twelve times, then finishes; it keeps the messages it got."""

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
    return [message_from_dict(m) for m in convert_to_openai_messages(messages)]


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
        assert find_violations(sent) == []
        assert counter.count_request(sent) <= 2000
        long = [m for m in sent if m.role == "tool" and len(m.text) > 1000]
        assert len(long) <= 2
    assert ours(model.asked[-1])[0].text == "You read."


def test_what_is_left_alone_is_the_very_message_and_tools_take_room() -> None:
    model = Scripted(asked=[], tools=[])
    middleware = ContextMiddleware("full", "gpt-4o")
    agent = create_agent(model, tools=[read], middleware=[middleware])
    state = agent.invoke({"messages": [("user", "Go")]}, {"recursion_limit": 100})
    assert all(any(sent is kept for kept in state["messages"]) for sent in model.asked[-1])
    (known,) = middleware._conversations._conversations
    assert known.manager.tools[0]["function"]["name"] == "read"
    assert known.manager.budget.fixed > 20


def sent_of(messages: list[Any], strategy: str = "full", tools: list[Any] | None = None) -> Any:
    """Return the messages that the model gets, and the middleware."""
    model = Scripted(asked=[], tools=[])
    middleware = ContextMiddleware(strategy, "gpt-4o")
    request: Any = ModelRequest(
        model=model,
        messages=messages,
        system_message=SystemMessage("You read.", id="s"),
        tools=tools or [],
    )
    got: list[Any] = []
    middleware.wrap_model_call(request, lambda managed: got.append(managed))  # type: ignore[arg-type, func-returns-value]
    return got[0], middleware


CALL = {
    "name": "write",
    "args": {"path": "a", "content": "x" * 4000},
    "id": "c",
    "type": "tool_call",
}


def test_a_rewritten_result_keeps_what_is_beside_its_text() -> None:
    result = ToolMessage(
        "line\n" * 99, tool_call_id="c", id="m", name="write", status="error", artifact={"k": 1}
    )
    said = [HumanMessage("Go"), AIMessage("", tool_calls=[CALL]), result, HumanMessage("On")]
    request, _ = sent_of(said, "observation_mask(keep=0)")
    assert request.system_message.id == "s"
    assert [a is b for a, b in zip(request.messages, said, strict=True)] == [
        True,
        True,
        False,
        True,
    ]
    sent = request.messages[2]
    assert sent.content.startswith("[output left out")
    assert sent == result.model_copy(update={"content": sent.content})


def test_a_rewritten_call_keeps_the_thinking_before_it_and_says_the_same_everywhere() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I write."},
        {"type": "tool_use", "id": "c", "name": "write", "input": CALL["args"]},
    ]
    answer = AIMessage(blocks, tool_calls=[CALL], id="a", response_metadata={"model": "m"})
    said = [HumanMessage("Go"), answer, ToolMessage("ok", tool_call_id="c")]
    said += [HumanMessage(f"{i}") for i in range(5)]
    request, _ = sent_of(said, "shorten_arguments(keep=2)")
    sent = request.messages[1]
    assert (sent.id, sent.response_metadata) == ("a", {"model": "m"})
    assert sent.content[:2] == blocks[:2]
    (call,) = sent.tool_calls
    assert len(call["args"]["content"]) < 100
    assert sent.content[2]["input"] == call["args"]
    assert len(answer.tool_calls[0]["args"]["content"]) == 4000


def test_what_langchain_cannot_convert_counts_as_its_json_and_is_handed_on() -> None:
    server = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    said = [
        HumanMessage("Go"),
        ChatMessage("Why " * 50, role="critic"),
        AIMessage([server, {"type": "text", "text": "Found."}]),
        HumanMessage([{"type": "cachePoint"}, {"type": "text", "text": "On"}]),
    ]
    tools = [{"google_search": {}}, {"cachePoint": {"type": "default"}}, {"type": "web_search"}]
    request, middleware = sent_of(said, tools=tools)
    assert all(a is b for a, b in zip(request.messages, said, strict=True))
    assert request.tools == tools
    assert TokenCounter("gpt-4o").count_message(_to_message(said[1])) > 50
    (known,) = middleware._conversations._conversations
    _, without = sent_of(said)
    bare = without._conversations._conversations[0].manager.budget.fixed
    assert known.manager.budget.fixed > bare + 20


def test_a_prompt_that_changes_at_each_call_is_no_new_conversation() -> None:
    model = Scripted(asked=[], tools=[])
    middleware = ContextMiddleware("rolling_summary | panic", "gpt-4o", limit=2000)

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"You have said {len(request.messages)} things."

    agent = create_agent(model, tools=[read], middleware=[prompt, middleware])
    agent.invoke({"messages": [("user", "Go")]}, {"recursion_limit": 100})
    assert len(middleware._conversations._conversations) == 1
    prompts = [sent[0].content for sent in model.asked]
    assert prompts == [f"You have said {1 + 2 * i} things." for i in range(STEPS + 1)]
    assert all(find_violations(ours(sent)) == [] for sent in model.asked)


class Named:
    """Stand-in for a chat model that has only a name."""

    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Named(model_name="gpt-4o"), "gpt-4o"),
        (Named(model="openai:gpt-4"), "gpt-4"),
        (Named(model="mistral:7b"), "mistral:7b"),
        (Named(model_id="anthropic.claude-v1:0"), "anthropic.claude-v1:0"),
        (Named(bound=Named(model="claude-opus-4-5")), "claude-opus-4-5"),
        (Named(model=None), None),
    ],
)
def test_the_name_of_a_chat_models_model(model: Any, name: str | None) -> None:
    assert _model_name(model) == name

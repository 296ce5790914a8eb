"""A run of OpenAI's Agents SDK ends well while its model sees what the strategy makes of its items."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'ctxlab[test]'")

from agents import Agent, ModelResponse, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.items import TResponseInputItem
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from ctxlab.adapters.openai_agents import _messages, context_filter
from ctxlab.conversation import Message
from ctxlab.tokens import TokenCounter
from ctxlab.validity import check

STEPS = 12


class Scripted(Model):
    """Makes two calls at a time, then says it is done; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[TResponseInputItem]] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self.asked.append(list(input))
        step = len(self.asked)
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call", call_id=f"c{step}{half}", name="read",
                arguments=json.dumps({"path": f"src/{step}{half}.py"}),
            )
            for half in "ab"
        ]  # fmt: skip
        if step > STEPS:
            text = ResponseOutputText(type="output_text", text="Done.", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@function_tool
def read(path: str) -> str:
    """Reads a file."""
    return f"{path}\n" + "line of text\n" * 100


def run(strategy: str, **options: Any) -> tuple[Scripted, Any]:
    set_tracing_disabled(True)
    model = Scripted()
    agent = Agent(name="reader", instructions="You read.", model=model, tools=[read])
    config = RunConfig(call_model_input_filter=context_filter(strategy, "gpt-4o", **options))
    result = asyncio.run(Runner.run(agent, "Read them all.", run_config=config, max_turns=50))
    return model, result


def test_the_model_sees_a_managed_context_and_the_run_keeps_everything() -> None:
    model, result = run("observation_mask(keep=2) | panic()", limit=3000, reserve=0)
    assert result.final_output == "Done."
    outputs = [i for i in result.to_input_list() if i.get("type") == "function_call_output"]
    assert len(outputs) == 2 * STEPS
    counter = TokenCounter("gpt-4o")
    for items in model.asked:
        sent: list[Message] = [message for message, _ in _messages(items)]
        assert check(sent) == []
        assert counter.request(sent) <= 3000
        assert sum(len(m.text) > 1000 for m in sent if m.role == "tool") <= 2


def test_what_is_left_alone_is_handed_on_as_it_was() -> None:
    (plain, _), (managed, _) = run("sliding_window(messages=99)"), run("full")
    assert plain.asked == managed.asked
    assert [item.get("type") for item in managed.asked[1]][1:] == (
        ["function_call"] * 2 + ["function_call_output"] * 2
    )


def test_reasoning_text_and_parallel_calls_of_an_answer_are_one_message() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Go"},
        {"type": "reasoning", "id": "r", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I read."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "2"}],
        },
        {"type": "message", "role": "assistant", "content": "Done."},
    ]
    messages = list(_messages(items))
    assert [(m.role, m.text, len(m.tool_calls), len(own)) for m, own in messages] == [
        ("user", "Go", 0, 1),
        ("assistant", "I read.", 2, 4),
        ("tool", "1", 0, 1),
        ("tool", "2", 0, 1),
        ("assistant", "Done.", 0, 1),
    ]

"""Tests of the OpenAI Agents SDK filter: a run finishes, and its model gets the edited items."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip(
    "agents",
    reason="openai-agents is not installed: run pip install '.[test]' in a clone of ctxlab",
)

from agents import Agent, ModelResponse, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.items import TResponseInputItem
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from ctxlab.adapters.openai_agents import context_filter
from ctxlab.adapters.responses_format import items_from_message, messages_from_items
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.counter import TokenCounter

STEPS = 12


class Scripted(Model):
    """Model that makes two calls at a time, then finishes; it keeps the items it got."""

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


def managed(strategy: Any, items: list[Any], **options: Any) -> list[Any]:
    """Return the items after the filter."""
    data: Any = SimpleNamespace(model_data=SimpleNamespace(input=items, instructions="You read."))
    options = {"model": "gpt-4o", "limit": 9000, "reserve": 0, **options}
    return list(asyncio.run(context_filter(strategy, **options)(data)).input)


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
        sent: list[Message] = [message for message, _ in messages_from_items(items)]
        assert find_violations(sent) == []
        assert counter.count_request(sent) <= 3000
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
    messages = list(messages_from_items(items))
    assert [(m.role, m.text, len(m.tool_calls), len(own)) for m, own in messages] == [
        ("user", "Go", 0, 1),
        ("assistant", "I read.", 2, 4),
        ("tool", "1", 0, 1),
        ("tool", "2", 0, 1),
        ("assistant", "Done.", 0, 1),
    ]


KINDS = [
    "function",
    "custom_tool",
    "local_shell",
    "shell",
    "computer",
    "apply_patch",
    "tool_search",
]


@pytest.mark.parametrize("kind", [*KINDS, "program"])
@pytest.mark.parametrize("messages", [4, 5, 6, 7])
def test_a_call_of_any_kind_and_its_output_stay_together(kind: str, messages: int) -> None:
    call_type = kind if kind == "program" else f"{kind}_call"
    output_type = f"{call_type}_output".replace("tool_search_call_output", "tool_search_output")
    items: list[Any] = [{"role": "user", "content": "Go"}]
    for i in range(20):
        named = {"name": "read", "arguments": "{}"} if kind == "function" else {"input": "a.py"}
        call = {"type": call_type, "id": f"i{i}", "call_id": f"c{i}", **named}
        output = {"type": output_type, "call_id": f"c{i}", "output": "word " * 20}
        items += [{"type": "reasoning", "id": f"r{i}", "summary": []}, call, output]
    sent = managed(f"sliding_window(messages={messages})", items)
    calls = [item["call_id"] for item in sent if item.get("type") == call_type]
    assert calls
    assert calls == [item["call_id"] for item in sent if item.get("type") == output_type]
    assert sent.count({"role": "user", "content": "Go"}) == 1
    assert sum(item.get("type") == "reasoning" for item in sent) == len(calls)
    assert find_violations([message for message, _ in messages_from_items(sent)]) == []


def test_an_output_that_names_the_calls_item_or_its_approval_is_its_result() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Go"},
        {"type": "local_shell_call", "id": "i", "call_id": "c", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "i", "output": "a.py"},
        {"type": "mcp_approval_request", "id": "a", "name": "drop", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    ]
    messages = [message for message, _ in messages_from_items(items)]
    assert [message.role for message in messages] == ["user"] + ["assistant", "tool"] * 2
    assert find_violations(messages) == []


HOSTED = ["web_search", "file_search", "code_interpreter", "image_generation", "mcp"]


@pytest.mark.parametrize("kind", HOSTED)
def test_what_the_provider_ran_belongs_to_the_answer_with_its_reasoning(kind: str) -> None:
    items: list[Any] = [{"role": "user", "content": "Go"}]
    for i in range(20):
        hosted = {
            "type": f"{kind}_call",
            "id": f"h{i}",
            "status": "completed",
            "query": "word " * 9,
        }
        said = {"type": "message", "role": "assistant", "id": f"m{i}", "content": f"Found {i}."}
        reasoning = {"type": "reasoning", "id": f"r{i}", "summary": []}
        items += [reasoning, hosted, said, {"role": "user", "content": f"{i}"}]
    for messages in (4, 5, 6, 7):
        ids = {item.get("id") for item in managed(f"sliding_window(messages={messages})", items)}
        whole = [i for i in range(20) if f"h{i}" in ids]
        assert whole
        for letter in "rm":
            assert [i for i in range(20) if f"{letter}{i}" in ids] == whole


def test_pictures_count_wherever_they_stand() -> None:
    image = {"type": "input_image", "image_url": "https://x.org/a.png", "detail": "high"}
    shot = {"type": "computer_screenshot", "image_url": "https://x.org/a.png"}
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "Look"}, image]},
        {"type": "image_generation_call", "id": "g", "result": "AAAA"},
        {"type": "function_call", "call_id": "c", "name": "shot", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
        {"type": "computer_call", "call_id": "d", "action": {}},
        {"type": "computer_call_output", "call_id": "d", "output": shot},
    ]
    counter = TokenCounter("gpt-4o")
    counts = [counter.count_message(message) > 700 for message, _ in messages_from_items(items)]
    assert counts == [True, True, True, False, True]


def test_pictures_that_are_left_out_are_not_sent_and_the_others_are_as_they_were() -> None:
    image = {"type": "input_image", "file_id": "f", "detail": "low"}
    look = {
        "role": "user",
        "type": "message",
        "content": [{"type": "input_text", "text": "a"}, image],
    }
    items: list[Any] = [{"role": "user", "content": "Go"}]
    for _ in range(9):
        items += [look, {"role": "assistant", "content": "ok"}]
    sent = managed("recent_images(keep=1)", items)
    assert [str(item).count("input_image") for item in sent] == [0] * 17 + [1, 0]
    assert sent[17] is look
    assert sent[1]["content"][1] == {"type": "input_text", "text": "[image left out]"}
    ((message, own),) = messages_from_items([{**look, "content": [image, image]}])
    assert items_from_message(message, own) == ({**look, "content": [image, image]},)


def test_a_rewritten_item_keeps_its_kind_its_id_and_its_reasoning() -> None:
    long = json.dumps({"path": "a", "content": "x" * 4000})
    items: list[Any] = [
        {"role": "developer", "content": "Late rules."},
        {"role": "user", "content": "Go"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "write", "arguments": long},
        {
            "type": "custom_tool_call",
            "id": "g",
            "call_id": "d",
            "name": "patch",
            "input": "y" * 4000,
        },
        {"type": "function_call_output", "id": "o", "call_id": "c", "output": "1\n" * 999},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "1\n" * 999},
        *({"role": "user", "content": f"{i}"} for i in range(6)),
    ]
    sent = managed("shorten_arguments(keep=2) | observation_mask(keep=0)", items)
    assert len(sent) == len(items)
    assert [item.keys() for item in sent] == [item.keys() for item in items]
    for before, after in zip(items, sent, strict=True):
        said = {"arguments", "input", "output"}
        assert {k: v for k, v in before.items() if k not in said} == {
            k: v for k, v in after.items() if k not in said
        }
        assert len(json.dumps(after)) < 400
    assert len(json.loads(sent[3]["arguments"])["content"]) < 100


def test_reasoning_goes_with_what_it_led_to() -> None:
    text = {"type": "output_text", "text": "I call."}
    items: Any = (
        {"type": "reasoning", "id": "r1"},
        {"type": "web_search_call", "id": "w", "action": {"query": "x"}},
        {"type": "reasoning", "id": "r2"},
        {"type": "message", "role": "assistant", "id": "m", "content": [text]},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "read", "arguments": "{}"},
    )  # fmt: skip
    ((message, own),) = messages_from_items(items)
    assert items_from_message(message, own) == items
    told = items_from_message(message.replace(content="Short."), own)
    assert [item["id"] for item in told] == ["r2", "m", "f"]
    assert told[1]["content"][0]["text"] == "Short."
    assert [item["id"] for item in items_from_message(message.replace(content=None), own)] == ["f"]
    assert items_from_message(message.replace(tool_calls=()), own) == items[:4]


def test_a_system_message_of_the_strategys_own_is_sent() -> None:
    def told(messages: list[Message]) -> list[Message]:
        return [Message("system", "Be quick."), *messages]

    sent = managed(told, [{"role": "user", "content": "Go"}])
    assert sent == [
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "Go"},
    ]


def test_instructions_that_change_are_no_new_conversation_and_the_agents_model_counts() -> None:
    managing = context_filter("panic")
    items: list[Any] = []
    for turn in range(40):
        items.append({"role": "user", "content": f"{turn} " + "word " * 300})
        asked = SimpleNamespace(input=items, instructions=f"It is {turn}.")
        data: Any = SimpleNamespace(model_data=asked, agent=SimpleNamespace(model="gpt-4"))
        made = asyncio.run(managing(data))
        assert made.instructions == f"It is {turn}."
    sent = [message for message, _ in messages_from_items(made.input)]
    assert len(sent) < 40
    assert TokenCounter("gpt-4").count_request(sent) <= 8192

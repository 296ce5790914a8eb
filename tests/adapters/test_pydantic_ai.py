"""Tests of the Pydantic AI processor: the agent finishes, and its model gets the edited history."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai",
    reason="pydantic-ai is not installed: run pip install '.[test]' in a clone of ctxlab",
)

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ctxlab.adapters.pydantic_ai import _split_message, context_processor
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.counter import TokenCounter

STEPS = 12


def run(strategy: str, **options: Any) -> tuple[list[list[ModelMessage]], str]:
    asked: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(list(messages))
        step = len(asked)
        if step > STEPS:
            return ModelResponse([TextPart("Done.")])
        return ModelResponse(
            [
                ToolCallPart("read", {"path": f"src/{step}{half}.py"}, f"c{step}{half}")
                for half in "ab"
            ]
        )

    processor = context_processor(strategy, "gpt-4o", **options)
    agent = Agent(
        FunctionModel(answer), system_prompt="You read.", capabilities=[ProcessHistory(processor)]
    )

    @agent.tool_plain
    def read(path: str) -> str:
        """Reads a file."""
        return f"{path}\n" + "line of text\n" * 100

    # ``run_sync`` would leave an event loop open in this thread.
    return asked, asyncio.run(agent.run("Read them all.")).output


def processed(processor: Any, history: list[ModelMessage]) -> list[ModelMessage]:
    """Return the history after the processor."""
    made: list[ModelMessage] = asyncio.run(processor(history))
    return made


def ours(messages: list[ModelMessage]) -> list[Message]:
    return [message for whole in messages for message, _ in _split_message(whole)]


@pytest.mark.parametrize(
    "strategy", ["observation_mask(keep=2) | panic()", "rolling_summary() | panic()", "panic()"]
)
def test_the_model_sees_a_managed_context_that_is_valid_and_fits(strategy: str) -> None:
    asked, said = run(strategy, limit=3000, reserve=0)
    assert said == "Done."
    assert len(asked) == STEPS + 1
    counter = TokenCounter("gpt-4o")
    for messages in asked:
        sent = ours(messages)
        assert find_violations(sent) == []
        assert counter.count_request(sent) <= 3000
        assert sent[0].text == "You read."
        kinds = [type(message) for message in messages]
        assert all(a is not b for a, b in pairwise(kinds))


def test_a_summary_that_the_framework_keeps_is_extended_and_not_told_twice() -> None:
    asked, _ = run("rolling_summary()", limit=3000, reserve=0)
    for messages in asked:
        assert sum(m.text.startswith("Summary of") for m in ours(messages)) <= 1
    assert any(m.text.startswith("Summary of") for m in ours(asked[-1]))


def test_what_is_left_alone_is_handed_on_as_it_was() -> None:
    asked, _ = run("full")
    assert isinstance(asked[-1][0], ModelRequest)
    assert len(asked[-1][0].parts) == 2
    assert [len(message.parts) for message in asked[-1][1:]] == [2] * (2 * STEPS)


def test_a_rewritten_result_keeps_its_tool_and_the_answer_its_thinking() -> None:
    thought = ModelResponse(
        [ThinkingPart("hm", signature="s"), TextPart("I write."), ToolCallPart("write", "{}", "c")],
        model_name="m",
    )
    result = ToolReturnPart("write", "line\n" * 400, "c", metadata={"k": 1})
    retry = ToolReturnPart("write", "wrong " * 400, "d", outcome="retried")
    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart("Go")]),
        thought,
        ModelRequest([result]),
        ModelResponse([ToolCallPart("write", {"text": "x" * 4000}, "d")]),
        ModelRequest([retry]),
        ModelResponse([TextPart("Done.")]),
        ModelRequest([UserPromptPart("On")]),
    ]
    processor = context_processor(
        "shorten_arguments(keep=0) | observation_mask(keep=0)", "gpt-4o", limit=9000, reserve=0
    )
    sent = processed(processor, history)
    assert sent[1] is thought
    first, second = sent[2].parts[0], sent[4].parts[0]
    assert isinstance(first, ToolReturnPart)
    assert isinstance(second, ToolReturnPart)
    assert (first.tool_name, first.metadata, first.timestamp) == (
        "write",
        {"k": 1},
        result.timestamp,
    )
    assert (second.tool_name, second.tool_call_id, second.outcome) == ("write", "d", "retried")
    assert "left out" in str(first.content)
    call = sent[3].parts[0]
    assert isinstance(call, ToolCallPart)
    assert len(call.args_as_json_str()) < 200
    assert processed(processor, sent) == sent  # what was kept is known again


def test_pictures_that_are_left_out_are_not_sent_and_the_others_are_as_they_were() -> None:
    pictures = [ImageUrl(f"https://x.org/{i}.png") for i in range(3)]
    history: list[ModelMessage] = [ModelRequest([UserPromptPart(["Look", *pictures])])]
    processor = context_processor("recent_images(keep=1)", "gpt-4o")
    (sent,) = processed(processor, history)
    content: Any = sent.parts[0].content  # type: ignore[union-attr]
    assert content == ["Look", "[image left out]", "[image left out]", pictures[2]]
    assert content[3] is pictures[2]

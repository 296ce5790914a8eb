"""Tests of logged API calls, which read the same for each API and each kind of log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ctxlab.formats.common.api_content import parse_tools
from ctxlab.formats.common.api_messages import SKIPPED_KEY
from ctxlab.formats.common.traces import parse_request_messages, parse_response_messages
from ctxlab.messages.types import Message, ToolCall

CALLS = (ToolCall("c", "ls", "{}"),)
OPENAI = [
    {"role": "developer", "content": "s"},
    {"role": "user", "content": "q"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c", "function": {"name": "ls"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "a.txt"},
]
ANTHROPIC = {
    "system": "s",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c", "name": "ls", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a.txt"}],
        },
    ],
}
RESPONSES = {
    "instructions": "s",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look."}],
        },
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a.txt"},
    ],
}
LANGCHAIN = [
    [
        {"type": "system", "data": {"content": "s"}},
        {"type": "human", "data": {"content": "q"}},
        {"type": "ai", "content": "I look.", "tool_calls": [{"name": "ls", "args": {}, "id": "c"}]},
        {"type": "tool", "content": "a.txt", "tool_call_id": "c"},
    ]
]
PARTS = [
    {"role": "system", "parts": [{"type": "text", "content": "s"}]},
    {"role": "user", "parts": [{"type": "text", "content": "q"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "text", "content": "I look."},
            {"type": "tool_call", "id": "c", "name": "ls", "arguments": {}},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "a.txt"}]},
]
BEDROCK = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"text": "q"}]},
    {
        "role": "assistant",
        "content": [
            {"text": "I look."},
            {"toolUse": {"toolUseId": "c", "name": "ls", "input": {}}},
        ],
    },
    {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "a.txt"}]}}],
    },
]


def sent(value: Any) -> list[Message]:
    return parse_request_messages(value, lambda reason: pytest.fail(reason))


@pytest.mark.parametrize(
    "logged",
    [OPENAI, {"messages": OPENAI}, [OPENAI], ANTHROPIC, RESPONSES, LANGCHAIN, PARTS, BEDROCK],
)
def test_every_api_says_the_same(logged: Any) -> None:
    assert sent(logged) == [
        Message("system", "s"),
        Message("user", "q"),
        Message("assistant", "I look.", tool_calls=CALLS),
        Message("tool", "a.txt", tool_call_id="c"),
    ]


@pytest.mark.parametrize(
    ("logged", "texts"),
    [
        ("hi", ["hi"]),
        ('{"messages": "[{\\"role\\": \\"user\\", \\"content\\": \\"hi\\"}]"}', ["hi"]),
        ("[sic]", ["[sic]"]),
        ("[1, 2]", ["[1, 2]"]),
        ({"prompts": ["hi"]}, ["hi"]),
        ([["system", "s"], ["human", "hi"]], ["s", "hi"]),
        ({"question": "hi"}, []),
        ([{"city": "Paris"}], []),
        (None, []),
    ],
)
def test_what_holds_no_messages_is_a_text_or_nothing(logged: Any, texts: list[str]) -> None:
    assert [message.text for message in sent(logged)] == texts


def test_results_stand_before_what_the_user_says_with_them() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": "no"},
        {"type": "text", "text": "again"},
    ]
    assert sent([{"role": "user", "content": blocks}]) == [
        Message("tool", "no", tool_call_id="c", extra={"is_error": True}),
        Message("user", "again"),
    ]


def test_the_items_of_an_answer_are_one_message_and_two_answers_are_two() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"type": "message", "role": "assistant", "content": "a"}
    (one,) = sent([thought, said])
    assert (one.content, one.reasoning) == ("a", "hm")
    plain = {"role": "assistant", "content": "a"}
    assert len(sent([plain, plain])) == 2
    (thinking,) = sent([{"role": "thinking", "content": "hm"}, plain])
    assert (thinking.content, thinking.reasoning) == ("a", "hm")


def test_a_result_that_is_no_text_is_its_json() -> None:
    (result,) = sent([{"role": "tool", "tool_call_id": "c", "content": {"sky": "grey"}}])
    assert result.content == '{"sky":"grey"}'


def test_a_message_says_what_was_left_out_of_it() -> None:
    (message,) = sent(
        [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "q"}]}]
    )
    assert message == Message("user", "q", extra={SKIPPED_KEY: ["block of type audio"]})


ANSWER = {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "logged",
    [
        "a",
        ANSWER,
        [ANSWER],
        {"content": "a"},
        {"choices": [{"message": ANSWER}]},
        {"choices": [{"text": "a"}]},
        {"generations": [[{"text": "no", "message": {"type": "ai", "data": {"content": "a"}}}]]},
        {"generations": [{"text": "a"}]},
        {"message": ANSWER},
        {"output": "a"},
        {"output": [{"type": "message", "role": "assistant", "content": "a"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]},
        [{"text": "a"}],
        ["assistant", "a"],
        {"completion": "a"},
        {"role": None, "content": "a"},
        '{"role": "assistant", "content": "a"}',
    ],
)
def test_an_answer_is_found_in_every_response(logged: Any) -> None:
    assert parse_response_messages(logged, lambda reason: pytest.fail(reason)) == [
        Message("assistant", "a")
    ]


@pytest.mark.parametrize("nothing", [None, "", {}, [], {"output": None}, {"choices": []}])
def test_a_call_that_failed_has_no_answer(nothing: Any) -> None:
    found = parse_response_messages(nothing, lambda reason: pytest.fail(reason))
    assert found == []


def test_further_choices_are_counted() -> None:
    lost: Counter[str] = Counter()
    choices = [{"message": ANSWER}, {"message": {"role": "assistant", "content": "b"}}]
    for logged in ({"choices": choices}, {"generations": [choices]}, [ANSWER, ANSWER]):
        (answer,) = parse_response_messages(logged, lambda reason: lost.update([reason]))
        assert answer.content == "a"
    assert lost == {"further choice": 3}


def test_json_of_another_shape_is_what_the_model_wrote() -> None:
    (answer,) = parse_response_messages({"city": "Paris"}, print)
    assert answer.content == '{"city":"Paris"}'


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}},
        {"type": "function", "name": "ls", "parameters": {"type": "object"}},
        {"name": "ls", "input_schema": {"type": "object"}},
        {"toolSpec": {"name": "ls", "inputSchema": {"json": {"type": "object"}}}},
        {"name": "ls", "inputSchema": {"type": "object"}},
        {"name": "ls", "parameters": '{"type": "object"}'},
        '{"name": "ls", "parameters": {"type": "object"}}',
    ],
)
def test_every_definition_of_a_tool_is_openais(definition: Any) -> None:
    function = {"name": "ls", "parameters": {"type": "object"}}
    assert parse_tools([definition], print) == ({"type": "function", "function": function},)


def test_a_tool_of_the_providers_own_stays() -> None:
    own = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    assert parse_tools([own, {"type": "web_search"}], print) == (own, {"type": "web_search"})

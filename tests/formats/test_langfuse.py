"""Tests of the Langfuse format: generations are stitched by session or trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import ToolCall, Usage

WriteLines = Callable[..., Path]
USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "ho"}
MORE = [USER, SAID, {"role": "user", "content": "and?"}]


def generation(second: int, sent: Any, received: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"o{second}",
        "traceId": "t",
        "type": "GENERATION",
        "startTime": f"1970-01-01T00:00:{second:02d}.000Z",
        "endTime": f"1970-01-01T00:00:{second:02d}.500Z",
        "model": "m",
        "input": sent,
        "output": received,
    } | fields


def turns() -> list[dict[str, Any]]:
    return [generation(1, [USER], SAID), generation(2, {"messages": MORE}, "so")]


@pytest.mark.parametrize("shape", ["list", "lines", "page", "trace", "download", "traces"])
def test_every_export_is_one_conversation(shape: str, tmp_path: Path) -> None:
    observations = [*turns()[::-1], generation(0, None, None, type="SPAN")]
    shapes: dict[str, Any] = {
        "list": observations,
        "page": {"data": observations, "meta": {"page": 1}},
        "trace": {"id": "t", "sessionId": "s", "observations": observations, "scores": []},
        "download": {"trace": {"id": "t", "sessionId": "s"}, "observations": observations},
        "traces": [{"id": "t", "sessionId": "s", "observations": observations}],
    }
    lines = "".join(json.dumps(each) + "\n" for each in observations)
    path = tmp_path / "export"
    path.write_text(lines if shape == "lines" else json.dumps(shapes[shape]))
    known = detect_format(path)
    assert known is not None
    assert known.name == "langfuse"
    (recording,) = load(path)
    assert [message.text for message in recording.messages] == ["hi", "ho", "and?", "so"]
    assert [message.time for message in recording.messages] == [None, 1.5, None, 2.5]
    assert (recording.model, recording.skipped) == ("m", {"observation of type SPAN": 1})
    named = "trace" in shape or shape == "download"
    assert recording.meta == ({"session_id": "s"} if named else {"trace_id": "t"})


def test_the_blob_storage_writes_other_names_and_json_as_text(write_lines: WriteLines) -> None:
    rows = [
        {
            "id": str(number),
            "trace_id": str(number),
            "session_id": "s",
            "type": "GENERATION",
            "start_time": f"1970-01-01 00:00:0{number}.000000",
            "end_time": f"1970-01-01 00:00:0{number}.250000",
            "provided_model_name": "m",
            "input": json.dumps(sent),
            "output": json.dumps(SAID),
            "usage_details": {"input": 3, "output": 2},
        }
        for number, sent in enumerate(([USER], MORE))
    ]
    (recording,) = load(write_lines(*rows))
    assert [message.text for message in recording.messages] == ["hi", "ho", "and?", "ho"]
    assert (recording.model, recording.messages[1].time) == ("m", 0.25)
    assert recording.messages[1].usage == Usage(input=3, output=2)


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (
            {"usageDetails": {"input": 10, "input_cached_tokens": 40, "output": 2, "total": 52}},
            Usage(input=10, cache_read=40, output=2),
        ),
        (
            {"usageDetails": {"input": 1, "output": 5, "output_reasoning_tokens": 7}},
            Usage(input=1, output=12, reasoning=7),
        ),
        (
            {
                "usageDetails": {
                    "input": 2,
                    "input_audio_tokens": 3,
                    "cache_read_input_tokens": 100,
                    "cache_creation_input_tokens": 9,
                    "cache_creation_ephemeral_5m_input_tokens": 4,
                    "cache_creation_ephemeral_1h_input_tokens": 5,
                    "output": 1,
                }
            },
            Usage(input=5, cache_read=100, cache_write=9, output=1, cache_write_1h=5),
        ),
        ({"usage": {"input": 6, "output": 4, "unit": "TOKENS"}}, Usage(input=6, output=4)),
        ({"promptTokens": 6, "completionTokens": 4}, Usage(input=6, output=4)),
        ({"usageDetails": {}, "usage": {"input": 0, "output": 0}}, None),
    ],
)
def test_kinds_of_tokens_add_up_and_do_not_overlap(
    told: dict[str, Any], usage: Usage | None, write_lines: WriteLines
) -> None:
    (recording,) = load(write_lines(generation(1, [USER], SAID, **told)))
    assert recording.messages[1].usage == usage


def test_tools_are_found_wherever_an_integration_puts_them(write_lines: WriteLines) -> None:
    function = {"name": "ls", "description": "Lists", "parameters": {"type": "object"}}
    tool = {"type": "function", "function": function}
    kept = json.dumps({"description": "Lists", "parameters": '{"type": "object"}'})
    logged: list[dict[str, Any]] = [
        generation(1, {"messages": [USER], "tools": [tool]}, SAID),
        generation(1, {"messages": [USER], "functions": [function]}, SAID),
        generation(1, [USER, {"role": "tool", "content": tool}], SAID),
        generation(1, [USER], SAID, toolDefinitions={"ls": kept}),
    ]
    for each in logged:
        (recording,) = load(write_lines(each))
        assert recording.tools == (tool,)
        assert len(recording.messages) == 2


def test_a_result_that_was_parsed_is_no_definition(write_lines: WriteLines) -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c", "name": "ls", "args": {}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": {"function": "f"}}
    (recording,) = load(write_lines(generation(1, [USER, call, result], {"city": "Paris"})))
    texts = [message.text for message in recording.messages]
    assert texts == ["hi", "", '{"function":"f"}', '{"city":"Paris"}']


def js_call(id: str, name: str, **args: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "args": args, "type": "tool_call"}


JS_CALLS = [js_call("c1", "weather", city="Paris"), js_call("c2", "weather", city="Rome")]
JS_ANSWER = {"role": "assistant", "content": "", "tool_calls": JS_CALLS}


def js_result(role: str | None, content: str) -> dict[str, Any]:
    named = {} if role is None else {"role": role}
    return {"content": content, "additional_kwargs": {}} | named


@pytest.mark.parametrize("role", ["weather", None])
def test_a_tool_result_whose_role_is_the_tool_answers_the_call_of_this_tool(
    role: str | None, write_lines: WriteLines
) -> None:
    results = [js_result(role, "rain"), js_result(role, "sun")]
    rows = (
        generation(1, [USER], JS_ANSWER),
        generation(2, [USER, JS_ANSWER, *results], SAID),
        generation(3, [USER, JS_ANSWER, *results, SAID, USER], SAID),
    )
    (recording,) = load(write_lines(*rows))
    roles = [message.role for message in recording.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    told = [(m.tool_call_id, m.name, m.text) for m in recording.messages if m.role == "tool"]
    assert told == [("c1", "weather", "rain"), ("c2", "weather", "sun")]
    assert recording.skipped == {}


def test_a_role_that_names_no_called_tool_is_an_error(write_lines: WriteLines) -> None:
    path = write_lines(generation(1, [USER, JS_ANSWER, js_result("judge", "fine")], SAID))
    with pytest.raises(ReadError, match=r"message 2: .*'judge'"):
        list(load(path))


REPR = """[SystemMessage(content='Be brief.', additional_kwargs={}, response_metadata={}), \
HumanMessage(content="What's here?\\n", additional_kwargs={}, response_metadata={}), \
AIMessage(content='', additional_kwargs={'tool_calls': [ChatCompletionMessageToolCall(id='c', \
function=Function(arguments='{}', name='ls'), type='function')]}, response_metadata={}, \
tool_calls=[{'name': 'ls', 'args': {'all': True, 'depth': -1}, 'id': 'c', 'type': 'tool_call'}]), \
ToolMessage(content='a.txt', name='ls', tool_call_id='c')]"""


@pytest.mark.parametrize(
    "sent", [REPR, {"messages": REPR}, {"messages": f"[{REPR}]"}, [REPR[1:-1].split(", HumanM")[0]]]
)
def test_messages_logged_as_python_code_are_parsed(sent: Any, write_lines: WriteLines) -> None:
    (recording,) = load(write_lines(generation(1, sent, "AIMessage(content='One.')")))
    assert recording.messages[0].role == "system"
    assert (recording.messages[-1].role, recording.messages[-1].text) == ("assistant", "One.")
    if len(recording.messages) == 5:
        _, user, called, result, _ = recording.messages
        assert user.text == "What's here?\n"
        assert called.tool_calls == (ToolCall("c", "ls", '{"all":true,"depth":-1}'),)
        assert (result.tool_call_id, result.text) == ("c", "a.txt")


def test_python_code_of_plain_messages_is_parsed(write_lines: WriteLines) -> None:
    sent = str([{"role": "system", "content": "s"}, {"role": "user", "content": "it's"}])
    (recording,) = load(write_lines(generation(1, sent, SAID)))
    assert [message.text for message in recording.messages] == ["s", "it's", "ho"]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("[HumanMessage(content='cut of", "Python code that cannot be read"),
        ("[HumanMessage(content=open('x').read())]", "unexpected Call"),
        ("[HumanMessage('hi')]", "unexpected Call"),
        ("[HumanMessage(content='a', extra=<object at 0x7f>)]", "cannot be read"),
        ("HumanMessage(content=" + "[" * 300, "cannot be read"),
        ("HumanMessage(content=" + "-" * 9_000 + "1)", "cannot be read"),
        ("content='hi' additional_kwargs={} response_metadata={}", "without its type"),
    ],
)
def test_other_python_code_is_refused_and_never_run(
    sent: str, reason: str, write_lines: WriteLines
) -> None:
    path = write_lines(*turns(), generation(3, sent, SAID))
    with pytest.raises(ReadError, match=reason):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert sum(recording.skipped.values()) == 1


@pytest.mark.parametrize("said", ["Message me (later)", "{'a': 1} is a dict", "[{'role': x}]"])
def test_a_text_that_only_looks_like_code_stays_a_text(said: str, write_lines: WriteLines) -> None:
    (recording,) = load(write_lines(generation(1, said, SAID)))
    assert recording.messages[0].text == said


def test_parallel_calls_logged_as_several_messages_are_one_answer(write_lines: WriteLines) -> None:
    parts = [{"role": "assistant", "content": "", "tool_calls": [call]} for call in JS_CALLS]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": call["args"]["city"]}
        for call in JS_CALLS
    ]
    rows = generation(1, [USER], parts), generation(2, [USER, *parts, *results], SAID)
    (recording,) = load(write_lines(*rows))
    assert [message.role for message in recording.messages] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]
    assert [call.id for call in recording.messages[1].tool_calls] == ["c1", "c2"]
    assert (recording.skipped, recording.compactions) == ({}, ())


def test_a_text_before_the_calls_of_an_answer_is_kept(write_lines: WriteLines) -> None:
    parts = [{"role": "assistant", "content": "Let me see."}, JS_ANSWER]
    results = [{"role": "tool", "tool_call_id": id, "content": id} for id in ("c1", "c2")]
    usage = {"usageDetails": {"input": 3, "output": 2}}
    rows = generation(1, [USER], parts, **usage), generation(2, [USER, *parts, *results], SAID)
    for number in (1, 2):
        (recording,) = load(write_lines(*rows[:number]))
        assert recording.messages[1].text == "Let me see."
        assert len(recording.messages[2].tool_calls) == 2
        assert recording.messages[2].usage == Usage(input=3, output=2)
        assert (recording.skipped, recording.compactions) == ({}, ())


@pytest.mark.parametrize("mark", ["index", "finish_reason"])
def test_marked_choices_are_alternatives(mark: str, write_lines: WriteLines) -> None:
    choices = [
        {"role": "assistant", "content": "", "tool_calls": [call], mark: n}
        for n, call in enumerate(JS_CALLS)
    ]
    (recording,) = load(write_lines(generation(1, [USER], choices)))
    assert [call.id for call in recording.messages[1].tool_calls] == ["c1"]
    assert recording.skipped == {"further choice": 1}


def test_calls_without_results_are_not_joined_in_a_request(write_lines: WriteLines) -> None:
    parts = [{"role": "assistant", "content": "", "tool_calls": [call]} for call in JS_CALLS]
    result = {"role": "tool", "tool_call_id": "c2", "content": "sun"}
    (recording,) = load(write_lines(generation(1, [USER, *parts, result], SAID)))
    assert [len(message.tool_calls) for message in recording.messages] == [0, 1, 1, 0, 0]


def test_a_broken_observation_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    broken = generation(3, [{"role": 1, "content": ""}], SAID)
    path.write_text(json.dumps({"data": [*turns(), broken, 17]}))
    with pytest.raises(ReadError, match="observation 2: message 0: "):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert sum(recording.skipped.values()) == 2

"""Tests of the OpenTelemetry format with all versions of its conventions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Message, ToolCall, Usage

WriteLines = Callable[..., Path]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
Events = tuple[tuple[str, dict[str, Any]], ...]


def span(second: int, attributes: dict[str, Any], *events: tuple[str, dict[str, Any]]) -> Any:
    return {
        "name": "chat",
        "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{second}"},
        "start_time": f"1970-01-01T00:00:{second:02d}Z",
        "end_time": f"1970-01-01T00:00:{second:02d}.500000Z",
        "attributes": attributes,
        "events": [{"name": name, "attributes": said} for name, said in events],
    }


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "content": said}


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
PRE = {"llm.request.type": "chat", "gen_ai.request.model": "m"}
BODY = "gen_ai.event.content"
CALL = {"id": "c", "name": "ls", "arguments": "{}"}
OPENAI_CALL = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}

SYSTEM = json.dumps([text("s")])
QUESTION = {"role": "user", "parts": [text("q")]}
CALLED = {"role": "assistant", "parts": [{"type": "tool_call"} | CALL]}
RESULT = {
    "role": "tool",
    "parts": [{"type": "tool_call_response", "id": "c", "response": "a.txt"}],
}
DONE = {"role": "assistant", "parts": [text("one")]}
CURRENT = [
    span(
        second,
        CHAT
        | {
            "gen_ai.system_instructions": SYSTEM,
            "gen_ai.input.messages": json.dumps(sent),
            "gen_ai.output.messages": json.dumps([answer]),
        },
    )
    for second, sent, answer in (
        (1, [QUESTION], CALLED),
        (2, [QUESTION, CALLED, RESULT], DONE),
    )
]
DETAILS = "gen_ai.client.inference.operation.details"
AS_EVENTS = [
    span(n, CHAT, *((DETAILS, {key: value}) for key, value in each["attributes"].items()))
    for n, each in enumerate(CURRENT, start=1)
]


def numbered(prefix: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {f"{prefix}.{n}.{k}": value for n, row in enumerate(rows) for k, value in row.items()}


def openllmetry() -> list[Any]:
    call = numbered("tool_calls", [CALL])
    sent: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": json.dumps([{"type": "text", "text": "q"}])},
        {"role": "assistant"} | call,
        {"role": "tool", "content": "a.txt", "tool_call_id": "c"},
    ]
    answers: list[dict[str, Any]] = [{"role": "assistant"} | call, {"content": "one"}]
    return [
        span(
            n,
            PRE | numbered("gen_ai.prompt", rows) | numbered("gen_ai.completion", [answers[n - 1]]),
        )
        for n, rows in ((1, sent[:2]), (2, sent))
    ]


def openinference() -> list[Any]:
    tool = {f"tool_call.function.{k}": CALL[k] for k in ("name", "arguments")}
    call = numbered("message.tool_calls", [tool | {"tool_call.id": "c"}])
    block = {"message_content.type": "text", "message_content.text": "q"}
    sent: list[dict[str, Any]] = [
        {"message.role": "system", "message.content": "s"},
        {"message.role": "user"} | numbered("message.contents", [block]),
        {"message.role": "assistant"} | call,
        {"message.role": "tool", "message.tool_call_id": "c", "message.content": "a.txt"},
    ]
    answers = [sent[2], {"message.role": "assistant", "message.content": "one"}]
    out = "llm.output_messages"
    return [
        span(n, LLM | numbered("llm.input_messages", rows) | numbered(out, [answers[n - 1]]))
        for n, rows in ((1, sent[:2]), (2, sent))
    ]


def events_of(*rows: dict[str, Any], answer: dict[str, Any], wrap: bool) -> Events:
    """Return events of messages; ``wrap`` puts each message into one attribute, as Azure does."""
    sent = [(f"gen_ai.{row['role']}.message", row) for row in rows]
    made = [*sent, ("gen_ai.choice", {"message": answer, "index": 0})]
    if wrap:
        return tuple((name, {BODY: json.dumps(said)}) for name, said in made)
    return tuple(
        (name, {k: v if isinstance(v, (str, int)) else json.dumps(v) for k, v in said.items()})
        for name, said in made
    )


def message_events(wrap: bool) -> list[Any]:
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "q"}
    called = {"role": "assistant", "tool_calls": [OPENAI_CALL]}
    result = {"role": "tool", "id": "c", "content": "a.txt"}
    one = events_of(system, user, answer=called, wrap=wrap)
    two = events_of(system, user, called, result, answer={"content": "one"}, wrap=wrap)
    return [span(1, CHAT, *one), span(2, CHAT, *two)]


def strands() -> list[Any]:
    called = json.dumps([{"toolUse": {"toolUseId": "c", "name": "ls", "input": {}}}])
    got = json.dumps([{"toolResult": {"toolUseId": "c", "content": [{"text": "a.txt"}]}}])
    system = ("gen_ai.system.message", {"content": json.dumps([{"text": "s"}])})
    user = ("gen_ai.user.message", {"content": json.dumps([{"text": "q"}])})
    said = ("gen_ai.assistant.message", {"content": called})
    result = ("gen_ai.tool.message", {"content": got})
    choice = ("gen_ai.choice", {"message": called, "finish_reason": "tool_use"})
    last = ("gen_ai.choice", {"message": json.dumps([{"text": "one"}])})
    return [span(1, CHAT, system, user, choice), span(2, CHAT, system, user, said, result, last)]


def content_events() -> list[Any]:
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "q"}
    called = {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}
    result = {"role": "tool", "tool_call_id": "c", "content": "a.txt"}
    done = {"role": "assistant", "content": "one"}

    def made(n: int, sent: list[Any], answer: Any) -> Any:
        prompt = ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(sent)})
        completion = ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([answer])})
        return span(n, CHAT, prompt, completion)

    return [made(1, [system, user], called), made(2, [system, user, called, result], done)]


@pytest.mark.parametrize(
    "spans",
    [
        CURRENT,
        AS_EVENTS,
        openllmetry(),
        openinference(),
        message_events(wrap=True),
        message_events(wrap=False),
        strands(),
        content_events(),
    ],
    ids=[
        "current",
        "details",
        "openllmetry",
        "openinference",
        "azure",
        "attributes",
        "strands",
        "content",
    ],
)
def test_every_generation_tells_the_same_conversation(
    spans: list[Any], write_lines: WriteLines
) -> None:
    path = write_lines(*spans[::-1])
    known = detect_format(path)
    assert known is not None
    assert known.name == "otel-genai"
    (recording,) = load(path)
    system, user, called, result, done = recording.messages
    assert (system, user) == (Message("system", "s"), Message("user", "q"))
    assert (called.tool_calls, called.time) == ((ToolCall("c", "ls", "{}"),), 1.5)
    assert result == Message("tool", "a.txt", tool_call_id="c")
    assert (done.content, done.time) == ("one", 2.5)
    assert (recording.model, recording.skipped) == ("m", {})


def test_what_two_conventions_say_is_read_once(write_lines: WriteLines) -> None:
    both = [
        one | {"attributes": one["attributes"] | other["attributes"]}
        for one, other in zip(CURRENT, openinference(), strict=True)
    ]
    (recording,) = load(write_lines(*both))
    assert len(recording.messages) == 5


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (
            {
                "gen_ai.usage.input_tokens": 97,
                "gen_ai.usage.cache_read.input_tokens": 47,
                "gen_ai.usage.cache_creation.input_tokens": 20,
                "gen_ai.usage.output_tokens": 12,
                "gen_ai.usage.reasoning.output_tokens": 4,
            },
            Usage(input=30, cache_read=47, cache_write=20, output=12, reasoning=4),
        ),
        (
            {"gen_ai.usage.prompt_tokens": 5, "gen_ai.usage.cache_read_input_tokens": 90},
            Usage(input=5, cache_read=90),
        ),
        (
            {
                "llm.token_count.prompt": 30,
                "llm.token_count.prompt_details.cache_read": 10,
                "llm.token_count.completion": 6,
            },
            Usage(input=20, cache_read=10, output=6),
        ),
        ({}, None),
    ],
)
def test_the_cached_tokens_are_told_from_the_others(
    told: dict[str, Any], usage: Usage | None, write_lines: WriteLines
) -> None:
    first = CURRENT[0] | {"attributes": CURRENT[0]["attributes"] | told}
    (recording,) = load(write_lines(first))
    assert recording.messages[-1].usage == usage


@pytest.mark.parametrize(
    "told",
    [
        {
            "gen_ai.tool.definitions": json.dumps(
                [{"type": "function", "name": "ls", "parameters": {"type": "object"}}]
            )
        },
        {
            "llm.request.functions.0.name": "ls",
            "llm.request.functions.0.parameters": '{"type": "object"}',
        },
        {
            "llm.tools.0.tool.json_schema": json.dumps(
                {"function": {"name": "ls", "parameters": {"type": "object"}}}
            )
        },
        {"llm.tools.0.tool.name": "ls", "llm.tools.0.tool.json_schema": '{"type": "object"}'},
    ],
)
def test_tools_are_found_in_every_convention(told: dict[str, Any], write_lines: WriteLines) -> None:
    first = CURRENT[0] | {"attributes": CURRENT[0]["attributes"] | told}
    (recording,) = load(write_lines(first))
    function = {"name": "ls", "parameters": {"type": "object"}}
    assert recording.tools == ({"type": "function", "function": function},)


def test_other_spans_are_counted_by_what_they_are(write_lines: WriteLines) -> None:
    others = [
        span(3, {"gen_ai.operation.name": "execute_tool"}),
        span(4, {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": "[]"}),
        span(5, {"openinference.span.kind": "CHAIN", "input.value": "q"}),
        span(6, {"traceloop.span.kind": "workflow"}),
        span(7, {"llm.request.type": "embedding"}),
        span(8, {"http.method": "GET"}),
    ]
    (recording,) = load(write_lines(*CURRENT, *others))
    assert len(recording.messages) == 5
    assert recording.skipped == {
        "span of execute_tool": 1,
        "span of invoke_agent": 1,
        "span of CHAIN": 1,
        "span of workflow": 1,
        "span of embedding": 1,
        "span of another kind": 1,
    }


def test_a_span_that_only_holds_messages_is_a_call(write_lines: WriteLines) -> None:
    bare = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q"}
    (recording,) = load(write_lines(span(1, bare | {"gen_ai.completion.0.content": "a"})))
    assert [message.text for message in recording.messages] == ["q", "a"]


def test_completions_have_a_prompt_and_no_roles(write_lines: WriteLines) -> None:
    older = {"llm.request.type": "completion", "gen_ai.prompt.0.user": "q"}
    prompts = LLM | {"llm.prompts.0.prompt.text": "q", "llm.choices.0.completion.text": "a"}
    for each in (older | {"gen_ai.completion.0.content": "a"}, prompts):
        (recording,) = load(write_lines(span(1, each)))
        assert [(m.role, m.text) for m in recording.messages] == [("user", "q"), ("assistant", "a")]


def test_a_conversation_goes_over_traces_and_a_trace_holds_several(write_lines: WriteLines) -> None:
    named = {"gen_ai.conversation.id": "conv"}
    spans = [each | {"attributes": each["attributes"] | named} for each in CURRENT]
    spans[1] |= {"context": {"trace_id": "0xff"}}
    (recording,) = load(write_lines(*spans))
    assert (len(recording.messages), recording.meta) == (5, {"gen_ai.conversation.id": "conv"})
    other = span(3, CHAT | {"gen_ai.input.messages": json.dumps([QUESTION])})
    recordings = list(load(write_lines(*CURRENT, other)))
    assert [len(each.messages) for each in recordings] == [5, 1]
    assert {each.cluster for each in recordings} == {f"session/{TRACE}"}


def test_a_broken_span_is_named_by_its_line(write_lines: WriteLines) -> None:
    broken = span(3, CHAT | {"gen_ai.input.messages": '[{"role": "judge", "parts": []}]'})
    path = write_lines(*CURRENT, broken)
    with pytest.raises(ReadError, match=r"message 0: .*'judge'") as caught:
        list(load(path))
    assert caught.value.line == 3
    (recording,) = load(path, on_error="skip")
    assert sum(recording.skipped.values()) == 1


def printed(*spans: Any) -> str:
    """Return spans in the form in which the console exporter prints them."""
    return "\n".join(json.dumps(each, indent=4) for each in spans)


def other(second: int, **attributes: Any) -> Any:
    return span(second, {"http.method": "GET"} | attributes) | {"name": "GET"}


def test_the_console_prints_other_spans_before_a_call(write_lines: WriteLines) -> None:
    lines = (
        "[INFO] started {",
        printed(other(3), other(4), CURRENT[0]),
        "got 200",
        printed(CURRENT[1]),
    )
    (recording,) = load(write_lines(*lines, name="out.log"))
    assert [message.text for message in recording.messages] == ["s", "q", "", "a.txt", "one"]
    assert recording.skipped == {"line outside of the spans": 2, "span of another kind": 2}


def test_a_call_is_found_behind_the_beginning_of_the_file(write_lines: WriteLines) -> None:
    long = [other(n, note="x" * 30_000) for n in range(12)]
    (recording,) = load(write_lines(printed(*long, *CURRENT), name="out.log"))
    assert len(recording.messages) == 5
    assert recording.skipped == {"span of another kind": 12}


def test_a_printed_span_that_was_cut_off_costs_itself(write_lines: WriteLines) -> None:
    cut = printed(other(3)).rpartition("\n")[0]
    path = write_lines(printed(*CURRENT), cut, printed(other(4)), name="out.log")
    with pytest.raises(ReadError, match="not JSON"):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert len(recording.messages) == 5
    assert recording.skipped["span of another kind"] == 1


def test_spans_without_a_model_call_are_refused_with_this_reason(write_lines: WriteLines) -> None:
    reason = r"no otel-genai conversation \(1x trace without a model call; 2x span of another kind"
    for row in (printed(other(1), other(2)), json.dumps([other(1), other(2)])):
        with pytest.raises(ReadError, match=reason):
            list(load(write_lines(row)))


@pytest.mark.parametrize(
    ("attributes", "setting"),
    [
        (CHAT, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
        (PRE, "TRACELOOP_TRACE_CONTENT=true"),
        (CHAT | {"traceloop.workflow.name": "w"}, "TRACELOOP_TRACE_CONTENT=true"),
        (LLM, "unset OPENINFERENCE_HIDE_INPUTS"),
    ],
)
def test_a_refusal_of_calls_without_content_names_the_setting_that_records_it(
    attributes: dict[str, Any], setting: str, write_lines: WriteLines
) -> None:
    used = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 3}
    path = write_lines(printed(other(1), span(2, attributes | used), other(3)))
    with pytest.raises(ReadError, match=rf"1x model call without messages; .*{setting}"):
        list(load(path))


def test_calls_without_content_are_counted_beside_the_others(write_lines: WriteLines) -> None:
    (recording,) = load(write_lines(*CURRENT, span(9, CHAT)))
    ((reason, count),) = recording.skipped.items()
    assert (reason.partition(";")[0], count) == ("model call without messages", 1)


def test_objects_with_attributes_are_not_spans(write_lines: WriteLines) -> None:
    assert detect_format(write_lines({"name": "a", "traceId": "t", "attributes": {"k": 1}})) is None

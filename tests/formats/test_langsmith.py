"""Tests of the LangSmith format: runs of models are stitched by thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Message, Usage

WriteLines = Callable[..., Path]
USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "ho"}


def run(second: int, sent: Any, received: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"run-{second}",
        "run_type": "llm",
        "trace_id": "t",
        "session_id": "project",
        "start_time": f"1970-01-01T00:00:{second:02d}",
        "end_time": f"1970-01-01T00:00:{second:02d}.500000",
        "inputs": sent,
        "outputs": received,
    } | fields


def turns() -> list[dict[str, Any]]:
    more = [USER, SAID, {"role": "user", "content": "and?"}]
    said = {"choices": [{"message": {"role": "assistant", "content": "so"}}]}
    return [run(1, {"messages": [USER]}, SAID), run(2, {"messages": more}, said)]


@pytest.mark.parametrize("shape", ["list", "lines", "page"])
def test_runs_in_any_order_and_shape_are_one_conversation(shape: str, tmp_path: Path) -> None:
    runs = turns()[::-1]
    texts = {
        "list": json.dumps(runs, indent=2),
        "lines": "".join(json.dumps(each) + "\n" for each in runs),
        "page": json.dumps({"runs": runs, "cursors": None}),
    }
    path = tmp_path / "runs.json"
    path.write_text(texts[shape])
    known = detect_format(path)
    assert known is not None
    assert known.name == "langsmith"
    (recording,) = load(path)
    assert recording.messages == (
        Message("user", "hi"),
        Message("assistant", "ho", time=1.5),
        Message("user", "and?"),
        Message("assistant", "so", time=2.5),
    )
    assert (recording.id, recording.meta) == ("runs/t", {"trace_id": "t"})


def test_a_thread_that_the_metadata_names_goes_over_traces(write_lines: WriteLines) -> None:
    first, second = turns()
    for number, each in enumerate((first, second)):
        each |= {"trace_id": str(number), "extra": {"metadata": {"thread_id": "th"}}}
    (recording,) = load(write_lines(first, second))
    assert (len(recording.messages), recording.meta) == (4, {"thread_id": "th"})


def test_the_project_of_a_run_is_no_thread(write_lines: WriteLines) -> None:
    one = run(1, {"messages": [USER]}, SAID, trace_id="a")
    two = run(2, {"messages": [USER]}, SAID, trace_id="b")
    assert len(list(load(write_lines(one, two)))) == 2


def test_runs_around_those_of_models_are_counted_and_those_within_are_read(
    write_lines: WriteLines,
) -> None:
    chain = run(0, {}, {}, run_type="chain", child_runs=[*turns(), run(3, {}, {}, run_type="tool")])
    (recording,) = load(write_lines(chain))
    assert len(recording.messages) == 4
    assert recording.skipped == {"run of type chain": 1, "run of type tool": 1}


def test_the_usage_of_a_run_stands_in_for_that_of_its_answer(write_lines: WriteLines) -> None:
    counted = {
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "prompt_token_details": {"cache_read": 20},
        "completion_token_details": {"reasoning": 3},
    }
    usage = {"input_tokens": 9, "output_tokens": 1}
    (first,) = load(write_lines(run(1, {"messages": [USER]}, SAID, **counted)))
    assert first.messages[1].usage == Usage(input=10, cache_read=20, output=4, reasoning=3)
    answered = run(1, {"messages": [USER]}, SAID | {"usage_metadata": usage}, **counted)
    (second,) = load(write_lines(answered))
    assert second.messages[1].usage == Usage(input=9, output=1)


def test_the_model_and_the_tools_are_those_of_the_call(write_lines: WriteLines) -> None:
    tool = {"name": "ls", "input_schema": {"type": "object"}}
    extra = {"metadata": {"ls_model_name": "m"}, "invocation_params": {"tools": [tool]}}
    (recording,) = load(write_lines(run(1, {"messages": [USER]}, SAID, extra=extra)))
    function = {"name": "ls", "parameters": {"type": "object"}}
    assert recording.model == "m"
    assert recording.tools == ({"type": "function", "function": function},)


def test_what_is_left_out_of_a_message_is_counted_once(write_lines: WriteLines) -> None:
    heard = {"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "hi"}]}
    runs = [
        run(1, {"messages": [heard]}, SAID),
        run(2, {"messages": [heard, SAID, USER]}, SAID),
    ]
    (recording,) = load(write_lines(*runs))
    assert len(recording.messages) == 4
    assert recording.skipped == {"block of type audio": 1}
    assert not any(message.extra for message in recording.messages)


def test_a_run_without_messages_and_one_that_failed_cost_nothing_else(
    write_lines: WriteLines,
) -> None:
    failed = run(0, {"messages": [USER]}, None, error="RateLimitError")
    (recording,) = load(write_lines(failed, *turns(), run(9, {"question": "?"}, {})))
    assert [message.text for message in recording.messages] == ["hi", "ho", "and?", "so"]
    assert recording.skipped == {"request made again": 1, "request without messages": 1}


def test_a_broken_run_is_named_by_its_line(write_lines: WriteLines) -> None:
    broken = run(3, {"messages": [{"role": "judge", "content": ""}]}, SAID)
    path = write_lines(*turns(), broken)
    with pytest.raises(ReadError, match=r"message 0: .*'judge'") as caught:
        list(load(path))
    assert caught.value.line == 3
    (recording,) = load(path, on_error="skip")
    assert sum(recording.skipped.values()) == 1


def test_what_a_run_of_another_system_looks_like_is_not_known(write_lines: WriteLines) -> None:
    path = write_lines({"run_type": "llm"}, {"run_type": "batch", "trace_id": "t"})
    assert detect_format(path) is None

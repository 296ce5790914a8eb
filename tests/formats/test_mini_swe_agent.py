"""Tests of the mini-swe-agent format: OpenAI messages with usage and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Usage

USAGE = {
    "prompt_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens": 7,
}


def trajectory(*messages: Any) -> dict[str, Any]:
    model = {"model_name": "some/model"}
    info = {"config": {"model": model, "agent_type": "minisweagent.x"}, "exit_status": "Submitted"}
    format = "mini-swe-agent-1.1"
    rows = list(messages)
    return {"info": info, "messages": rows, "trajectory_format": format, "instance_id": "a__b-1"}


STEP = {
    "role": "assistant",
    "content": "look",
    "reasoning_content": "hm",
    "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
    "extra": {"response": {"usage": USAGE}, "actions": [{}], "timestamp": 12.5, "cost": 0.1},
}
RESULT = {
    "role": "tool",
    "tool_call_id": "c",
    "content": "shown",
    "extra": {"raw_output": "shown", "returncode": 0, "timestamp": 13.0},
}
EXIT = {"role": "exit", "content": "patch", "extra": {"exit_status": "Submitted"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "misleading.jsonl"
    path.write_text(json.dumps(trajectory(STEP, RESULT, EXIT)))
    return path


def test_a_step_has_its_usage_time_and_reasoning(path: Path) -> None:
    (recording,) = load(path)
    step, result = recording.messages
    assert step.usage == Usage(input=40, cache_read=60, output=7)
    assert (step.time, result.time, step.reasoning) == (12.5, 13.0, "hm")
    assert (recording.model, recording.cluster) == ("some/model", "a__b-1")
    assert recording.tools == ()


def test_the_exit_is_no_message_and_is_counted(path: Path) -> None:
    (recording,) = load(path)
    assert [message.role for message in recording.messages] == ["assistant", "tool"]
    assert recording.skipped == {"message of role exit": 1}


def test_what_extra_says_twice_is_left_out(path: Path) -> None:
    (recording,) = load(path)
    assert [message.extra for message in recording.messages] == [{"cost": 0.1}, {"returncode": 0}]


def test_one_object_in_a_jsonl_is_known_by_its_content(path: Path) -> None:
    known = detect_format(path)
    assert known is not None
    assert known.name == "mini-swe-agent"


def test_a_broken_message_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(trajectory(STEP, {"role": 1}, RESULT)))
    with pytest.raises(ReadError, match="message 1: unknown role 1"):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert len(recording.messages) == 2
    assert sum(recording.skipped.values()) == 1


def test_the_real_runs_are_read_whole(data: Path) -> None:
    recordings = list(load(data / "mini-swe-agent"))
    assert len(recordings) == 10
    assert max(len(recording.messages) for recording in recordings) == 315
    for recording in recordings:
        answers = [m for m in recording.messages if m.role == "assistant"]
        assert all(m.usage is not None and m.usage.total_input > 0 for m in answers)
        assert all(m.time is not None for m in answers)
        # The last call submits; its result is the exit.
        calls = sum(len(m.tool_calls) for m in answers)
        assert calls == sum(m.role == "tool" for m in recording.messages) + 1
        assert recording.skipped == {"message of role exit": 1}

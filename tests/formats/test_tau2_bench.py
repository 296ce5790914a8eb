"""Tests of the tau2-bench format: the recording has what the agent saw, clustered by task."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Recording, ToolCall, Usage
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.counter import TokenCounter

CALL = {"id": "c", "name": "find", "arguments": {"id": "L1"}, "requestor": "assistant"}
OWN = {"id": "u", "name": "look", "arguments": {}, "requestor": "user"}
HIDDEN = {
    "user message that calls the user's own tools": 1,
    "result of a tool that the user called": 1,
}
CHAT: list[Any] = [
    {"role": "assistant", "content": "Hi!", "cost": 0.0},
    {"role": "user", "content": "Help", "usage": {"prompt_tokens": 5, "completion_tokens": 1}},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [CALL],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
        "cost": 0.5,
        "timestamp": "1970-01-01T00:01:00",
        "raw_data": {"message": {"content": None, "reasoning_content": "hm"}},
        "errors": ["asked again"],
    },
    {"role": "tool", "id": "c", "content": "none", "requestor": "assistant", "error": True},
    {"role": "assistant", "content": "Look at your phone."},
    {"role": "user", "content": None, "tool_calls": [OWN]},
    {"role": "tool", "id": "u", "content": "plane mode", "requestor": "user"},
    {"role": "user", "content": "Plane mode."},
]


def simulation(trial: int = 0, **changes: Any) -> dict[str, Any]:
    whole = {"task_id": "t", "trial": trial, "termination_reason": "user_stop", "messages": CHAT}
    return whole | {"reward_info": {"reward": 1.0}} | changes


def results(*runs: Any, **environment: Any) -> dict[str, Any]:
    environment = {"domain_name": "phones", "policy": "Be kind."} | environment
    agent = {"llm": "some/model", "llm_args": {"api_key": "secret"}}
    criteria = {"actions": [{"name": "find"}], "communicate_info": ["L1"], "nl_assertions": None}
    return {
        "timestamp": "now",
        "info": {"agent_info": agent, "environment_info": environment},
        "tasks": [{"id": "t", "evaluation_criteria": criteria}],
        "simulations": list(runs),
    }


def read(tmp_path: Path, content: Any, **options: Any) -> list[Recording]:
    path = tmp_path / "phones.json"
    path.write_text(json.dumps(content))
    return list(load(path, **options))


def test_what_the_user_did_with_tools_is_none_of_the_agents_messages(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, results(simulation()))
    roles = [message.role for message in recording.messages]
    assert roles == ["system", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert recording.skipped == HIDDEN
    assert {violation.rule for violation in find_violations(recording.messages)} == {
        "starts_with_user"
    }


def test_calls_usage_time_and_thoughts_are_the_agents(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, results(simulation()))
    _, greeting, user, call, result, *_ = recording.messages
    assert call.tool_calls == (ToolCall("c", "find", '{"id":"L1"}'),)
    assert (call.usage, call.time, call.reasoning) == (Usage(input=9, output=3), 60.0, "hm")
    assert call.extra == {"cost": 0.5, "errors": ["asked again"]}
    assert (result.tool_call_id, result.content, result.extra) == ("c", "none", {"error": True})
    assert greeting.usage is None
    assert user.usage is None
    assert user.extra == {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}


def test_the_policy_is_the_system_message_and_a_run_may_have_its_own(tmp_path: Path) -> None:
    first, second = read(tmp_path, results(simulation(), simulation(1, policy="Be quick.")))
    assert first.messages[0].content == "Be kind."
    assert second.messages[0].content == "Be quick."
    (bare,) = read(tmp_path, results(simulation(), policy=None))
    assert bare.messages[0].role == "assistant"


def test_trials_of_a_task_share_a_cluster_and_know_the_truth(tmp_path: Path) -> None:
    first, second = read(tmp_path, results(simulation(), simulation(1)))
    assert (first.id, second.id) == ("phones/task-t/trial-0", "phones/task-t/trial-1")
    assert first.cluster == second.cluster == "phones/task-t"
    assert first.model == "some/model"
    assert first.meta == {
        "task_id": "t",
        "trial": 0,
        "termination_reason": "user_stop",
        "domain": "phones",
        "reward": 1.0,
        "actions": [{"name": "find"}],
        "communicate_info": ["L1"],
    }
    assert "secret" not in repr(first)


def test_tool_definitions_are_taken_where_they_are_recorded(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    find = {"name": "find", "doc": "Finds", "params": schema, "returns": {}}
    (recording,) = read(tmp_path, results(simulation(), tool_defs={"find": find}))
    function = {"name": "find", "description": "Finds", "parameters": schema}
    assert recording.tools == ({"type": "function", "function": function},)
    broken = results(simulation(), tool_defs={"find": {"name": 1}})
    with pytest.raises(ReadError, match="tool definition 0: "):
        read(tmp_path, broken)
    (recording,) = read(tmp_path, broken, on_error="skip")
    assert recording.tools == ()
    assert sum(recording.skipped.values()) == 3


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (17, "a simulation must be an object, got int"),
        (simulation(messages=None), "messages must be a list, got NoneType"),
        (simulation(messages=[*CHAT, {"role": "judge"}]), "message 8: unknown role 'judge'"),
        (simulation(messages=["hi"]), "message 0: a message must be an object, got str"),
    ],
)
def test_a_broken_run_costs_only_itself(tmp_path: Path, run: Any, reason: str) -> None:
    content = results(simulation(), run, simulation(2))
    with pytest.raises(ReadError, match=f"simulation 1: .*{reason}"):
        read(tmp_path, content)
    first, last = read(tmp_path, content, on_error="skip")
    assert first.skipped == HIDDEN
    assert sum(last.skipped.values()) == 3


def test_a_voice_run_is_counted(tmp_path: Path) -> None:
    voice = simulation(1, messages=None, ticks=[{}])
    (recording,) = read(tmp_path, results(simulation(), voice))
    reason = "simulation with audio ticks and no messages (1)"
    assert recording.skipped == HIDDEN | {reason: 1}


# The counts with the system message and, in telecom, with what the user did with its tools.
@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize(
    ("model", "domain", "runs", "median", "most", "hidden"),
    [
        ("gpt-4.1-mini-2025-04-14", "retail", 114, 22, 65, (0, 0)),
        ("openai/gpt-oss-120b", "airline", 50, 23, 209, (0, 0)),
        ("gpt-4.1", "telecom", 40, 60, 81, (433, 482)),
    ],
)
def test_the_real_files_are_read_whole(
    data: Path, model: str, domain: str, runs: int, median: int, most: int, hidden: tuple[int, int]
) -> None:
    chosen = [r for r in load(data / "tau2-bench") if r.meta["domain"] == domain]
    assert len(chosen) == len({r.cluster for r in chosen}) == runs
    assert {r.model for r in chosen} == {model}
    skipped = sum((Counter(r.skipped) for r in chosen), Counter())
    assert tuple(skipped[reason] for reason in HIDDEN) == hidden
    assert sum(skipped.values()) == sum(hidden)
    lengths = sorted(len(r.messages) + sum(r.skipped.values()) for r in chosen)
    assert (lengths[runs // 2], lengths[-1]) == (median, most)
    for recording in chosen:
        # The greeting, which every run begins with, is the agent's in its own view.
        assert [v.rule for v in find_violations(recording.messages)] == ["starts_with_user"]
        calls = sum(len(m.tool_calls) for m in recording.messages)
        assert calls == sum(m.role == "tool" for m in recording.messages)
        assert {m.role for m in recording.messages if m.usage} <= {"assistant"}


def test_what_the_provider_billed_shows_that_the_agent_saw_no_user_tools(
    data: Path, counter: TokenCounter
) -> None:
    path = data / "tau2-bench" / "gpt-4.1_telecom_default_gpt-4.1_1trials.json"
    compared = 0
    for messages in (recording.messages for recording in load(path)):
        for said, heard, answer in zip(messages, messages[1:], messages[2:], strict=False):
            if (
                heard.role == "user"
                and said.usage
                and answer.usage
                and "errors" not in answer.extra
            ):
                grown = answer.usage.total_input - said.usage.total_input
                assert grown == counter.count_message(said) + counter.count_message(heard)
                compared += 1
    # Between 275 of the agent's requests and the one before, the user called tools.
    assert compared == 360

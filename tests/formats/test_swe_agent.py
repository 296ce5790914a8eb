"""Tests of the SWE-agent format in its three versions."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.validation import find_violations

STEP = {"action": "ls", "observation": "a", "response": "Look.\nls", "thought": "Look."}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", **more}


def calling(id: str, **more: Any) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}]
    return said("assistant", "Look.", thought="Look.", action="ls", tool_calls=calls, **more)


def config(**agent: Any) -> dict[str, Any]:
    return {"agent": agent, "problem_statement": {"id": "org__repo-1", "text": "…"}}


def run(*history: Any, **more: Any) -> dict[str, Any]:
    info = {"exit_status": "submitted", "submission": "diff", "model_stats": {"api_calls": 1}}
    whole = {"environment": "swe_main", "trajectory": [STEP], "history": list(history)}
    return whole | {"info": info} | more


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=2))
    return path


START = (said("system", "s"), said("user", "issue"))
ANSWER = said("assistant", "Look.\nls", thought="Look.", action="ls")


def test_actions_in_text_keep_the_roles_in_which_they_were_sent(tmp_path: Path) -> None:
    path = write(tmp_path / "org__repo-1.traj", run(*START, ANSWER, said("user", "a")))
    (recording,) = load(path)
    assert [m.role for m in recording.messages] == ["system", "user", "assistant", "user"]
    assert not any(m.tool_calls or m.extra for m in recording.messages)
    assert recording.cluster == "org__repo-1"
    assert recording.meta == {"exit_status": "submitted", "model_stats": {"api_calls": 1}}
    assert not recording.skipped


def test_demonstrations_are_left_out_and_counted(tmp_path: Path) -> None:
    demos = [said("user", "Here is one.", is_demo=True), said("assistant", "…", is_demo=True)]
    (recording,) = load(write(tmp_path / "a.traj", run(START[0], *demos, START[1], ANSWER)))
    assert [m.text for m in recording.messages] == ["s", "issue", "Look.\nls"]
    assert recording.skipped == {"message of a demonstration": 2}


def test_a_result_names_its_call_in_a_list(tmp_path: Path) -> None:
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    mark = {"cache_control": {"type": "ephemeral"}, "message_type": "observation"}
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": "x"}]
    path = write(
        tmp_path / "a.traj",
        run(
            *START,
            calling("c", thinking_blocks=thoughts),
            said("tool", [part], tool_call_ids=["c"], **mark),
        ),
    )
    (recording,) = load(path)
    *_, answer, result = recording.messages
    assert (answer.reasoning, answer.tool_calls[0].id) == ("hm", "c")
    assert (result.content, result.tool_call_id, result.extra) == ("a", "c", {})
    assert not find_violations(recording.messages)


@pytest.mark.parametrize("packed", [json.dumps, lambda value: value])
def test_the_replay_config_names_instance_model_and_processors(tmp_path: Path, packed: Any) -> None:
    processors = [{"type": "default"}, {"type": "last_n_observations", "n": 5, "more": []}]
    replay = config(model={"name": "gpt-4o"}, history_processors=processors)
    path = write(tmp_path / "a.traj", run(*START, ANSWER, replay_config=packed(replay)))
    (recording,) = load(path)
    assert (recording.model, recording.cluster) == ("gpt-4o", "org__repo-1")
    assert recording.meta["history_processors"] == [{"type": "last_n_observations", "n": 5}]


def test_a_replay_names_no_model(tmp_path: Path) -> None:
    replay = config(model={"name": "replay"})
    (recording,) = load(write(tmp_path / "a.traj", run(*START, ANSWER, replay_config=replay)))
    assert recording.model is None


def test_answers_that_were_asked_for_again_are_counted(tmp_path: Path) -> None:
    (recording,) = load(
        write(tmp_path / "a.traj", run(*START, ANSWER, trajectory=[STEP, STEP, STEP]))
    )
    assert recording.skipped == {"step that is not in the history": 2}


def test_an_agent_saw_its_own_messages_alone(tmp_path: Path) -> None:
    other = [said("system", "plan", agent="planner"), said("user", "do", agent="planner")]
    first, second = load(write(tmp_path / "a.traj", run(*START, *other, ANSWER)))
    assert [m.text for m in first.messages] == ["s", "issue", "Look.\nls"]
    assert [m.text for m in second.messages] == ["plan", "do"]
    assert (first.id, second.id) == ("a", "a/planner")
    assert first.cluster == second.cluster


def test_each_attempt_is_a_recording_and_the_best_is_not_read_twice(tmp_path: Path) -> None:
    attempts = [run(*START, ANSWER), run(*START, ANSWER, said("user", "a"))]
    path = write(tmp_path / "a.traj", {"attempts": attempts, **attempts[1]})
    recordings = list(load(path))
    assert [(r.id, len(r.messages)) for r in recordings] == [
        ("a/attempt-0", 3),
        ("a/attempt-1", 4),
    ]
    assert {r.cluster for r in recordings} == {"a"}


@pytest.mark.parametrize("asked", ["query", "messages"])
def test_steps_tell_the_conversation_where_there_is_no_history(tmp_path: Path, asked: str) -> None:
    steps = [STEP | {asked: [*START, ANSWER]}, STEP | {"response": "submit", "observation": ""}]
    (recording,) = load(write(tmp_path / "a.traj", {"trajectory": steps, "info": {}}))
    assert [(m.role, m.text) for m in recording.messages] == [
        ("system", "s"),
        ("user", "issue"),
        ("assistant", "Look.\nls"),
        ("user", "a"),
        ("assistant", "submit"),
    ]
    assert not recording.skipped


def test_a_broken_message_is_named_by_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.traj", run(*START, 17, ANSWER))
    with pytest.raises(ReadError, match="message 2: a message must be an object, got int"):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert len(recording.messages) == 3


def test_the_real_runs_are_read_whole(data: Path) -> None:
    recordings = list(load(data / "swe-agent"))
    assert len(recordings) == 6
    lengths = [len(r.messages) for r in recordings]
    # Two without their demonstrations; the median between 25 and 28 is told as 26.
    assert (median(lengths), max(lengths)) == (26.5, 43)
    for recording in recordings:
        assert recording.source is not None
        history = json.loads(Path(recording.source).read_text())["history"]
        spoken = [item for item in history if not item.get("is_demo")]
        assert [(m.role, m.text) for m in recording.messages] == [
            (item["role"], item["content"]) for item in spoken
        ]
        assert sum(recording.skipped.values()) == len(history) - len(spoken)
        assert not find_violations(recording.messages)
    assert sum("message of a demonstration" in r.skipped for r in recordings) == 2
    called = [r for r in recordings if any(m.tool_calls for m in r.messages)]
    assert [r.cluster for r in called] == ["marshmallow-code__marshmallow-1867"] * 2

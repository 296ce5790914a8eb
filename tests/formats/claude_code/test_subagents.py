"""Tests of the subagents of Claude Code: their conversations, and the calls that started them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from claude_rows import Read, Row, call, result, said, shape, text, user

from ctxlab.formats import load
from ctxlab.messages.types import Recording, Usage

Files = dict[str, list[Row]]


def progress(agent: str, row: Row, call_id: str | None = "c1", **outer: Any) -> Row:
    """Return a progress row that contains a row of a subagent."""
    inner = {key: row[key] for key in ("type", "uuid", "message")}
    data = {"type": "agent_progress", "agentId": agent, "message": inner}
    tie = {"parentToolUseID": call_id} if call_id else {}
    return {"type": "progress", "sessionId": "s", "data": data} | tie | outer


def side(agent: str | None, row: Row) -> Row:
    return row | {"isSidechain": True} | ({"agentId": agent} if agent else {})


def started(id: str, prompt: str = "look") -> list[Row]:
    return [user("hi"), said("m1", call(id, prompt=prompt))]


def ended(id: str, agent: str) -> Row:
    return user([result(id)], toolUseResult={"agentId": agent})


def tie(recording: Recording) -> tuple[str | None, str | None]:
    return recording.meta.get("parent"), recording.meta.get("call_id")


def load_files(folder: Path, files: Files, at: str = "") -> dict[str, Recording]:
    for name, rows in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, rows)))
    found = load(folder / at, on_error="skip")
    return {recording.id: recording for recording in found}


def test_progress_rows_are_the_conversation_of_a_subagent(read: Read) -> None:
    rows = [progress("x", user("look")), progress("x", said("n1", call("d")))]
    rows += [progress("x", user([result("d")])), user([result("c1")])]
    main, agent = read(*started("c1"), *rows, said("m2", text("done")))
    assert [*shape(main)] == ["user:hi", "assistant:+c1", "tool:ok=c1", "assistant:done"]
    assert [*shape(agent)] == ["user:look", "assistant:+d", "tool:ok=d"]
    assert (agent.id, agent.cluster, agent.meta["agentId"]) == ("session/side-x", "s", "x")
    assert agent.messages[1].usage is not None
    assert tie(agent) == ("session", "c1")
    assert tie(main) == (None, None)


def test_the_final_answer_of_progress_rows_is_taken_from_the_result(read: Read) -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 7}
    done = {"status": "completed", "agentId": "x", "content": [text("found")], "usage": usage}
    rows = [progress("x", user("look")), progress("x", said("n1", call("d")))]
    rows += [progress("x", user([result("d")])), user([result("c1", "found")], toolUseResult=done)]
    main, agent = read(*started("c1"), *rows, ended("c2", "x"))
    assert [*shape(agent)][2:] == ["tool:ok=d", "assistant:found"]
    assert agent.messages[-1].usage == Usage(input=5, cache_read=20, output=7)
    assert agent.messages[-1].time == 9.0
    assert "tool:found=c1" in [*shape(main)]


def test_a_final_answer_in_progress_rows_is_read_once(read: Read) -> None:
    done = {"status": "completed", "agentId": "x", "content": [text("found")]}
    rows = [progress("x", user("look")), progress("x", said("n1", text("found")))]
    _, agent = read(*started("c1"), *rows, user([result("c1")], toolUseResult=done))
    assert [*shape(agent)] == ["user:look", "assistant:found"]


@pytest.mark.parametrize("status", ["async_launched", None])
def test_a_result_of_a_subagent_that_still_runs_is_no_answer(read: Read, status: Any) -> None:
    started_only = {"status": status, "agentId": "x", "content": [text("started")]}
    row = user([result("c1")], toolUseResult=started_only)
    _, agent = read(*started("c1"), progress("x", user("look")), row)
    assert [*shape(agent)] == ["user:look"]


def test_a_subagent_is_tied_by_the_call_that_its_rows_name(read: Read) -> None:
    rows = [user("hi"), said("m1", call("c1", prompt="look"), call("c2", prompt="look"))]
    _, agent = read(*rows, progress("x", user("look"), "c2"), ended("c1", "x"))
    assert tie(agent) == ("session", "c2")


def test_a_subagent_is_tied_by_the_result_that_names_it(read: Read) -> None:
    rows = [user("hi"), said("m1", call("c1", prompt="look"), call("c2", prompt="look"))]
    _, agent = read(*rows, side("x", user("look")), ended("c2", "x"))
    assert tie(agent) == ("session", "c2")


def test_subagents_are_tied_by_equal_prompts_and_each_call_is_used_once(read: Read) -> None:
    rows = [user("hi"), said("m1", call("c1", prompt="look"), call("c2", prompt="look"))]
    rows += [side("x", user("look")), side("y", user([text("look ")])), side("z", user("look"))]
    _, *agents = read(*rows)
    assert [tie(agent) for agent in agents] == [
        ("session", "c1"),
        ("session", "c2"),
        ("session", None),
    ]


def test_a_subagent_of_a_subagent_is_tied_to_its_conversation(read: Read) -> None:
    rows = [progress("x", user("look")), progress("x", said("n1", call("d", prompt="deeper")))]
    _, outer, inner = read(*started("c1"), *rows, progress("y", user("deeper"), "d"))
    assert tie(outer) == ("session", "c1")
    assert tie(inner) == ("session/side-x", "d")


def test_a_side_chain_that_no_call_started_has_a_parent_without_a_call(read: Read) -> None:
    _, agent = read(user("hi"), side("x", user("warm up")))
    assert tie(agent) == ("session", None)


def test_a_subagent_of_a_session_under_a_new_id_is_in_the_cluster_of_its_parent(read: Read) -> None:
    rows = [*started("c1"), progress("x", user("look"), sessionId="t")]
    main, agent = read(*rows, user("on", sessionId="t"))
    assert agent.cluster == main.cluster == "s"


def test_sessions_that_take_turns_have_their_own_subagents(read: Read) -> None:
    rows = [user(name, sessionId=name) for name in "stst"]
    *_, agent = read(*rows, side("x", user("look", sessionId="t")))
    assert tie(agent) == ("session/t", None)


@pytest.mark.parametrize("agent", ["x", None])
def test_a_subagent_in_progress_rows_and_a_side_chain_is_read_once(
    read: Read, agent: str | None
) -> None:
    task = user("look")
    rows = [progress("x", task), side(agent, task), side(agent, said("n1", text("found")))]
    rows[-1]["parentUuid"] = task["uuid"]
    main, other = read(*started("c1"), *rows)
    assert [*shape(other)] == ["user:look", "assistant:found"]
    assert tie(other) == ("session", "c1")
    assert main.skipped == {"progress row that repeats a row of a subagent": 1}


def test_a_subagent_of_an_abandoned_turn_is_left_out(read: Read) -> None:
    rows = [user("hi", uuid="a"), user("old", uuid="b", parentUuid="a")]
    rows += [said("m1", call("c1"), uuid="c", parentUuid="b")]
    rows += [progress("x", user("look"), uuid="d", parentUuid="c")]
    (recording,) = read(*rows, user("new", uuid="e", parentUuid="a"))
    assert recording.skipped == {"row of a turn that was taken back": 3}


@pytest.mark.parametrize(
    "data", [{}, {"agentId": "x"}, {"message": {}}, {"agentId": 7, "message": {}}, 7]
)
def test_a_progress_row_without_a_message_is_counted(read: Read, data: Any) -> None:
    if isinstance(data, dict):
        data = {"type": "agent_progress"} | data
    (recording,) = read(user("hi"), {"type": "progress", "data": data})
    assert sum(recording.skipped.values()) == 1


AGENT = [side("x", user("look")), side("x", said("n1", text("found")))]


@pytest.mark.parametrize(
    "place", ["agent-x", "s/agent-x", "s/subagents/agent-x", "s/subagents/w/1/agent-x"]
)
def test_a_subagent_in_its_own_file_is_tied_to_the_file_of_its_session(
    tmp_path: Path, place: str
) -> None:
    files = {"p/s.jsonl": [*started("c1"), ended("c1", "x")], f"p/{place}.jsonl": AGENT}
    found = load_files(tmp_path, files)
    agent = found.pop(f"p/{place}/side-x")
    assert [*found] == ["p/s"]
    assert tie(agent) == ("p/s", "c1")
    assert agent.cluster == found["p/s"].cluster


def test_the_file_of_a_session_outside_of_the_requested_folder_is_not_read(tmp_path: Path) -> None:
    files = {"s.jsonl": [*started("c1"), ended("c1", "x")], "s/subagents/agent-x.jsonl": AGENT}
    (agent,) = load_files(tmp_path, files, "s/subagents").values()
    assert tie(agent) == (None, None)
    assert tie(load_files(tmp_path, files)["s/subagents/agent-x/side-x"]) == ("s", "c1")


def test_a_file_of_a_subagent_without_the_file_of_its_session_has_no_parent(tmp_path: Path) -> None:
    (agent,) = load_files(tmp_path, {"s/subagents/agent-x.jsonl": AGENT}).values()
    assert tie(agent) == (None, None)
    assert agent.cluster == "s"


def test_a_subagent_is_tied_by_the_file_that_describes_it(tmp_path: Path) -> None:
    calls = said("m1", call("c1", prompt="look"), call("c2", prompt="look"))
    files = {"s.jsonl": [user("hi"), calls], "s/subagents/agent-x.jsonl": AGENT}
    files["s/subagents/agent-x.meta.json"] = [{"agentType": "scout", "toolUseId": "c2"}]
    found = load_files(tmp_path, files)
    assert tie(found["s/subagents/agent-x/side-x"]) == ("s", "c2")


def test_progress_of_the_tools_of_a_subagent_does_not_name_its_call(read: Read) -> None:
    tool = {"type": "progress", "data": {"type": "bash_progress"}, "parentToolUseID": "d"}
    rows = [side("x", tool), side("x", user("look")), side("x", said("n1", call("d")))]
    _, agent = read(*started("c1"), *rows, ended("c1", "x"))
    assert tie(agent) == ("session", "c1")


def test_a_file_of_a_subagent_of_a_subagent_is_tied_to_its_file(tmp_path: Path) -> None:
    inner = [side("y", user("deeper"))]
    files = {"s.jsonl": started("c1"), "s/subagents/agent-y.jsonl": inner}
    files["s/subagents/agent-x.jsonl"] = [*AGENT, side("x", said("n2", call("d", prompt="deeper")))]
    files["s/subagents/agent-y.meta.json"] = [{"parentAgentId": "x"}]
    found = load_files(tmp_path, files)
    assert tie(found["s/subagents/agent-x/side-x"]) == ("s", "c1")
    assert tie(found["s/subagents/agent-y/side-y"]) == ("s/subagents/agent-x/side-x", "d")


def test_a_broken_description_of_a_subagent_is_counted(tmp_path: Path) -> None:
    files = {"s.jsonl": started("c1"), "s/subagents/agent-x.jsonl": AGENT}
    (tmp_path / "s" / "subagents").mkdir(parents=True)
    (tmp_path / "s" / "subagents" / "agent-x.meta.json").write_text("{")
    found = load_files(tmp_path, files)
    agent = found["s/subagents/agent-x/side-x"]
    assert tie(agent) == ("s", "c1")
    (reason,) = agent.skipped
    assert reason.startswith("broken file agent-x.meta.json: not JSON")


def test_progress_rows_of_a_subagent_with_its_own_file_are_left_out(tmp_path: Path) -> None:
    rows = [*started("c1"), progress("x", user("look"))]
    found = load_files(tmp_path, {"s.jsonl": rows, "s/subagents/agent-x.jsonl": AGENT})
    assert [*found] == ["s", "s/subagents/agent-x/side-x"]
    assert found["s"].skipped == {"progress row of a subagent that has its own file": 1}


def test_a_session_id_that_is_a_path_is_not_followed(tmp_path: Path) -> None:
    agent = [row | {"sessionId": "../t"} for row in AGENT]
    files = {"t.jsonl": started("c1"), "s/agent-x.jsonl": agent}
    assert tie(load_files(tmp_path, files)["s/agent-x/side-x"]) == (None, None)


def test_every_subagent_of_the_real_sessions_is_tied_to_a_call_of_its_parent(data: Path) -> None:
    found = {recording.id: recording for recording in load(data / "claude-code-entireio")}
    agents = [recording for recording in found.values() if "agentId" in recording.meta]
    assert len(agents) == 4
    for agent in agents:
        parent = found[agent.meta["parent"]]
        calls = {call.id: call for message in parent.messages for call in message.tool_calls}
        prompt = calls[agent.meta["call_id"]].parse_arguments()["prompt"]
        assert agent.messages[0].text == prompt
        assert agent.cluster == parent.cluster

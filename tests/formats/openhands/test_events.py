"""Tests of OpenHands' events: rows of an evaluation, and saved trajectories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Message, Recording, Usage
from ctxlab.messages.validation import find_violations

Event = dict[str, Any]
WriteLines = Callable[..., Path]


def action(id: int, kind: str, source: str = "agent", **args: Any) -> Event:
    time = f"1970-01-01T00:00:{id:02d}"
    return {"id": id, "timestamp": time, "source": source, "action": kind, "args": args}


def observation(id: int, kind: str, content: str = "ok", **more: Any) -> Event:
    event = {"id": id, "source": "agent", "observation": kind, "content": content, "extras": {}}
    return event | more


def metadata(response: str, id: str, *ids: str, name: str = "bash", said: str = "") -> Event:
    """Return the metadata that links an event to call ``id`` of a response with the calls ``ids``."""
    calls = [
        {"id": each, "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
        for each in ids or (id,)
    ]
    message = {"role": "assistant", "content": said or response, "tool_calls": calls}
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    model_response = {"id": response, "choices": [{"message": message}], "usage": usage}
    link = {"function_name": name, "tool_call_id": id, "model_response": model_response}
    return {"tool_call_metadata": link | {"total_calls_in_response": len(calls)}}


def row(*history: Any, **more: Any) -> dict[str, Any]:
    config = {"model": "some/model", "max_message_chars": 100}
    whole = {"instance_id": "org__repo-1", "metadata": {"llm_config": config}}
    return whole | {"test_result": {"git_patch": "p"}, "history": list(history)} | more


def told(message: Message) -> tuple[str, str | None]:
    return message.role, message.text or None


ASKED = action(0, "message", "user", content="q")


@pytest.fixture
def read(write_lines: WriteLines) -> Callable[..., Recording]:
    def read(*history: Any, **more: Any) -> Recording:
        (recording,) = load(write_lines(row(*history, **more), name="output.jsonl"))
        return recording

    return read


def test_a_row_is_a_conversation_with_its_tools_model_and_result(
    read: Callable[..., Recording],
) -> None:
    tool = {"type": "function", "function": {"name": "bash"}}
    result = {"git_patch": "p", "report": {"resolved": True, "log": "x" * 300}, "score": 0.5}
    recording = read(
        action(0, "system", content="s", tools=[tool]),
        ASKED,
        action(2, "message", content="hello"),
        test_result=result,
        metrics={"accumulated_cost": 0.25},
        error="Timeout\n  trace",
    )
    assert [told(m) for m in recording.messages] == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", "hello"),
    ]
    assert [m.time for m in recording.messages] == [0, 0, 2]
    assert (recording.id, recording.cluster) == ("output/org__repo-1", "org__repo-1")
    assert (recording.model, recording.tools) == ("some/model", (tool,))
    assert recording.meta == {
        "instance_id": "org__repo-1",
        "resolved": True,
        "score": 0.5,
        "cost": 0.25,
        "error": "Timeout",
    }


def test_the_actions_of_one_response_are_one_message_with_its_results_behind_it(
    read: Callable[..., Recording],
) -> None:
    one, two = (metadata("r1", id, "t1", "t2") for id in ("t1", "t2"))
    recording = read(
        ASKED,
        action(1, "run", command="ls", thought="r1") | one,
        action(2, "read", path="a") | two,
        observation(3, "read", cause=2) | two,
        action(4, "message", "user", content="hurry"),
        observation(5, "run", cause=1) | one,
        action(6, "run") | metadata("r2", "t1"),
        observation(7, "error", cause=6),
    )
    assert [m.role for m in recording.messages] == [
        *("user", "assistant", "tool", "tool"),
        *("user", "assistant", "tool"),
    ]
    assert [m.tool_call_id for m in recording.messages if m.role == "tool"] == ["t2", "t1", "t1"]
    answer = recording.messages[1]
    assert [call.id for call in answer.tool_calls] == ["t1", "t2"]
    assert answer.usage == Usage(input=10, output=2)
    assert recording.messages[-1].text == "ok\n[Error occurred in processing last action]"
    assert not find_violations(recording.messages)
    assert not recording.skipped


def test_a_response_id_that_is_used_again_begins_a_new_message(
    read: Callable[..., Recording],
) -> None:
    link = metadata("same", "t1")
    steps = [(action(i, "run") | link, observation(i + 1, "run", cause=i) | link) for i in (1, 3)]
    recording = read(ASKED, *(event for step in steps for event in step))
    assert [m.role for m in recording.messages] == ["user", *["assistant", "tool"] * 2]


def test_an_observation_reads_as_the_model_saw_it(read: Callable[..., Recording]) -> None:
    shell = {"exit_code": 1, "working_dir": "/r", "py_interpreter_path": "", "suffix": "!"}
    image = "a\n![image](data:image/png;base64,AAAA)"
    links = [metadata(f"r{i}", "t") for i in range(4)]
    recording = read(
        ASKED,
        action(1, "run") | links[0],
        observation(2, "run", "out", extras={"metadata": shell}) | links[0],
        action(3, "run") | links[1],
        observation(4, "run", "out", extras={"exit_code": 0, "command_id": 5}) | links[1],
        action(5, "run_ipython") | links[2],
        observation(6, "run_ipython", image) | links[2],
        action(7, "edit") | links[3],
        observation(8, "edit", "x" * 60 + "y" * 60) | links[3],
        action(9, "run", "user", command="git log"),
        observation(10, "run", "log", cause=9),
    )
    assert [m.text for m in recording.messages if m.role == "tool"] == [
        "out!\n[Current working directory: /r]\n[Command finished with exit code 1]",
        "out\n[Command finished with exit code 0]",
        "a\n![image](data:image/png;base64, ...) already displayed to user",
        "x" * 50 + "\n[... Observation truncated due to length ...]\n" + "y" * 50,
    ]
    assert [told(m) for m in recording.messages[-2:]] == [
        ("user", "User executed the command:\ngit log"),
        ("user", "\nObserved result of command executed by user:\nlog"),
    ]
    assert recording.skipped == {"middle of a long observation": 1}


def test_a_call_is_made_of_the_action_where_the_response_is_not_logged(
    read: Callable[..., Recording],
) -> None:
    link = {"tool_call_id": "t", "function_name": "bash", "model_response": None}
    recording = read(
        ASKED, action(1, "run", command="ls", thought="Look.") | {"tool_call_metadata": link}
    )
    said = recording.messages[-1]
    assert said.text == "Look."
    assert [(c.id, c.name, c.arguments) for c in said.tool_calls] == [
        ("t", "bash", '{"command":"ls"}')
    ]


def test_finish_is_a_call_at_the_end_and_words_where_the_user_goes_on(
    read: Callable[..., Recording],
) -> None:
    function = {"name": "finish", "arguments": '{"message": "Done."}'}
    link = metadata("r1", "t", name="finish")
    message = link["tool_call_metadata"]["model_response"]["choices"][0]["message"]
    message["tool_calls"][0]["function"], message["content"] = function, None
    end = action(1, "finish", final_thought="Done.") | link
    assert read(ASKED, end).messages[-1].tool_calls[0].name == "finish"
    _, said, _ = read(ASKED, end, action(2, "message", "user", content="more")).messages
    assert (said.text, said.tool_calls) == ("Done.", ())


def test_a_condensation_is_marked_with_what_it_kept(read: Callable[..., Recording]) -> None:
    links = [metadata(f"r{i}", "t") for i in range(3)]
    steps = [
        (action(i, "run") | link, observation(i + 1, "run", cause=i) | link)
        for i, link in zip((1, 3, 6), links, strict=True)
    ]
    span = {"forgotten_events_start_id": 1, "forgotten_events_end_id": 2}
    recording = read(
        ASKED,
        *steps[0],
        *steps[1],
        action(5, "condensation", summary="so far", summary_offset=1, **span),
        *steps[2],
        action(8, "condensation", forgotten_event_ids=[4]),
        action(9, "condensation"),
    )
    assert len(recording.messages) == 7
    # The second forgets a result, and with it goes the call.
    assert described(recording) == (
        Summary(5, summary="so far", kept=(0, 3, 4)),
        Summary(7, kept=(0, 5, 6)),
    )
    assert recording.skipped == {"condensation that forgets nothing": 1}


def test_runs_without_calls_are_text_as_it_was_sent(read: Callable[..., Recording]) -> None:
    shell = {"exit_code": 0, "command_id": 5}
    recording = read(
        [ASKED, observation(1, "null")],
        [
            action(2, "run", command="ls", thought="Look."),
            observation(3, "run", "a", extras=shell),
        ],
        [action(4, "edit", path="a"), observation(5, "user_rejected", "no")],
        [action(6, "finish", thought="Done."), observation(7, "null")],
    )
    assert [told(m) for m in recording.messages] == [
        ("user", "q"),
        ("assistant", "Look.\n<execute_bash>\nls\n</execute_bash>"),
        ("user", "OBSERVATION:\na\n[Command 5 finished with exit code 0]"),
        ("assistant", '\n{"action":"edit","args":{"path":"a"}}'),
        ("user", "OBSERVATION:\nno\n[Last action has been rejected by the user]"),
        ("assistant", "Done."),
    ]
    assert recording.skipped == {"observation of type null": 2}


KNOWN = {"recall_type": "knowledge", "microagent_knowledge": [{"name": "git", "content": "know"}]}


def test_what_was_recalled_is_a_message_of_a_trajectory_and_none_of_an_evaluation(
    read: Callable[..., Recording], tmp_path: Path
) -> None:
    events = [ASKED, action(1, "recall", "user"), observation(2, "recall", extras=KNOWN)]
    told_once = {"action of type recall": 1}
    assert read(*events).skipped == told_once | {"observation of type recall": 1}
    switched_on = {"agent_config": {"enable_prompt_extensions": True}}
    assert [m.text for m in read(*events, metadata=switched_on).messages] == ["q", "know"]
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(events, indent=4))
    (recording,) = load(path)
    assert [told(m) for m in recording.messages] == [("user", "q"), ("user", "know")]
    assert recording.skipped == told_once


def test_other_events_are_counted_by_type(read: Callable[..., Recording]) -> None:
    recording = read(
        ASKED,
        observation(1, "agent_state_changed"),
        action(2, "change_agent_state"),
        action(3, "run") | metadata("r1", "t"),
        observation(4, "run") | metadata("r1", "t"),
        observation(5, "run") | metadata("r1", "t"),
        observation(6, "run") | metadata("r0", "t0"),
        action(7, "run", command="ls"),
        action(8, "message", content=""),
    )
    assert len(recording.messages) == 3
    assert recording.skipped == {
        "observation of type agent_state_changed": 1,
        "action of type change_agent_state": 1,
        "second result of a call": 1,
        "result without its call": 1,
        "action of type run without its call": 1,
        "empty message": 1,
    }


def test_a_broken_event_is_named_and_costs_only_itself(write_lines: WriteLines) -> None:
    path = write_lines(row(ASKED), row(ASKED, {"action": "run"}, action(2, "message", content="a")))
    with pytest.raises(ReadError, match=r":2: event 1: args must be an object"):
        list(load(path))
    _, recording = load(path, on_error="skip")
    assert [m.text for m in recording.messages] == ["q", "a"]
    assert sum(recording.skipped.values()) == 1


def test_rows_without_a_conversation_are_counted(write_lines: WriteLines) -> None:
    path = write_lines(row(ASKED), row(), row(history=None))
    with pytest.raises(ReadError, match=r":3: expected a list of events in history"):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert recording.skipped == {
        "row without messages (2)": 1,
        "broken line: expected a list of events in history, got NoneType (3)": 1,
    }


def test_instances_that_are_numbers_are_told_apart_by_their_data_set(
    write_lines: WriteLines,
) -> None:
    path = write_lines(row(ASKED, instance_id=3, metadata={"dataset": "gaia"}), name="out.jsonl")
    (recording,) = load(path)
    assert (recording.id, recording.cluster) == ("out/3", "gaia/3")


def test_the_real_evaluation_is_read_whole(data: Path) -> None:
    path = data / "openhands" / "multi_swe_bench_examples_output.jsonl"
    known = detect_format(path)
    assert known is not None
    assert known.name == "openhands-events"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    recordings = list(load(path))
    assert len(recordings) == 3
    for recording, whole in zip(recordings, rows, strict=True):
        events = whole["history"]
        # Every event is a message but the recall and what it found.
        assert len(recording.messages) == len(events) - 2
        assert recording.skipped == {
            "action of type recall": 1,
            "observation of type recall": 1,
        }
        assert recording.cluster == whole["instance_id"]
        assert len(recording.tools) == 4
        answers = [m for m in recording.messages if m.role == "assistant"]
        usages = {use["response_id"]: use for use in whole["metrics"]["token_usages"]}
        assert [m.usage and m.usage.total_input for m in answers] == [
            use["prompt_tokens"] for use in usages.values()
        ]
        results = [m for m in recording.messages if m.role == "tool"]
        observed = [e for e in events if "observation" in e and "tool_call_metadata" in e]
        assert [m.tool_call_id for m in results] == [
            e["tool_call_metadata"]["tool_call_id"] for e in observed
        ]
        assert all(m.text.startswith(e["content"]) for m, e in zip(results, observed, strict=True))
        broken = find_violations(recording.messages)
        assert [v.position for v in broken if v.position < len(recording.messages) - 1] == []

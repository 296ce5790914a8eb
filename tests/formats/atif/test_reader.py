"""Tests of the ATIF format, read and written."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described
from generated import IMAGE, TOOLS, conversations, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import ReadError
from ctxlab.formats import FORMATS, detect_format, load
from ctxlab.formats.atif.reader import dump
from ctxlab.messages.types import (
    Compaction,
    Message,
    Probe,
    Recording,
    Substitute,
    ToolCall,
    Usage,
)
from ctxlab.tokens.counter import TokenCounter

AGENT = {"name": "terminus-2", "version": "2.0", "model_name": "gpt-4o"}
CALL = {"tool_call_id": "c", "function_name": "bash", "arguments": {"cmd": "ls"}}


def step(number: int, source: str, message: Any = "", **fields: Any) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": message} | fields


def seen(*results: dict[str, Any]) -> dict[str, Any]:
    return {"results": list(results)}


def read(*steps: Any, **fields: Any) -> list[Recording]:
    root = {"schema_version": "ATIF-v1.7", "agent": AGENT, "steps": list(steps)} | fields
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        path.write_text(json.dumps(root, indent=2))
        return list(load(path, on_error="skip"))


def again(recording: Recording) -> tuple[Recording, list[str]]:
    """Write and read a recording; return it with the warnings about lost data."""
    lost: list[str] = []
    written = dump(recording, lost.append)
    assert written.endswith("}\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        path.write_text(written, encoding="utf-8")
        known = detect_format(path)
        assert known is not None
        assert known.name == "atif"
        (back,) = load(path)
    return back, lost


def bare(recording: Recording) -> Recording:
    fields = {name: getattr(recording, name) for name in recording.__struct_fields__}
    return Recording(**{**fields, "id": "r", "format": None, "source": None})


def test_a_step_is_a_message_and_its_observation_are_the_results() -> None:
    metrics = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "cached_tokens": 60,
        "cost_usd": 0.5,
        "extra": {"reasoning_tokens": 3, "cache_creation_input_tokens": 10},
    }
    (recording,) = read(
        step(1, "system", "Be brief."),
        step(2, "user", "list", timestamp="1970-01-01T00:01:00Z"),
        step(
            *(3, "agent"),
            reasoning_content="hm",
            tool_calls=[CALL, CALL | {"tool_call_id": "d"}],
            observation=seen(
                {"source_call_id": "d", "content": "second"},
                {"source_call_id": "c", "content": "first", "extra": {"score": 1}},
            ),
            metrics=metrics,
            model_name="gpt-4o",
            reasoning_effort="low",
        ),
        step(4, "agent", "done", model_name="gpt-5"),
        session_id="s",
    )
    calls = (ToolCall("c", "bash", '{"cmd":"ls"}'), ToolCall("d", "bash", '{"cmd":"ls"}'))
    assert recording.messages == (
        Message("system", "Be brief."),
        Message("user", "list", time=60.0),
        Message(
            "assistant",
            tool_calls=calls,
            reasoning="hm",
            usage=Usage(input=30, cache_read=60, cache_write=10, output=7, reasoning=3),
            extra={"reasoning_effort": "low", "cost_usd": 0.5},
        ),
        Message("tool", "second", tool_call_id="d"),
        Message("tool", "first", tool_call_id="c", extra={"score": 1}),
        Message("assistant", "done", extra={"model_name": "gpt-5"}),
    )
    assert (recording.model, recording.cluster) == ("gpt-4o", "s")
    agent = {"name": "terminus-2", "version": "2.0"}
    assert recording.meta == {"session_id": "s", "agent": agent}


@pytest.mark.parametrize(
    "version", ["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.6", "ATIF-v1.8", "ATIF-v2.0"]
)
def test_every_version_is_read_and_what_is_unknown_is_kept(version: str) -> None:
    # No agent version, a reference by session alone, keys of another day: the models refuse each.
    reference = [{"session_id": "sub"}]
    result = {"source_call_id": "c", "content": "x", "subagent_trajectory_ref": reference}
    (recording,) = read(
        step(7, "agent", tool_calls=[CALL], observation=seen(result), mood="good"),
        schema_version=version,
        agent={"name": "a"},
        weather="fine",
        extra={"reward": 1.0},
    )
    asked, answered = recording.messages
    assert asked.extra == {"mood": "good"}
    assert answered.extra == {"subagent_trajectory_ref": reference}
    assert recording.meta == {"weather": "fine", "agent": {"name": "a"}, "reward": 1.0}


def test_pictures_are_parts_and_what_is_no_part_of_a_request_is_counted() -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}}
    audio = {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}}
    (recording,) = read(step(1, "user", [{"type": "text", "text": "what?"}, image, audio]))
    assert recording.messages[0].content == (
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "images/1.png"}},
    )
    assert recording.skipped == {"part of type audio": 1}


def test_a_result_without_a_call_answers_one_that_is_open_or_is_said_by_the_user() -> None:
    results = seen(
        {"content": "one"}, {"source_call_id": "c", "content": "two"}, {"content": "three"}
    )
    calls = [CALL, CALL | {"tool_call_id": "d"}]
    (recording,) = read(
        step(1, "agent", "act", observation=seen({"content": "screen"})),
        step(2, "agent", tool_calls=calls, observation=results),
        step(3, "system", observation=seen({"content": "reset"})),
        step(4, "system", "refs", observation=seen({"subagent_trajectory_ref": []})),
    )
    told = [(m.role, m.text, m.tool_call_id) for m in recording.messages]
    assert told == [
        ("assistant", "act", None),
        ("user", "screen", None),
        ("assistant", "", None),
        ("tool", "one", "d"),
        ("tool", "two", "c"),
        ("user", "three", None),
        ("system", "reset", None),
        ("system", "refs", None),
    ]
    assert recording.skipped == {"observation without content": 1}


def test_a_compaction_is_no_message() -> None:
    managed = {"context_management": {"type": "compaction", "boundary": "replace"}}
    references = [{"trajectory_path": "a.json", "extra": {"summary": "so far"}}]
    (recording,) = read(
        step(1, "user", "go"),
        step(2, "system", "compacted", extra=managed, observation=seen({"content": "in short"})),
        step(3, "agent", "on"),
        step(4, "system", "handoff", observation=seen({"subagent_trajectory_ref": references})),
        step(5, "system", "cut", extra={"context_management": {"boundary": "truncate"}}),
        step(6, "agent", "done"),
    )
    assert [message.text for message in recording.messages] == ["go", "on", "done"]
    assert described(recording) == (
        Summary(1, summary="in short"),
        Summary(2, summary="so far"),
        Summary(2),
    )


def test_copied_steps_are_counted_and_metrics_of_several_calls_are_no_usage() -> None:
    metrics = {"prompt_tokens": 9, "completion_tokens": 1}
    (recording,) = read(
        step(1, "user", "before", is_copied_context=True),
        step(2, "user", "now"),
        step(3, "agent", "a", metrics=metrics, llm_call_count=1),
        step(4, "agent", "b", metrics=metrics, llm_call_count=3),
    )
    assert recording.skipped == {"step copied from another trajectory": 1}
    _, one, three = recording.messages
    assert (one.usage, three.usage) == (Usage(input=9, output=1), None)
    assert three.extra == {"llm_call_count": 3, "metrics": {"input": 9, "output": 1}}


def test_subagents_are_recordings_of_their_own_in_the_cluster_of_the_run() -> None:
    inner = {"trajectory_id": "deep", "agent": AGENT, "steps": [step(1, "user", "c")]}
    sub = {"trajectory_id": "sub", "agent": AGENT, "steps": [step(1, "user", "b")]}
    recordings = read(
        step(1, "user", "a"), subagent_trajectories=[sub | {"subagent_trajectories": [inner]}, 5]
    )
    assert [r.id for r in recordings] == ["run", "run/sub", "run/sub/deep"]
    assert {r.cluster for r in recordings} == {"run"}
    assert sum(count for r in recordings for count in r.skipped.values()) == 1


def test_a_subagent_names_its_parent_and_the_call_whose_result_refers_to_it() -> None:
    subs = [{"trajectory_id": id, "steps": [step(1, "user", id)]} for id in ("a", "b")]
    reference = [{"trajectory_id": "b"}]
    call = {"tool_call_id": "c", "function_name": "ask", "arguments": {}}
    result = {"source_call_id": "c", "content": "x", "subagent_trajectory_ref": reference}
    asking = step(1, "agent", "?", tool_calls=[call], observation={"results": [result]})
    run, first, second = read(asking, subagent_trajectories=subs)
    assert "parent" not in run.meta
    assert (first.meta["parent"], "call_id" in first.meta) == ("run", False)
    assert (second.meta["parent"], second.meta["call_id"]) == ("run", "c")


def test_a_broken_step_is_named_and_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    steps = [step(1, "user", "a"), step(2, "robot", "b"), step(3, "user", "c")]
    path.write_text(json.dumps({"schema_version": "ATIF-v1.7", "steps": steps}))
    with pytest.raises(ReadError, match="step 2: source must be system, user or agent"):
        list(load(path))
    (recording,) = load(path, on_error="skip")
    assert [message.text for message in recording.messages] == ["a", "c"]
    path.write_text(json.dumps({"schema_version": "ATIF-v1.7", "steps": None}))
    with pytest.raises(ReadError, match="expected a list of steps in the ATIF document"):
        list(load(path, on_error="skip"))


USAGES = st.builds(Usage, *[st.integers(-1, 10**6)] * 5)
TIMES = st.sampled_from([0, 1.5, 1764000000.123456, 1764000000.1234567, -1e9, 1e300, math.nan])
EXTRAS = st.sampled_from(
    [
        {},
        {"is_error": True, "n": 10**30},
        {"ctxlab": {"role": "user"}},
        {"model_name": "gpt-4o", "metrics": None},
        {"context_management": {"type": "compaction"}},
        {"odd": math.inf},
        {"half": "\ud83d"},
    ]
)
DETAIL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA==", "detail": "low"}}
CONTENTS = st.sampled_from([None, "", "text", (), (IMAGE,), (DETAIL, {"type": "odd", "x": [1]})])


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Recordings with arbitrary values in all fields, including implausible ones."""
    messages = list(draw((conversations() | strange_conversations()).filter(bool)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(messages) - 1))
        fields: dict[str, st.SearchStrategy[Any]] = {
            "usage": st.none() | USAGES,
            "time": TIMES,
            "extra": EXTRAS,
            "content": CONTENTS,
            "reasoning": st.sampled_from([None, "", "hm", "\udc00"]),
            "name": st.sampled_from([None, "bash"]),
            "file": st.sampled_from([None, "a.py"]),
            "tool_call_id": st.sampled_from([None, "", "c0a", "c9"]),
            "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        }
        name = draw(st.sampled_from(sorted(fields)))
        messages[place] = messages[place].replace(**{name: draw(fields[name])})
    return Recording(
        "r",
        tuple(messages),
        tools=draw(st.sampled_from([(), TOOLS])),
        model=draw(st.sampled_from([None, "gpt-4o"])),
        probes=draw(st.sampled_from([(), (Probe("p", "who?", ("Mia",), (0,), 1, "far"),)])),
        compactions=draw(
            st.sampled_from([(), (Compaction(1, (Substitute(Message("user", "s")), 0), "clear"),)])
        ),
        cluster=draw(st.sampled_from([None, "task"])),
        meta=draw(
            st.sampled_from([{}, {"agent": AGENT, "session_id": "s"}, {"agent": 1, "notes": 2}])
        ),
        skipped=draw(st.sampled_from([{}, {"row of type x": 3}])),
    )


@given(recordings())
def test_what_is_written_is_read_again_unless_something_was_lost(recording: Recording) -> None:
    back, lost = again(recording)
    assert lost or bare(back) == bare(recording)
    # Lost is nothing but what JSON has no text for.
    assert all(name.startswith("odd value in the ") for name in lost)


@given(recordings())
def test_what_is_read_again_counts_the_same_tokens(
    counter: TokenCounter, recording: Recording
) -> None:
    back, _ = again(recording)
    assert [*map(counter.count_message, back.messages)] == [
        *map(counter.count_message, recording.messages)
    ]
    assert counter.count_tools(back.tools) == counter.count_tools(recording.tools)


def test_nothing_of_an_ordinary_conversation_is_lost_and_other_tools_read_it() -> None:
    from atif import Trajectory

    calls = (ToolCall("c", "read", '{"path": "a.py"}'), ToolCall("d", "read", '{"path":"b.py"}'))
    recording = Recording(
        "r",
        (
            Message("system", "Be brief."),
            Message("user", ({"type": "text", "text": "look"}, IMAGE), time=60.0, file="a.py"),
            Message("assistant", tool_calls=calls, usage=Usage(5, 3, 2, 7), reasoning="hm"),
            Message("tool", "late", tool_call_id="x"),
            Message("tool", "b", tool_call_id="d", name="read"),
            Message("tool", "a", tool_call_id="c"),
            Message("assistant", "done"),
        ),
        TOOLS,
        "gpt-4o",
    )
    lost: list[str] = []
    trajectory = Trajectory.model_validate_json(dump(recording, lost.append))
    assert not lost
    assert [(s.source, s.message) for s in trajectory.steps[:1]] == [("system", "Be brief.")]
    asked = trajectory.steps[2]
    assert [c.arguments for c in asked.tool_calls or ()] == [{"path": "a.py"}, {"path": "b.py"}]
    assert asked.metrics is not None
    assert (asked.metrics.prompt_tokens, asked.metrics.cached_tokens) == (10, 3)
    assert asked.metrics.extra == {"cache_creation_input_tokens": 2}
    image = trajectory.steps[1].message[1]
    assert not isinstance(image, str)
    assert image.source is not None
    assert (image.source.media_type, image.source.path) == ("image/png", IMAGE["image_url"]["url"])
    assert trajectory.agent.tool_definitions == list(TOOLS)
    # The result of no call, and those behind it, are observed by steps of the system.
    observed = [s.observation.results[0].source_call_id for s in trajectory.steps if s.observation]
    assert observed == ["x", "d", "c"]


def test_half_a_surrogate_pair_is_lost_and_said_to_be() -> None:
    recording = Recording("r", (Message("user", "a\ud83d b"), Message("user", "\ud83d\ude42")))
    back, lost = again(recording)
    assert [message.text for message in back.messages] == ["a\ufffd b", "🙂"]
    assert lost == ["odd value in the content of a message"] * 2


def test_a_recording_without_messages_is_said_to_be_lost() -> None:
    lost: list[str] = []
    dump(Recording("r", ()), lost.append)
    assert lost == ["recording without messages"]


def test_the_models_are_loaded_by_who_writes_alone() -> None:
    code = (
        "import sys, ctxlab.formats; sys.exit('atif' in sys.modules or 'pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert FORMATS["atif"].single_recording

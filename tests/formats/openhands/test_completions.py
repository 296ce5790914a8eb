"""Tests of OpenHands' logged calls: the files of an instance become one conversation."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from compacting import Summary, described

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.openhands.completions import sniff
from ctxlab.messages.types import Usage

SYSTEM = {"content": [{"type": "text", "text": "You are OpenHands agent."}], "role": "system"}
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {}}}


def user(*texts: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    parts[-1]["cache_control"] = {"type": "ephemeral"}
    return {"content": parts, "role": "user"}


def step(id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a tool call and its result."""
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    calls = [{"id": id, "type": "function", "function": function}]
    said = {"content": f"step {id}", "role": "assistant", "tool_calls": calls}
    mark = {"type": "ephemeral"}
    content = [{"type": "text", "text": f"shown {id}"}]
    result = {"content": content, "role": "tool", "cache_control": mark, "tool_call_id": id}
    return said, result | {"name": "bash"}


def call(*messages: Any, answer: Any, time: float, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}}
    response = {"id": f"r{time}", "model": "some/model", "choices": [{"message": answer}]}
    response["usage"] = usage | {"completion_tokens": 7, "cache_creation_input_tokens": 30}
    logged = {"messages": list(messages), "response": response, "args": []}
    return logged | {"kwargs": {"tools": [TOOL]}, "timestamp": time, "cost": 0.5} | more


def write(folder: Path, **calls: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in calls.items():
        (folder / f"{name}.json").write_text(json.dumps(each))
    return folder


def test_the_calls_of_a_folder_are_one_conversation_in_the_order_of_time(tmp_path: Path) -> None:
    (one, shown), (two, seen) = step("1"), step("2")
    start = (SYSTEM, user("q"))
    write(
        tmp_path / "logs" / "org__repo-1",
        b=call(*start, answer=one, time=10),
        a=call(*start, one, shown, answer=two, time=20.5),
        c=call(
            *start, one, shown, two, seen, answer={"content": ".", "role": "assistant"}, time=30
        ),
    )
    (recording,) = load(tmp_path / "logs")
    steps = ["assistant", "tool"] * 2
    assert [m.role for m in recording.messages] == ["system", "user", *steps, "assistant"]
    assert [m.time for m in recording.messages if m.role == "assistant"] == [10, 20.5, 30]
    assert (recording.id, recording.cluster) == ("org__repo-1", "org__repo-1")
    assert (recording.model, recording.tools) == ("some/model", (TOOL,))
    assert not recording.compactions
    assert not recording.skipped


def test_an_answer_has_its_usage_and_cost_and_no_message_has_marks(tmp_path: Path) -> None:
    said, shown = step("1")
    path = write(tmp_path / "i", a=call(SYSTEM, user("q"), said, shown, answer=said, time=1))
    *before, answer = next(load(path)).messages
    assert answer.usage == Usage(input=10, cache_read=60, cache_write=30, output=7)
    assert answer.extra == {"cost": 0.5}
    assert all(isinstance(m.content, str) and not m.extra and m.usage is None for m in before)


def test_texts_in_parts_are_one_text_and_images_stay_parts(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    marked = image | {"cache_control": {"type": "ephemeral"}}
    shown = {"role": "user", "content": [{"type": "text", "text": "look"}, marked]}
    said = {"role": "assistant", "content": []}
    path = write(tmp_path / "i", a=call(user("a", "b"), said, shown, answer=said, time=1))
    one, empty, two, _ = next(load(path)).messages
    assert (one.content, empty.content) == ("a\nb", None)
    assert two.content == ({"type": "text", "text": "look"}, image)


def test_calls_that_were_sent_as_text_are_read_as_text_and_once(tmp_path: Path) -> None:
    said, shown = step("1")
    text = {"role": "assistant", "content": "<function=bash>\n</function>"}
    result = {"role": "user", "content": "EXECUTION RESULT of [bash]:\nshown"}
    prompt = {"role": "system", "content": "You are OpenHands agent. Tools: bash."}
    answer = {"role": "assistant", "content": "<function=finish>\n"}
    logged = call(prompt, user("q"), text, result, answer=answer, time=1, kwargs={})
    structured = {"fncall_messages": [SYSTEM, user("q"), said, shown], "fncall_response": {}}
    (recording,) = load(write(tmp_path / "i", a=logged | structured))
    assert [m.role for m in recording.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert not any(m.tool_calls for m in recording.messages)
    assert recording.tools == ()


def test_what_a_condenser_dropped_stays_and_its_own_call_stands_apart(tmp_path: Path) -> None:
    (one, shown), (two, seen), (three, last) = step("1"), step("2"), step("3")
    start = (SYSTEM, user("q"))
    so_far = {"role": "assistant", "content": "so far"}
    write(
        tmp_path / "runs" / "org__repo-1",
        a=call(*start, one, shown, two, seen, answer=three, time=1),
        b=call(user("Summarise: …"), answer=so_far, time=2),
        c=call(*start, user("so far"), two, seen, three, last, answer=so_far, time=3),
    )
    main, condenser = load(tmp_path / "runs")
    assert len(main.messages) == 9
    assert described(main) == (Summary(7, "so far", (0, 1, 4, 5, 6)),)
    assert [m.text for m in condenser.messages] == ["Summarise: …", "so far"]
    assert {main.cluster, condenser.cluster} == {"org__repo-1"}
    assert condenser.id == "org__repo-1/2"


def test_a_broken_message_names_its_file_and_costs_only_itself(tmp_path: Path) -> None:
    said, _ = step("1")
    folder = write(
        tmp_path / "i",
        a=call(SYSTEM, user("q"), answer=said, time=1),
        b=call(SYSTEM, user("q"), {"role": "judge"}, answer=said, time=2),
    )
    with pytest.raises(ReadError, match=r"message 2: unknown role 'judge'.*\(in b\.json\)"):
        list(load(folder))
    (recording,) = load(folder, on_error="skip")
    assert len(recording.messages) == 3
    assert sum(recording.skipped.values()) == 2  # the message, and the call that is made again


def test_a_call_without_an_answer_is_counted(tmp_path: Path) -> None:
    logged = call(SYSTEM, user("q"), answer=None, time=1)
    (recording,) = load(write(tmp_path / "i", a=logged | {"response": None}))
    assert len(recording.messages) == 2
    assert recording.skipped == {"call without an answer": 1}


@pytest.mark.parametrize("first", [SYSTEM, {"role": "system", "content": "You are OpenHands."}])
def test_a_large_call_is_known_by_its_messages(first: Any) -> None:
    line = json.dumps({"messages": [first, user("x" * 300)]})
    assert sniff(FileHead(line.encode()[:-50]))
    assert not sniff(FileHead(line.encode(), is_complete=True))
    other = json.dumps({"messages": [{"role": "user", "content": "hi"}, user("x" * 300)]})
    assert not sniff(FileHead(other.encode()[:-50]))


def test_the_real_calls_are_read_whole(data: Path) -> None:
    folder = data / "openhands" / "llm_completions"
    recordings = list(load(folder))
    assert len(recordings) == len({r.cluster for r in recordings}) == 25
    lengths = [len(r.messages) for r in recordings]
    # One more than the messages that were sent (median 40, at most 100): the answer.
    assert (median(lengths), max(lengths)) == (41, 101)
    for recording in recordings:
        assert recording.source is not None
        sent = json.loads(Path(recording.source).read_text())["messages"]
        assert len(recording.messages) == len(sent) + 1
        for message, row in zip(recording.messages, sent, strict=False):
            assert message.role == row["role"]
            assert message.text == "\n".join(part["text"] for part in row.get("content") or ())
        answer = recording.messages[-1]
        assert answer.usage is not None
        assert answer.usage.total_input > 1000
        assert answer.tool_calls[0].name in ("finish", "execute_bash", "str_replace_editor")
        calls = [call.id for m in recording.messages[:-1] for call in m.tool_calls]
        assert calls == [m.tool_call_id for m in recording.messages if m.role == "tool"]
        assert len(recording.tools) == 3
        assert not recording.skipped


def test_the_largest_real_call_is_recognised_by_its_beginning(data: Path) -> None:
    files = (data / "openhands" / "llm_completions").rglob("*.json")
    known = detect_format(max(files, key=lambda path: path.stat().st_size))
    assert known is not None
    assert known.name == "openhands-completions"

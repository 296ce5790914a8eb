"""Tests of the Inspect format: one recording for each sample and epoch."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from compacting import Cleared, Summary, described
from samples import HERE, files_of, packed

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Message, Recording, Usage

SPEC = {"task": "repair", "run_id": "r", "model": "openai/gpt-4o"}
USER = {"id": "u", "role": "user", "content": "repair it", "source": "input"}
CALL = {"id": "c", "function": "bash", "arguments": {"cmd": "ls"}}
ASKED = {"id": "a", "role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"id": "t", "role": "tool", "content": "a.py", "tool_call_id": "c", "function": "bash"}
DONE = {"id": "d", "role": "assistant", "content": "done"}


def sample(*messages: Any, events: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    rows = list(messages) or [USER, ASKED, RESULT, DONE]
    return {"id": 1, "epoch": 1, "messages": rows, "events": events or []} | fields


def called(answer: Any, **fields: Any) -> dict[str, Any]:
    output = {"choices": [{"message": answer}], "usage": fields.pop("usage", None)}
    return {"event": "model", "span_id": "s", "input": [], "output": output} | fields


def written(path: Path, *samples: Any) -> Path:
    log = {"version": 2, "status": "success", "eval": SPEC, "samples": list(samples)}
    path.write_text(json.dumps(log, indent=2))
    return path


def read(path: Path, *samples: Any) -> Recording:
    (recording,) = load(written(path, *samples), on_error="skip")
    return recording


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.json"


def test_a_sample_is_its_messages_as_they_were_sent(log: Path) -> None:
    user, asked, result, done = read(log, sample()).messages
    assert (user.role, user.text, user.extra) == ("user", "repair it", {"source": "input"})
    assert [(c.id, c.name, c.arguments) for c in asked.tool_calls] == [
        ("c", "bash", '{"cmd":"ls"}')
    ]
    assert (result.role, result.text, result.tool_call_id, result.name) == (
        *("tool", "a.py", "c", "bash"),
    )
    assert done.text == "done"


def test_the_model_is_told_of_an_error_in_place_of_the_content(log: Path) -> None:
    failed = RESULT | {"content": "half", "error": {"type": "timeout", "message": "too slow"}}
    older = RESULT | {"content": "", "tool_error": "too slow"}
    recording = read(log, sample(USER, ASKED, failed, ASKED, older))
    results = [message for message in recording.messages if message.role == "tool"]
    assert [(m.text, m.extra) for m in results] == [
        ("too slow", {"error": "timeout"}),
        ("too slow", {"error": "unknown"}),
    ]
    assert recording.skipped == {"content of a failed tool call, not sent to the model": 1}


def test_attachments_are_put_back_wherever_they_are_named(log: Path) -> None:
    held = {"1": 'a "long" text', "2": "data:image/png;base64,eA=="}
    parts = [
        {"type": "text", "text": "attachment://1"},
        {"type": "image", "image": "attachment://2", "detail": "low"},
    ]
    calls = [{"id": "c", "function": "write", "arguments": {"a": ["attachment://1", "tc://1"]}}]
    rows = [USER | {"content": parts}, ASKED | {"content": "attachment://9", "tool_calls": calls}]
    recording = read(log, sample(*rows, attachments=held))
    said, asked = recording.messages
    assert said.content == (
        {"type": "text", "text": 'a "long" text'},
        {"type": "image_url", "image_url": {"url": held["2"], "detail": "low"}},
    )
    assert parse_json(asked.tool_calls[0].arguments) == {"a": [held["1"], held["1"]]}
    assert asked.text == "attachment://9"
    assert recording.skipped == {"attachment missing from the log": 1}


def test_parts_become_content_reasoning_or_are_counted(log: Path) -> None:
    parts = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "reasoning", "reasoning": "c2VjcmV0", "redacted": True, "summary": "thought"},
        {"type": "tool_use", "name": "search", "arguments": "{}", "result": "found", "error": None},
        {"type": "text", "text": "it is a hedgehog"},
        {"type": "audio", "audio": "x"},
    ]
    recording = read(log, sample(USER, DONE | {"content": parts}, DONE | {"content": parts[:1]}))
    answer, silent = recording.messages[1:]
    assert answer.content == "search\n{}\nfound\nit is a hedgehog"
    assert (answer.reasoning, silent.content) == ("hm\nthought", None)
    assert recording.skipped == {"part of type audio": 1}


def test_calls_give_usage_time_and_tools_to_the_message_they_answered_with(log: Path) -> None:
    tool = {"name": "bash", "description": "attachment://1", "parameters": {"type": "object"}}
    usage = {
        "input_tokens": 5,
        "input_tokens_cache_read": 3,
        "output_tokens": 2,
        "total_tokens": 10,
    }
    events = [
        {"event": "span_begin"},
        called(ASKED, usage=usage, tools=[tool], completed="1970-01-01T00:01:00Z"),
        called(DONE | {"content": "attachment://2"}, timestamp="1970-01-01T00:02:00Z", tools=[]),
        called({"id": "g", "role": "assistant", "content": "GRADE: C"}),
        called(None),
    ]
    recording = read(log, sample(events=events, attachments={"1": "Runs.", "2": "done"}))
    assert [(m.usage, m.time) for m in recording.messages if m.role == "assistant"] == [
        (Usage(input=5, cache_read=3, output=2), 60.0),
        (None, 120.0),
    ]
    function = {"name": "bash", "description": "Runs.", "parameters": {"type": "object"}}
    assert recording.tools == ({"type": "function", "function": function},)
    assert recording.skipped == {
        "model call of another conversation (scorer, subagent, summary)": 1,
        "model call without an answer": 1,
    }


def test_input_tokens_that_hold_the_cached_ones_are_known_by_the_total(log: Path) -> None:
    usage = {
        "input_tokens": 8,
        "input_tokens_cache_read": 3,
        "output_tokens": 2,
        "total_tokens": 10,
    }
    recording = read(log, sample(events=[called(DONE, usage=usage)]))
    assert recording.messages[-1].usage == Usage(input=5, cache_read=3, output=2)


def test_messages_without_ids_are_known_by_what_they_say_in_order(log: Path) -> None:
    yes = {"role": "assistant", "content": "Yes"}
    rows = [USER, yes, USER, yes]
    usages = [{"input_tokens": n, "output_tokens": 1} for n in (5, 9)]
    recording = read(log, sample(*rows, events=[called(yes, usage=usage) for usage in usages]))
    assert [m.usage.input for m in recording.messages if m.usage] == [5, 9]


def test_where_no_call_is_logged_the_output_is_the_last_one(log: Path) -> None:
    output = called(DONE, usage={"input_tokens": 5, "output_tokens": 1})["output"]
    recording = read(log, sample(output=output | {"model": "gpt-4o-2024"}))
    assert recording.messages[-1].usage == Usage(input=5, output=1)
    assert recording.model == "gpt-4o-2024"


def test_a_summary_is_no_message_and_what_was_sent_behind_it_says_what_stayed(log: Path) -> None:
    summary = {"id": "s", "role": "user", "content": "so far: a.py", "metadata": {"summary": True}}
    # Sent as one message, as Inspect joins neighbours; the pool is that of the newer logs.
    joined = USER | {"id": "j", "content": "repair it\nso far: a.py"}
    mark = {"event": "compaction", "type": "summary", "span_id": "s", "tokens_before": 900}
    other = {"event": "compaction", "type": "trim", "span_id": "elsewhere"}
    events = [called(ASKED), other, mark, called(DONE, input_refs=[[1, 3]])]
    system = {"id": "y", "role": "system", "content": "You repair."}
    rows = [system, USER, ASKED, RESULT, summary, DONE]
    pool = {"messages": [USER, system, joined]}
    recording = read(log, sample(*rows, events=events, events_data=pool))
    assert [m.text for m in recording.messages][-2:] == ["a.py", "done"]
    assert described(recording) == (
        Summary(4, summary="repair it\nso far: a.py", kept=(0,), tokens_before=900),
    )
    assert recording.skipped == {"compaction of another conversation": 1}


def test_what_was_kept_is_the_newest_of_those_that_say_the_same(log: Path) -> None:
    go_on = {"role": "user", "content": "go on"}
    rows = [USER, go_on, ASKED, RESULT, go_on, DONE]
    mark = {"event": "compaction", "type": "trim", "metadata": {"trigger": "forced"}}
    events = [mark, called(DONE, input=[USER, go_on], span_id=None)]
    recording = read(log, sample(*rows, events=events))
    assert described(recording) == (Summary(5, kept=(0, 4), trigger="forced"),)


def test_an_edit_clears_the_results_that_were_sent_otherwise(log: Path) -> None:
    gone = RESULT | {"id": "x", "content": "(Tool result removed)"}
    mark = {"event": "compaction", "type": "edit", "span_id": "s"}
    events = [called(ASKED), mark, called(DONE, input_refs=[[0, 3]])]
    recording = read(log, sample(events=events, message_pool=[USER, ASKED, gone]))
    assert described(recording) == (Cleared(3, ("c",)),)
    assert recording.messages[2].text == "a.py"


def test_epochs_share_a_cluster_and_scores_keep_their_values(log: Path) -> None:
    scores = {"match": {"value": "C", "explanation": "long"}, "steps": {"value": 0}, "none": None}
    second = sample(epoch=2, limit={"type": "token"}, error={"message": "halted"})
    first, other = load(written(log, sample(scores=scores), second))
    assert (first.id, other.id) == ("log/1_epoch_1", "log/1_epoch_2")
    assert first.cluster == other.cluster == "repair/1"
    assert first.model == "openai/gpt-4o"
    common = {"task": "repair", "sample": 1}
    assert first.meta == {**common, "epoch": 1, "scores": {"match": "C", "steps": 0}}
    assert other.meta == {**common, "epoch": 2, "error": "halted", "limit": "token"}


def test_a_broken_message_or_event_costs_only_itself(log: Path) -> None:
    broken = sample(USER, {"role": "judge"}, DONE, events=[called(DONE, tools=[{"name": 1}])])
    written(log, broken, 17, sample())
    with pytest.raises(ReadError, match="sample 0, message 1: unknown role 'judge'"):
        list(load(log))
    first, last = load(log, on_error="skip")
    assert [message.role for message in first.messages] == ["user", "assistant"]
    assert len(first.skipped) == 2
    reason = "expected a list of messages in the sample, got NoneType"
    assert last.skipped == {f"broken sample: {reason} (1)": 1}


def archive(path: Path, members: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, value in members.items():
            file.writestr(name, value if isinstance(value, str) else json.dumps(value))
    return path


def test_an_archive_holds_a_sample_a_member(tmp_path: Path) -> None:
    members = {
        "_journal/start.json": {"eval": SPEC | {"task": "at the start"}},
        "samples/1_epoch_1.json": sample(),
        "samples/2_epoch_1.json": "{broken",
        "samples/3_epoch_1/sample.json": {"id": 3},
        "samples/4_epoch_1.json": sample(id="4"),
        "summaries.json": [{}],
        "header.json": {"eval": SPEC},
    }
    path = archive(tmp_path / "log.eval", members)
    known = detect_format(path)
    assert known is not None
    assert known.name == "inspect"
    with pytest.raises(ReadError, match="sample 1: "):
        list(load(path))
    first, last = load(path, on_error="skip")
    assert (first.cluster, last.cluster) == ("repair/1", "repair/4")
    assert sum(first.skipped.values()) + sum(last.skipped.values()) == 2
    del members["header.json"], members["samples/2_epoch_1.json"]
    running = next(iter(load(archive(path, members))))
    assert running.meta["task"] == "at the start"


def test_another_archive_is_none_of_inspect(tmp_path: Path) -> None:
    assert detect_format(archive(tmp_path / "a.zip", {"conversations.json": []})) is None


def test_the_sample_archive_is_read_the_same_packed_with_zstandard(tmp_path: Path) -> None:
    zipped = import_module("zipfile" if sys.version_info >= (3, 14) else "backports.zstd.zipfile")
    files = files_of(HERE / "inspect.zip")
    plain, dense = tmp_path / "a" / "log.eval", tmp_path / "b" / "log.eval"
    plain.parent.mkdir()
    dense.parent.mkdir()
    plain.write_bytes(packed(files))
    with zipped.ZipFile(dense, "w", zipped.ZIP_ZSTANDARD) as file:
        for name, content in files.items():
            file.writestr(name, content)
    assert [r.messages for r in load(plain)] == [r.messages for r in load(dense)]


def test_the_real_logs_hold_sixteen_conversations(data: Path) -> None:
    recordings = list(load(data / "inspect-ai"))
    files = Counter(Path(recording.source or "").name.partition("_")[2] for recording in recordings)
    # DATA.md counts files, 5; a log of the popularity task holds ten samples, security-guide three.
    assert sorted(files.values()) == [1, 1, 1, 3, 10]
    assert sorted(Counter(len(r.messages) for r in recordings).items()) == [
        (3, 14),
        (10, 1),
        (12, 1),
    ]
    (browser,) = (r for r in recordings if r.meta["task"] == "browser")
    usages = [m.usage for m in browser.messages if m.usage]
    assert len(usages) == 5
    # The log's own sums: 15,235 input tokens, of which 9,088 were cached.
    assert sum(usage.total_input for usage in usages) == 15235
    assert sum(usage.cache_read for usage in usages) == 9088
    assert sum(usage.output for usage in usages) == 281
    assert len(browser.tools) == 8
    assert not any(m.text.startswith("attachment://") for r in recordings for m in r.messages)
    # The three samples of security-guide were graded by a model.
    left_out = sum((Counter(r.skipped) for r in recordings), Counter[str]())
    assert left_out == {"model call of another conversation (scorer, subagent, summary)": 3}


# In a process of its own: to import inspect-ai changes zipfile for all who come after.
THEIRS = """
import json, sys
from inspect_ai.log import read_eval_log
def said(m):
    error = getattr(m, "error", None)
    calls = [[c.id, c.function, c.arguments] for c in getattr(m, "tool_calls", None) or []]
    images = [] if isinstance(m.content, str) else [c.image for c in m.content if c.type == "image"]
    call = m.tool_call_id if m.role == "tool" else None
    return [m.role, error.message if error else m.text, images, calls, call]
log = read_eval_log(sys.argv[1], resolve_attachments=True)
print(json.dumps([[s.id, s.epoch, [said(m) for m in s.messages]] for s in log.samples]))
"""


def ours(message: Message) -> list[Any]:
    content = message.content if isinstance(message.content, tuple) else ()
    images = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    calls = [[call.id, call.name, parse_json(call.arguments)] for call in message.tool_calls]
    return [message.role, message.text, images, calls, message.tool_call_id]


def test_the_real_logs_read_as_inspects_own_reader_reads_them(data: Path) -> None:
    if find_spec("inspect_ai") is None:
        pytest.skip("inspect-ai is not installed")
    for path in sorted((data / "inspect-ai").glob("*.[ej][vs]*")):
        command = [sys.executable, "-c", THEIRS, str(path)]
        told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        theirs = {(str(id), epoch): messages for id, epoch, messages in told}
        read = {
            (str(r.meta["sample"]), r.meta["epoch"]): [ours(m) for m in r.messages]
            for r in load(path)
        }
        assert read == theirs

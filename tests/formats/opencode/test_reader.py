"""Tests of opencode sessions in JSON: messages, compactions, and sessions stored in several files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacting import Cleared, Summary, described
from reading import shape
from samples import HERE

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Recording, Usage
from ctxlab.sessions.log_library import LogLibrary

Row = dict[str, Any]
Read = Callable[..., Recording]

INFO = {"id": "ses_1", "version": "1.18.3", "title": "t", "directory": "/a", "time": {"created": 1}}
ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
SPENT = {"total": 35, "input": 1, "output": 4, "reasoning": 0, "cache": {"read": 20, "write": 10}}


def text(said: str, **fields: Any) -> Row:
    return {"type": "text", "text": said} | fields


def file(mime: str, url: str = "data:,") -> Row:
    return {"type": "file", "mime": mime, "url": url}


def tool(id: str, status: str = "completed", **state: Any) -> Row:
    outcome = {"completed": {"output": "ok"}, "error": {"error": "no"}}.get(status, {})
    state = {"status": status, "input": {"path": "x"}, "time": {"end": 9000}} | outcome | state
    return {"type": "tool", "callID": id, "tool": "read", "state": state}


def finish(**fields: Any) -> Row:
    return {"type": "step-finish", "cost": 0.5, "tokens": SPENT} | fields


def message(role: str, id: str, *parts: Any, at: float = 1000, **info: Any) -> Row:
    rows = [text(each) if isinstance(each, str) else each for each in parts]
    named = {"id": id, "sessionID": "ses_1", "role": role, "time": {"created": at}}
    return {"info": named | info, "parts": rows}


def user(id: str, *parts: Any, **info: Any) -> Row:
    return message("user", id, *parts, agent="build", **info)


def said(id: str, *parts: Any, **info: Any) -> Row:
    told = {"modelID": "m", "providerID": "p", "finish": "stop"} | info
    return message("assistant", id, *parts, **told)


def summary(id: str, parent: str, *parts: Any, **info: Any) -> Row:
    return said(id, *(parts or ("in short",)), parentID=parent, summary=True, **info)


def compaction(id: str, **fields: Any) -> Row:
    return user(id, {"type": "compaction", "auto": True} | fields)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reading(*messages: Row, info: Row | None = None, **options: Any) -> Recording:
        path = tmp_path / "full.json"
        path.write_text(json.dumps({"info": INFO | (info or {}), "messages": list(messages)}))
        (recording,) = load(path, **options)
        return recording

    return reading


def test_an_answer_has_its_reasoning_usage_cost_and_time(read: Read) -> None:
    thought = {"type": "reasoning", "text": "hm"}
    parts = [{"type": "step-start"}, thought, "a", "b", tool("c"), finish()]
    recording = read(user("u", "hi"), said("a", *parts, at=9500))
    answer = recording.messages[1]
    assert [*shape(recording)] == ["u:hi", "a:a\nb+c", "t:ok=c"]
    assert (answer.reasoning, answer.tool_calls[0].arguments) == ("hm", '{"path":"x"}')
    assert answer.usage == Usage(input=1, cache_read=20, cache_write=10, output=4)
    assert (answer.time, answer.extra) == (9.5, {"cost": 0.5})
    assert (recording.messages[2].name, recording.messages[2].time) == ("read", 9.0)


def test_a_session_names_its_model_provider_folder_and_version(read: Read) -> None:
    recording = read(user("u", "hi"), said("a", "yes"), info={"cost": 0.5})
    assert (recording.model, recording.cluster) == ("m", "ses_1")
    assert recording.meta == {
        "session": "ses_1",
        "version": "1.18.3",
        "title": "t",
        "cwd": "/a",
        "agent": "build",
        "provider": "p",
        "cost": 0.5,
    }


def test_a_subagent_whose_parent_is_not_there_names_the_session(read: Read) -> None:
    recording = read(user("u", "hi"), said("a", "yes"), info={"parentID": "ses_0"})
    assert (recording.cluster, recording.meta["parent"]) == ("ses_0", "ses_0")
    assert "call_id" not in recording.meta


def task(id: str, session: str) -> Row:
    return tool(id, metadata={"sessionId": session})


def export(folder: Path, name: str, info: Row, *messages: Row) -> None:
    folder.mkdir(exist_ok=True)
    exported = {"info": INFO | info, "messages": list(messages)}
    (folder / f"{name}.json").write_text(json.dumps(exported))


def tie(recording: Recording) -> tuple[str | None, str | None, str | None]:
    return recording.cluster, recording.meta.get("parent"), recording.meta.get("call_id")


def test_an_exported_subagent_is_tied_to_the_export_with_the_name_of_its_parent(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "exports"
    export(folder, "ses_1", {"parentID": "ses_0"}, said("a", task("c", "ses_2")))
    export(folder, "child", {"id": "ses_2", "parentID": "ses_1"}, said("b", "found"))
    child, parent = load(tmp_path)
    assert (child.id, tie(child)) == ("exports/child", ("ses_0", "exports/ses_1", "c"))
    assert tie(parent) == ("ses_0", "ses_0", None)


def test_the_first_call_of_a_session_started_it_and_others_continued_it(tmp_path: Path) -> None:
    calls = [said("a", task("c", "ses_2")), said("b", task("d", "ses_2"), task("e", "ses_3"))]
    export(tmp_path, "ses_1", {}, *calls)
    export(tmp_path, "x", {"id": "ses_2", "parentID": "ses_1"}, said("b", "found"))
    parent, child = load(tmp_path)
    assert child.meta["call_id"] == "c"
    started = [m.extra.get("subagent") for m in parent.messages if m.role == "tool"]
    assert started == ["ses_2", "ses_2", "ses_3"]


@pytest.mark.parametrize("content", ["{}", "[", '{"info": {}, "messages": [1]}'])
def test_a_parent_that_cannot_be_read_is_counted(tmp_path: Path, content: str) -> None:
    (tmp_path / "ses_1.json").write_text(content)
    export(tmp_path, "x", {"id": "ses_2", "parentID": "ses_1"}, said("b", "found"))
    (child,) = load(tmp_path / "x.json")
    assert tie(child) == ("ses_1", "ses_1", None)
    assert child.skipped == {"session of the parent, which could not be read": 1}


@pytest.mark.parametrize("parent", ["ses_2", "../ses_1", "*"])
def test_a_parent_is_looked_for_only_beside_its_subagent(tmp_path: Path, parent: str) -> None:
    export(tmp_path, "ses_1", {}, said("a", task("c", "ses_2")))
    export(tmp_path / "in", "ses_2", {"id": "ses_2", "parentID": parent}, said("b", "found"))
    (child,) = load(tmp_path / "in")
    assert tie(child) == (parent, parent, None)


@pytest.mark.parametrize(("total", "output"), [(38, 7), (35, 4), (None, 4)])
def test_output_always_includes_reasoning(read: Read, total: int | None, output: int) -> None:
    tokens = SPENT | {"reasoning": 3, "total": total}
    recording = read(user("u", "hi"), said("a", "yes", finish(tokens=tokens)))
    usage = recording.messages[1].usage
    assert usage
    assert (usage.output, usage.reasoning) == (output, 3)


def test_an_answer_without_the_end_of_its_step_has_the_usage_of_the_message(read: Read) -> None:
    recording = read(user("u", "hi"), said("a", "yes", tokens=SPENT))
    usage = recording.messages[1].usage
    assert usage
    assert usage.total_input == 31


def test_steps_of_one_message_are_separate_answers(read: Read) -> None:
    start = {"type": "step-start"}
    other = finish(tokens=SPENT | {"input": 7, "total": 41})
    recording = read(user("u", "hi"), said("a", start, "a", tool("c"), finish(), start, "b", other))
    assert [*shape(recording)] == ["u:hi", "a:a+c", "t:ok=c", "a:b"]
    assert [m.usage.input for m in recording.messages if m.usage] == [1, 7]


def test_a_user_message_reads_as_the_model_reads_it(read: Read) -> None:
    subtask = {"type": "subtask", "prompt": "p", "description": "d", "agent": "g"}
    recording = read(
        user("u", text("a", synthetic=True), "b", text("c", ignored=True), subtask),
        user("v", text("d", synthetic=True)),
        said("a", "yes"),
    )
    note = "The following tool was executed by the user"
    assert [*shape(recording)] == [f"u:a\nb\n{note}", "u:d", "a:yes"]
    assert [m.extra for m in recording.messages] == [{}, {"synthetic": True}, {}]
    assert recording.skipped == {"text that is not sent to the model": 1}


def test_images_are_kept_and_other_files_are_counted(read: Read) -> None:
    image, pdf = file("image/png", "data:image/png;base64,A="), file("application/pdf")
    copied = file("text/plain", "file:///a.py")
    recording = read(user("u", "hi", image, pdf, copied), said("a", tool("c", attachments=[image])))
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A="}}
    assert recording.messages[0].content == ({"type": "text", "text": "hi"}, shown)
    assert recording.messages[2].content == ({"type": "text", "text": "ok"}, shown)
    assert recording.skipped == {
        "file of type application/pdf": 1,
        "file of type text/plain, which is also stored as a text": 1,
    }


def test_a_result_of_every_state_reads_as_the_model_reads_it(read: Read) -> None:
    stopped = {"interrupted": True, "output": "half"}
    recording = read(
        user("u", "hi"),
        said("a", tool("c", "error"), tool("d", "error", metadata=stopped), tool("e", "running")),
    )
    assert [(m.text, m.extra) for m in recording.messages[2:]] == [
        ("no", {"is_error": True}),
        ("half", {}),
        ("[Tool execution was interrupted]", {"is_error": True}),
    ]


def test_an_answer_that_was_broken_off_is_kept_if_opencode_sends_it_again(read: Read) -> None:
    failed = {"name": "APIError", "data": {}}
    recording = read(
        user("u", "hi"),
        said("a", "lost", error=failed),
        said("b", {"type": "reasoning", "text": "hm"}, error=ABORTED),
        said("c", "kept", error=ABORTED),
    )
    assert [*shape(recording)] == ["u:hi", "a:kept"]
    assert recording.skipped == {"interrupted answer": 2}


def test_parts_and_messages_that_reach_no_model_are_counted(read: Read) -> None:
    recording = read(
        user("u", "hi", {"type": "agent", "name": "g"}),
        said("a", "yes", {"type": "patch"}, {"type": "reasoning", "text": ""}),
        said("b", {"type": "step-start"}),
        user("v"),
        message("odd", "o"),
    )
    assert recording.skipped == {
        "part of type agent": 1,
        "part of type patch": 1,
        "reasoning part without text": 1,
        "answer without content": 1,
        "message without content": 1,
        "message of role odd": 1,
    }


def test_a_compaction_keeps_the_messages_from_its_tail_on(read: Read) -> None:
    recording = read(
        user("u", "hi"),
        said("a", tool("c")),
        user("v", "more"),
        said("b", "yes"),
        compaction("x", tail_start_id="v"),
        summary("y", "x"),
        user("w", "go on"),
        said("d", "done"),
    )
    assert [*shape(recording)][3:] == ["u:more", "a:yes", "u:go on", "a:done"]
    assert described(recording) == (
        Summary(5, summary="What did we do so far?\n\nin short", kept=(3, 4), trigger="auto"),
    )


def test_a_compaction_on_request_is_manual_and_keeps_nothing(read: Read) -> None:
    rows = [user("u", "hi"), said("a", "yes"), compaction("x", auto=False), summary("y", "x")]
    assert described(read(*rows)) == (
        Summary(2, summary="What did we do so far?\n\nin short", trigger="manual"),
    )


@pytest.mark.parametrize("broken", [{"error": ABORTED}, {"finish": None}])
def test_a_compaction_without_a_summary_remains_a_question(read: Read, broken: Row) -> None:
    recording = read(
        user("u", "hi"), said("a", "yes"), compaction("x"), summary("y", "x", **broken)
    )
    assert described(recording) == ()
    assert [*shape(recording)][2:] == ["u:What did we do so far?", "a:in short"]


def test_older_versions_stored_only_the_summary(read: Read) -> None:
    rows = [user("u", "hi"), said("a", "yes"), summary("y", "u", finish=None), user("v", "go on")]
    recording = read(*rows)
    assert described(recording) == (Summary(2, summary="in short"),)
    assert [*shape(recording)] == ["u:hi", "a:yes", "u:go on"]


def test_a_cleared_result_keeps_its_output_until_it_was_cleared(read: Read) -> None:
    def cleared(id: str, at: float) -> Row:
        return tool(id, time={"end": 1500, "compacted": at})

    recording = read(
        user("u", "hi"),
        said("a", cleared("c", 3500), cleared("d", 3600), at=1000),
        said("b", cleared("e", 9000), at=2000),
        user("v", "more", at=3000),
        said("f", "yes", at=4000),
    )
    assert [*shape(recording)][2:4] == ["t:ok=c", "t:ok=d"]
    assert described(recording) == (
        Cleared(7, ("c", "d")),
        Cleared(8, ("e",)),
    )


def test_messages_that_the_user_took_back_are_left_out(read: Read) -> None:
    rows = [user("u", "hi"), said("a", "yes", tool("c") | {"id": "prt_2"}), user("v", "no")]
    recording = read(*rows, info={"revert": {"messageID": "v"}})
    assert [*shape(recording)] == ["u:hi", "a:yes+c", "t:ok=c"]
    recording = read(*rows, info={"revert": {"messageID": "a", "partID": "prt_2"}})
    assert [*shape(recording)] == ["u:hi", "a:yes"]
    assert recording.skipped == {"part taken back": 1, "message taken back": 1}


def test_the_first_system_prompt_is_kept_and_its_changes_are_counted(read: Read) -> None:
    prompts = [["be kind", "be short"], ["be kind", "be short"], ["be kind"]]
    answers = [said(f"a{n}", "yes", system=prompt) for n, prompt in enumerate(prompts)]
    recording = read(user("u", "hi"), *answers)
    assert [*shape(recording)][:3] == ["s:be kind", "s:be short", "u:hi"]
    assert recording.skipped == {"change of the system prompt": 1}


def test_a_session_with_long_info_is_recognised(read: Read) -> None:
    info = {"summary": {"diffs": [{"after": "x" * 300_000}]}, "time": {"created": 1}}
    assert len(read(user("u", "hi"), said("a", "yes"), info=info).messages) == 2


def test_an_error_names_the_message(read: Read, tmp_path: Path) -> None:
    rows = [user("u", "hi"), said("a", tool("c", "odd")), said("b", "yes")]
    with pytest.raises(ReadError, match=r"full\.json.*message 1: status of a tool part"):
        read(*rows)
    recording = read(*rows, on_error="skip")
    assert [*shape(recording)] == ["u:hi", "a:yes"]
    assert recording.skipped == {
        "broken message: status of a tool part must be known, got 'odd' (1)": 1
    }


# --- sessions stored in several files --------------------------------------------------------------


def store(folder: Path, info: Row, *messages: Row) -> None:
    """Store a session as opencode did before version 1.2."""
    session = info["id"]
    files = {f"session/project/{session}": info}
    for row in messages:
        id = row["info"]["id"]
        files[f"message/{session}/{id}"] = row["info"] | {"sessionID": session}
        for number, part in enumerate(row["parts"]):
            owner = {"id": f"prt_{number}", "messageID": id, "sessionID": session}
            files[f"part/{id}/prt_{number}"] = owner | part
    for name, value in files.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    folder = tmp_path / "storage"
    rows = [user("m1", "hi"), said("m2", "a", tool("c"), finish()), said("m3", "b")]
    store(folder, INFO, *rows)
    store(folder, INFO | {"id": "ses_2", "parentID": "ses_1"}, user("n1", "find"), said("n2", "it"))
    return folder


def test_a_stored_subagent_is_tied_to_the_call_that_started_it(tmp_path: Path) -> None:
    store(tmp_path, INFO, said("m1", task("c", "ses_2")))
    store(tmp_path, INFO | {"id": "ses_2", "parentID": "ses_1"}, said("m2", "it"))
    parent, child = load(tmp_path)
    assert tie(child) == ("ses_1", parent.id, "c")


def test_the_files_of_a_stored_session_are_one_recording(stored: Path) -> None:
    told: list[Path | str] = []
    recordings = list(load(stored, on_skip=lambda path, reason: told.append(path)))
    assert [[*shape(each)] for each in recordings] == [
        ["u:hi", "a:a+c", "t:ok=c", "a:b"],
        ["u:find", "a:it"],
    ]
    assert [each.cluster for each in recordings] == ["ses_1", "ses_1"]
    assert [each.id for each in recordings] == ["message/ses_1", "message/ses_2"]
    assert not told
    assert not any(each.skipped for each in recordings)


def test_a_stored_session_is_read_like_its_export(stored: Path, read: Read) -> None:
    exported = read(user("m1", "hi"), said("m2", "a", tool("c"), finish()), said("m3", "b"))
    first = next(iter(load(stored)))
    assert (first.messages, first.meta) == (exported.messages, exported.meta)


def test_a_log_library_shows_a_stored_session_once(stored: Path) -> None:
    assert len(LogLibrary(stored).sessions()) == 2


def test_a_session_without_its_other_files_tells_what_to_load(stored: Path) -> None:
    with pytest.raises(ReadError, match="session without messages; load the folder storage"):
        list(load(stored / "session" / "project" / "ses_1.json"))


def test_parts_without_their_message_are_counted(stored: Path) -> None:
    (stored / "message" / "ses_1" / "m2.json").unlink()
    recording = next(iter(load(stored)))
    assert recording.skipped == {"part without its message; load the folder storage": 3}


def test_an_error_names_the_file_of_the_message(stored: Path) -> None:
    broken = {"id": "prt_1", "messageID": "m2", "sessionID": "ses_1", "type": "text"}
    (stored / "part" / "m2" / "prt_1.json").write_text(json.dumps(broken))
    with pytest.raises(ReadError, match=r"m2\.json.*text of a text part must be a string"):
        list(load(stored))


# --- samples and real exports ------------------------------------------------------------------------


def test_the_sample_has_its_compactions(tmp_path: Path) -> None:
    (recording,) = load(HERE / "opencode.json")
    assert [message.role[0] for message in recording.messages] == [*"uattauat"]
    assert described(recording) == (
        Summary(
            5,
            summary="What did we do so far?\n\nThe goal is to fix parse in /app/dates.py.",
            kept=(4,),
            trigger="auto",
        ),
    )


@pytest.mark.recordings
def test_real_exports_have_the_counts_of_their_index(recorded: Path) -> None:
    folders = sorted(recorded.parent.glob("corpus/opencode-*"))
    if not folders:
        pytest.skip("no folder corpus with opencode sessions beside the recordings")
    for folder in folders:
        for row in csv.DictReader((folder / "INDEX.tsv").read_text().splitlines(), delimiter="\t"):
            (recording,) = load(folder / row["file"])
            roles = [message.role for message in recording.messages]
            interrupted = recording.skipped.get("interrupted answer", 0)
            assert (recording.model, recording.meta["version"]) == (row["model"], row["version"])
            assert roles.count("assistant") + interrupted == int(row["calls"])
            assert roles.count("user") + int(row["calls"]) == int(row["messages"])
            assert sum(len(m.tool_calls) for m in recording.messages) == roles.count("tool")

"""Tests of the subagents of Codex: their parents, and the calls that started them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counting import read_rows

from ctxlab.formats import load
from ctxlab.messages.types import Recording

Row = dict[str, Any]

# Ids of threads that were created on 1 July 2026.
PARENT, CHILD, GRANDCHILD = (f"019f1b24-4d88-7863-a509-00000000000{n}" for n in (1, 2, 3))
TODAY = "2026/07/01"


def row(kind: str, /, **payload: Any) -> Row:
    return {"timestamp": "2026-07-01T00:00:09Z", "type": kind, "payload": payload}


def meta(id: str, **fields: Any) -> Row:
    return row("session_meta", id=id, cli_version="0.144.0", **fields)


def spawned(parent: str) -> Row:
    return {"subagent": {"thread_spawn": {"parent_thread_id": parent, "agent_role": "worker"}}}


def call(id: str) -> Row:
    return row(
        "response_item", type="function_call", name="spawn_agent", arguments="{}", call_id=id
    )


def user(text: str = "hi") -> Row:
    part = {"type": "input_text", "text": text}
    return row("response_item", type="message", role="user", content=[part])


def spawn_end(call: str, thread: str | None) -> Row:
    return row("event_msg", type="collab_agent_spawn_end", call_id=call, new_thread_id=thread)


def activity(call: str, thread: str, kind: str = "started") -> Row:
    event = {"event_id": call, "agent_thread_id": thread, "kind": kind}
    return row("event_msg", type="sub_agent_activity", **event)


def write(folder: Path, thread: str, *rows: Row, day: str = TODAY) -> Path:
    path = folder / day / f"rollout-2026-07-01T00-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def tie(recording: Recording) -> tuple[str | None, str | None, str | None]:
    return recording.cluster, recording.meta.get("parent"), recording.meta.get("call_id")


def read(path: Path) -> dict[str, Recording]:
    return {recording.meta["session"]: recording for recording in load(path)}


@pytest.mark.parametrize("start", [spawn_end("c", CHILD), activity("c", CHILD)])
@pytest.mark.parametrize("about", [{"parent_thread_id": PARENT}, {"source": spawned(PARENT)}])
def test_a_subagent_is_tied_to_the_call_that_started_it(
    tmp_path: Path, start: Row, about: Row
) -> None:
    write(tmp_path, PARENT, meta(PARENT), user(), call("c"), start)
    write(tmp_path, CHILD, meta(CHILD, **about), user("look"))
    found = read(tmp_path)
    assert tie(found[CHILD]) == (PARENT, found[PARENT].id, "c")
    assert tie(found[PARENT]) == (PARENT, None, None)
    assert found[PARENT].skipped == {}


@pytest.mark.parametrize("day", ["2026/06/30", "2026/07/02"])
def test_the_parent_is_found_in_the_folder_of_another_day(tmp_path: Path, day: str) -> None:
    write(tmp_path, PARENT, meta(PARENT), user(), call("c"), spawn_end("c", CHILD), day=day)
    about = meta(CHILD, parent_thread_id=PARENT)
    path = write(tmp_path, CHILD, about, user("look"), day="2026/07/09")
    assert tie(read(tmp_path)[CHILD])[1:] == (f"{day}/{path.stem.replace(CHILD, PARENT)}", "c")
    assert tie(read(path)[CHILD])[1:] == (PARENT, None)  # outside of the folder that was named


def test_a_subagent_whose_parent_is_not_there_names_its_thread(tmp_path: Path) -> None:
    path = write(tmp_path, CHILD, meta(CHILD, parent_thread_id=PARENT), user("look"))
    assert tie(read(path)[CHILD]) == (PARENT, PARENT, None)


@pytest.mark.parametrize("parent", ["../x", "*", "t1"])
def test_the_name_of_a_parent_is_no_pattern(tmp_path: Path, parent: str) -> None:
    write(tmp_path, PARENT, meta(PARENT), user())
    write(tmp_path, CHILD, meta(CHILD, parent_thread_id=parent), user("look"))
    assert tie(read(tmp_path)[CHILD]) == (parent, parent, None)


def test_a_thread_that_codex_started_has_a_parent_without_a_call(tmp_path: Path) -> None:
    write(tmp_path, PARENT, meta(PARENT), user(), call("c"), spawn_end("c", None))
    guardian = {"source": {"subagent": {"other": "guardian"}}, "parent_thread_id": PARENT}
    write(tmp_path, CHILD, meta(CHILD, **guardian), user("look"))
    found = read(tmp_path)
    assert tie(found[CHILD]) == (PARENT, found[PARENT].id, None)
    assert found[CHILD].meta["agent"] == "guardian"


def test_a_call_that_only_continued_a_subagent_did_not_start_it(tmp_path: Path) -> None:
    rows = [call("c"), activity("c", CHILD), call("d"), activity("d", CHILD, "interacted")]
    write(tmp_path, PARENT, meta(PARENT), user(), *rows)
    write(tmp_path, CHILD, meta(CHILD, parent_thread_id=PARENT), user("look"))
    assert read(tmp_path)[CHILD].meta["call_id"] == "c"


def test_a_call_that_the_user_took_back_started_no_subagent(tmp_path: Path) -> None:
    back = row("event_msg", type="thread_rolled_back", num_turns=1)
    rows = [user("go"), call("c"), spawn_end("c", CHILD), back]
    write(tmp_path, PARENT, meta(PARENT), user(), *rows)
    write(tmp_path, CHILD, meta(CHILD, parent_thread_id=PARENT), user("look"))
    assert tie(read(tmp_path)[CHILD])[2] is None


def test_subagents_of_subagents_are_in_the_cluster_of_the_first_thread(tmp_path: Path) -> None:
    first = {"session_id": PARENT}
    write(tmp_path, PARENT, meta(PARENT, **first), user())
    child = meta(CHILD, parent_thread_id=PARENT, **first)
    write(tmp_path, CHILD, child, user("look"), call("d"), spawn_end("d", GRANDCHILD))
    write(tmp_path, GRANDCHILD, meta(GRANDCHILD, parent_thread_id=CHILD, **first), user("deep"))
    found = read(tmp_path)
    assert {recording.cluster for recording in found.values()} == {PARENT}
    assert tie(found[GRANDCHILD])[1:] == (found[CHILD].id, "d")


def test_a_subagent_of_a_forked_thread_is_in_its_cluster(tmp_path: Path) -> None:
    write(tmp_path, PARENT, meta(PARENT, forked_from_id="t0"), user())
    write(tmp_path, CHILD, meta(CHILD, parent_thread_id=PARENT), user("look"))
    assert {recording.cluster for recording in read(tmp_path).values()} == {"t0"}


@pytest.mark.recordings
def test_every_thread_that_a_real_rollout_started_is_tied_to_a_call(
    recorded: Path, tmp_path: Path
) -> None:
    tied = 0
    for path in sorted(recorded.parent.glob("corpus/codex-*/*.zst")):
        rows = list(read_rows(path))
        events = [row["payload"] for row in rows if row["type"] == "event_msg"]
        started = {e.get("new_thread_id") for e in events if e["type"] == "collab_agent_spawn_end"}
        started |= {e.get("agent_thread_id") for e in events if e.get("kind") == "started"}
        if not (threads := started - {None}):
            continue
        parent = next(row["payload"]["id"] for row in rows if row["type"] == "session_meta")
        write(tmp_path, parent, *rows)
        for thread in threads:
            write(tmp_path, thread, meta(thread, parent_thread_id=parent), user("look"))
        found = read(tmp_path)
        calls = {c.id: c.name for m in found[parent].messages for c in m.tool_calls}
        for thread in threads:
            assert found[thread].meta["parent"] == found[parent].id
            assert calls[found[thread].meta["call_id"]].endswith("spawn_agent")
            tied += 1
    assert tied == 18

"""Tests of the migration of old session files to chunks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import SessionError
from ctxlab.formats import load
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.migrate import migrate_folder
from ctxlab.sessions.jsonl.store import JsonlStore


def rows(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"msg {n}"} for n in range(count)]


def write(path: Path, rows: list[Any]) -> Path:
    text = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in text))
    return path


def contents(folder: Path, id: str) -> list[Any]:
    return [message.content for message in JsonlStore(folder).read_messages(id)]


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        p.name: (p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes())
        for p in folder.iterdir()
        if p.is_file()
    }


def test_a_file_without_an_index_becomes_chunks(tmp_path: Path) -> None:
    """Seed 001, migration: ``session-abc-123.jsonl`` becomes ``session-abc-123.1.jsonl``."""
    old = write(tmp_path / "session-abc-123.jsonl", rows(7))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    report = migrate_folder(tmp_path, max_history=3)
    assert report.migrated == (("abc-123", ("session-abc-123.jsonl",), 7, 3),)
    assert str(report) == "session-abc-123.jsonl → session abc-123: 7 messages in 3 chunks"
    chunks = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert chunks == [f"session-abc-123.{n}.jsonl" for n in (1, 2, 3)]
    assert contents(tmp_path, "abc-123") == [f"msg {n}" for n in range(7)]
    session = JsonlStore(tmp_path).get("abc-123")
    assert (session.title, session.messages, session.status) == ("msg 0", 7, "closed")
    assert session.updated == session.created == 1_700_000_000
    assert [recording.id for recording in load(tmp_path)] == ["abc-123"]


def test_a_meta_line_and_rows_by_type_are_taken(tmp_path: Path) -> None:
    """Seed design 002, 10.9: a meta line, then ``{"type": "user", "content": …}``."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    write(
        tmp_path / "0f3a.jsonl",
        [
            {"type": "meta", "session_id": "s-1", "agent": "tester", "model": "gpt-4o",
             "title": "On delegation", "created_at": "2026-02-07T10:00:00Z",
             "updated_at": "2026-02-07T11:00:00Z", "team": "blue"},
            {"type": "user", "content": "hi", "ts": "2026-02-07T10:00:05Z"},
            {"type": "assistant", "content": None, "tool_calls": calls},
            {"type": "tool_result", "tool_call_id": "c1", "name": "f", "content": "ok"},
            {"type": "assistant", "content": "done"},
        ],
    )  # fmt: skip
    assert migrate_folder(tmp_path).migrated[0].id == "s-1"
    session = JsonlStore(tmp_path).get("s-1")
    assert (session.title, session.agent, session.model) == ("On delegation", "tester", "gpt-4o")
    assert (session.created, session.meta) == (1770458400.0, {"team": "blue"})
    messages = list(JsonlStore(tmp_path).read_messages("s-1"))
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[0].time == 1770458405.0
    assert messages[1].tool_calls[0].name == "f"
    assert not (tmp_path / "0f3a.jsonl").exists()


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "session-a.jsonl", rows(5))
    migrate_folder(tmp_path, max_history=2)
    before = snapshot(tmp_path)
    report = migrate_folder(tmp_path, max_history=2)
    assert (report.migrated, report.unreadable, report.skipped) == ((), (), ())
    assert str(report) == "nothing to migrate"
    assert snapshot(tmp_path) == before


def test_what_cannot_be_read_is_told_and_kept(tmp_path: Path) -> None:
    broken = ['{"role":"user","content', '{"role":"nobody","content":"x"}', "[1]"]
    write(tmp_path / "session-a.jsonl", [*rows(2), *broken, *rows(1)])
    with (tmp_path / "session-a.jsonl").open("a") as file:
        file.write('{"role":"user","content":"to')
    report = migrate_folder(tmp_path)
    assert [(b.file, b.line) for b in report.unreadable] == [
        ("session-a.jsonl", n) for n in (3, 4, 5, 7)
    ]
    assert "session-a.jsonl:3: not JSON; the line was saved to session-a.0.torn" in str(report)
    assert contents(tmp_path, "a") == ["msg 0", "msg 1", "msg 0"]
    kept = [json.loads(line) for line in (tmp_path / "session-a.0.torn").read_text().splitlines()]
    assert [row["cut"].strip() for row in kept] == [*broken, '{"role":"user","content":"to']
    (recording,) = load(tmp_path)
    assert len(recording.messages) == 3


def test_chunks_that_were_renamed_by_hand_are_one_session(tmp_path: Path) -> None:
    write(tmp_path / "session-a.2.jsonl", rows(6)[3:])
    write(tmp_path / "session-a.1.jsonl", rows(3))
    write(tmp_path / "session-a.10.jsonl", rows(7)[6:])
    assert migrate_folder(tmp_path, max_history=200).migrated[0].messages == 7
    assert contents(tmp_path, "a") == [f"msg {n}" for n in range(7)]
    assert sorted(p.name for p in tmp_path.glob("*.old")) == []


def test_a_chunk_that_was_renamed_by_hand_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "session-a.1.jsonl", rows(3))
    store = JsonlStore(tmp_path)
    assert store.sessions() == store.sessions() == []
    (record,) = caplog.records
    assert f"ctxlab sessions migrate {tmp_path}" in record.getMessage()


def test_a_file_whose_id_is_taken_or_cannot_be_used_is_left_and_told(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create(id="a")
    store.append("a", Message("user", "mine"))
    write(tmp_path / "session-a.jsonl", rows(2))
    write(tmp_path / "session-a b.jsonl", rows(2))
    report = migrate_folder(tmp_path)
    assert {each.file for each in report.skipped} == {"session-a.jsonl", "session-a b.jsonl"}
    assert "exists already" in str(report)
    assert contents(tmp_path, "a") == ["mine"]
    assert (tmp_path / "session-a.jsonl").exists()


def test_other_files_are_not_touched(tmp_path: Path) -> None:
    from ctxlab.formats import write as write_recordings
    from ctxlab.messages.types import Recording

    write_recordings([Recording("r", (Message("user", "hi"),))], tmp_path / "native.jsonl")
    write(tmp_path / "notes.jsonl", [{"a": 1}])
    (tmp_path / "notes.md").write_text("x")
    filled = JsonlStore(tmp_path)
    filled.append(filled.create(id="s").id, Message("user", "x"))
    filled.save_turn_summary("s", 1, "x")
    before = snapshot(tmp_path)
    assert str(migrate_folder(tmp_path)) == "nothing to migrate"
    assert snapshot(tmp_path) == before


def test_copies_are_never_joined(tmp_path: Path) -> None:
    meta = {"type": "meta", "session_id": "a"}
    write(tmp_path / "session-a.jsonl", [meta, *rows(4)])
    write(tmp_path / "copy.jsonl", [meta, *rows(4)])
    write(tmp_path / "longer.jsonl", [meta, *rows(6)])
    before = snapshot(tmp_path)
    dry = migrate_folder(tmp_path, dry_run=True)
    assert snapshot(tmp_path) == before
    report = migrate_folder(tmp_path)
    assert report == dry
    assert [(each.id, each.messages) for each in report.migrated] == [("a", 4), ("a-2", 6)]
    (skipped,) = report.skipped
    assert skipped.file == "copy.jsonl"
    assert "the same messages as session 'a'" in skipped.reason
    assert contents(tmp_path, "a") == [f"msg {n}" for n in range(4)]
    assert (tmp_path / "copy.jsonl").exists()
    again = migrate_folder(tmp_path)
    assert (again.migrated, again.skipped) == ((), (skipped,))


def test_a_session_that_lost_its_meta_file_gets_another(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, max_history=2)
    store.create(id="a", model="gpt-5")
    for row in rows(5):
        store.append("a", message_from_dict(row))
    (tmp_path / "session-a.meta.json").unlink()
    with pytest.raises(SessionError, match="exists already"):
        store.create(id="a")
    assert migrate_folder(tmp_path).migrated == (("a", (), 5, 3),)
    session = JsonlStore(tmp_path).get("a")
    assert (session.title, session.model, session.messages) == ("msg 0", "gpt-5", 5)
    assert JsonlStore(tmp_path).append("a", Message("user", "on")) == 5


def test_a_session_that_is_broken_stops_no_other(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, max_history=2)
    for id in ("row", "fine"):
        store.create(id=id)
        for row in rows(5):
            store.append(id, message_from_dict(row))
        (tmp_path / f"session-{id}.meta.json").unlink()
    chunk = tmp_path / "session-row.1.jsonl"
    lines = chunk.read_text().splitlines()
    chunk.write_text("\n".join([lines[0], '{"role":"user","cont', *lines[2:], ""]))
    shutil.copy(tmp_path / "session-fine.1.jsonl", tmp_path / "session-a b.1.jsonl")
    write(tmp_path / "session-old.jsonl", rows(2))
    report = migrate_folder(tmp_path)
    assert [each.id for each in report.migrated] == ["fine", "row", "old"]
    assert [left.file for left in report.skipped] == ["session-a b.1.jsonl"]
    assert chunk.read_text().splitlines()[1] == '{"role":"user","cont'  # for sessions doctor
    assert contents(tmp_path, "row")[1:] == [f"msg {n}" for n in range(1, 5)]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no such folder"):
        migrate_folder(tmp_path / "nowhere")


RUN = """
import sys
from ctxlab.sessions.jsonl.migrate import migrate_folder
print("go", flush=True)
migrate_folder(sys.argv[1], max_history=5)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("numbered", [False, True])
def test_a_run_that_is_killed_is_done_again_by_the_next(tmp_path: Path, numbered: bool) -> None:
    for name in "ab":
        every = rows(400)
        if numbered:
            write(tmp_path / f"session-{name}.1.jsonl", every[:150])
            write(tmp_path / f"session-{name}.2.jsonl", every[150:])
        else:
            write(tmp_path / f"session-{name}.jsonl", every)
    for delay in (0.005, 0.02, 0.05, 0.1):
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert run.stdout is not None
        run.stdout.readline()
        time.sleep(delay)
        run.kill()
        run.communicate()
    migrate_folder(tmp_path, max_history=5)
    for name in "ab":
        assert contents(tmp_path, name) == [f"msg {n}" for n in range(400)]
    assert not list(tmp_path.glob("*.old")) + list(tmp_path.glob("session-[ab].jsonl"))
    assert [len(recording.messages) for recording in load(tmp_path)] == [400, 400]

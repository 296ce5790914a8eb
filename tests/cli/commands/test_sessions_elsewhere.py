"""Tests of ``ctxlab sessions`` with logs and empty folders, in which it must not write anything."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from running import Run

from ctxlab.sessions.sqlite.store import SqliteStore


@pytest.mark.e2e
def test_recorded_logs_are_read_and_never_changed(logs: Path, run: Run) -> None:
    before = {path: path.read_bytes() for path in logs.iterdir()}
    rows = json.loads(run("sessions", "list", "--store", logs, "--json").out)
    assert len(rows) == 6
    assert run("sessions", "toc", rows[0]["id"], "--store", logs).code == 0
    assert run("sessions", "search", "AB-0003", "--store", logs).out
    for command in (["delete", rows[0]["id"]], ["delete-all", "--yes"], ["archive", rows[0]["id"]]):
        said = run("sessions", *command, "--store", logs)
        assert said.code == 2
        assert "logs, which are read-only" in said.err
    assert {path: path.read_bytes() for path in logs.iterdir()} == before


@pytest.mark.e2e
def test_a_folder_without_sessions_is_an_empty_list_and_stays_empty(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run("sessions", "list")
    assert (said.code, said.out) == (0, "")
    assert "start a session with ctxlab chat" in said.err
    assert run("sessions", "list", "--json").out == "[]\n"
    for command in (["toc", "a"], ["search", "x"], ["delete-all", "--yes"], ["export", "a"]):
        said = run("sessions", *command)
        assert (said.code, said.out) == (2, "")
        assert "no sessions in" in said.err
    assert list(tmp_path.iterdir()) == []
    assert run("sessions", "list", "--store", tmp_path / "nowhere").code == 2


def test_old_session_files_are_brought_up_to_date(tmp_path: Path, run: Run) -> None:
    old = tmp_path / "session-abc.jsonl"
    rows = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    old.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = run("sessions", "migrate", tmp_path)
    assert said.code == 0
    assert "session abc: 2 messages" in said.out
    (row,) = json.loads(run("sessions", "list", "--store", tmp_path, "--json").out)
    assert (row["id"], row["messages"]) == ("abc", 2)
    assert "nothing to migrate" in run("sessions", "migrate", tmp_path).out
    assert run("sessions", "migrate", tmp_path / "nowhere").code == 2


def test_session_files_beside_a_database_are_not_converted(tmp_path: Path, run: Run) -> None:
    """Seed 001, migration: the sessions could not be opened, because the database is opened instead."""
    with closing(SqliteStore(tmp_path)) as store:
        store.create(id="hello")
    old = tmp_path / "session-abc.jsonl"
    old.write_text('{"role": "user", "content": "hi"}\n')
    for options in ((), ("--dry-run",)):
        said = run("sessions", "migrate", tmp_path, *options)
        assert said.code == 2
        assert "move the session files to a folder of their own" in said.err
    assert [path.name for path in tmp_path.glob("session-*")] == [old.name]

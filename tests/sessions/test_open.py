"""Tests of how a path determines the kind of session store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from storing import STORES, a_store, stored

import ctxlab.sessions
from ctxlab.errors import CtxlabError, ReadError, SessionError, UnknownFormat
from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import SessionLibrary, SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.log_library import LogLibrary
from ctxlab.sessions.open import find_store, open_library, open_store
from ctxlab.sessions.sqlite.store import SqliteStore

KINDS = {"chunks": JsonlStore, "workspace": SqliteStore}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_is_known_by_its_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_store(kind, tmp_path)
    id = stored(made, "Fix the parser")
    made.close()
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, str(tmp_path), "."):
        for opened in (open_library(path), open_store(path)):
            assert type(opened) is KINDS[kind]
            assert [session.id for session in opened.sessions()] == [id]
            opened.close()


@pytest.mark.parametrize("kind", STORES)
def test_a_store_is_found_where_one_is_and_none_is_made(kind: str, tmp_path: Path) -> None:
    write([Recording("a", (Message("user", "Hi"),))], tmp_path / "a.jsonl")
    places = (tmp_path, tmp_path / "a.jsonl", tmp_path / "nowhere", "", "s3://bucket/logs")
    assert [find_store(place) for place in places] == [None] * len(places)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    made = a_store(kind, tmp_path)
    id = stored(made, "Fix the parser")
    made.close()
    found = find_store(tmp_path)
    assert type(found) is KINDS[kind]
    assert [session.id for session in found.sessions()] == [id]
    found.close()


def test_a_workspace_is_known_by_its_database_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_store("workspace", tmp_path)
    stored(made, "Fix the parser")
    made.close()
    for path in (tmp_path / ".ctxlab" / "sessions.db", tmp_path / ".ctxlab"):
        opened = open_store(path)
        assert [session.title for session in opened.sessions()] == ["Fix the parser"]
        opened.close()
    monkeypatch.chdir(tmp_path / ".ctxlab")
    opened = open_store("sessions.db")
    assert len(opened.sessions()) == 1
    opened.close()


def test_anything_else_that_ctxlab_reads_is_opened_as_logs(tmp_path: Path) -> None:
    write([Recording("a", (Message("user", "Hi"),))], tmp_path / "a.jsonl")
    for path in (tmp_path, tmp_path / "a.jsonl", str(tmp_path / "*.jsonl"), "bundled:long-chat"):
        opened = open_library(path)
        assert isinstance(opened, LogLibrary)
        assert isinstance(opened, SessionLibrary)
        assert opened.sessions()


def test_a_folder_without_a_store_becomes_a_workspace_where_it_is_to_be_written(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    assert isinstance(store, SessionStore)
    stored(store, "Fix the parser")
    store.close()
    assert (tmp_path / ".ctxlab" / "sessions.db").is_file()
    again = open_store(tmp_path)
    assert len(again.sessions()) == 1
    again.close()


def test_a_folder_without_sessions_is_read_as_the_workspace_that_it_will_be(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    opened = open_library(tmp_path, allow_empty=True)
    assert isinstance(opened, SqliteStore)
    assert opened.sessions() == []
    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]
    other = SqliteStore(tmp_path)
    id = stored(other, "Fix the parser")
    other.close()
    assert [session.id for session in opened.sessions()] == [id]
    opened.close()
    with pytest.raises(UnknownFormat):
        open_library(tmp_path / "notes.md", allow_empty=True)
    with pytest.raises(ReadError, match="no such file"):
        open_library(tmp_path / "none", allow_empty=True)


def test_a_folder_of_chunks_stays_one_when_all_sessions_are_deleted(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create(id="a")
    store.delete("a")
    assert open_library(tmp_path).sessions() == []


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    with pytest.raises(SessionError, match="expected stored sessions or logs"):
        open_library(tmp_path)
    with pytest.raises(UnknownFormat):
        open_library(tmp_path / "notes.md")
    with pytest.raises(ReadError, match="no such file"):
        open_library(tmp_path / "none")
    with pytest.raises(SessionError, match="not a session store"):
        open_store(tmp_path / "notes.md")
    with pytest.raises(SessionError, match="create it first"):
        open_store(tmp_path / "none")


@pytest.mark.parametrize(
    "path", ["", "a\0b", "x" * 5_000, "/dev/null", "s3://", "no://such", "[", "~no"]
)
def test_a_hostile_path_is_refused_with_a_sentence(path: str) -> None:
    for opened in (open_library, open_store):
        with pytest.raises(CtxlabError):
            opened(path)


def test_importing_sessions_loads_no_store_and_no_format() -> None:
    heavy = {"ctxlab.formats", "ctxlab.strategies", "numpy", "sqlite3", "msgspec", "litellm"}
    looks = f"import sys, ctxlab.sessions; print(*sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
    assert all(getattr(ctxlab.sessions, name) is not None for name in ctxlab.sessions.__all__)

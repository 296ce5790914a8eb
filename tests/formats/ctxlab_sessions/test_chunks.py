"""Tests that the chunks of a stored session are read as one recording."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.store import JsonlStore


def filled(folder: Path, *ids: str, count: int = 12) -> JsonlStore:
    store = JsonlStore(folder, max_history=1, fsync="never")
    for id in ids:
        store.create(id=id)
        for number in range(count):
            store.append(id, Message("user", f"{id} {number}"))
    return store


def said(recording: Any) -> list[str]:
    return [message.content for message in recording.messages]


def test_chunks_are_grouped_by_their_session_and_put_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    filled(tmp_path, "a", "b", "a.1")
    (tmp_path / "session-a.11.note.json").write_text('[{"role":"user","content":"another"}]')
    recordings = {recording.id: recording for recording in load(tmp_path)}
    assert set(recordings) == {"a", "b", "a.1", "session-a.11.note"}
    for id in ("a", "b", "a.1"):
        assert said(recordings[id]) == [f"{id} {n}" for n in range(12)]
        assert recordings[id].format == "session-chunks"


def test_sessions_of_two_folders_are_not_mixed(tmp_path: Path) -> None:
    filled(tmp_path / "one", "a", count=2)
    filled(tmp_path / "two", "a", count=3)
    assert [(r.id, len(r.messages)) for r in load(tmp_path)] == [("a", 2), ("a#2", 3)]


def test_what_a_killed_writer_left_beside_is_counted_and_not_read_twice(tmp_path: Path) -> None:
    filled(tmp_path, "a", count=3)
    chunk = tmp_path / "session-a.3.jsonl"
    shutil.copy(chunk, tmp_path / "session-a.3.jsonl.new")
    (recording,) = load(tmp_path)
    assert said(recording) == ["a 0", "a 1", "a 2"]
    assert recording.skipped == {"file that was never finished": 1}


def test_packed_chunks_and_those_of_an_archive_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder, "a", count=3)
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", folder)
    for chunk in folder.glob("*.jsonl"):
        Path(f"{chunk}.gz").write_bytes(gzip.compress(chunk.read_bytes()))
        chunk.unlink()
    for place in (folder, f"zip://**::{archive}"):
        (recording,) = load(place)
        assert said(recording) == ["a 0", "a 1", "a 2"]


def test_a_version_of_later_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, "a", count=1)
    chunk = tmp_path / "session-a.1.jsonl"
    chunk.write_text(chunk.read_text().replace('"version":2', '"version":3'))
    with pytest.raises(ReadError, match=r"session-a\.1\.jsonl:1: .* at most 2, got 3"):
        list(load(tmp_path))


def test_a_session_without_messages_is_one_without_messages(tmp_path: Path) -> None:
    filled(tmp_path, "a", count=0)
    (recording,) = load(tmp_path)
    assert (recording.id, recording.messages) == ("a", ())


def test_a_session_with_an_empty_id_has_the_name_of_its_file(tmp_path: Path) -> None:
    filled(tmp_path, "a")
    for path in tmp_path.glob("session-a.*"):
        path.write_text(path.read_text().replace('"id":"a"', '"id":""'))
    (recording,) = load(tmp_path)
    assert recording.id == "session-a.1"
    assert said(recording) == [f"a {n}" for n in range(12)]

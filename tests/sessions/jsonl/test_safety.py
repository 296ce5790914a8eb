"""Tests of the JSONL store with torn writes, full disks, wrong input, and several processes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from chunking import CALL, TOOL, chunks_of, filled, said, user

from ctxlab.errors import ReadError, SessionError, SpecError, UnknownSession
from ctxlab.formats import load
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.store import JsonlStore


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    return JsonlStore(tmp_path / "sessions", max_history=3, fsync="never")


@pytest.mark.parametrize("keep", [1, 40, -1])
def test_a_batch_of_which_a_part_was_written_is_none(
    store: JsonlStore, caplog: pytest.LogCaptureFixture, keep: int
) -> None:
    """A process that is killed in the middle of a write leaves its beginning."""
    id = filled(store, count=1)
    path = store.folder / f"session-{id}.1.jsonl"
    good = path.read_bytes()
    store.append(id, Message("assistant", None, (CALL,)), Message("tool", "x", tool_call_id="c1"))
    whole = path.read_bytes()
    batch = whole[len(good) :]
    cut = batch.index(b"\n") + 1 if keep == -1 else keep
    path.write_bytes(good + batch[:cut])
    other = JsonlStore(store.folder, max_history=3)
    for each in (store, other):
        assert said(each.read_messages(id)) == ["msg 0"]
        assert each.get(id).messages == 1
    (recording,) = load(store.folder)
    assert (said(recording.messages), sum(recording.skipped.values())) == (["msg 0"], 1)
    with caplog.at_level(logging.WARNING):
        assert other.append(id, user("next")) == 1
    assert "unfinished append" in caplog.text
    assert path.name in caplog.text
    assert path.read_bytes().startswith(good)
    assert said(other.read_messages(id)) == ["msg 0", "next"]
    torn = json.loads((store.folder / f"session-{id}.1.torn").read_text())
    assert torn["cut"].encode() == batch[:cut]


def test_a_batch_over_several_chunks_counts_when_the_first_of_them_is_there(
    store: JsonlStore,
) -> None:
    """Chunks are named from the last to the first, so that a kill between them leaves none."""
    id = filled(store, count=2)
    store.append(id, *(user(f"many {n}") for n in range(9)))
    assert chunks_of(store, id) == [f"session-{id}.{n}.jsonl" for n in (1, 2, 3, 4)]
    (store.folder / f"session-{id}.2.jsonl").unlink()  # as if the process had been killed before it
    meta = store.folder / f"session-{id}.meta.json"
    meta.write_text(meta.read_text().replace('"chunk":4', '"chunk":1'))
    again = JsonlStore(store.folder, max_history=3)
    assert said(again.read_messages(id)) == ["msg 0", "msg 1"]
    (recording,) = load(store.folder)
    assert recording.skipped == {"chunk of an unfinished batch": 2}
    assert again.append(id, *(user(f"new {n}") for n in range(4))) == 2
    assert said(again.read_messages(id))[2:] == ["new 0", "new 1", "new 2", "new 3"]
    assert chunks_of(again, id) == [f"session-{id}.{n}.jsonl" for n in (1, 2, 3)]
    assert (store.folder / f"session-{id}.4.torn").exists()


def test_a_last_line_that_somebody_left_without_its_break_counts(store: JsonlStore) -> None:
    id = filled(store, count=2)
    path = store.folder / f"session-{id}.1.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    again = JsonlStore(store.folder, max_history=3)
    assert again.append(id, user("next")) == 2
    assert said(again.read_messages(id)) == ["msg 0", "msg 1", "next"]
    assert not list(store.folder.glob("*.torn"))


def test_a_broken_line_in_the_middle_is_told_with_file_and_line(store: JsonlStore) -> None:
    id = filled(store, count=7)
    for number, line in ((2, 3), (3, 2)):
        path = store.folder / f"session-{id}.{number}.jsonl"
        lines = path.read_text().splitlines()
        lines[line - 1] = '{"role":"user","cont'
        path.write_text("\n".join([*lines, ""]))
    kept = said(store.read_messages(id))
    assert kept[:4] == ["msg 0", "msg 1", "msg 2", "msg 3"]
    assert (kept[5], len(kept)) == ("msg 5", 7)
    assert [each.place.rpartition("/")[2] for each in store.damage.found] == [
        f"session-{id}.2.jsonl:3",
        f"session-{id}.3.jsonl:2",
    ]
    with pytest.raises(ReadError, match=rf"session-{id}\.2\.jsonl:3: not JSON"):
        list(load(store.folder))
    assert said(next(load(store.folder, on_error="skip")).messages)[:3] == [
        "msg 0",
        "msg 1",
        "msg 2",
    ]


def test_a_removal_that_was_killed_leaves_no_session_and_its_id_can_be_used_again(
    store: JsonlStore,
) -> None:
    id = filled(store)
    meta = store.folder / f"session-{id}.meta.json"
    said = json.loads(meta.read_text()) | {"deleted": True}
    (store.folder / f"session-{id}.1.jsonl").unlink()
    meta.write_text(json.dumps(said) + "\n")
    assert store.sessions() == []
    with pytest.raises(UnknownSession):
        store.append(id, user("x"))
    with pytest.raises(ReadError):
        list(load(store.folder))
    store.create(id=id)
    assert list(store.read_messages(id)) == []


def test_a_session_of_the_same_id_begins_anew_for_who_knew_the_old_one(
    store: JsonlStore,
) -> None:
    id = filled(store, count=8)
    other = JsonlStore(store.folder, max_history=3)
    other.delete(id)
    other.create(id=id)
    other.append(id, user("first"))
    assert store.append(id, user("second")) == 1
    assert said(store.read_messages(id)) == ["first", "second"]
    assert said(store.open(id).recent) == ["first", "second"]


BAD = ["", ".", "..", "../a", "a/b", "a\\b", ".a", "a\0", "a b", "é", "x" * 101, "a\n", "C:a"]


@pytest.mark.parametrize("id", BAD)
def test_an_id_that_could_be_a_path_is_refused(store: JsonlStore, id: str) -> None:
    store.create(id="good")
    for act in (
        store.get,
        store.read_messages,
        store.open,
        store.append,
        store.delete,
        store.count_turns,
    ):
        with pytest.raises(UnknownSession):
            act(id)
    with pytest.raises(SessionError, match="invalid session id"):
        store.create(id=id)
    assert [session.id for session in store.sessions()] == ["good"]


def test_a_session_that_is_not_there_is_unknown_to_every_method(store: JsonlStore) -> None:
    acts: list[Any] = [store.get, store.read_messages, store.open, store.append, store.save,
                       store.delete,
                       store.count_turns, store.turn_summaries, store.recording,
                       lambda id: store.read_turn(id, 1), lambda id: store.retitle(id, "x"),
                       lambda id: store.set_status(id, "closed"),
                       lambda id: store.save_turn_summary(id, 1, "x"),
                       lambda id: store.search("x", id)]  # fmt: skip
    for act in acts:
        with pytest.raises(UnknownSession):
            act("nobody")
    assert store.sessions() == []
    assert store.search("x") == []


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="max_history"):
        JsonlStore(tmp_path, max_history=0)
    with pytest.raises(SpecError, match="fsync must be one of always, never; got 'sometimes'"):
        JsonlStore(tmp_path, fsync="sometimes")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("x")
    with pytest.raises(SessionError, match="file"):
        JsonlStore(tmp_path / "file").create()


def test_what_cannot_be_written_as_json_is_refused_before_anything_is_written(
    store: JsonlStore,
) -> None:
    id = filled(store, count=1)
    with pytest.raises(SessionError, match="cannot be stored"):
        store.append(id, user("fine"), Message("user", "x", extra={"a": object()}))
    assert store.get(id).messages == 1
    with pytest.raises(SessionError, match="cannot be stored"):
        store.create(id="other", meta={"a": object()})
    assert [session.id for session in store.sessions()] == [id]


def test_damaged_metadata_costs_what_is_illegible_in_it(
    store: JsonlStore, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store, "a")
    filled(store, "b")
    path = store.folder / "session-a.meta.json"
    store.retitle("a", "A title")
    path.write_text(path.read_text().replace('"model":"gpt-5"', '"model"#"gpt-5"'))
    with caplog.at_level(logging.WARNING):
        assert {session.id for session in store.sessions()} == {"a", "b"}
    assert "session-a.meta.json" in caplog.text
    assert "ctxlab sessions doctor --repair" in caplog.text
    session = store.get("a")
    assert (session.title, session.model, session.messages) == ("A title", "gpt-5", 8)
    damaged = path.read_text()
    store.set_model("a", "gpt-6")  # the damaged file is kept
    assert json.loads((store.folder / "session-a.0.torn").read_text())["cut"] == damaged
    assert JsonlStore(store.folder).get("a").model == "gpt-6"


@pytest.mark.parametrize("tools", ["", ',"tools":"read"', ',"tools":["read"]'])
def test_a_tools_file_without_tools_costs_the_tools(store: JsonlStore, tools: str) -> None:
    store.create(id="a", tools=(TOOL,))
    path = store.folder / "session-a.tools.json"
    path.write_text(f'{{"type":"session-tools","format":"ctxlab","version":1,"id":"a"{tools}}}\n')
    assert store.get("a").tools == ()
    (told,) = store.damage.found
    assert told.place == str(path)


def test_summaries_that_cannot_be_opened_are_told(store: JsonlStore) -> None:
    id = filled(store)
    (store.folder / f"lines-{id}.jsonl").mkdir()
    with pytest.raises(SessionError, match=f"lines-{id}"):
        store.turn_summaries(id)


def test_an_append_that_stored_its_messages_does_not_fail(
    store: JsonlStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is told of a failure appends again, and the messages would be there twice."""
    id = filled(store, count=6)
    (store.folder / f"session-{id}.window.json").unlink()
    first = store.folder / f"session-{id}.1.jsonl"
    away = first.rename(store.folder / "away")
    first.mkdir()  # the next chunk begins with a new window, for which this one cannot be read
    with caplog.at_level(logging.WARNING):
        assert store.append(id, user("msg 6")) == 6
    assert "the next save will retry" in caplog.text
    first.rmdir()
    away.rename(first)
    assert said(store.read_messages(id)) == [f"msg {n}" for n in range(7)]


def test_a_window_that_was_lost_or_broken_is_made_anew(store: JsonlStore) -> None:
    id = filled(store)
    before = store.open(id)
    window = store.folder / f"session-{id}.window.json"
    for content in (
        "",
        "[]",
        '{"type":"session-window"',
        window.read_text().replace("recent", "x"),
    ):
        window.write_text(content)
        assert store.open(id) == before


APPEND = """
import sys
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.store import JsonlStore
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = JsonlStore(folder, max_history=16, fsync="never")
for n in range(count):
    at = store.append("s", Message("user", f"{name}:{n}"), Message("assistant", f"{name}:{n}!"))
    if n % 10 == 0:
        store.save("s"); store.retitle("s", f"{name} {n}", n); store.save_turn_summary("s", n + 1, name)
"""


@pytest.mark.e2e
def test_four_processes_append_every_message_once_and_in_order(tmp_path: Path) -> None:
    """Issue, "Four processes appending to one session": every message once, in a valid order."""
    store = JsonlStore(tmp_path, max_history=16)
    store.create(id="s")
    argv = [sys.executable, "-c", APPEND, str(tmp_path)]
    workers = [subprocess.Popen([*argv, name, "30"]) for name in "abcd"]
    seen = 0
    while any(worker.poll() is None for worker in workers):
        now = said(store.read_messages("s"))  # who reads meanwhile sees whole batches
        assert len(now) >= seen
        assert all(f"{q}!" == a for q, a in zip(now[::2], now[1::2], strict=True))
        seen = len(now)
        time.sleep(0.02)
    assert [worker.returncode for worker in workers] == [0] * 4
    every = said(store.read_messages("s"))
    assert len(every) == store.get("s").messages == 240
    for name in "abcd":
        assert [m for m in every[::2] if m.startswith(name)] == [f"{name}:{n}" for n in range(30)]
    assert not list(tmp_path.glob("*.torn"))
    assert len(store.turn_summaries("s")) == 3


FULL = """
import resource, signal, sys
from ctxlab.messages.types import Message
from ctxlab.errors import SessionError
from ctxlab.sessions.jsonl.store import JsonlStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = JsonlStore(sys.argv[1])
store.append("s", Message("user", "fits"))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    store.append("s", Message("user", "a"), Message("user", "b" * 20_000))
except SessionError as error:
    print(error)
print([m.content for m in store.read_messages("s")])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(store.append("s", Message("user", "again")), [m.content for m in store.read_messages("s")])
"""


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit for the size of a file")
def test_a_disk_that_is_full_in_the_middle_of_a_batch_costs_that_batch_alone(
    tmp_path: Path,
) -> None:
    JsonlStore(tmp_path).create(id="s")
    argv = [sys.executable, "-c", FULL, str(tmp_path)]
    run = subprocess.run(argv, capture_output=True, text=True, check=True)
    told, after, later = run.stdout.splitlines()
    assert "File too large" in told
    assert after == "['fits']"
    assert later == "1 ['fits', 'again']"
    assert "unfinished append" in run.stderr
    assert (tmp_path / "session-s.1.torn").exists()


def test_of_two_that_create_one_id_one_gets_it(tmp_path: Path) -> None:
    outcomes: list[str] = []
    go = threading.Barrier(4)

    def create() -> None:
        store = JsonlStore(tmp_path)
        go.wait()
        try:
            outcomes.append(store.create(id="same").id)
        except SessionError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("same") == 1
    assert sum("already" in outcome for outcome in outcomes) == 3


def test_a_store_is_a_recording_a_session(store: JsonlStore) -> None:
    """``ctxlab eval`` and ``ctxlab describe`` take the folder of a store as data."""
    for id in ("a", "b"):
        store.create(id=id, model="gpt-5", tools=(TOOL,), title=f"The {id}", meta={"topic": "x"})
        store.append(id, *(user(f"{id} {n}") for n in range(34)))  # 12 chunks
        store.save_turn_summary(id, 1, "a line")
        store.save(id)
    assert len(chunks_of(store, "a")) == 13
    told: list[Any] = []
    loaded = list(load(store.folder, on_skip=lambda place, reason: told.append((place, reason))))
    assert told == []
    assert [recording.id for recording in loaded] == ["a", "b"]
    for recording in loaded:
        stored = store.recording(recording.id)
        for key in ("id", "messages", "tools", "model", "meta", "skipped"):
            assert getattr(recording, key) == getattr(stored, key), key
        assert recording.meta["title"] == f"The {recording.id}"


def test_a_chunk_that_is_named_is_read_by_itself(store: JsonlStore) -> None:
    id = filled(store, count=8)
    (recording,) = load(store.folder / f"session-{id}.2.jsonl")
    assert said(recording.messages) == ["msg 3", "msg 4", "msg 5"]
    assert (recording.id, recording.model) == (id, "gpt-5")
    assert recording.skipped == {"message in an older chunk": 3}


def test_a_chunk_that_is_missing_is_told(store: JsonlStore) -> None:
    id = filled(store, count=8)
    (store.folder / f"session-{id}.2.jsonl").unlink()
    with pytest.raises(ReadError, match=f"chunk 2 of session {id} is missing"):
        list(load(store.folder))

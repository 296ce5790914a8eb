"""Tests that a transcript is complete with any number of processes and threads."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from generated import strange_conversations
from hypothesis import given
from numbering import assert_numbers_agree
from workspaces import HI, TOOLS, begun, sql

from ctxlab.errors import SessionError, SpecError, UnknownSession
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.resume_messages import INTERRUPTED_RESULT, pair_tool_results
from ctxlab.sessions.resume_window import ResumeCaps
from ctxlab.sessions.sqlite.store import SqliteStore


@given(strange_conversations())
def test_the_transcript_is_whole_and_turns_are_as_counted(
    folder: Path, messages: tuple[Message, ...]
) -> None:
    store = SqliteStore(folder, fsync="never")
    id, half = store.create(tools=TOOLS).id, len(messages) // 2
    assert store.append(id, *messages[:half]) == 0
    assert store.append(id, *messages[half:]) == half
    assert_numbers_agree(store, id, messages)
    assert store.recording(id).messages == messages
    assert list(store.read_messages(id, 1, 3)) == list(messages[1:3])
    assert list(store.read_messages(id, -5, 10**30)) == list(messages)
    store.close()


def test_a_batch_is_kept_whole_or_not_at_all(store: SqliteStore) -> None:
    begun(store)
    bad = Message("user", "x", extra={"no JSON": object()})
    with pytest.raises(SessionError, match="a message cannot be stored"):
        store.append("a", HI[0], bad)
    assert store.get("a").messages == 2
    assert store.append("a") == 2


def test_lines_are_kept_by_their_turn(store: SqliteStore) -> None:
    begun(store)
    for line in ("first", "better"):
        store.save_turn_summary("a", 1, line)
    store.save_turn_summary("a", 3, "third \ud800")
    assert store.turn_summaries("a") == {1: "better", 3: "third \ufffd"}


def test_what_is_not_there_is_unknown_to_every_method(store: SqliteStore) -> None:
    for known in (False, True):
        if known:
            begun(store)
        for id in ("b", "", "'; DROP TABLE chat_sessions; --", "\ud800", "a\0", "%", "../a"):
            for ask in (
                lambda id: store.get(id),
                lambda id: store.read_messages(id),
                lambda id: store.read_turn(id, 1),
                lambda id: store.count_turns(id),
                lambda id: store.count_steps(id, 1),
                lambda id: store.turn_summaries(id),
                lambda id: store.search("x", id),
                lambda id: store.recording(id),
                lambda id: store.open(id),
                lambda id: store.append(id, *HI),
                lambda id: store.save(id),
                lambda id: store.retitle(id, "x"),
                lambda id: store.set_status(id, "closed"),
                lambda id: store.save_turn_summary(id, 1, "x"),
                lambda id: store.delete(id),
            ):
                with pytest.raises(UnknownSession):
                    ask(id)
    assert store.get("a").messages == 2


def test_deleting_removes_every_trace(store: SqliteStore) -> None:
    """Seed 002, criterion 10: clean-up removes a session and all that belongs to it."""
    begun(store)
    store.append("a", Message("user", "the secret is HERON42"))
    store.save_turn_summary("a", 1, "HERON42")
    store.retitle("a", "HERON42")
    store.save("a")
    begun(store, "b")
    store.delete("a")
    assert [s.id for s in store.sessions()] == ["b"]
    assert store.search("HERON42") == []
    for table in ("messages", "lines", "titles", "messages_fts"):
        column = "words" if table == "messages_fts" else "session_id"
        assert not sql(
            store, f"SELECT * FROM {table} WHERE {column} IN ('a') OR {column} LIKE '%heron%'"
        )
    assert store.create(id="a").messages == 0
    # And while it is open nothing of it is left in the file or its log.
    left = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert b"the secret is" not in left
    assert b"heron42" not in left.lower()


def _append(folder: str, name: str, count: int) -> None:
    store = SqliteStore(folder, fsync="never", caps=ResumeCaps(messages=10))
    for number in range(count):
        id = f"{name}{number}"
        store.append("a", Message("assistant", tool_calls=(ToolCall(id, "run"),)))
        store.append("a", Message("tool", f"result {id}", tool_call_id=id))
    store.save("a")
    store.close()


def test_four_processes_append_and_every_message_is_there_once_in_order(tmp_path: Path) -> None:
    """Issue 6, done when: four processes appending to one session."""
    store = SqliteStore(tmp_path, caps=ResumeCaps(messages=10))
    store.create(id="a")
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    many = [context.Process(target=_append, args=(str(tmp_path), name, 25)) for name in "wxyz"]
    for each in many:
        each.start()
    for each in many:
        each.join()
        assert each.exitcode == 0
    messages = list(store.read_messages("a"))
    for name in "wxyz":
        own = [m for m in messages if (m.tool_call_id or m.tool_calls[0].id).startswith(name)]
        ids = [m.tool_call_id or m.tool_calls[0].id for m in own]
        assert ids == [f"{name}{i // 2}" for i in range(50)]
    assert len(messages) == store.get("a").messages == 200
    assert len(pair_tool_results(messages)) == 200  # each result found its call
    resume = store.open("a")
    assert pair_tool_results(resume.recent) == resume.recent
    assert not any(m.content == INTERRUPTED_RESULT for m in resume.recent)
    assert len(store.search("result", limit=1000)) == 100
    store.close()


@pytest.mark.e2e
def test_processes_that_begin_a_workspace_at_once_all_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; from ctxlab.sessions.sqlite.store import SqliteStore\n"
        "from ctxlab.messages.types import Message\n"
        "store = SqliteStore(sys.argv[1], fsync='never'); sys.stdin.readline()\n"
        "id = store.create().id; store.append(id, Message('user', 'hi')); store.close()\n"
    )
    many = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE)
        for _ in range(4)
    ]
    for each in many:
        each.communicate(b"\n")
        assert each.returncode == 0
    store = SqliteStore(tmp_path)
    assert sorted(s.status for s in store.sessions()) == ["active", "closed", "closed", "closed"]
    store.close()


def test_threads_share_a_store(store: SqliteStore) -> None:
    begun(store)

    def work(name: int) -> None:
        for number in range(20):
            store.append("a", Message("user", f"{name}.{number}"))
            assert store.open("a").recent

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert store.get("a").messages == 82
    assert len({m.content for m in store.read_messages("a")}) == 82


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_was_forked_opens_its_own(store: SqliteStore) -> None:
    begun(store)
    child = os.fork()
    if not child:
        done = 1
        try:
            store.append("a", Message("user", "from the child"))
            done = 0
        finally:
            os._exit(done)
    assert os.waitpid(child, 0)[1] == 0
    store.append("a", Message("user", "from the parent"))
    assert [m.content for m in store.read_messages("a", 2)] == ["from the child", "from the parent"]


def test_what_is_interrupted_is_taken_back_and_the_store_goes_on(store: SqliteStore) -> None:
    begun(store)

    def interrupted() -> None:
        with store._writing_session("a") as session:
            session.connection.execute("DELETE FROM messages")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.get("a").messages == len(list(store.read_messages("a"))) == 2


def test_a_slow_reader_keeps_nobody_waiting(store: SqliteStore) -> None:
    begun(store)
    store.append("a", *(Message("user", str(i)) for i in range(300)))
    reading = store.read_messages("a")
    next(reading)
    store.append("a", Message("user", "meanwhile"))
    assert len(list(reading)) == 301  # as it was when it was asked for
    other = SqliteStore(store.workspace)
    gone = other.read_messages("a")
    next(gone)
    store.delete("a")
    with pytest.raises(UnknownSession):
        list(gone)
    other.close()


def test_a_store_that_was_closed_opens_again(store: SqliteStore) -> None:
    begun(store)
    store.close()
    store.close()
    assert store.get("a").messages == 2


def test_a_database_that_was_removed_is_noticed(store: SqliteStore) -> None:
    begun(store)
    for path in list(store.path.parent.iterdir()):
        path.unlink()
    with pytest.raises(UnknownSession):
        store.append("a", *HI)
    assert store.sessions() == []
    assert not store.path.exists()
    begun(store)
    assert store.get("a").messages == 2


def test_deleting_does_not_wait_for_a_reader_that_goes_on(store: SqliteStore) -> None:
    begun(store)
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM messages").fetchone() == (2,)
    store.delete("a")
    assert store.sessions() == []
    reader.close()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_file_that_is_no_database_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".ctxlab" / "sessions.db"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(SessionError, match=r"sessions\.db: damaged database \(.*rename the file"):
        SqliteStore(tmp_path).sessions()
    assert path.read_bytes() == content


def test_a_workspace_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SessionError, match="cannot create the database folder"):
        SqliteStore(tmp_path / "file").create()


def test_settings_that_are_wrong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="fsync"):
        SqliteStore(tmp_path, fsync="sometimes")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="when_active"):
        SqliteStore(tmp_path, when_active="ask")  # type: ignore[arg-type]

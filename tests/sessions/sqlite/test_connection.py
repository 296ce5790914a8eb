"""Tests of database connections: closing one loses no later writes, and read-only files work."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ctxlab.errors import SessionError
from ctxlab.messages.types import Message
from ctxlab.sessions.sqlite.store import SqliteStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

ANOTHER = """
import sys
from ctxlab.sessions.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.get("a")
store.close()
"""


def in_a_child(act: Callable[[], None]) -> int:
    """Run ``act`` in a forked process that then kills itself; return its exit code."""
    pid = os.fork()
    if not pid:
        try:
            act()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def said(folder: Path) -> list[object]:
    store = SqliteStore(folder)
    try:
        return [message.content for message in store.read_messages("a")]
    finally:
        store.close()


def test_a_child_goes_on_when_its_parent_has_closed(store: SqliteStore) -> None:
    """SQLite forgets over a fork that the file is open, and the parent would remove the log."""
    store.create(id="a")
    store.append("a", Message("user", "of the parent"))
    ready, go = os.pipe(), os.pipe()

    def act() -> None:
        store.append("a", Message("user", "before"))
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        store.append("a", Message("user", "after"))

    pid = os.fork()
    if not pid:
        try:
            act()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.read(ready[0], 1)
    store.close()
    os.write(go[1], b"x")
    os.waitpid(pid, 0)
    for end in (*ready, *go):
        os.close(end)
    assert said(store.workspace) == ["of the parent", "before", "after"]


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is noticed, and not prevented")
def test_who_reads_the_file_in_this_process_takes_no_lock_away(tmp_path: Path) -> None:
    """A POSIX lock goes with any close of its file; another process would then remove the log."""

    def act() -> None:
        store = SqliteStore(tmp_path)
        store.create(id="a")
        store.path.read_bytes()
        subprocess.run([sys.executable, "-c", ANOTHER, str(tmp_path)], check=True)
        store.append("a", Message("user", "acknowledged"))

    assert in_a_child(act) == -signal.SIGKILL
    assert said(tmp_path) == ["acknowledged"]


@contextmanager
def sealed(store: SqliteStore, within: Path) -> Iterator[None]:
    """Make the database of a store and its folder read-only."""
    above = [each for each in within.parents if each.name.startswith(("pytest-", "popen-"))]
    folders = above if os.getuid() == 0 else []  # who reads below is another, and must get there
    before = [(each, each.stat().st_mode) for each in folders]
    for each in folders:
        each.chmod(0o755)
    for path, mode in ((store.path, 0o444), (store.path.parent, 0o555), (within, 0o555)):
        path.chmod(mode)
    try:
        yield
    finally:
        for path in (within, store.path.parent, store.path):
            path.chmod(0o755)
        for each, mode in before:
            each.chmod(mode)


@pytest.mark.e2e(smoke=True)
@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("indexed", ["all", "none", "part", "version 3"])
def test_a_workspace_that_cannot_be_written_can_be_read(tmp_path: Path, indexed: str) -> None:
    """So can one that was written without an index, or whose index lacks a message or is old."""
    for index, text in (
        (indexed != "none", "a word"),
        (indexed in ("all", "version 3"), "another word"),
    ):
        store = SqliteStore(tmp_path, index=index)
        if not store.sessions():
            store.create(id="a")
        store.append("a", Message("user", text))
        store.close()
    if indexed == "version 3":
        with closing(sqlite3.connect(store.path)) as connection:
            connection.execute("UPDATE messages_fts SET words = ''")
            connection.execute("PRAGMA user_version = 3")
            connection.commit()
    store = SqliteStore(tmp_path)

    def act() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        assert [session.id for session in store.sessions()] == ["a"]
        assert [m.content for m in store.read_messages("a")] == ["a word", "another word"]
        assert len(store.search("word")) == len(store.search("word", "a")) == 2
        with pytest.raises(SessionError, match="readonly"):
            store.append("a", Message("user", "x"))

    with sealed(store, tmp_path):
        assert in_a_child(act) == -signal.SIGKILL
    assert len(store.search("word")) == 2  # and who may write again makes the index
    store.close()

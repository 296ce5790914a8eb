"""Tests that a damaged database costs only what was in the damaged place, and is told."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from numbering import assert_numbers_agree

from ctxlab.agent.loop import Agent
from ctxlab.agent.session import AgentSession
from ctxlab.errors import SessionError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.damage import is_lost
from ctxlab.sessions.sqlite.connection import Database
from ctxlab.sessions.sqlite.store import SqliteStore
from ctxlab.sessions.table_of_contents import get_contents

Messages = dict[str, list[Message]]


@pytest.fixture(scope="module")
def whole() -> Iterator[tuple[Path, Messages]]:
    with tempfile.TemporaryDirectory() as folder, closing(SqliteStore(folder)) as store:
        call = ToolCall("c1", "read", "{}")
        for id in ("a", "b"):
            store.create(id=id, model="gpt-5", title=f"Title {id}")
            for n in range(30):
                store.append(
                    id,
                    Message("user", f"question {n} of {id} {'lorem ipsum ' * 20}"),
                    Message("assistant", None, (call,)),
                    Message("tool", f"{n} " * 9, tool_call_id="c1"),
                    Message("assistant", f"answer {n} of {id}" + " long" * (n == 7) * 3000),
                )
            store.save_turn_summary(id, 1, "a line")
            store.save(id)
        messages = {id: list(store.read_messages(id)) for id in ("a", "b")}
        store.close()
        yield Path(folder), messages


@pytest.fixture
def store(whole: tuple[Path, Messages], tmp_path: Path) -> Iterator[SqliteStore]:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    with closing(SqliteStore(tmp_path)) as store:
        yield store


def sql(asked: str) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(asked)

    return act


def zero_page_of(text: bytes) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        data = bytearray(path.read_bytes())
        start = data.index(text) // 4096 * 4096
        data[start : start + 4096] = bytes(4096)
        path.write_bytes(data)

    return act


def replace(old: bytes, new: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new, 1)) and None


OF_A = "session_id = 'a'"
DAMAGE: dict[str, tuple[int, Callable[[Path], None]]] = {
    "a row that is no JSON": (
        1,
        sql(f"UPDATE messages SET row = '{{' WHERE {OF_A} AND position = 6"),
    ),
    "a row that is no UTF-8": (1, replace(b'"question 3 of a', b'"questi\xffn 3 of a')),
    "a row that is missing": (1, sql(f"DELETE FROM messages WHERE {OF_A} AND position = 8")),
    "a turn that is missing": (4, sql(f"DELETE FROM messages WHERE {OF_A} AND turn = 3")),
    "a title that is no UTF-8": (0, replace(b"Title a", b"\xff\xfetle a")),
    "a count that is too small": (0, sql(f"UPDATE chat_sessions SET messages = 50 WHERE {OF_A}")),
    "a count that is too large": (0, sql(f"UPDATE chat_sessions SET messages = 500 WHERE {OF_A}")),
    "no row of the session": (0, sql(f"DELETE FROM chat_sessions WHERE {OF_A}")),
    "a page of messages": (40, zero_page_of(b'"question 12 of a')),
    "a page of sessions": (0, zero_page_of(b"Title a")),
    "the first page": (0, zero_page_of(b"SQLite format 3")),
    "an index without pages": (0, sql("DELETE FROM messages_fts_data WHERE id > 10")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_costs_only_what_was_in_the_damaged_place(
    whole: tuple[Path, Messages], store: SqliteStore, name: str
) -> None:
    most, act = DAMAGE[name]
    act(store.path)
    assert {session.id for session in store.sessions()} == {"a", "b"}
    assert list(store.read_messages("b")) == whole[1]["b"]
    read = list(store.read_messages("a"))
    assert len(read) == store.get("a").messages == 120
    pairs = zip(whole[1]["a"], read, strict=True)
    other = [new for old, new in pairs if old != new]
    assert len(other) <= most
    assert all(is_lost(each) or "\ufffd" in each.text for each in other)
    assert_numbers_agree(store, "a", read)
    assert get_contents(store, "a").total_turns == 30
    assert len(store.search("answer 29", "b")) == 1
    assert store.search("3 a", "a") is not None
    assert store.damage.found
    if name == "the first page":
        with pytest.raises(SessionError, match="ctxlab sessions doctor --repair"):
            store.open("a")
        return
    with AgentSession.resume(store, "a", Agent("gpt-4o")):
        pass
    assert store.append("a", Message("user", "on")) == 120


def test_a_file_of_which_the_end_is_missing_is_read_as_far_as_it_goes(
    whole: tuple[Path, Messages], store: SqliteStore
) -> None:
    data = store.path.read_bytes()
    store.path.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    read = list(store.read_messages("a"))
    kept = [message for message in read if not is_lost(message)]
    assert kept == whole[1]["a"][: len(kept)]
    assert len(kept) > 20


def test_a_log_that_sqlite_ignores_is_kept_and_told(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "a")
    first.create(id="a")
    first.append("a", Message("user", "hello"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # as after a kill: the log is not applied
    first.close()
    folder = tmp_path / "b" / ".ctxlab"
    log = folder / "sessions.db-wal"
    content = bytearray(log.read_bytes())
    content[32 + 24 + 2000] ^= 255  # the first of its pages
    log.write_bytes(content)
    (folder / "sessions.db-shm").unlink()
    with closing(SqliteStore(tmp_path / "b")) as store:
        store.sessions()
        (told,) = store.damage.found
        assert "sessions.db-wal.damaged" in told.reason
    assert (folder / "sessions.db-wal.damaged").read_bytes() == content


def test_a_log_that_another_process_empties_is_not_reported_as_damaged(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        store.create(id="a")
        # This function is called after the new connection has read the log.
        second = Database(store.path, lambda _: store._database.truncate_log())
        with closing(second), second.read_transaction():
            assert not second.damaged_log.exists()

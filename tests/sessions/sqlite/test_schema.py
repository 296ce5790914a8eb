"""Tests of schema versions: older databases are migrated, newer ones are refused."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import ctxlab
from ctxlab.errors import ReadError, SessionError
from ctxlab.formats.ctxlab_sessions import sqlite as session_db
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan
from ctxlab.sessions.sqlite import schema
from ctxlab.sessions.sqlite.store import SqliteStore

# The table as the seed has it, and what such a system would have written.
SEED = """
CREATE TABLE chat_sessions (session_id TEXT PRIMARY KEY, title TEXT, model TEXT,
    status TEXT CHECK(status IN ('active', 'closed', 'archived')), created_at INTEGER,
    updated_at INTEGER, summary TEXT, recent_messages TEXT, plan_steps TEXT,
    current_step_index INTEGER, awaiting_continuation INTEGER, paused INTEGER)
"""
CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
RECENT = [
    {"role": "user", "content": "Fix the parser"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "x = 1", "tool_call_id": "c"},
    {"role": "assistant", "content": "Done."},
]


def old(folder: Path, version: int = 1) -> Path:
    """Create a database of an old version with three sessions; two are active, as after a crash."""
    path = folder / ".ctxlab" / "sessions.db"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(SEED)
        connection.execute(f"PRAGMA user_version = {version}")
        rows = [
            ("a", "Parser", "active", 1000, 1_700_000_000, json.dumps(RECENT), '["x","y"]', 1),
            ("b", "Docs", "active", 1000, 1_700_000_000_500, "[", None, None),
            ("c", None, "archived", None, None, None, None, None),
        ]
        for id, title, status, made, updated, recent, steps, current in rows:
            connection.execute(
                "INSERT INTO chat_sessions VALUES (?, ?, 'gpt-5', ?, ?, ?, ?, ?, ?, ?, 0, 1)",
                (id, title, status, made, updated, "- user: before", recent, steps, current),
            )
    connection.close()
    return path


def test_the_seeds_own_table_is_version_1() -> None:
    """Seed 004, records: the schema, with versions on top."""
    connection = sqlite3.connect(":memory:")
    for step in schema.MIGRATIONS[0]:
        assert isinstance(step, str)
        connection.execute(step)
    other = sqlite3.connect(":memory:")
    other.execute(SEED)
    asked = "PRAGMA table_info(chat_sessions)"
    assert connection.execute(asked).fetchall() == other.execute(asked).fetchall()
    connection.close()
    other.close()


@pytest.mark.parametrize("version", [0, 1])
def test_a_database_of_version_1_is_brought_up_to_date(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = old(tmp_path, version)
    store = SqliteStore(tmp_path)
    assert [(s.id, s.status, s.messages) for s in store.sessions()] == [
        ("b", "active", 0),
        ("a", "closed", 4),
    ]
    assert [s.id for s in store.sessions(status="archived")] == ["c"]
    session = store.get("a")
    assert (session.title, session.created, session.updated) == ("Parser", 1000.0, 1_700_000_000.0)
    resume = store.open("a")
    assert [m.content for m in resume.recent] == ["Fix the parser", None, "x = 1", "Done."]
    assert (resume.summary, resume.plan) == (
        "- user: before",
        AgentPlan(("x", "y"), 1, paused=True),
    )
    assert (store.count_turns("a"), store.count_steps("a", 1)) == (1, 2)
    assert [hit.position for hit in store.search("parser")] == [0]
    assert "session 'b'" in caplog.text
    store.append("a", *store.read_messages("a", 0, 1))
    assert store.get("a").messages == 5
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)
    assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
    connection.close()


def test_a_database_of_version_1_is_data_as_it_is(tmp_path: Path) -> None:
    path = old(tmp_path)
    before = path.read_bytes()
    first = next(iter(ctxlab.load(tmp_path, on_error="skip", where="id=a")))
    assert [m.content for m in first.messages] == ["Fix the parser", "", "x = 1", "Done."]
    assert first.meta["title"] == "Parser"
    assert path.read_bytes() == before


def test_the_index_of_version_3_is_created_again(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        store.create(id="a")
        store.append("a", Message("user", "नमस्ते"))
        assert len(store.search("नमस्ते")) == 1
        with store._database.write_transaction() as connection:
            connection.execute("UPDATE messages_fts SET words = 'नमस त'")  # without the marks
            connection.execute("PRAGMA user_version = 3")
    with closing(SqliteStore(tmp_path)) as store:
        assert len(store.search("नमस्ते")) == 1


def make_version_2(folder: Path) -> Path:
    """Create a database of version 2, in which each step counted as a turn."""
    path = folder / ".ctxlab" / "sessions.db"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    with connection:
        for step in (*schema.MIGRATIONS[0], schema.MIGRATIONS[1][0]):
            assert isinstance(step, str)
            connection.executescript(step)
        connection.execute("PRAGMA user_version = 2")
        connection.execute(
            "INSERT INTO chat_sessions (session_id, title, status, created_at, updated_at, messages, "
            "turns, replied) VALUES ('a', 'Docs', 'closed', 1000, 1000, 7, 4, 1)"
        )
        rows = [*RECENT, "no JSON", {"role": "user", "content": "Write docs"}, RECENT[-1]]
        for position, (turn, row) in enumerate(zip([1, 1, 1, 2, 2, 3, 3], rows, strict=True)):
            text = row if isinstance(row, str) else json.dumps(row)
            connection.execute(
                "INSERT INTO messages (session_id, position, turn, row) VALUES ('a', ?, ?, ?)",
                (position, turn, text),
            )
        lines = [("a", 1, "fixed"), ("a", 2, "a step"), ("a", 3, "wrote"), ("a", 99, "?")]
        connection.executemany("INSERT INTO lines VALUES (?, ?, ?)", lines)
        titles = [("a", 0, "Docs", 1000, 3, "a:3"), ("a", 1, "Mine", 1000, 0, "")]
        connection.executemany("INSERT INTO titles VALUES (?, ?, ?, ?, ?, ?)", titles)
    connection.close()
    return path


def test_a_database_of_version_2_gets_turns_and_steps(tmp_path: Path) -> None:
    path = make_version_2(tmp_path)
    (before,) = ctxlab.load(path, on_error="skip")
    assert before.meta["lines"] == {"1": "fixed", "2": "wrote"}
    store = SqliteStore(tmp_path)
    assert (store.count_turns("a"), store.count_steps("a", 1), store.count_steps("a", 2)) == (
        2,
        2,
        1,
    )
    assert [m.text for m in store.read_turn("a", 2)[1]] == ["Write docs", "Done."]
    assert (store.read_turn("a", 2)[0], store.read_turn("a", 2, 1)[0]) == (5, 5)
    position, (first, *_) = store.read_turn("a", 1, 1)
    assert (position, first.text) == (0, "Fix the parser")
    assert store.turn_summaries("a") == {1: "fixed", 2: "wrote"}
    assert [(each.turn, each.interaction_id) for each in store.get("a").titles] == [
        *((2, "a:2"), (0, ""))
    ]
    assert {hit.label for hit in store.search("done", "a")} == {"1.2", "2.1"}
    store.append("a", Message("assistant", "One more thing."), Message("user", "Yes?"))
    assert store.read_turn("a", 2, 2) == (7, (Message("assistant", "One more thing."),))
    assert store.count_turns("a") == 3
    store.close()


def test_a_newer_database_is_refused_with_a_clear_sentence(tmp_path: Path) -> None:
    path = old(tmp_path, version=99)
    before = path.read_bytes()
    with pytest.raises(SessionError, match=r"version of at most \d+, got 99; upgrade ctxlab"):
        SqliteStore(tmp_path).sessions()
    with pytest.raises(ReadError, match="got 99; upgrade ctxlab"):
        list(ctxlab.load(path))
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".ctxlab" / "sessions.db"
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    with pytest.raises(SessionError, match="not a ctxlab database"):
        SqliteStore(tmp_path).create()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("notes",)]
    connection.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = old(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE lines (mine)")  # in the way of version 2
    connection.close()
    with pytest.raises(SessionError, match="table lines already exists"):
        SqliteStore(tmp_path).sessions()
    connection = sqlite3.connect(path)
    assert len(connection.execute("PRAGMA table_info(chat_sessions)").fetchall()) == 12
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def _count(folder: str) -> None:
    store = SqliteStore(folder)
    assert store.get("a").messages == 4
    store.close()


@pytest.mark.e2e
def test_processes_that_find_an_old_database_at_once_migrate_it_once(tmp_path: Path) -> None:
    old(tmp_path)
    context = multiprocessing.get_context("spawn")
    many = [context.Process(target=_count, args=(str(tmp_path),)) for _ in range(3)]
    for each in many:
        each.start()
    for each in many:
        each.join()
        assert each.exitcode == 0


def test_the_reader_of_data_knows_the_version_that_is_written(tmp_path: Path) -> None:
    assert session_db.MAX_SCHEMA_VERSION == schema.SCHEMA_VERSION
    store = SqliteStore(tmp_path)
    store.create()
    # Before anything has gone from the log into the file.
    assert ctxlab.formats.detect_format(store.path) is session_db.FORMAT
    store.close()

"""Tests of the SQLite store: sessions are created, listed, titled, closed and deleted."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from workspaces import HI, TOOLS, begun, sql

import ctxlab
from ctxlab.errors import SessionActive, SessionError, SpecError, UnknownSession
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import (
    AgentPlan,
    ResumeState,
    Session,
    SessionLibrary,
    SessionStore,
)
from ctxlab.sessions.sqlite.store import SqliteStore
from ctxlab.sessions.titles import MAX_TITLE_LENGTH, MAX_TITLES


def test_it_is_a_store_and_a_library(store: SqliteStore) -> None:
    assert isinstance(store, SessionStore)
    assert isinstance(store, SessionLibrary)


def test_a_session_is_created_listed_got_and_updated(store: SqliteStore) -> None:
    """Seed 004, testing 1: create, list, get and update records, recent_messages JSON included."""
    made = store.create(
        id="a", title="Parser", model="gpt-5-mini", agent="coder", file="a.py",
        strategy="panic()", tools=TOOLS, meta={"k": [1, None]},
    )  # fmt: skip
    assert made == store.get("a")
    assert [made] == store.sessions()
    assert (made.status, made.model, made.tools, made.meta) == (
        "active",
        "gpt-5-mini",
        TOOLS,
        {"k": [1, None]},
    )
    store.append("a", *HI)
    store.save("a", plan=AgentPlan(("read", "fix"), 1, awaiting_continuation=True))
    ((recent, steps, current, awaiting, paused, created, updated),) = sql(
        store,
        "SELECT recent_messages, plan_steps, current_step_index, awaiting_continuation, paused, "
        "created_at, updated_at FROM chat_sessions",
    )
    assert json.loads(str(recent)) == [
        {"role": "user", "content": "Fix the parser"},
        {"role": "assistant", "content": "Done."},
    ]
    assert (json.loads(str(steps)), current, awaiting, paused) == (["read", "fix"], 1, 1, 0)
    assert isinstance(created, int)
    assert isinstance(updated, int)
    assert made.updated <= store.get("a").updated == updated / 1000


def test_the_fields_are_those_of_the_seed(store: SqliteStore) -> None:
    """Seed 004, records: the proposed fields."""
    begun(store)
    columns = {name: kind for _, name, kind, *_ in sql(store, "PRAGMA table_info(chat_sessions)")}
    wanted = {
        **dict.fromkeys(("session_id", "title", "model", "status", "summary"), "TEXT"),
        **dict.fromkeys(("recent_messages", "plan_steps"), "TEXT"),
        **dict.fromkeys(("created_at", "updated_at", "current_step_index"), "INTEGER"),
        **dict.fromkeys(("awaiting_continuation", "paused"), "INTEGER"),
    }
    assert wanted.items() <= columns.items()
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        sql(store, "UPDATE chat_sessions SET status = 'asleep'")


def test_it_lies_in_the_workspace_and_git_does_not_see_it(tmp_path: Path) -> None:
    """Seed 004, records: SQLite in the workspace's own folder."""
    store = SqliteStore(tmp_path / "new" / "project")
    assert store.sessions() == []
    assert not (tmp_path / "new").exists()  # who only looks makes nothing
    begun(store)
    folder = tmp_path / "new" / "project" / ".ctxlab"
    assert (folder / "sessions.db").is_file()
    assert (folder / ".gitignore").read_text() == "*\n"
    assert sql(store, "PRAGMA journal_mode") == [("wal",)]
    store.close()


@pytest.mark.e2e
def test_sessions_are_listed_after_a_restart(tmp_path: Path) -> None:
    """Seed 004, criterion 1: after a restart the prior sessions of a workspace are listed."""
    code = (
        "import sys; from ctxlab.sessions.sqlite.store import SqliteStore\n"
        "from ctxlab.messages.types import Message\n"
        "store = SqliteStore(sys.argv[1]); store.create(id='a')\n"
        "store.append('a', Message('user', 'Fix the parser')); store.close()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    store = SqliteStore(tmp_path)
    (session,) = store.sessions()
    assert (session.id, session.title, session.messages) == ("a", "Fix the parser", 1)
    store.close()


def test_a_new_session_leaves_the_older_ones_as_they_are(store: SqliteStore) -> None:
    """Seed 004, criterion 3: starting a new session does not overwrite older sessions."""
    begun(store, "a")
    store.save("a", plan=AgentPlan(("x",), 0))
    before = store.recording("a").messages
    begun(store, "b")
    assert store.recording("a").messages == before
    assert store.open("a").plan == AgentPlan(("x",), 0)
    with pytest.raises(SessionError, match="session 'a' exists already"):
        store.create(id="a")
    assert len({store.create().id, store.create().id, "a", "b"}) == 4


def test_a_session_of_one_workspace_is_none_of_another(tmp_path: Path) -> None:
    """Seed 004, non-goals: no sessions across workspaces."""
    here, there = SqliteStore(tmp_path / "here"), SqliteStore(tmp_path / "there")
    begun(here)
    begun(there, "b")
    assert [s.id for s in there.sessions()] == ["b"]
    with pytest.raises(UnknownSession):
        there.get("a")
    here.close()
    there.close()


def test_one_session_is_active_at_a_time(store: SqliteStore) -> None:
    """Seed 004, criterion 4: a second start or resume closes the first."""
    begun(store, "a")
    begun(store, "b")
    assert [(s.id, s.status) for s in store.sessions()] == [("b", "active"), ("a", "closed")]
    store.open("a")
    assert [store.get(id).status for id in "ab"] == ["active", "closed"]
    store.set_status("b", "active")
    assert [store.get(id).status for id in "ab"] == ["closed", "active"]


def test_on_request_a_second_start_is_refused(tmp_path: Path) -> None:
    """Seed 004, resume: or return a clear error."""
    store = SqliteStore(tmp_path, when_active="refuse")
    begun(store, "a")
    for refused in (store.create, lambda: store.open("b"), lambda: store.set_status("b", "active")):
        sql(
            store, "INSERT OR IGNORE INTO chat_sessions (session_id, status) VALUES ('b', 'closed')"
        )
        with pytest.raises(
            SessionActive, match="session 'a' is active in this workspace; close it"
        ):
            refused()
    store.open("a")  # the active one itself is no other
    store.set_status("a", "closed")
    assert store.create(id="c").status == "active"
    store.close()


@pytest.mark.e2e
def test_a_session_that_a_crash_left_active_blocks_nobody(tmp_path: Path) -> None:
    code = (
        "import os, sys; from ctxlab.sessions.sqlite.store import SqliteStore\n"
        "SqliteStore(sys.argv[1]).create(id='a'); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    store = SqliteStore(tmp_path, when_active="refuse")
    assert store.get("a").status == "active"
    store.create(id="b")
    assert store.get("a").status == "closed"
    store.close()


def test_a_process_on_another_machine_stands_in_the_way_for_ten_minutes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, when_active="refuse")
    begun(store)
    sql(store, "UPDATE chat_sessions SET owner = 'elsewhere!/1/0'")
    with pytest.raises(SessionActive):
        store.create()
    sql(store, "UPDATE chat_sessions SET updated_at = updated_at - 601000")
    store.create()
    store.close()


def test_a_session_of_a_system_is_active_beside_the_users(store: SqliteStore) -> None:
    begun(store, "a")
    store.create(id="s", system=True)
    store.append("s", *HI)
    assert store.get("a").status == "active"
    assert store.get("s").title == ""


def test_closed_sessions_can_be_resumed_and_archived_ones_are_not_listed(
    store: SqliteStore,
) -> None:
    """Seed 004, open question 2: closed sessions are resumable; archive and delete exist."""
    begun(store)
    assert store.set_status("a", "closed").status == "closed"
    assert [m.content for m in store.open("a").recent] == ["Fix the parser", "Done."]
    assert store.get("a").status == "active"
    store.set_status("a", "archived")
    assert store.sessions() == []
    assert [s.id for s in store.sessions(status="archived")] == ["a"]
    assert store.search("parser") == []
    assert store.search("parser", "a")
    with pytest.raises(SpecError):
        store.set_status("a", "asleep")  # type: ignore[arg-type]


def test_ending_a_session_says_when(store: SqliteStore) -> None:
    """Seed 004, end: status closed, and updated_at is set."""
    begun(store)
    sql(store, "UPDATE chat_sessions SET updated_at = 5000")
    assert store.get("a").updated == 5.0
    closed = store.set_status("a", "closed")
    assert closed.updated > 1e9
    assert (closed.status, store.get("a").status) == ("closed", "closed")


def test_the_title_is_the_first_user_message_cut_short(store: SqliteStore) -> None:
    """Seed 004, open question 1: the title is the first user message, truncated."""
    store.create(id="a")
    store.append("a", Message("system", "Be brief."), Message("user", "Look at " + "this " * 40))
    store.append("a", Message("user", "Another matter"))
    title = store.get("a").title
    assert title.startswith("Look at this this")
    assert len(title) <= MAX_TITLE_LENGTH
    store.create(id="b", title="Given by hand")
    store.append("b", *HI)
    assert store.get("b").title == "Given by hand"


def test_a_title_comes_with_its_turn_and_the_history_is_bounded(store: SqliteStore) -> None:
    """Seed 003, title history: newest first, at most 20, with turn and id."""
    begun(store)
    for number in range(30):
        store.retitle("a", f"Topic {number}", turn=number + 1)
    titles = store.get("a").titles
    assert len(titles) == MAX_TITLES
    assert (titles[0].title, titles[0].turn, titles[0].interaction_id) == ("Topic 29", 30, "a:30")
    assert store.retitle("a", "Topic 29", turn=31).titles == titles
    assert store.retitle("a", "Topic 29").titles[0].turn == 0  # the user keeps it
    with pytest.raises(SessionError, match="empty"):
        store.retitle("a", " \n")


def test_a_title_rewrites_no_message(store: SqliteStore) -> None:
    """Seed 002, criterion 8: a title update does not rewrite messages."""
    begun(store)
    before = sql(store, "SELECT * FROM messages")
    written = sql(store, "PRAGMA page_count")
    store.retitle("a", "Another")
    assert sql(store, "SELECT * FROM messages") == before
    assert sql(store, "PRAGMA page_count") == written


def test_sessions_are_found_by_words_of_their_title_and_by_date(store: SqliteStore) -> None:
    """Seed 002, criterion 9: a search filters sessions."""
    for number, title in enumerate(["Delegation of TASKS", "The parser", "Tasks of the parser"]):
        store.create(id=f"s{number}", title=title, agent="a" if number else "b")
        sql(
            store,
            "UPDATE chat_sessions SET updated_at = ? WHERE session_id = ?",
            number * 10_000,
            f"s{number}",
        )
    assert [s.id for s in store.sessions("delegation")] == ["s0"]
    assert [s.id for s in store.sessions("parser tasks")] == ["s2"]
    assert [s.id for s in store.sessions(since=10, before=10)] == ["s1"]
    assert [s.id for s in store.sessions("tasks", agent="a")] == ["s2"]
    assert [s.id for s in store.sessions("%")] == []


def test_a_store_is_data_and_says_the_same_as_its_recordings(store: SqliteStore) -> None:
    """Issue 6, build 7: eval accepts a store as data."""
    store.create(id="a", model="gpt-5-mini", tools=TOOLS, meta={"k": 1}, agent="coder", file="a.py")
    store.append("a", *HI, Message("assistant", tool_calls=(ToolCall("c", "read"),)))
    store.append("a", Message("tool", "x", tool_call_id="c").replace(time=4.5, extra={"e": 1}))
    store.save_turn_summary("a", 1, "Fixes it")
    begun(store, "b")
    for path in (store.workspace, store.path):  # while the store is open, so that a log is there
        read = list(ctxlab.load(path))
        assert [r.id for r in read] == ["a", "b"]
        for each in read:
            stored = store.recording(each.id)
            assert each.messages == stored.messages
            assert (each.tools, each.model, each.meta) == (stored.tools, stored.model, stored.meta)
            assert each.cluster is None
    assert read[0].meta["title"] == "Fix the parser"


def test_a_resume_of_nothing_is_nothing(store: SqliteStore) -> None:
    store.create(id="a")
    assert store.open("a") == ResumeState()
    store.save("a")
    assert store.open("a") == ResumeState()
    assert store.read_turn("a", 1) == (0, ())
    assert isinstance(store.get("a"), Session)

"""Tests of the file router, which gives each file a session and finds it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.file_router import FileRouter
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore


@pytest.fixture(params=[SqliteStore, JsonlStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    opened: SessionStore = request.param(tmp_path)
    yield opened
    opened.close()


def test_the_same_file_goes_on_with_its_session(store: SessionStore) -> None:
    """Seed 000, testing 1: the same file continues its session."""
    router = FileRouter(store)
    first = router.route("a.py")
    store.append(first.id, Message("user", "hi"))
    again = router.route("a.py")
    assert (again.id, again.messages) == (first.id, 1)
    assert UUID(first.id)
    assert first.file == "a.py"


def test_another_file_begins_a_session_and_going_back_resumes_the_first(
    store: SessionStore,
) -> None:
    """Seed 000, testing 2: files have sessions of their own, and so has no file."""
    router = FileRouter(store)
    ids = {file: router.route(file).id for file in ("a.py", "b.py", None)}
    assert len(set(ids.values())) == 3
    assert {file: router.route(file).id for file in (None, "a.py", "b.py")} == ids


def test_the_session_of_a_file_is_found_after_a_restart(store: SessionStore) -> None:
    ids = [FileRouter(store).route(file).id for file in ("a.py", None)]
    for file in ("b.py", "c.py"):
        FileRouter(store).route(file)
    assert [FileRouter(store).route(file).id for file in ("a.py", None)] == ids


def test_what_was_switched_away_from_is_active_again_after_going_back(store: SessionStore) -> None:
    router = FileRouter(store)
    first = router.route("a.py")
    router.route("b.py")
    assert router.route("a.py").status == "active"
    assert store.get(first.id).status == "active"


def test_of_a_workspace_only_the_session_of_the_file_in_use_is_active(tmp_path: Path) -> None:
    """Seed 004, criterion 4: going to another file closes the session before."""
    store = SqliteStore(tmp_path)
    router = FileRouter(store)
    for file in ("a.py", "b.py", "a.py", None):
        current = router.route(file)
        assert [s.id for s in store.sessions() if s.status == "active"] == [current.id]
    store.close()


def test_an_archived_or_deleted_session_gives_way_to_a_new_one(store: SessionStore) -> None:
    router = FileRouter(store)
    archived = router.route("a.py").id
    store.set_status(archived, "archived")
    deleted = router.route("a.py").id
    assert deleted != archived
    store.delete(deleted)
    assert router.route("a.py").id not in (archived, deleted)


def test_of_two_sessions_of_a_file_the_one_that_was_continued_last_goes_on(
    store: SessionStore,
) -> None:
    router = FileRouter(store)
    first = router.route("a.py").id
    store.set_status(first, "archived")
    second = router.route("a.py").id
    store.open(first)
    store.append(first, Message("user", "hi"))  # as another program does
    assert router.route("a.py").id == FileRouter(store).route("a.py").id == first != second


def test_a_closed_session_goes_on(store: SessionStore) -> None:
    router = FileRouter(store)
    id = router.route("a.py").id
    store.set_status(id, "closed")
    again = router.route("a.py")
    assert (again.id, again.status) == (id, "active")


def test_without_a_file_only_sessions_of_a_router_go_on(store: SessionStore) -> None:
    other = store.create(title="from the command line").id
    routed = FileRouter(store).route(None).id
    assert routed != other
    assert FileRouter(store).route("").id == routed


def test_sessions_of_a_system_are_left_alone(store: SessionStore) -> None:
    own = store.create(file="a.py", system=True).id
    assert FileRouter(store).route("a.py").id != own


def test_a_new_session_is_made_as_it_is_wanted_and_an_old_one_is_not_made_again(
    store: SessionStore,
) -> None:
    router = FileRouter(store)
    first = router.route("a.py", partial(store.create, title="First", model="gpt-4o"))
    found = router.route("a.py", partial(store.create, title="Second"))
    assert (found.id, found.title, found.model) == (first.id, "First", "gpt-4o")


def test_threads_that_ask_for_a_new_file_at_once_get_one_session(store: SessionStore) -> None:
    router, ids = FileRouter(store), list[str]()
    threads = [Thread(target=lambda: ids.append(router.route("a.py").id)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1


@given(
    st.lists(st.sampled_from(["a", "b", ".", "..", ""]), min_size=1, max_size=5),
    st.sampled_from(["", "/work/", "/other/"]),
    st.lists(st.sampled_from(["a", "b", ".", "..", ""]), min_size=1, max_size=5),
    st.sampled_from(["", "/work/", "/other/"]),
)
def test_two_spellings_of_a_path_have_one_session_and_two_files_have_two(
    parts: list[str], above: str, others: list[str], above_others: str
) -> None:
    """Seed 000, testing 1: the same file continues its session, however its path is written."""
    first, second = above + "/".join(parts), above_others + "/".join(others)
    if not (first and second):
        return
    wholes = (os.path.normpath(os.path.join("/work", path)) for path in (first, second))
    same = len({"/" + whole.lstrip("/") for whole in wholes}) == 1
    with TemporaryDirectory() as folder, closing(SqliteStore(folder)) as store:
        router = FileRouter(store, "/work")
        assert (router.route(first).id == router.route(second).id) == same

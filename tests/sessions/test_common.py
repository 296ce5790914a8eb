"""Tests that run with each of the two stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from storing import STORES, a_store

from ctxlab.errors import UnknownSession
from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    return a_store(request.param, tmp_path / "folder")


def users(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def test_who_asks_for_what_is_not_there_makes_no_folder(
    store: SessionStore, tmp_path: Path
) -> None:
    for act in (lambda: store.append("a", *users("x")), lambda: store.open("a")):
        with pytest.raises(UnknownSession):
            act()
    assert list(tmp_path.iterdir()) == []


def test_a_reader_is_not_given_the_messages_of_the_next_session_of_that_id(
    store: SessionStore, tmp_path: Path
) -> None:
    store.create(id="a")
    store.append("a", *users(*(f"old {n}" for n in range(500))))
    reader = store.read_messages("a")
    next(reader)
    store.delete("a")
    store.create(id="a")
    store.append("a", *users(*(f"new {n}" for n in range(500))))
    with pytest.raises(UnknownSession):
        assert all(message.text.startswith("old") for message in reader)
    store.close()


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("日本", [1, 2, 3]),
        ("日 本", [0, 1, 2, 3, 4]),
        ("x日本", [2]),
        ("fix", [3]),
        ("日本f", []),
        ("日本fix", [3]),
        (" ".join(f"w{n}" for n in range(66)), [4]),
        (" ".join([*(f"w{n}" for n in range(66)), "日本"]), []),
    ],
)
def test_words_without_spaces_between_them_are_found_alike(
    store: SessionStore, query: str, positions: list[int]
) -> None:
    store.create(id="a")
    many = " ".join(f"w{n}" for n in range(70))
    store.append("a", *users("日 本", "日本語", "x日本", "日本fix日本", f"{many} 日 本"))
    store.close()
    assert sorted(hit.position for hit in store.search(query)) == positions
    store.close()


def test_a_chunk_that_was_edited_by_hand_is_not_cut_in_the_middle(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create(id="a")
    store.append("a", *users("one", "two"))
    path = tmp_path / "session-a.1.jsonl"
    path.write_text(path.read_text().replace("two", "two, and more"))
    assert store.append("a", *users("three")) == 2
    assert [m.content for m in store.read_messages("a")] == ["one", "two, and more", "three"]
    assert not list(tmp_path.glob("*.torn"))


def test_a_long_line_that_was_never_finished_spoils_no_later_one(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create(id="a")
    store.save_turn_summary("a", 1, "one")
    with (tmp_path / "lines-a.jsonl").open("a") as file:
        file.write('{"turn":2,"line":"' + "x" * 200_000)
    store.save_turn_summary("a", 3, "three")
    assert store.turn_summaries("a") == {1: "one", 3: "three"}


def test_files_that_are_no_session_hide_none(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create(id="good")
    store.append("good", *users("a word"))
    (tmp_path / "session-a folder.meta.json").mkdir()
    (tmp_path / "session-folder.meta.json").mkdir()
    assert [session.id for session in store.sessions()] == ["good"]
    assert [hit.session_id for hit in store.search("word")] == ["good"]

"""Tests of full-text search: a query is only words, never query syntax."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from generated import FACTS, conversations
from hypothesis import example, given
from hypothesis import strategies as st

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall, message_text
from ctxlab.sessions.sqlite.store import SqliteStore
from ctxlab.sessions.text_search import query_words

SAID = {
    "a": (
        Message("user", "Fix the parser NEAR the lexer, not the Straße"),
        Message("assistant", tool_calls=(ToolCall("c", "read_file", '{"path": "src/io.py"}'),)),
        Message("tool", 'DROP TABLE students; "quoted" col:value', tool_call_id="c").replace(
            time=9.0
        ),
        Message("assistant", "パーサーを直しました。 Café und naïve"),
    ),
    "b": (Message("user", "parser parser parser"), Message("assistant", "A lexer and a parser.")),
}
HOSTILE = (
    *('"', '""', "*", "parser*", "^parser", "NEAR(a b)", "a NEAR/2 b", "col:parser", "words:parser"),
    *("-parser", "parser -lexer", "NOT", "AND OR", "a AND", "(", ")", "{a b}: c", "+", "'", "''"),
    *("'; DROP TABLE messages; --", "\0", "\ud800", "parser\0x", "%", "_", "?", "?1", ":id", "[x]"),
    *("\\", "/*", "--", "MATCH", "rank", "messages_fts", "delete", "\n", " ", "", "🙂", "é", "ﬁ", "İ"),
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path_factory.mktemp("w"), fsync="never")
    for id, messages in SAID.items():
        made.create(id=id)
        made.append(id, *messages)
    yield made
    made.close()


def folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def found(store: SqliteStore, query: str, id: str | None = None) -> list[tuple[str, int]]:
    return [(hit.session_id, hit.position) for hit in store.search(query, id)]


def dump(store: SqliteStore) -> list[str]:
    connection = sqlite3.connect(store.path)
    lines = list(connection.iterdump())
    connection.close()
    return lines


@given(st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE)))
@example("'; DROP TABLE messages; --")
def test_no_query_raises_or_changes_anything(store: SqliteStore, query: str) -> None:
    """Issue 6, done when: SQL and FTS syntax in queries are refused cleanly."""
    before = store.get("a"), store.get("b")
    for id in (None, "a"):
        for hit in store.search(query, id):
            said = message_text(SAID[hit.session_id][hit.position])
            assert all(word in folded(said) for word in query_words(query))
    assert (store.get("a"), store.get("b")) == before


def test_hostile_queries_leave_every_row_as_it_was(store: SqliteStore) -> None:
    before = dump(store)
    for query in HOSTILE:
        store.search(query)
        store.sessions(query)
    assert dump(store) == before


def test_syntax_is_words_or_nothing(store: SqliteStore) -> None:
    assert found(store, '"quoted"') == [("a", 2)]
    assert found(store, "col:value") == [("a", 2)]
    assert found(store, "drop TABLE;") == [("a", 2)]
    assert found(store, "NEAR") == [("a", 0)]
    assert found(store, "lexer NOT") == [("a", 0)]
    assert found(store, "parse*") == []
    assert found(store, "parser OR students") == []
    assert found(store, "***") == found(store, "") == []


def test_words_are_found_in_any_case_and_in_any_script(store: SqliteStore) -> None:
    assert found(store, "STRASSE") == [("a", 0)]
    assert found(store, "cafe\u0301") == [("a", 3)]
    assert found(store, "パーサー") == [("a", 3)]
    assert found(store, "直し") == [("a", 3)]
    assert found(store, "read_file io.py") == [("a", 1)]


def test_the_best_comes_first_with_its_turn_and_a_snippet(store: SqliteStore) -> None:
    hits = store.search("parser")
    assert (hits[0].session_id, hits[0].position) == ("b", 0)
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
    (hit,) = store.search("students")
    assert (hit.turn, hit.role, hit.time) == (1, "tool", 9.0)
    assert "DROP TABLE students" in hit.snippet
    assert all(len(h.snippet) <= 200 and "\n" not in h.snippet for h in hits)


def test_pages_join_to_the_whole(store: SqliteStore) -> None:
    whole = store.search("parser")
    assert len(whole) == 3
    pages = [store.search("parser", limit=1, offset=n) for n in range(4)]
    assert [hit for page in pages for hit in page] == whole
    assert store.search("parser", limit=0) == []
    for name in ("limit", "offset"):
        with pytest.raises(SpecError, match=f"{name} must be at least 0, got -1"):
            store.search("parser", **{name: -1})
    assert store.search("parser", offset=10**30) == []


def test_one_session_is_searched_where_it_is_named(store: SqliteStore) -> None:
    assert found(store, "lexer", "b") == [("b", 1)]


@pytest.mark.e2e
def test_a_query_of_thousands_of_words_is_answered(store: SqliteStore) -> None:
    many = " ".join(f"w{i}" for i in range(5000))
    assert found(store, many) == []
    id = store.create().id
    store.append(id, Message("user", many))
    assert found(store, many) == [(id, 0)]
    assert found(store, many + " more") == []
    store.delete(id)


@pytest.mark.properties
@given(conversations(), st.lists(st.sampled_from(FACTS), min_size=1, max_size=2))
def test_with_the_index_the_same_is_found_as_without(
    store: SqliteStore, messages: tuple[Message, ...], words: list[str]
) -> None:
    query, id = " ".join(words), store.create(system=True).id
    plain = SqliteStore(store.workspace, fsync="never", index=False)
    plain.append(id, *messages)
    without = {hit.position for hit in plain.search(query, id, limit=1000)}
    plain.close()
    # What was stored without an index is put into it when it is first needed.
    assert {hit.position for hit in store.search(query, id, limit=1000)} == without
    store.append(id, *messages)
    assert len(store.search(query, id, limit=1000)) == 2 * len(without)
    store.delete(id)


def test_without_an_index_archived_and_system_sessions_are_left_out_too(tmp_path: Path) -> None:
    for index in (True, False):
        store = SqliteStore(tmp_path / str(index), index=index)
        for id, system in (("a", False), ("b", False), ("s", True)):
            store.create(id=id, system=system)
            store.append(id, Message("user", "parser"))
        store.set_status("b", "archived")
        assert found(store, "parser") == [("a", 0)]
        assert found(store, "parser", "b") == [("b", 0)]
        assert found(store, "parser", "s") == [("s", 0)]
        store.close()

"""Tests of text search: queries match words anywhere and have no syntax."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import SearchHit
from ctxlab.sessions.text_search import (
    SNIPPET_LENGTH,
    contains_words,
    make_snippet,
    query_words,
    search_messages,
    split_words,
)


def found(query: str, *texts: str, limit: int = 20, offset: int = 0) -> list[SearchHit]:
    said = [Message("user", text) for text in texts]
    return search_messages([("s", said)], query, limit, offset)


def test_a_hit_holds_all_the_words_and_not_some_of_them() -> None:
    """Seed 003, search: within a session."""
    hits = found(
        "parser empty", "The parser fails", "It fails on empty files", "Empty parser input"
    )
    assert [hit.position for hit in hits] == [2]


def test_several_sessions_are_searched_at_once() -> None:
    """Seed 003, search_all_sessions: across sessions."""
    said = [Message("user", "the parser")]
    hits = search_messages([("a", said), ("b", [Message("user", "docs")]), ("c", said)], "parser")
    assert [hit.session_id for hit in hits] == ["a", "c"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("PARSER", "the Parser"),
        ("straße", "STRASSE"),
        ("café", "cafe\u0301"),
        ("read_file", "he called read_file twice"),
        ("naïve Ünïcode", "ünïcode is naïve"),
        ("東京", "私は東京に住んでいます"),
        ("3.11", "python 3.11"),
        ("istanbul", "İstanbul office"),
        ("पानी", "मुझे पानी दो"),
        ("می‌خواهم", "سلام می‌خواهم بروم"),
        ("𠀀", "𠀀𠀁"),
        ("warning", "⚠️Warning"),
    ],
)
def test_case_spelling_and_script_do_not_matter(query: str, text: str) -> None:
    assert found(query, text)


def test_a_word_is_found_whole() -> None:
    assert not found("test", "tests attest")
    assert found("test", "a test.")
    assert not found("ที่", "ทดสอบ ระบบ")
    assert not found("पानी", "प न")
    assert not found("प", "पानी")


@given(st.text("aI é_.½ß\u0301\u0307\u0654\u20e3\ufe0fİकि", max_size=8))
def test_each_word_of_a_text_is_found_in_it(text: str) -> None:
    words = split_words(text)
    assert contains_words(text, words)
    assert all(word in words for word in query_words("a i é ß ½") if contains_words(text, [word]))


def test_tool_names_and_arguments_are_searched_as_they_read() -> None:
    call = ToolCall("c1", "read_file", '{"path": "docs/M\\u00fcller.md"}')
    said = [Message("user", "go"), Message("assistant", None, tool_calls=(call,))]
    hits = search_messages([("s", said)], "read Müller")
    assert [(hit.turn, hit.position, hit.role) for hit in hits] == [(1, 1, "assistant")]


@pytest.mark.parametrize("query", ["", "   ", '"*()', "-- ; ' ' \x00", "OR AND"])
def test_a_query_without_a_word_that_stands_there_finds_nothing(query: str) -> None:
    assert found(query, "the parser") == []


@given(st.text(), st.lists(st.text(), max_size=5))
def test_any_query_is_answered_and_every_hit_is_one(query: str, texts: list[str]) -> None:
    words = query_words(query)
    hits = found(query, *texts)
    for hit in hits:
        held = query_words(texts[hit.position])
        assert all(any(word in run for run in held) for word in words)
        assert len(hit.snippet) <= SNIPPET_LENGTH
        assert len(hit.snippet.splitlines()) <= 1
        assert 0 < hit.score <= 1
    assert len(hits) <= len(texts)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_snippet_is_one_short_line_that_steers_no_terminal(text: str, query: str) -> None:
    shown = make_snippet(text * 50, query_words(query))
    assert len(shown) <= SNIPPET_LENGTH
    assert re.sub("[\u200c\u200d]", "", shown).isprintable()


def test_a_snippet_keeps_the_joiners_of_words_and_emoji() -> None:
    assert make_snippet("می‌خواهم 👩‍💻", ()) == "می‌خواهم 👩‍💻"


def test_a_snippet_shows_what_was_found_and_says_where_it_was_cut() -> None:
    text = "ß" * 500 + "\nwords before\n" + "the needle stands here " + "and so on " * 100
    shown = found("needle", text)[0].snippet
    assert "needle stands here" in shown
    assert shown[0] == shown[-1] == "…"


def test_what_holds_a_word_more_often_comes_first_and_of_equals_the_newer() -> None:
    hits = found("parser", "parser", "long " * 2000 + "parser", "parser parser parser", "parser")
    assert [hit.position for hit in hits] == [2, 3, 0, 1]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_pages_of_hits_are_the_hits_in_order() -> None:
    texts = [f"parser {'word ' * n}" for n in range(30)]
    pages = [hit for at in range(0, 35, 7) for hit in found("parser", *texts, limit=7, offset=at)]
    assert pages == found("parser", *texts, limit=100)
    assert found("parser", *texts, limit=0) == []


def test_a_hit_has_the_turn_and_the_step_of_its_message() -> None:
    said = [
        Message("system", "parser"),
        Message("user", "hi"),
        Message("assistant", "hello"),
        Message("assistant", "parser"),
    ]
    hits = search_messages([("s", said)], "parser")
    assert [(hit.turn, hit.label, hit.position) for hit in hits] == [(1, "1.2", 3), (0, "0", 0)]


def test_a_long_word_in_a_long_text_takes_no_long_time() -> None:
    begun = time.perf_counter()
    found("a" * 5000, "a" * 500_000)
    found(" ".join(["a"] * 5000), "a " * 200_000)
    assert time.perf_counter() - begun < 60

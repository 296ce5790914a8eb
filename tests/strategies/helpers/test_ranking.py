"""Tests of the two rankings, by words and by vectors, and of excerpts around a match."""

from __future__ import annotations

import sqlite3
from copy import deepcopy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxlab.errors import DataMissing
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.helpers.ranking import BM25Index, VectorIndex, best_excerpt, query_terms


def test_rare_words_weigh_more_and_a_path_is_found_as_a_phrase() -> None:
    words = BM25Index()
    words.add((n, f"the file is number {n}") for n in range(20))
    words.add([(20, "the file is src/io.py"), (21, "io in src, and py")])
    assert words.search(["the", "src/io.py"], 1) == [20]
    assert words.search(["src/io.py"], 9) == [20]


def test_of_equals_the_newest_comes_first_and_what_is_forgotten_is_not_found() -> None:
    words, vectors = BM25Index(), VectorIndex()
    words.add((n, "the same") for n in range(5))
    vectors.add((n, [1.0, 2.0]) for n in range(5))
    for index, query in ((words, ["same"]), (vectors, [2.0, 4.0])):
        assert index.search(query, 3) == [4, 3, 2]  # type: ignore[arg-type]
        index.remove_before(4)
        assert index.search(query, 3) == [4]  # type: ignore[arg-type]
        index.remove_before(9)
        assert index.search(query, 3) == []  # type: ignore[arg-type]


@given(texts=st.lists(st.text(), max_size=5), terms=st.lists(st.text(), max_size=5))
def test_any_text_can_be_held_and_any_term_asked_for(texts: list[str], terms: list[str]) -> None:
    words = BM25Index()
    words.add(enumerate([*texts, "\ud83d \x00 \" ' OR NEAR(", "日本 -x AND *"]))
    found = words.search([*terms, '"', "日本"], 10)
    assert len(texts) + 1 in found


def test_vectors_of_no_length_are_far_from_everything() -> None:
    vectors = VectorIndex()
    vectors.add([(1, [0.0, 0.0]), (2, [1.0, 0.0])])
    assert vectors.search([1.0, 0.0], 2) == [2, 1]


class Lacking:
    """Stand-in for a connection to an SQLite without full-text search."""

    def execute(self, *_: object) -> None:
        raise sqlite3.OperationalError("no such module: fts5")


def test_without_fts5_it_says_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(DataMissing, match=r"no such module: fts5.*embedding"):
        BM25Index(Lacking())  # type: ignore[arg-type]


@given(
    text=st.text(max_size=300),
    terms=st.lists(st.text(max_size=9), max_size=4),
    chars=st.integers(3, 90),
)
@example("ab" * 10, ["abababab"], 3)  # a term that the excerpt has no room for, several times
def test_an_excerpt_is_a_part_of_the_text_and_no_longer_than_asked(
    text: str, terms: list[str], chars: int
) -> None:
    said = best_excerpt(text, terms, chars)
    assert len(said) <= chars
    if len(text) <= chars:
        assert said == text
    else:
        inner = said.removeprefix("…") if not text.startswith(said[:1]) else said
        assert inner.removesuffix("…") in text or inner in text


def test_an_excerpt_stands_where_most_of_the_terms_stand() -> None:
    text = "alpha " + "x" * 500 + " alpha beta gamma " + "y" * 500 + " beta"
    said = best_excerpt(text, ["alpha", "beta", "gamma"], 60)
    assert "alpha beta gamma" in said
    assert said.startswith("…")
    assert said.endswith("…")


def test_terms_are_few_and_what_was_asked_and_called_comes_before_what_tools_answered() -> None:
    call = ToolCall("c", "read", '{"path": "src/io.py"}')
    newest = [
        Message("assistant", "Reading carefully", tool_calls=(call,)),
        Message("tool", " ".join(f"name_{i}" for i in range(999)), tool_call_id="c"),
    ]
    terms = query_terms(newest, Message("user", "What about HAT136?"))
    assert terms[:2] == ["HAT136", "src/io.py"]
    assert len(terms) == 32


@given(
    before=st.integers(0, 600),
    added=st.integers(0, 5),
    forgotten=st.integers(0, 600),
    k=st.integers(1, 9),
)
def test_a_copy_finds_what_one_of_its_own_would_and_leaves_the_other_as_it_is(
    before: int, added: int, forgotten: int, k: int
) -> None:
    def texts(*numbers: int) -> list[tuple[int, str]]:
        return [(n, f"line {n % 7} of {n % 3}" + " of it" * (n % 5)) for n in numbers]

    kept, same, alone = BM25Index(), BM25Index(), BM25Index()
    for words in (kept, same, alone):
        words.add(texts(*range(before)))
    copied = deepcopy(kept)
    for words in (copied, alone):
        words.add(texts(*range(before, before + added)))
        words.remove_before(forgotten)
    terms = ["line", "3", "of it"]
    assert copied.search(terms, k) == deepcopy(copied).search(terms, k) == alone.search(terms, k)
    assert kept.search(terms, k) == same.search(terms, k)
    for words in (kept, same):
        words.add(texts(before + 1000))
        words.remove_before(before // 2)
    assert kept.search(terms, k) == same.search(terms, k)

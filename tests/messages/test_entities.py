"""Tests of ``ctxlab.messages.entities``: what is an entity, and where a text contains one."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from generated import FACTS, RESULTS, TEXTS
from hypothesis import example, given
from hypothesis import strategies as st

from ctxlab.messages.entities import (
    EntityKind,
    ascii_words,
    contains_entity,
    find_entities,
    find_entities_in_value,
    find_entity_offset,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://ex.org/a?b=1.", [("url", "https://ex.org/a?b=1")]),
        ("(see http://a.b/c)", [("url", "http://a.b/c")]),
        ("a@b.org", [("email", "a@b.org")]),
        ("2024-05-03", [("date", "2024-05-03")]),
        ("2024-05-03T10:00:05Z", [("date", "2024-05-03T10:00:05Z")]),
        ("on 2024-05-03 10:00", [("date", "2024-05-03")]),
        ("src/io.py", [("path", "src/io.py")]),
        ("./run.sh", [("path", "./run.sh")]),
        ("../src/io.py", [("path", "../src/io.py")]),
        (".github/workflows/ci.yml.", [("path", ".github/workflows/ci.yml")]),
        ("f().read_all", [("identifier", "read_all")]),
        ("...src/io.py", [("path", "src/io.py")]),
        ("/var/log/", [("path", "/var/log")]),
        ("README.md,", [("path", "README.md")]),
        ("and/or", []),
        ("1a2b3c4d", [("hash", "1a2b3c4d")]),
        (
            "123e4567-e89b-12d3-a456-426614174000",
            [("hash", "123e4567-e89b-12d3-a456-426614174000")],
        ),
        ("HAT136", [("id", "HAT136")]),
        ("mia_li_3668", [("id", "mia_li_3668")]),
        ("parse_args", [("identifier", "parse_args")]),
        ("book__title__in", [("identifier", "book__title__in")]),
        ("E2E", []),
        ("01.md", [("path", "01.md")]),
        ("sed s/GLIBC_//", []),
        ("__init__", [("identifier", "__init__")]),
        ("readFile", [("identifier", "readFile")]),
        ("os.path.join", [("identifier", "os.path.join")]),
        ("MAX_SIZE", [("identifier", "MAX_SIZE")]),
        ("5120", [("number", "5120")]),
        ("12.50", [("number", "12.50")]),
        ("512", []),
        ("the word economy is none.", []),
        ("src/io.py:12", [("path", "src/io.py")]),
        ("a/b.py::test_read", [("path", "a/b.py"), ("identifier", "test_read")]),
    ],
)
def test_typed_tokens_are_told_apart(text: str, found: list[tuple[str, str]]) -> None:
    assert [tuple(entity) for entity in find_entities(text)] == found


@pytest.mark.parametrize(
    ("leaf", "found"),
    [
        (None, []), (True, []), (12, []), (250, []), (2500, [("number", "2500")]),
            (2.0, []), ("250", [("id", '"250"')]), (1.5, [("number", "1.5")]),
        ("Mia Li", [("value", "Mia Li")]), ("economy", []), ("Economy", [("value", "Economy")]),
        ("  Mia Li ", [("value", "Mia Li")]), ("!!!", []), ("", []), ("ab", []),
        ("one two three four five six seven", []), ("a\nb c", []),
        ("HAT136 HAT136", [("id", "HAT136")]), (float("nan"), []), (float("inf"), []),
    ],
)  # fmt: skip
def test_an_argument_is_its_tokens_or_a_short_value(
    leaf: Any, found: list[tuple[str, str]]
) -> None:
    assert [tuple(entity) for entity in find_entities_in_value(leaf)] == found


@pytest.mark.parametrize(
    ("text", "entity", "at"),
    [
        ("512", "512", 0), ("5120", "512", -1), ("x_512", "512", -1), ("x-512", "512", 2),
        ("5120 512", "512", 5), ("é512", "512", 1), ("512é", "512", 0), ("…512…", "512", 1),
        ("see src/io.py:12", "src/io.py", 4), ("src/io.pyc", "src/io.py", -1), ("", "a", -1),
        ("my src/io.py/x", "src/io.py", 3), ("a/src", "/src", 1), ("日本語.md", "本語.md", 1),
    ],
)  # fmt: skip
def test_a_text_holds_an_entity_as_a_whole(text: str, entity: str, at: int) -> None:
    assert find_entity_offset(text, entity) == at
    assert contains_entity(text, entity) is (at >= 0)


TEXT = st.sampled_from(TEXTS + [r for r in RESULTS if len(r) < 900]) | st.text(max_size=40)


@given(TEXT, st.sampled_from(FACTS) | st.text(min_size=1, max_size=6))
@example("x\ud800512", "512")
def test_holding_is_a_look_at_both_neighbours_of_every_place(text: str, entity: str) -> None:
    def word(char: str) -> bool:
        return char == "_" or (char.isascii() and char.isalnum())

    naive = [
        i
        for i in range(len(text) - len(entity) + 1)
        if text[i : i + len(entity)] == entity
        and not (i and word(text[i - 1]) and word(entity[0]))
        and not (i + len(entity) < len(text) and word(text[i + len(entity)]) and word(entity[-1]))
    ]
    assert find_entity_offset(text, entity) == (naive[0] if naive else -1)
    if naive:
        assert ascii_words(entity) <= ascii_words(text)


@given(TEXT | st.text('aB1_./@~+#:- é→–\u00a0\n"²\ud800', max_size=40))
@example("é@x.py:")
def test_entities_are_those_of_single_chunks(text: str) -> None:
    text = text.replace("://", " ")  # addresses are found first
    chunks = re.findall(r"[\w./@~+#:-]*[\w/]", text)
    found = dict.fromkeys(entity for chunk in chunks for entity in find_entities(chunk))
    assert find_entities(text) == tuple(found)


@given(TEXT)
def test_every_entity_is_held_by_the_text_it_is_from(text: str) -> None:
    for entity in find_entities(text):
        assert entity.kind in get_args(EntityKind)
        assert entity.text in text
    for entity in find_entities_in_value(text):
        assert contains_entity(text, entity.text)

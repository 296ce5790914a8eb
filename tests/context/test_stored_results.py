"""Tests of reading a stored tool result page by page."""

from __future__ import annotations

import re

from generated import RESULTS, contents
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.context.stored_results import PAGE_CHARS, read_page, split_pages
from ctxlab.messages.types import Message

LONG = st.sampled_from(
    ["", "a line\n" * 2000, "x" * 20_000, "\n" * 7000, "one\r\ntwo\u2028three\n" * 900]
)
PARTS = contents().map(lambda content: Message("tool", content).text) | LONG
TEXTS = st.builds("".join, st.lists(PARTS, max_size=5))


@given(TEXTS)
def test_pages_read_one_after_the_other_are_the_text(text: str) -> None:
    body, start = "", 1
    while True:
        head, _, page = read_page(7, text, start).partition("\n")
        assert len(page) <= PAGE_CHARS
        body += page
        following = re.search(r"continue with start=(\d+)", head)
        if following is None:
            break
        assert int(following[1]) > start
        start = int(following[1])
    assert body == text
    assert [page.text for page in split_pages(text)] == [
        read_page(7, text, page.start).partition("\n")[2] for page in split_pages(text)
    ]


@given(TEXTS, st.sampled_from(["src", "LINE", "x", "no such text"]))
def test_a_search_gives_all_lines_that_contain_the_text_with_their_numbers(
    text: str, wanted: str
) -> None:
    found, start = [], 1
    while True:
        head, *lines = read_page(7, text, start, wanted).split("\n")
        found += [
            int(line.partition(":")[0]) for line in lines if line != "(no line)" and ":" in line
        ]
        following = re.search(r"continue with start=(\d+)\]$", head)
        if following is None:
            break
        start = int(following[1])
    pages = split_pages(text)
    for number in found:
        read = read_page(7, text, number).partition("\n")[2]
        assert wanted.casefold() in read.casefold()
    assert bool(found) == any(wanted.casefold() in page.text.casefold() for page in pages) or (
        len(text) > PAGE_CHARS  # a long line is divided, also within a word
    )


def test_a_start_outside_of_the_text_is_taken_as_its_nearest_line() -> None:
    assert read_page(7, "one\ntwo", 99) == "[Result 7, lines 2-2 of 2]\ntwo"
    assert read_page(7, "one\ntwo", -5) == "[Result 7, lines 1-2 of 2]\none\ntwo"
    assert RESULTS

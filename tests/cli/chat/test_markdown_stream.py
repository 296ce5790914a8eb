"""Tests of the Markdown of an answer: what is on the screen when all of it has arrived."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from emulated import Emulated
from hypothesis import example, given
from hypothesis import strategies as st

from ctxlab.cli.chat.markdown_stream import MarkdownStream

OWN_SEQUENCES = re.compile(r"\x1b\[(\?7[hl]|[\d;]*m|\d+A|2?[JK])")
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
NOTATION = [
    *(
        "\n",
        "\n\n",
        " ",
        "  ",
        "    ",
        "\t",
        "# ",
        "## ",
        "> ",
        "- ",
        "* ",
        "1. ",
        "12) ",
        "---\n",
        "===\n",
    ),
    *(
        "**",
        "*",
        "`",
        "```\n",
        "```python\n",
        "~~~\n",
        "~~",
        "_",
        "|",
        "|---|\n",
        "\\",
        "&amp;",
        "&#x202e;",
    ),
    *(
        "[a](b)",
        "![a](b)",
        "[a]: b\n",
        "<b>",
        "<!--",
        "https://example.org",
        "é",
        "日本",
        "🎉",
        "\r\n",
    ),
    *("\x1b[2J", "\x1b]0;t\x07", "\u202e", "\x9b31m", "\x08"),
]
any_markdown = st.lists(st.sampled_from(NOTATION) | st.text(max_size=4)).map("".join)


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = [*sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def written(pieces: Sequence[str]) -> str:
    """Return what the streamer writes to the terminal."""
    file = io.StringIO()
    stream = MarkdownStream(file)
    for piece in pieces:
        stream.write(piece)
    stream.finish()
    return file.getvalue()


def shown(*pieces: str, columns: int = 60) -> str:
    """Return the text on a terminal."""
    with patch.dict(os.environ, COLUMNS=str(columns)):
        terminal = Emulated(columns, 24)
        terminal.feed(written(pieces))
    return terminal.text


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@given(any_markdown, st.lists(st.integers(0, 500), max_size=12))
def test_the_pieces_of_an_answer_do_not_change_what_is_shown(text: str, places: list[int]) -> None:
    assert shown(*cut(text, places)) == shown(text)


@given(any_markdown | st.text(), st.lists(st.integers(0, 500), max_size=12))
@example("a\x1b]0;title\x07b \u202e `\x9b31m` &#27;[2J &#x202e;\n\n```\n\x1b[1A\n```\n", [3])
def test_no_control_character_of_an_answer_reaches_the_terminal(
    text: str, places: list[int]
) -> None:
    made = OWN_SEQUENCES.sub("", written(cut(text, places)))
    assert FORBIDDEN.search(made) is None


@given(
    st.lists(st.sampled_from(NOTATION), min_size=1, max_size=40),
    st.lists(st.integers(0, 500), max_size=12),
)
def test_each_word_of_an_answer_is_shown_once(notation: list[str], places: list[int]) -> None:
    words = [f"w{number:03}" for number in range(len(notation))]
    text = "".join(f"{each}{word} " for each, word in zip(notation, words, strict=True))
    found = re.findall(r"w\d{3}", shown(*cut(text, places), columns=2_000))
    assert sorted(found) == words

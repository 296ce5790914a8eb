"""Tests of session titles and of the list of earlier titles."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import STORES, a_store, exchange, stored

from ctxlab.messages.types import Message
from ctxlab.sessions.titles import (
    MAX_TITLE_LENGTH,
    MAX_TITLES,
    TitleChange,
    build_title_prompt,
    single_line,
    title_from_prompt,
    titles_after_change,
)

EXAMPLE = """\
Current session title: "Implementing user authentication"

Conversation turns (newest first, [RECENT] marks last 3 turns):
[RECENT] Turn 15: Setting up MCP server for screenshots
[RECENT] Turn 14: Adding desktop screenshot tool
[RECENT] Turn 13: Exploring MCP integration
Turn 12: Testing OAuth flow

Generate a session title (max 60 characters).
- If the [RECENT] turns discuss a NEW topic different from the current title, update to new topic
- If still on same topic, keep current title
- Focus on what user is CURRENTLY working on
"""


def test_the_prompt_is_the_example_of_the_design() -> None:
    """Seed 003, titles: the last three turns are marked, newest first."""
    lines = {
        12: "Testing OAuth flow",
        13: "Exploring MCP integration",
        14: "Adding desktop screenshot tool",
        15: "Setting up MCP server for screenshots",
    }
    assert build_title_prompt("Implementing user authentication", lines).startswith(EXAMPLE)


def test_the_prompt_of_a_long_session_is_bounded() -> None:
    """Seed 003, titles: however long the session is."""
    prompt = build_title_prompt("t", dict.fromkeys(range(1, 100000), "x" * 100))
    assert len(prompt) < 6_000
    assert prompt.count("[RECENT] Turn") == 3
    assert "Turn 99999: " in prompt


@given(st.text())
def test_a_tidy_title_is_one_line_of_sixty_characters_that_steers_no_terminal(text: str) -> None:
    """Seed 003, titles: 60 characters at most."""
    title = single_line(text)
    assert len(title) <= MAX_TITLE_LENGTH
    assert re.sub("[\u200c\u200d]", "", title).isprintable()
    assert single_line(title) == title
    assert len(title_from_prompt(text)) <= MAX_TITLE_LENGTH


def test_a_first_message_becomes_a_title_as_the_design_cuts_it() -> None:
    """Seed 004, open question 1: the first user message, truncated."""
    assert title_from_prompt("x" * 50) == "x" * 50
    assert title_from_prompt("x" * 51) == "x" * 50 + "..."


def test_a_change_says_when_and_with_which_turn() -> None:
    """Seed 003, title history: title, changed_at, turn, interaction_id."""
    (change,) = titles_after_change("a", (), "Docs", 7, 20.0)
    assert change == TitleChange("Docs", 20.0, 7, "a:7")
    assert titles_after_change("a", (), "Docs", 0, 20.0) == (TitleChange("Docs", 20.0, 0, ""),)


def test_the_same_title_again_is_no_change() -> None:
    """Seed 003, title history: a title that stays is not entered again."""
    titles = titles_after_change("a", (), "Docs", 7, 20.0)
    assert titles_after_change("a", titles, "Docs", 9, 30.0) == titles


def test_a_user_who_sets_the_title_that_the_session_has_keeps_it() -> None:
    titles = titles_after_change("a", (), "Docs", 7, 20.0)
    assert titles_after_change("a", titles, "Docs", 0, 30.0) == (TitleChange("Docs", 30.0),)


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_a_history_is_newest_first_and_never_longer_than_twenty(given_titles: list[str]) -> None:
    """Seed 003, title history: newest first, 20 at most."""
    titles: tuple[TitleChange, ...] = ()
    for turn, title in enumerate(given_titles, start=1):
        titles = titles_after_change("s", titles, title, turn, float(turn))
    times = [change.changed_at for change in titles]
    assert times == sorted(times, reverse=True)
    assert len(times) <= MAX_TITLES
    assert all(a.title != b.title for a, b in pairwise(titles))
    assert not given_titles or titles[0].title == given_titles[-1]


@pytest.mark.parametrize("kind", STORES)
def test_both_stores_keep_the_history_alike(kind: str, tmp_path: Path) -> None:
    """Seed 003, title history: what is stored outlives the program."""
    store = a_store(kind, tmp_path)
    id = stored(store, "Fix the parser")
    for turn in range(2, 30):
        session = store.retitle(id, f"Topic {turn}", turn)
        assert session.title == session.titles[0].title == f"Topic {turn}"
        assert session.titles[0].interaction_id == f"{id}:{turn}"
    again = store.retitle(id, "Topic 29", 99)
    assert [change.title for change in again.titles] == [f"Topic {n}" for n in range(29, 9, -1)]
    assert len(again.titles) == MAX_TITLES
    assert a_store(kind, tmp_path).get(id).titles == again.titles


@pytest.mark.parametrize("kind", STORES)
def test_the_first_user_message_is_the_first_title(kind: str, tmp_path: Path) -> None:
    """Seed 004, open question 1: in both stores."""
    store = a_store(kind, tmp_path)
    store.create(id="s")
    store.append("s", Message("system", "Be brief."), *exchange("Fix the\nparser " + "x" * 60))
    assert store.get("s").title == title_from_prompt("Fix the\nparser " + "x" * 60)

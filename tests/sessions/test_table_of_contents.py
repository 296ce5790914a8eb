"""Tests of the table of contents: a line for each turn, and the full text of any turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pydantic
import pytest
from generated import strange_conversations
from hypothesis import given
from storing import STORES, a_store, exchange, stored

from ctxlab.context.turns import MAX_HEADLINE_CHARS
from ctxlab.errors import SpecError, UnknownSession, UnknownTurn
from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import SessionLibrary, SessionStore
from ctxlab.sessions.log_library import LogLibrary
from ctxlab.sessions.table_of_contents import (
    Contents,
    InteractionWithContext,
    get_contents,
    get_interaction,
    get_turn,
    iso_timestamp,
    iter_turns,
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    made = a_store(request.param, tmp_path)
    yield made
    made.close()


def test_turns_are_numbered_from_one_and_steps_are_indented(store: SessionStore) -> None:
    """Seed 003, turns: 1-indexed, and each step of an agent's run is a turn of its own."""
    store.create(id="s", title="Repairs")
    store.append("s", Message("system", "Be brief."), *exchange("Fix the parser", steps=2))
    store.append("s", *exchange("Thanks", "You are welcome."))
    listed = get_contents(store, "s")
    assert (listed.session_id, listed.session_name, listed.total_turns) == ("s", "Repairs", 4)
    assert listed.formatted.split("\n") == [
        "1. Fix the parser · read_file src/0.py",
        "   2. read_file src/1.py",
        "   3. Done.",
        "4. Thanks",
    ]
    assert [each.turn for each in listed.entries] == [1, 2, 3, 4]
    assert [each.id for each in listed.entries] == ["s:1", "s:2", "s:3", "s:4"]
    assert [each.has_prompt for each in listed.entries] == [True, False, False, True]
    assert all(each.has_response for each in listed.entries)


def test_a_prompt_that_nobody_answered_yet_is_listed_as_such(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", Message("user", "Hello?"))
    (entry,) = get_contents(store, "s").entries
    assert (entry.has_prompt, entry.has_response) == (True, False)


def test_a_line_that_was_kept_stands_before_an_extracted_one(store: SessionStore) -> None:
    """Seed 003, extractive: where no model wrote a line, the first line of prompt or response."""
    id = stored(store, "Fix the parser\nwhich fails", "Write docs")
    store.save_turn_summary(id, 2, "Wrote the page on parsing")
    assert get_contents(store, id).formatted == "1. Fix the parser\n2. Wrote the page on parsing"
    assert get_turn(store, id, 1).next.summary == "Wrote the page on parsing"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("start", "limit", "shown"), [(3, 2, [3, 4]), (9, None, [9, 10]), (11, 5, [])]
)
def test_long_contents_are_had_in_pages(
    store: SessionStore, start: int, limit: int | None, shown: list[int]
) -> None:
    id = stored(store, *(f"Question {n}" for n in range(1, 11)))
    page = get_contents(store, id, start=start, limit=limit)
    assert [each.turn for each in page.entries] == shown
    assert page.total_turns == 10
    assert [each.summary for each in page.entries] == [f"Question {n}" for n in shown]


def test_a_turn_comes_with_its_neighbours_in_brief(store: SessionStore) -> None:
    """Seed 003, turn: with the turns before and after it."""
    id = stored(store, "One", "Two", "Three")
    middle = get_turn(store, id, 2)
    assert [m["content"] for m in middle.interaction.messages] == ["Two", "Two: done."]
    assert (middle.interaction.prompt, middle.interaction.response) == ("Two", "Two: done.")
    assert middle.previous is not None
    assert middle.next is not None
    assert (middle.previous.turn, middle.previous.id, middle.previous.summary) == (1, "s:1", "One")
    assert (middle.next.turn, middle.next.id, middle.next.summary) == (3, "s:3", "Three")
    assert get_turn(store, id, 1).previous is None
    assert get_turn(store, id, 3).next is None


@pytest.mark.parametrize("asked", ["s:4", "s:5", "s:6"])
def test_an_interaction_is_the_prompt_and_all_that_was_done_about_it(
    store: SessionStore, asked: str
) -> None:
    """Seed 003, get_interaction: by the id of any turn in it."""
    store.create(id="s")
    for prompt in ("One", "Two", "Three"):
        store.append("s", *exchange(prompt, f"{prompt} is done.", steps=2))
    whole = get_interaction(store, asked)
    held = whole.interaction
    assert (whole.turn, held.id, held.turn, held.last_turn) == (4, "s:4", 4, 6)
    assert (held.prompt, held.response) == ("Two", "Two is done.")
    assert (held.total_messages, held.first_message) == (6, 6)
    assert held.summary == get_contents(store, "s").entries[3].summary
    assert [m["role"] for m in held.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert (whole.previous and whole.previous.turn) == 1
    assert (whole.next and whole.next.turn) == 7


def test_a_long_interaction_is_had_in_pages(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", *exchange("Go", steps=10))
    whole = get_interaction(store, "s:1").interaction.messages
    pages = [
        message
        for at in range(0, 22, 5)
        for message in get_interaction(store, "s:1", start=at, limit=5).interaction.messages
    ]
    assert pages == whole
    assert get_turn(store, "s", 1, start=1, limit=1).interaction.messages == whole[1:2]


def test_what_is_not_there_is_said(store: SessionStore) -> None:
    id = stored(store, "One")
    for number in (0, -1, 2, 10**12):
        with pytest.raises(UnknownTurn, match="choose a turn from 1 to 1"):
            get_turn(store, id, number)
    with pytest.raises(UnknownTurn):
        get_interaction(store, "s:2")
    for asked in (lambda: get_contents(store, "no"), lambda: get_turn(store, "no", 1)):
        with pytest.raises(UnknownSession):
            asked()
    with pytest.raises(UnknownSession):
        get_interaction(store, "no:1")
    for strange in ("s", "s:", "s:x", ":", "", "s:-1", "s:1.0", "s:²", "s:" + "9" * 5000):
        with pytest.raises((SpecError, UnknownSession)):
            get_interaction(store, strange)
    with pytest.raises(SpecError, match="start must be at least 1"):
        get_contents(store, id, start=0)
    with pytest.raises(SpecError):
        get_contents(store, id, limit=-1)


def test_an_empty_session_has_empty_contents(store: SessionStore) -> None:
    store.create(id="s")
    assert get_contents(store, "s") == Contents("s", "", 0, [], "")
    with pytest.raises(UnknownTurn, match="no turns yet"):
        get_turn(store, "s", 1)


def test_answers_are_json_with_the_names_of_the_design(store: SessionStore) -> None:
    """Seed 003, toc: session_id, session_name, total_turns, entries, formatted."""
    id = stored(store, "One")
    made = json.loads(pydantic.TypeAdapter(Contents).dump_json(get_contents(store, id)))
    assert set(made) == {"session_id", "session_name", "total_turns", "entries", "formatted"}
    assert set(made["entries"][0]) == {
        "turn", "id", "summary", "created", "has_prompt", "has_response",
    }  # fmt: skip
    schema = pydantic.TypeAdapter(InteractionWithContext).json_schema()
    assert set(schema["properties"]) == {"turn", "interaction", "previous", "next"}


def test_times_are_iso_8601_in_utc(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", Message("user", "Hi", time=1_700_000_000.0), Message("assistant", "Hello"))
    assert get_contents(store, "s").entries[0].created == "2023-11-14T22:13:20Z"
    assert iso_timestamp(1e300) is iso_timestamp(float("nan")) is None


def library(folder: Path, *recordings: Recording) -> SessionLibrary:
    write(recordings, folder / "log.jsonl")
    return LogLibrary(folder)


@given(messages=strange_conversations())
def test_every_line_of_any_conversation_is_short_and_every_message_is_in_one_turn(
    tmp_path_factory: pytest.TempPathFactory, messages: tuple[Message, ...]
) -> None:
    """Seed 003, summaries: one line of 100 characters at most."""
    if not messages:
        return
    logs = library(tmp_path_factory.mktemp("logs"), Recording("s", messages))
    if not logs.sessions():
        return
    (id,) = [session.id for session in logs.sessions()]
    listed = get_contents(logs, id)
    assert [each.turn for each in listed.entries] == list(range(1, listed.total_turns + 1))
    assert all(len(each.summary) <= MAX_HEADLINE_CHARS for each in listed.entries)
    assert all(len(each.summary.splitlines()) <= 1 for each in listed.entries)
    assert listed.formatted.count("\n") == max(0, listed.total_turns - 1)
    held = [m for each in range(1, listed.total_turns + 1) for m in logs.read_turn(id, each)[1]]
    assert held == [m for _, turn in iter_turns(logs, id) for m in turn] if held else True
    first = logs.read_turn(id, 1)[0] if listed.total_turns else len(tuple(logs.read_messages(id)))
    assert held == list(logs.read_messages(id, first))
    for number in range(1, listed.total_turns + 1):
        whole = get_interaction(logs, f"{id}:{number}")
        assert whole.interaction.turn <= number <= whole.interaction.last_turn
    assert json.dumps(asdict(listed))

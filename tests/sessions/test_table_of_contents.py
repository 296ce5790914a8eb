"""Tests of the table of contents: lines for turns and steps, and the full text of any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pydantic
import pytest
from generated import strange_conversations
from hypothesis import given
from numbering import assert_numbers_agree
from storing import STORES, a_store, exchange, stored

from ctxlab.context.turns import MAX_HEADLINE_CHARS
from ctxlab.errors import SpecError, UnknownSession, UnknownTurn
from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording, ToolCall
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
    """Seed 003, turns: 1-indexed, one entry for each interaction."""
    store.create(id="s", title="Repairs")
    store.append("s", Message("system", "Be brief."), *exchange("Fix the parser", steps=2))
    store.append("s", *exchange("Thanks", "You are welcome."))
    listed = get_contents(store, "s")
    assert (listed.session_id, listed.session_name, listed.total_turns) == ("s", "Repairs", 2)
    assert listed.formatted.split("\n") == [
        "1. Fix the parser",
        "   1.1 read_file src/0.py",
        "   1.2 read_file src/1.py",
        "   1.3 Done.",
        "2. Thanks",
    ]
    assert [(each.turn, each.id) for each in listed.entries] == [(1, "s:1"), (2, "s:2")]
    assert [step.label for each in listed.entries for step in each.steps] == [
        *("1.1", "1.2", "1.3"),
        "2.1",
    ]
    assert all(each.has_prompt and each.has_response for each in listed.entries)


def test_steps_can_be_left_out(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", *exchange("Fix the parser", steps=2))
    listed = {n: get_contents(store, "s", max_steps=n) for n in (0, 2, 3)}
    assert [[step.label for step in listed[n].entries[0].steps] for n in listed] == [
        *([], ["1.1", "1.2"]),
        ["1.1", "1.2", "1.3"],
    ]
    assert {each.entries[0].total_steps for each in listed.values()} == {3}
    assert listed[0].formatted == "1. Fix the parser"
    assert listed[2].formatted.endswith("\n   1.2 read_file src/1.py\n   … 1 more step")
    with pytest.raises(SpecError):
        get_contents(store, "s", max_steps=-1)


def test_an_agent_that_speaks_first_begins_a_turn_without_a_prompt(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", Message("assistant", "Good morning."), *exchange("Hello", "Hi."))
    first, second = get_contents(store, "s").entries
    assert (first.summary, first.has_prompt, first.has_response) == ("Good morning.", False, True)
    assert (second.turn, second.summary, second.has_prompt) == (2, "Hello", True)


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
    ("start", "limit", "shown", "next"),
    [(3, 2, [3, 4], 5), (9, None, [9, 10], None), (9, 2, [9, 10], None), (11, 5, [], None)],
)
def test_long_contents_are_had_in_pages(
    store: SessionStore, start: int, limit: int | None, shown: list[int], next: int | None
) -> None:
    id = stored(store, *(f"Question {n}" for n in range(1, 11)))
    page = get_contents(store, id, start=start, limit=limit)
    assert [each.turn for each in page.entries] == shown
    assert page.total_turns == 10
    assert page.next == next
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


def test_a_step_comes_with_the_steps_before_and_after_it(store: SessionStore) -> None:
    store.create(id="s")
    for prompt in ("One", "Two"):
        store.append("s", *exchange(prompt, f"{prompt} is done.", steps=2))

    def read(label: str) -> tuple[str | None, str, str | None]:
        made = get_turn(store, "s", label)
        assert made.interaction.messages == [
            m.to_dict() for m in store.read_turn("s", *map(int, label.split(".")))[1]
        ]
        assert (made.label, made.interaction.id) == (label, f"s:{label[0]}")
        assert made.interaction.total_steps == 3
        beside = (each and f"{each.label} {each.summary}" for each in (made.previous, made.next))
        before, after = beside
        return before, made.interaction.summary, after

    one, two = "One · read_file src/0.py", "Two · read_file src/0.py"
    assert read("1.1") == (None, one, "1.2 read_file src/1.py")
    assert read("1.2") == (f"1.1 {one}", "read_file src/1.py", "1.3 One is done.")
    assert read("1.3") == ("1.2 read_file src/1.py", "One is done.", f"2.1 {two}")
    assert read("2.1") == ("1.3 One is done.", two, "2.2 read_file src/1.py")
    assert read("2.3") == ("2.2 read_file src/1.py", "Two is done.", None)


def test_an_interaction_is_the_prompt_and_all_that_was_done_about_it(store: SessionStore) -> None:
    """Seed 003, get_interaction: by the id that contents, searches and title histories show."""
    store.create(id="s")
    for prompt in ("One", "Two", "Three"):
        store.append("s", *exchange(prompt, f"{prompt} is done.", steps=2))
    whole = get_interaction(store, "s:2")
    assert whole == get_turn(store, "s", 2) == get_turn(store, "s", "2")
    held = whole.interaction
    assert (whole.turn, whole.label, held.id, held.turn, held.total_steps) == (2, "2", "s:2", 2, 3)
    assert (held.prompt, held.response) == ("Two", "Two is done.")
    assert (held.total_messages, held.first_message) == (6, 6)
    assert held.summary == get_contents(store, "s").entries[1].summary
    assert [m["role"] for m in held.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert (whole.previous and whole.previous.turn) == 1
    assert (whole.next and whole.next.turn) == 3


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
    for turn in (2, 10**12, "2.1"):
        with pytest.raises(UnknownTurn, match="choose a turn from 1 to 1"):
            get_turn(store, id, turn)
    for step in ("1.2", "1.999999999999999999"):
        with pytest.raises(UnknownTurn, match=r"no step 1\.\d+; choose a step from 1\.1 to 1\.1"):
            get_turn(store, id, step)
    for strange in (0, -1, "1.0", "one"):
        with pytest.raises(
            SpecError, match=r"Expected a turn such as 3 or a step such as 3\.2, got"
        ):
            get_turn(store, id, strange)
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
    assert set(made) == {
        "session_id",
        "session_name",
        "total_turns",
        "entries",
        "formatted",
        "next",
    }
    assert set(made["entries"][0]) == {
        "turn", "id", "summary", "created", "has_prompt", "has_response", "total_steps", "steps",
    }  # fmt: skip
    schema = pydantic.TypeAdapter(InteractionWithContext).json_schema()
    assert set(schema["properties"]) == {"turn", "label", "interaction", "previous", "next"}


def test_times_are_iso_8601_in_utc(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", Message("user", "Hi", time=1_700_000_000.0), Message("assistant", "Hello"))
    assert get_contents(store, "s").entries[0].created == "2023-11-14T22:13:20Z"
    assert iso_timestamp(1e300) is iso_timestamp(float("nan")) is None


def library(folder: Path, *recordings: Recording) -> SessionLibrary:
    write(recordings, folder / "log.jsonl")
    return LogLibrary(folder)


@given(messages=strange_conversations())
def test_every_line_of_any_conversation_is_short_and_every_message_is_in_one_step(
    tmp_path_factory: pytest.TempPathFactory, messages: tuple[Message, ...]
) -> None:
    """Seed 003, summaries: one line of 100 characters at most."""
    if not messages:
        return
    logs = library(tmp_path_factory.mktemp("logs"), Recording("s", messages))
    if not logs.sessions():
        return
    (id,) = [session.id for session in logs.sessions()]
    assert_numbers_agree(logs, id, list(logs.read_messages(id)))
    listed = get_contents(logs, id)
    assert [each.turn for each in listed.entries] == list(range(1, listed.total_turns + 1))
    steps = [step for each in listed.entries for step in each.steps]
    assert [step.label for step in steps] == [
        f"{turn}.{step}"
        for turn in range(1, listed.total_turns + 1)
        for step in range(1, logs.count_steps(id, turn) + 1)
    ]
    lines = [each.summary for each in listed.entries] + [step.headline for step in steps]
    assert all(len(line) <= MAX_HEADLINE_CHARS and len(line.splitlines()) <= 1 for line in lines)
    several = sum(each.total_steps for each in listed.entries if each.total_steps > 1)
    assert len(listed.formatted.splitlines()) == len(listed.entries) + several
    held = [m for _, turn in iter_turns(logs, id) for m in turn]
    first = logs.read_turn(id, 1)[0] if listed.total_turns else len(tuple(logs.read_messages(id)))
    assert held == list(logs.read_messages(id, first))
    assert json.dumps(asdict(listed))


@pytest.mark.parametrize("steps", [3, 400], ids=["short", "long"])
def test_a_page_of_steps_begins_at_the_first_step_that_is_asked_for(
    steps: int, store: SessionStore
) -> None:
    store_steps(store, steps)
    whole = get_contents(store, "a").entries
    assert [entry.total_steps for entry in whole] == [steps, 1]
    for first, most in ((1, 2), (2, 1), (steps, 5), (steps + 1, 5), (1, 0)):
        page = get_contents(store, "a", first_step=first, max_steps=most).entries
        assert page[0].steps == whole[0].steps[first - 1 : first - 1 + most]
        assert [entry.summary for entry in page] == ["Go", "Thanks"]
    with pytest.raises(SpecError):
        get_contents(store, "a", first_step=0)


@pytest.mark.parametrize("limit", [1, 7, 500, None])
def test_pages_of_a_long_turn_join_to_the_turn(limit: int | None, store: SessionStore) -> None:
    store_steps(store, 400)
    messages = [message.to_dict() for message in store.read_messages("a")]
    labels = ["1.1", *(f"1.{step}" for step in range(1, 401) for _ in "ab")]
    for start in (0, 1, 2, 399, 640, 800, 801, 900):
        about = get_turn(store, "a", 1, start=start, limit=limit).interaction
        stop = 801 if limit is None else min(801, start + limit)
        assert about.messages == messages[start:stop]
        assert about.labels == labels[start:stop]
        assert (about.total_messages, about.first_message, about.total_steps) == (801, 0, 400)
        assert (about.prompt, about.response, about.summary) == ("Go", "Step 400", "Go")


def store_steps(store: SessionStore, steps: int) -> None:
    """Store a session with a turn of many steps, and a turn with one step."""
    store.create(id="a")
    messages = [Message("user", "Go")]
    for number in range(1, steps + 1):
        call = ToolCall(f"c{number}", "run", "{}")
        messages += [Message("assistant", f"Step {number}", tool_calls=(call,))]
        messages += [Message("tool", "ok", tool_call_id=call.id)]
    store.append("a", *messages, Message("user", "Thanks"), Message("assistant", "Yes."))

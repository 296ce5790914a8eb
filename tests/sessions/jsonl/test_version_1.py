"""Tests that chunks of version 1, which counted each step as a turn, keep their sessions usable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from generated import strange_conversations
from hypothesis import given, settings
from hypothesis import strategies as st
from numbering import assert_numbers_agree
from storing import exchange

from ctxlab.formats import load
from ctxlab.messages.types import Message
from ctxlab.sessions.jsonl.migrate import migrate_folder
from ctxlab.sessions.jsonl.store import JsonlStore


def step_numbers(messages: Sequence[Message]) -> list[tuple[int, bool]]:
    """Return number and ``replied`` before each message and at the end, as version 1 counted them."""
    states = [(0, True)]
    for message in messages:
        number, replied = states[-1]
        number += message.role == "user" or (message.role == "assistant" and replied)
        if message.role in ("user", "assistant"):
            replied = message.role == "assistant"
        states.append((number, replied))
    return states


def rewrite(path: Path, **changes: Any) -> None:
    first, *rows = path.read_text().splitlines()
    header = json.loads(first) | {"version": 1} | changes
    header.pop("step", None)
    path.write_text("\n".join([json.dumps(header), *rows]) + "\n")


def make_version_1(folder: Path, messages: Sequence[Message], size: int) -> JsonlStore:
    """Store a session "a" as version 1 of the chunks did, and open the folder."""
    store = JsonlStore(folder, max_history=size, fsync="never")
    store.create(id="a", title="New")
    store.append("a", *messages)
    states = step_numbers(messages)
    for path in folder.glob("session-a.*.jsonl"):
        first = json.loads(path.read_text().splitlines()[0])["first"]
        rewrite(path, turn=states[first][0], replied=states[first][1])
    rewrite(folder / "session-a.meta.json")
    return JsonlStore(folder, max_history=size, fsync="never")


@settings(max_examples=40, deadline=None)
@given(strange_conversations(), st.integers(1, 5), strange_conversations())
@pytest.mark.properties
def test_turns_and_steps_are_found_and_a_session_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
    messages: tuple[Message, ...],
    size: int,
    more: tuple[Message, ...],
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = make_version_1(folder, messages, size)
    assert_numbers_agree(store, "a", messages)
    store.append("a", *more)
    for opened in (store, JsonlStore(folder, max_history=size, fsync="never")):
        assert_numbers_agree(opened, "a", [*messages, *more])
    (recording,) = load(folder)
    assert recording.messages == (*messages, *more)


def test_summaries_and_titles_come_to_the_turns_that_they_are_about(tmp_path: Path) -> None:
    said = [*exchange("Fix the parser", steps=2), *exchange("Write the docs", steps=1)]
    make_version_1(tmp_path, said, size=4)
    number = step_numbers(said)[7][0]  # that of the second user message
    assert number == 4
    title = {"title": "New", "changed_at": 1.0, "turn": number, "interaction_id": "a:4"}
    rewrite(tmp_path / "session-a.meta.json", titles=[title])
    lines = [
        {"turn": 1, "line": "fixed"},
        {"turn": number, "line": "wrote"},
        {"turn": 99, "line": "?"},
    ]
    head = {"type": "session-lines", "format": "ctxlab", "version": 1, "id": "a"}
    rows = "".join(json.dumps(row) + "\n" for row in (head, *lines))
    (tmp_path / "lines-a.jsonl").write_text(rows)
    store = JsonlStore(tmp_path, fsync="never")
    assert store.turn_summaries("a") == {1: "fixed", 2: "wrote"}
    (change,) = store.get("a").titles
    assert (change.turn, change.interaction_id) == (2, "a:2")
    (recording,) = load(tmp_path)
    assert recording.meta["lines"] == {"1": "fixed", "2": "wrote"}
    assert recording.meta == store.recording("a").meta
    # What is written now is of the present version, and stays right.
    store.append("a", *exchange("Release it"))
    store.save_turn_summary("a", 3, "released")
    store.retitle("a", "Release", 3)
    for opened in (store, JsonlStore(tmp_path, fsync="never")):
        assert opened.turn_summaries("a") == {1: "fixed", 2: "wrote", 3: "released"}
        assert [each.turn for each in opened.get("a").titles] == [3, 2]


def test_the_messages_of_a_long_session_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_version_1(tmp_path, [Message("user", str(n)) for n in range(40)], size=4)
    store.read_turn("a", 40)
    read = list[Path]()
    plain = Path.open

    def opened(path: Path, *args: Any, **options: Any) -> Any:
        read.append(path)
        return plain(path, *args, **options)

    monkeypatch.setattr(Path, "open", opened)
    assert store.read_turn("a", 20)[0] == 19
    assert len(set(read)) < 8


@settings(max_examples=20, deadline=None)
@given(strange_conversations(), st.integers(1, 5))
def test_a_migration_rewrites_the_headers_once(
    tmp_path_factory: pytest.TempPathFactory, messages: tuple[Message, ...], size: int
) -> None:
    folder = tmp_path_factory.mktemp("v1")
    make_version_1(folder, messages, size)
    (done,) = migrate_folder(folder).upgraded
    assert done.id == "a"
    store = JsonlStore(folder, max_history=size, fsync="never")
    assert list(store.read_messages("a")) == list(messages)
    assert_numbers_agree(store, "a", messages)
    heads = [json.loads(p.read_text().splitlines()[0]) for p in folder.glob("session-a.*.jsonl")]
    assert all(head["version"] == 2 and "step" in head for head in heads)
    assert not store.damage.found
    assert migrate_folder(folder).upgraded == ()

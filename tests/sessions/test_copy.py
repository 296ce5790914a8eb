"""Tests of copies of sessions, in both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ctxlab
from ctxlab.errors import SessionError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import AgentPlan, SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

CALL = Message("assistant", None, tool_calls=(ToolCall("c1", "ls", "{}"),))
TURNS = (
    (Message("system", "Be brief."), Message("user", "first"), Message("assistant", "one")),
    (Message("user", "second"), CALL, Message("tool", "a.txt", tool_call_id="c1")),
    (Message("assistant", "two"),),
    (Message("user", "third"), Message("assistant", "three")),
)


@pytest.fixture(params=[JsonlStore, SqliteStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    made = request.param(tmp_path)
    made.create(id="a", model="gpt-4o", agent="coder", file="a.txt", meta={"key": 1})
    for messages in TURNS:
        made.append("a", *messages)
    for turn in (1, 2, 3):
        made.save_turn_summary("a", turn, f"summary {turn}")
    made.retitle("a", "Later", turn=3)
    yield made
    made.close()


def test_a_copy_has_the_first_turns_with_their_numbers(store: SessionStore) -> None:
    before = store.recording("a")
    plan = AgentPlan(("look",), 0)
    made = store.copy("a", turns=2, plan=plan)
    assert list(store.read_messages(made.id)) == list(before.messages[:7])
    assert store.turn_summaries(made.id) == {1: "summary 1", 2: "summary 2"}
    assert store.read_turn(made.id, 2, 2) == store.read_turn("a", 2, 2)
    assert (made.title, made.model, made.agent, made.file) == ("first", "gpt-4o", "coder", "a.txt")
    assert made.meta == {"key": 1, "copied_from": "a"}
    assert made.status == "active"
    assert store.open(made.id).plan == plan
    assert store.recording("a").messages == before.messages


def test_a_copy_has_the_title_history_of_its_turns(store: SessionStore) -> None:
    store.retitle("a", "Set by the user")
    store.retitle("a", "Latest", turn=3)
    made = store.copy("a", turns=2)
    assert [(t.title, t.turn, t.interaction_id) for t in made.titles] == [
        ("Set by the user", 0, ""),
        ("first", 1, f"{made.id}:1"),
    ]
    before, whole = store.get("a").titles, store.copy("a").titles
    assert [(t.title, t.changed_at, t.turn) for t in whole] == [
        (t.title, t.changed_at, t.turn) for t in before
    ]


def test_all_turns_or_none_can_be_copied(store: SessionStore) -> None:
    whole, none = store.copy("a"), store.copy("a", turns=0)
    assert list(store.read_messages(whole.id)) == list(store.read_messages("a"))
    assert whole.title == "Later"
    assert (none.title, store.count_turns(none.id)) == ("", 0)


def test_recordings_of_copies_are_one_cluster(store: SessionStore, tmp_path: Path) -> None:
    second = store.copy(store.copy("a", turns=2).id, turns=1)
    assert store.recording(second.id).cluster == "a"
    loaded = list(ctxlab.load(tmp_path, on_error="raise"))
    assert len(loaded) == 3
    assert {each.cluster or each.id for each in loaded} == {"a"}


@pytest.mark.parametrize("turns", [-1, 4])
def test_turns_that_do_not_exist_are_refused(store: SessionStore, turns: int) -> None:
    with pytest.raises(SessionError, match=f"expected 0 to 3 turns to copy, got {turns}"):
        store.copy("a", turns=turns)
    assert len(store.sessions()) == 1


def test_a_copy_that_fails_leaves_no_session(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SessionError("the disk is full")

    monkeypatch.setattr(store, "save_turn_summary", full)
    with pytest.raises(SessionError, match="the disk is full"):
        store.copy("a")
    assert [session.id for session in store.sessions()] == ["a"]

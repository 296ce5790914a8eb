"""Tests of the JSONL store: chunks have a maximum length, and an append changes only the newest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chunking import CALL, TOOL, chunks_of, files, filled, said, user
from hypothesis import given, settings
from hypothesis import strategies as st
from numbering import assert_numbers_agree

from ctxlab.errors import UnknownName, UnknownSession
from ctxlab.formats import load
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.base import AgentPlan, SessionLibrary, SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.resume_window import ResumeCaps
from ctxlab.sessions.titles import MAX_TITLES


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    return JsonlStore(tmp_path / "sessions", max_history=3, fsync="never")


def test_it_is_a_store_and_a_library(store: JsonlStore) -> None:
    assert isinstance(store, SessionStore)
    assert isinstance(store, SessionLibrary)


def test_a_new_session_is_a_first_chunk_with_its_index(store: JsonlStore) -> None:
    """Seed 001, behaviour 1: ``session-{id}.1.jsonl``, the index always present."""
    store.create(id="abc-123")
    assert chunks_of(store, "abc-123") == ["session-abc-123.1.jsonl"]
    assert not (store.folder / "session-abc-123.jsonl").exists()


def test_a_message_goes_to_the_newest_chunk_and_a_full_one_is_followed_by_another(
    store: JsonlStore,
) -> None:
    """Seed 001, behaviour 2: append to the newest; a new chunk at ``max_history``."""
    id = filled(store, count=7)
    assert chunks_of(store, id) == [f"session-{id}.{n}.jsonl" for n in (1, 2, 3)]
    sizes = [len((store.folder / n).read_text().splitlines()) - 1 for n in chunks_of(store, id)]
    assert sizes == [3, 3, 1]
    before = {n: (store.folder / n).read_bytes() for n in chunks_of(store, id)}
    store.append(id, user("msg 7"))
    assert [n for n in before if (store.folder / n).read_bytes() != before[n]] == [
        f"session-{id}.3.jsonl"
    ]


def test_messages_are_read_from_the_newest_chunk_back(store: JsonlStore) -> None:
    """Seed 001, behaviour 3: from the newest chunks back until so many messages."""
    id = filled(store, count=8)
    (store.folder / f"session-{id}.1.jsonl").write_text("not even a header\n")
    assert said(store.read_messages(id, 5)) == ["msg 5", "msg 6", "msg 7"]
    assert said(store.read_messages(id, 6)) == ["msg 6", "msg 7"]


@pytest.mark.parametrize("saved", [True, False])
def test_a_resume_reads_a_bounded_part_whatever_the_length(tmp_path: Path, saved: bool) -> None:
    """Seed 001, behaviour 4: only the newest messages are loaded."""
    store = JsonlStore(tmp_path, max_history=3, fsync="never", caps=ResumeCaps(messages=4))
    id = filled(store, count=50)
    if saved:
        store.save(id)
    for number in range(1, 16):
        chunk = tmp_path / f"session-{id}.{number}.jsonl"
        chunk.write_text(chunk.read_text().splitlines()[0] + "\nnot\nread\n")
    resume = JsonlStore(tmp_path, caps=ResumeCaps(messages=4)).open(id)
    assert said(resume.recent) == ["msg 46", "msg 47", "msg 48", "msg 49"]
    assert "msg 45" in resume.summary


def test_a_resume_loads_no_more_than_a_chunk_holds(tmp_path: Path) -> None:
    """Seed 001, behaviour 4: at most ``max_history`` messages."""
    store = JsonlStore(tmp_path, max_history=3, fsync="never")
    assert said(store.open(filled(store, count=50)).recent) == ["msg 47", "msg 48", "msg 49"]


def test_a_resume_does_not_depend_on_how_often_it_was_saved(tmp_path: Path) -> None:
    resumes = []
    for number, every in enumerate((1, 7, 100)):
        store = JsonlStore(tmp_path / str(number), max_history=5, fsync="never",
                             caps=ResumeCaps(messages=4))  # fmt: skip
        store.create(id="a")
        for n in range(40):
            store.append("a", user(f"line {n} of the conversation"))
            if n % every == 0:
                store.save("a")
        resumes.append(store.open("a"))
    assert resumes[0].recent == resumes[1].recent == resumes[2].recent
    assert all("line 35" in resume.summary for resume in resumes)


def test_an_id_stays_the_same_over_all_chunks(store: JsonlStore) -> None:
    """Seed design 001: the session's id stays stable, only the files inside change."""
    id = filled(store, count=10)
    heads = [
        json.loads((store.folder / n).read_text().splitlines()[0]) for n in chunks_of(store, id)
    ]
    assert {head["id"] for head in heads} == {id}
    assert [head["first"] for head in heads] == [0, 3, 6, 9]
    assert [session.id for session in store.sessions()] == [id]


def test_ids_that_look_like_chunks_of_another_session_are_told_apart(store: JsonlStore) -> None:
    for id in ("a", "a.1", "a.1.1", "a.meta", "a.2"):
        filled(store, id, count=4)
    for id in ("a", "a.1", "a.1.1", "a.meta", "a.2"):
        assert said(store.read_messages(id)) == [f"msg {n}" for n in range(4)]
    store.delete("a")
    assert {session.id for session in store.sessions()} == {"a.1", "a.1.1", "a.meta", "a.2"}
    assert said(store.read_messages("a.1")) == [f"msg {n}" for n in range(4)]


def test_messages_come_back_as_they_were(store: JsonlStore) -> None:
    messages = (
        Message("system", "be brief", time=1.5),
        Message("user", ({"type": "text", "text": "\ud800 é \n"},), file="a.py", name="Ann"),
        Message("assistant", None, (CALL,), reasoning="hm", usage=Usage(1, 2, 3, 4)),
        Message("tool", "x = 1\n", tool_call_id="c1", name="read", extra={"more": 1, "role": "x"}),
    )
    id = store.create(tools=(TOOL,), meta={"topic": "order"}, agent="shop", file="a.py").id
    assert store.append(id, *messages) == 0
    assert tuple(store.read_messages(id)) == messages
    assert store.get(id).tools == (TOOL,)
    assert store.get(id).meta == {"topic": "order"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("sauuatt"), max_size=7), max_size=12),
    st.integers(1, 6),
    st.data(),
)
@pytest.mark.properties
def test_whatever_is_appended_reads_back_with_positions_and_turns(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[str]],
    size: int,
    data: st.DataObject,
) -> None:
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    folder = tmp_path_factory.mktemp("store")
    store = JsonlStore(folder, max_history=size, fsync="never")
    store.create(id="x")
    every: list[Message] = []
    for batch in batches:
        new = [Message(roles[r], f"{len(every) + n}") for n, r in enumerate(batch)]  # type: ignore[arg-type]
        if data.draw(st.booleans()):
            store = JsonlStore(folder, max_history=size, fsync="never")
        assert store.append("x", *new) == len(every)
        every += new
    assert list(store.read_messages("x")) == every
    assert store.get("x").messages == len(every)
    start, stop = data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))
    assert list(store.read_messages("x", start, stop)) == every[start:stop]
    assert_numbers_agree(store, "x", every)
    assert all(len(path.read_text().splitlines()) <= size + 1 for path in folder.glob("*.jsonl"))
    (recording,) = load(folder)
    assert (list(recording.messages), recording.skipped) == (every, {})


def test_a_batch_stays_in_one_chunk_where_it_can(store: JsonlStore) -> None:
    id = filled(store, count=2)
    assert store.append(id, Message("assistant", None, (CALL,)), Message("tool", "x")) == 2
    assert len((store.folder / f"session-{id}.1.jsonl").read_text().splitlines()) == 3
    assert len((store.folder / f"session-{id}.2.jsonl").read_text().splitlines()) == 3


def test_a_title_rewrites_no_message(tmp_path: Path) -> None:
    """Seed 002, scenario 5: a title update leaves the messages as they are.

    Seed 002, criterion 8: nothing but the small meta file is written.
    """
    store = JsonlStore(tmp_path, max_history=30, fsync="never")
    id = store.create(tools=(TOOL,)).id
    for number in range(100):
        store.append(id, user(f"msg {number}"))
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes()) for p in files(store)}
    assert store.retitle(id, "New title for testing", 3).title == "New title for testing"
    after = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes()) for p in files(store)}
    assert [name for name in after if after[name] != before.get(name)] == [
        f"session-{id}.meta.json"
    ]
    assert after.keys() == before.keys()


def test_the_first_user_message_gives_the_title(store: JsonlStore) -> None:
    """Its first 50 characters and three dots, see seed design 002, 10.9."""
    id = store.create().id
    store.append(id, Message("system", "be brief"))
    assert store.get(id).title == ""
    store.append(id, user("x" * 60))
    store.append(id, user("another"))
    assert store.get(id).title == "x" * 50 + "..."
    assert store.get(id).titles[0].turn == 1
    named = store.create(title="Mine").id
    store.append(named, user("question"))
    assert store.get(named).title == "Mine"


def test_titles_that_it_had_are_kept_newest_first_and_twenty_at_most(store: JsonlStore) -> None:
    id = store.create(title="title 0").id
    for number in range(1, 30):
        store.retitle(id, f"title {number}", number)
    titles = store.get(id).titles
    assert [change.title for change in titles] == [
        f"title {n}" for n in range(29, 29 - MAX_TITLES, -1)
    ]
    assert titles[0].interaction_id == f"{id}:29"


def test_sessions_are_found_by_title_and_time(store: JsonlStore) -> None:
    """Seed 002, criterion 9: by words of the title, and by when they were updated."""
    for title in ("Delegation of tasks", "Sign-in page", "delegation again"):
        store.create(title=title)
    found = store.sessions("DELEGATION")
    assert {session.title for session in found} == {"Delegation of tasks", "delegation again"}
    now = found[0].updated
    assert len(store.sessions(since=now - 60)) == 3
    assert store.sessions(before=now - 60) == []
    assert store.sessions(since=now + 60) == []
    assert store.sessions("[a-z", agent="nobody") == []


def test_the_session_that_was_updated_last_comes_first(store: JsonlStore) -> None:
    import os

    for number, id in enumerate("abc"):
        filled(store, id, 1)
        os.utime(store.folder / f"session-{id}.1.jsonl", (4e9 + number, 4e9 + number))
    assert [session.id for session in store.sessions()] == ["c", "b", "a"]


def test_all_sessions_of_an_agent_can_be_deleted(store: JsonlStore) -> None:
    """Seed 002, criterion 10: every session of it goes, and so do its files."""
    for id, agent in (("a", "tester"), ("b", "tester"), ("c", "writer")):
        store.create(id=id, agent=agent, tools=(TOOL,))
        store.append(id, *(user(f"msg {n}") for n in range(8)))
        store.save_turn_summary(id, 1, "said")
        store.save(id)
    for session in store.sessions(agent="tester"):
        store.delete(session.id)
    assert [session.id for session in store.sessions()] == ["c"]
    assert {path.name.split(".")[0] for path in files(store)} == {"session-c", "lines-c"}
    with pytest.raises(UnknownSession):
        store.get("a")
    store.delete("c")
    assert files(store) == []


def test_statuses_are_kept_and_archived_sessions_are_listed_when_they_are_asked_for(
    store: JsonlStore,
) -> None:
    id = filled(store)
    assert store.set_status(id, "archived").status == "archived"
    assert store.sessions() == []
    assert [session.id for session in store.sessions(status="archived")] == [id]
    assert store.search("msg 1") == []
    assert [hit.position for hit in store.search("msg 1", id)] == [1]
    store.open(id)
    assert store.get(id).status == "active"
    with pytest.raises(UnknownName):
        store.set_status(id, "gone")  # type: ignore[arg-type]


def test_a_plan_is_kept_and_replaced(store: JsonlStore) -> None:
    id = filled(store)
    plan = AgentPlan(("read", "repair"), 1, True, False)
    store.save(id, plan=plan)
    assert JsonlStore(store.folder).open(id).plan == plan
    store.save(id)
    assert store.open(id).plan is None


def test_what_is_resumed_is_accepted_by_a_provider(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, max_history=4, fsync="never", caps=ResumeCaps(messages=5))
    id = store.create().id
    for number in range(6):
        call = ToolCall(f"c{number}", "read", "{}")
        store.append(id, user(f"q{number}"), Message("assistant", None, (call,)))
        if number != 3:
            store.append(id, Message("tool", "found", tool_call_id=call.id))
    resume = store.open(id)
    assert [
        found.rule for found in find_violations(list(resume.recent)) if "call" in found.rule
    ] == []
    assert len(resume.recent) <= 5


def test_lines_of_turns_are_kept_at_the_end_of_a_file_of_their_own(store: JsonlStore) -> None:
    id = filled(store)
    assert store.turn_summaries(id) == {}
    store.save_turn_summary(id, 1, "read a.py")
    store.save_turn_summary(id, 2, "a second\nline")
    path = store.folder / f"lines-{id}.jsonl"
    start = path.read_bytes()
    store.save_turn_summary(id, 1, "read b.py")
    assert path.read_bytes().startswith(start)
    assert store.turn_summaries(id) == {1: "read b.py", 2: "a second\nline"}
    path.write_bytes(path.read_bytes() + b'{"turn":3,"li')
    assert store.turn_summaries(id) == {1: "read b.py", 2: "a second\nline"}
    store.save_turn_summary(id, 4, "on")
    assert store.turn_summaries(id) == {1: "read b.py", 2: "a second\nline", 4: "on"}
    assert path.name not in {p.name for p in store.folder.glob("session-*.jsonl")}


def test_a_search_finds_all_words_and_takes_syntax_for_words(store: JsonlStore) -> None:
    for id in ("a", "b"):
        store.create(id=id)
        store.append(id, user("Fix the parser"), Message("assistant", "The parser is fixed."))
    (hit,) = store.search("parser fix", "a")
    assert (hit.session_id, hit.turn, hit.position, hit.role) == ("a", 1, 0, "user")
    assert len(store.search("parser")) == 4
    assert len(store.search("parser", limit=1, offset=3)) == 1
    assert store.search('" OR 1=1; DROP TABLE -- NEAR(') == []
    system = store.create(system=True).id
    store.append(system, user("parser"))
    assert len(store.search("parser")) == 4


def test_memory_of_what_is_known_is_let_go(store: JsonlStore) -> None:
    id = filled(store)
    store.close()
    assert store.append(id, user("on")) == 8

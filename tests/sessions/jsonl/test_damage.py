"""Tests that damaged files of a JSONL store cost only what was in the damaged place, and are told."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chunking import CALL, TOOL
from hypothesis import given, settings
from hypothesis import strategies as st
from numbering import assert_numbers_agree

from ctxlab.agent.loop import Agent
from ctxlab.agent.session import AgentSession
from ctxlab.messages.types import Message
from ctxlab.sessions.damage import is_lost
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.table_of_contents import get_contents


def said_by(session: str, count: int = 6) -> list[list[Message]]:
    """Return the batches of a session: a question, and an answer with a call and its result."""
    return [
        batch
        for n in range(count)
        for batch in (
            [Message("user", f"question {n} of {session}", time=1.5 + n)],
            [
                Message("assistant", None, (CALL,)),
                Message("tool", f"result {n}", tool_call_id=CALL.id),
                Message("assistant", f"answer {n} of {session}"),
            ],
        )
    ]


def fill(store: JsonlStore) -> dict[str, list[Message]]:
    for id in ("a", "b"):
        store.create(id=id, model="gpt-5", title=f"Title {id}", tools=(TOOL,))
        for batch in said_by(id):
            store.append(id, *batch)
        store.save_turn_summary(id, 1, "a line")
        store.save(id)
    return {id: list(store.read_messages(id)) for id in ("a", "b")}


@pytest.fixture(scope="module")
def whole() -> Iterator[tuple[Path, dict[str, list[Message]]]]:
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlStore(folder, max_history=8, fsync="never")
        yield Path(folder), fill(store)


@contextmanager
def copied(folder: Path) -> Iterator[JsonlStore]:
    with tempfile.TemporaryDirectory() as above:
        yield JsonlStore(shutil.copytree(folder, Path(above, "s")), max_history=8, fsync="never")


def check(store: JsonlStore, messages: dict[str, list[Message]], most: int) -> None:
    """Check that at most ``most`` messages of session a are lost or changed, and are told."""
    assert {session.id for session in store.sessions()} == {"a", "b"}
    assert list(store.read_messages("b")) == messages["b"]
    read = list(store.read_messages("a"))
    assert len(read) == len(messages["a"]) == store.get("a").messages
    other = [n for n, (old, new) in enumerate(zip(messages["a"], read, strict=True)) if old != new]
    lost = [n for n in other if is_lost(read[n])]
    assert len(other) <= most
    assert bool(store.damage.found) >= bool(lost)
    assert_numbers_agree(store, "a", read)
    assert get_contents(store, "a").total_turns == store.count_turns("a")
    assert len(store.search("answer", "a")) >= 6 - len(other)
    with AgentSession.resume(store, "a", Agent("gpt-4o")):
        pass
    assert store.append("a", Message("user", "on")) == len(read)
    again = JsonlStore(store.folder, max_history=8, fsync="never")
    assert list(again.read_messages("a")) == [*read, Message("user", "on")]


def data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and ("-a." in path.name))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.properties
def test_a_byte_that_was_changed_costs_at_most_its_line(
    whole: tuple[Path, dict[str, list[Message]]], data: st.DataObject
) -> None:
    folder, messages = whole
    with copied(folder) as store:
        path = data.draw(st.sampled_from([path.name for path in data_files(folder)]))
        content = bytearray((store.folder / path).read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        new = data.draw(st.sampled_from(b'\n"{}[]:,\\x5-\0\xff') | st.integers(0, 255))
        if path.endswith("meta.json") and content[:at].endswith(b'"version":'):
            return  # a newer version is refused, and told
        if path.endswith("meta.json") and content[:at].endswith(b'"deleted":'):
            return
        content[at] = new
        (store.folder / path).write_bytes(content)
        check(store, messages, 1)


def edit(name: str, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / name
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(True))))

    return act


DAMAGE: dict[str, tuple[int, Callable[[Path], object]]] = {
    "a repeated line": (0, edit("session-a.1.jsonl", lambda rows: [*rows[:4], rows[3], *rows[4:]])),
    "lines in another order": (
        2,
        edit("session-a.1.jsonl", lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]]),
    ),
    "a chunk without its header": (0, edit("session-a.2.jsonl", lambda rows: rows[1:])),
    "a chunk that is missing": (8, lambda folder: (folder / "session-a.2.jsonl").unlink()),
    "a first chunk that is missing": (8, lambda folder: (folder / "session-a.1.jsonl").unlink()),
    "an empty chunk": (8, lambda folder: (folder / "session-a.2.jsonl").write_bytes(b"")),
    "a chunk of zeros": (8, lambda folder: (folder / "session-a.2.jsonl").write_bytes(bytes(999))),
    "a chunk that was cut": (7, edit("session-a.2.jsonl", lambda rows: [*rows[:2], rows[2][:9]])),
    "no metadata": (0, lambda folder: (folder / "session-a.meta.json").unlink()),
    "no window": (0, lambda folder: (folder / "session-a.window.json").unlink()),
    "empty metadata": (0, lambda folder: (folder / "session-a.meta.json").write_bytes(b"")),
    "summaries of zeros": (0, lambda folder: (folder / "lines-a.jsonl").write_bytes(b"\0\n" * 9)),
    "tools of zeros": (0, lambda folder: (folder / "session-a.tools.json").write_bytes(bytes(9))),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_costs_only_what_was_in_the_damaged_place(
    whole: tuple[Path, dict[str, list[Message]]], name: str
) -> None:
    folder, messages = whole
    most, act = DAMAGE[name]
    with copied(folder) as store:
        act(store.folder)
        check(store, messages, most)
        assert store.damage.found or name == "no window"


def test_a_write_that_was_torn_is_told(
    whole: tuple[Path, dict[str, list[Message]]], caplog: pytest.LogCaptureFixture
) -> None:
    folder, messages = whole
    with copied(folder) as store:
        edit("session-a.3.jsonl", lambda rows: [*rows[:-1], rows[-1][:9]])(store.folder)
        assert store.get("a").messages == len(messages["a"]) - 3  # the batch was never finished
        assert "unfinished write" in caplog.text

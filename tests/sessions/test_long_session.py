"""Tests that a session of 50,000 messages keeps every message, and that lookups do not become slow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest

from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

pytestmark = pytest.mark.simulations

LONG, SHORT = 50_000, 5_000
TURN = 10  # messages of a turn
BATCH = 100


def message(number: int) -> Message:
    role = "assistant" if number % TURN else "user"
    return Message(role, f"fact{number} of the order " + "and more " * (number % 40))  # type: ignore[arg-type]


def fill(store: SessionStore, length: int) -> str:
    session = store.create()
    for start in range(0, length, BATCH):
        store.append(session.id, *map(message, range(start, start + BATCH)))
    return session.id


def duration(run: Callable[[], object]) -> float:
    times = []
    for _ in range(21):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


def check_and_time(store: SessionStore, id: str, length: int) -> dict[str, float]:
    """Check that every message can be found; return the seconds of three operations."""
    assert store.get(id).messages == length
    assert store.count_turns(id) == length // TURN
    assert [each.text for each in store.read_messages(id)] == [
        message(number).text for number in range(length)
    ]
    middle = length // 2
    (hit,) = store.search(f"fact{middle}", id)
    assert hit.position == middle
    first, turn = store.read_turn(id, hit.turn)
    assert (first, turn) == (middle, tuple(message(middle + n) for n in range(TURN)))
    assert store.open(id).recent[-1] == message(length - 1)
    return {
        "a turn": duration(lambda: store.read_turn(id, hit.turn)),
        "messages": duration(lambda: list(store.read_messages(id, middle, middle + 20))),
        "appending": duration(lambda: store.append(id, Message("user", "one more"))),
    }


@pytest.mark.parametrize("kind", [SqliteStore, JsonlStore])
def test_50000_messages_are_kept_and_no_lookup_reads_them_all(
    kind: type[SqliteStore | JsonlStore], tmp_path: Path
) -> None:
    times = []
    for length in (SHORT, LONG):
        folder = tmp_path / str(length)
        folder.mkdir()
        with closing(kind(folder, fsync="never")) as store:
            id = fill(store, length)
        with closing(kind(folder, fsync="never")) as store:  # with nothing in memory
            times.append(check_and_time(store, id, length))
    growth = {what: times[1][what] / times[0][what] for what in times[0]}
    assert max(growth.values()) < LONG / SHORT / 2, growth  # LONG / SHORT if it read them all

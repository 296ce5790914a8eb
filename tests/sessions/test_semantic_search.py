"""Tests of the search for turns with an embedding model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from storing import STORES, a_store, exchange, stored
from talking import talking

from ctxlab.errors import UnknownSession
from ctxlab.llm import CachedClient, LiteLLMClient, ScriptedClient
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.semantic_search import search_semantically


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    made = a_store(request.param, tmp_path / "store" if request.param == "chunks" else tmp_path)
    yield made
    made.close()


def test_the_nearest_turn_comes_first(store: SessionStore) -> None:
    """Seed 003, search: by meaning, as an extra."""
    id = stored(store, "Fix the parser for empty files", "Write documentation", "Deploy to staging")
    hits = search_semantically(store, "an empty file in the parser", ScriptedClient(), "m", id)
    assert (hits[0].turn, hits[0].position, hits[0].role) == (1, 0, "user")
    assert hits[0].snippet == "Fix the parser for empty files"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(hits) == 3
    assert all(-1.000001 <= hit.score <= 1.000001 for hit in hits)


def test_a_hit_stands_at_the_first_message_of_its_turn(store: SessionStore) -> None:
    store.create(id="s")
    for prompt in ("One", "Two", "The needle"):
        store.append("s", *exchange(prompt, steps=2))
    (hit,) = search_semantically(store, "needle", ScriptedClient(), "m", limit=1)
    assert hit.position == store.read_turn("s", hit.turn)[0] == 12


def test_all_sessions_but_those_of_a_system_are_searched(store: SessionStore) -> None:
    """Seed 003, search_all_sessions: by meaning, as an extra."""
    for id, system in (("a", False), ("b", False), ("c", True)):
        stored(store, f"parser {id}", id=id, system=system)
    hits = search_semantically(store, "parser", ScriptedClient(), "m")
    assert {hit.session_id for hit in hits} == {"a", "b"}
    assert search_semantically(store, "parser", ScriptedClient(), "m", "c")
    with pytest.raises(UnknownSession):
        search_semantically(store, "parser", ScriptedClient(), "m", "no")


def test_nothing_asked_finds_nothing_and_asks_nobody(store: SessionStore) -> None:
    id, client = stored(store, "parser"), ScriptedClient()
    assert search_semantically(store, "  ", client, "m", id) == []
    assert search_semantically(store, "parser", client, "m", id, limit=0) == []
    assert client.embedded_texts == []
    store.create(id="empty")
    assert search_semantically(store, "parser", client, "m", "empty") == []
    assert search_semantically(store, "?!", client, "m", id)[0].score == 0  # a vector of zeros


def test_vectors_are_asked_for_once_and_kept(store: SessionStore, tmp_path: Path) -> None:
    id = stored(store, *(f"Question {n}" for n in range(5)))
    with talking() as server:
        client = LiteLLMClient(server.address, "k", retries=0)
        cached = CachedClient(client, tmp_path / "calls")
        first = search_semantically(store, "question", cached, "text-embedding-3-small", id)
        texts = sum(len(call.texts) for call in server.calls)
        store.append(id, *exchange("Another"))
        search_semantically(store, "question", cached, "text-embedding-3-small", id)
        asked_later = sum(len(call.texts) for call in server.calls) - texts
    assert len(first) == 5
    assert (texts, asked_later) == (6, 1)

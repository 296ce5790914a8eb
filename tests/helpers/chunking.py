"""Helpers for tests of the JSONL store, which stores sessions in chunks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.jsonl.store import JsonlStore

CALL = ToolCall("c1", "read", '{"path": "a.py"}')
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "read", "parameters": {}}}


def user(text: str) -> Message:
    return Message("user", text)


def said(messages: Iterable[Message]) -> list[Any]:
    return [message.content for message in messages]


def chunks_of(store: JsonlStore, id: str) -> list[str]:
    """Return the file names of a session's chunks in order."""
    found = [p.name for p in store.folder.glob(f"session-{id}.*.jsonl")]
    return sorted(found, key=lambda name: int(name.split(".")[-2]))


def files(store: JsonlStore) -> list[Path]:
    return [path for path in sorted(store.folder.iterdir()) if path.is_file()]


def filled(store: JsonlStore, id: str = "abc-123", count: int = 8) -> str:
    """Create a session, append ``msg 0``, ``msg 1``, … one by one, and return its id."""
    store.create(id=id, model="gpt-5")
    for number in range(count):
        store.append(id, user(f"msg {number}"))
    return id

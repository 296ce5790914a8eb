"""Create a session store of either kind, and conversations to store in it."""

from __future__ import annotations

from pathlib import Path

from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

STORES = ("chunks", "workspace")


def a_store(kind: str, folder: Path) -> SessionStore:
    """Open a store; a second store of the same folder behaves like one of another process."""
    return JsonlStore(folder) if kind == "chunks" else SqliteStore(folder)


def exchange(prompt: str, answer: str = "Done.", steps: int = 0) -> list[Message]:
    """Return a user message, some tool calls with results, and the answer."""
    messages = [Message("user", prompt)]
    for step in range(steps):
        call = ToolCall(f"c{step}", "read_file", f'{{"path": "src/{step}.py"}}')
        messages += [
            Message("assistant", None, tool_calls=(call,)),
            Message("tool", f"text of file {step}", tool_call_id=call.id),
        ]
    return [*messages, Message("assistant", answer)]


def stored(
    store: SessionStore, *prompts: str, id: str = "s", system: bool = False, steps: int = 0
) -> str:
    """Create a session with an answered turn for each prompt, and return its id."""
    store.create(id=id, model="gpt-4o", system=system)
    for prompt in prompts:
        store.append(id, *exchange(prompt, f"{prompt}: done.", steps))
    return id

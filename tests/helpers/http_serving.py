"""Run the HTTP server of sessions on loopback, with agents that use a scripted model."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import psutil
import uvicorn

from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, ToolCall
from ctxlab.serve.http import make_app
from ctxlab.sessions.sqlite.store import SqliteStore

ADDRESS = "http://127.0.0.1"


def answer(request: Request) -> Message | str:
    """Reply to the last message.

    Text after ``$`` is run as a command. The question "what did I say" is answered with all user
    messages. Other messages, and tool results, are repeated.
    """
    last = request.messages[-1]
    if last.role == "tool":
        return f"It said: {last.text[:300]}"
    if (command := last.text.partition("$ ")[2]) != "":
        arguments = json.dumps({"command": command})
        return Message("assistant", tool_calls=(ToolCall("c1", "run_command", arguments),))
    if "what did I say" in last.text:
        return " | ".join(m.text for m in request.messages if m.role == "user")
    return f"You said: {last.text}"


def scripted(script: Callable[[Request], Any] = answer) -> Callable[[Path], Agent]:
    """Return a function that creates an agent with workspace tools and the scripted model."""

    def made(workspace: Path) -> Agent:
        processes = ProcessManager()
        tools = workspace_tools(workspace, processes)
        client = ScriptedClient(script)
        return Agent("gpt-4o", tools=tools, client=client, processes=processes)

    return made


def bearer(token: str) -> dict[str, str]:
    """Return the authorization header for a token."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def serving(*workspaces: Path, authorized: bool = True, **options: Any) -> Iterator[httpx.Client]:
    """Run a server for the workspaces and yield a client; stop the server at the end of the block.

    If ``authorized``, the client sends the server's token with every request.
    """
    app = make_app(workspaces, **{"agent_for": scripted(), **options})
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        headers = bearer(app.state.token) if authorized else {}
        address = f"{ADDRESS}:{port}"
        with httpx.Client(base_url=address, headers=headers, timeout=60, trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


class Event(NamedTuple):
    name: str
    data: dict[str, Any]


def events_of(response: httpx.Response) -> Iterator[Event]:
    """Yield the server-sent events of a response when they arrive."""
    name = ""
    for line in response.iter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            yield Event(name, json.loads(value))


def said(client: httpx.Client, id: str, message: str, **more: Any) -> list[Event]:
    """Send a message to a session and return all events of the response."""
    body = {"message": message, **more}
    with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
        assert response.status_code == 200, response.read()
        return list(events_of(response))


def created(client: httpx.Client, workspace: Path, **more: Any) -> str:
    """Create a session and return its id."""
    response = client.post("/sessions", json={"workspacePath": str(workspace), **more})
    assert response.is_success, response.text
    return str(response.json()["sessionId"])


def sessions_at(workspace: Path) -> str:
    """Return the URL path of a workspace's sessions."""
    return f"/workspaces/{quote(str(workspace), safe='')}/sessions"


def chat(
    client: httpx.Client, message: str, file: str | None = None, **more: object
) -> httpx.Response:
    """Send a message to ``/chat`` with the path of the open file, and return the response."""
    return client.post("/chat", json={"message": message, "active_file": file, **more})


def stored(workspace: Path, id: str) -> list[Message]:
    """Read the messages of a session from disk."""
    store = SqliteStore(workspace)
    try:
        return list(store.read_messages(id))
    finally:
        store.close()


def commands(word: str) -> list[int]:
    """Return the ids of other running processes whose command line contains a word."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if word in line and process.info["status"] != "zombie" and process.pid != os.getpid():
            found.append(process.pid)
    return found


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition is true; fail after the given number of seconds."""
    latest = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < latest, f"condition still false after {seconds:g} s"
        time.sleep(0.01)

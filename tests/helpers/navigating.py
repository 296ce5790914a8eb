"""Sample sessions for tests of the MCP server, and clients for it in and out of process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult
from running import PROGRAM

from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import SessionLibrary, SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

T = TypeVar("T")
Asked = tuple[str, dict[str, Any]]

PARSER, LONG, EARLIER = "parser", "long", "earlier"
"""Ids of the sessions: the active session, one with a long turn, and one with many turns."""

TOKEN = "a-token-of-32-letters-or-so-00001"
"""Token of the HTTP servers."""

LENGTH = 2_000_000
"""Number of characters of the tool result in the long turn."""

HERE = Path(__file__).parents[2]
STDIO = (*PROGRAM, "serve", "mcp")
HTTP = (*STDIO, "--http")
"""Commands that start a server; tests append the path to serve."""

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def filled(store: SessionStore) -> SessionStore:
    """Create three sessions in a store; ``PARSER`` is the newest one and active."""
    call = ToolCall("c1", "read_file", '{"path": "src/parser.py"}')
    store.create(id=EARLIER, title="Counting")
    for number in range(1, 41):
        said = Message("user", f"count to {number}", time=1_700_000_000.0 + number)
        store.append(EARLIER, said, Message("assistant", f"counted {number} apples"))
    store.create(id=LONG, title="A long file")
    store.append(
        LONG,
        Message("user", "read it all"),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", "".join(f"{n:07d}\n" for n in range(LENGTH // 8)), tool_call_id="c1"),
        Message("assistant", "It counts."),
    )
    for id in (EARLIER, LONG):
        store.set_status(id, "closed")
    store.create(id=PARSER, model="gpt-4o")
    store.append(
        PARSER,
        Message("system", "You are careful."),
        Message("user", "Fix the parser in src/parser.py"),
        Message("assistant", "I look.", tool_calls=(call,)),
        Message("tool", "def parse(text): return text", tool_call_id="c1"),
        Message("assistant", "It ignores brackets."),
        Message("user", "Then write the docs, ünïcode too 🦊"),
        Message("assistant", "Written."),
    )
    store.retitle(PARSER, "Documentation of the parser", turn=2)
    store.save(PARSER)
    return store


def stored(kind: str, folder: Path) -> SessionStore:
    """Create a store in a folder, with three sessions, and return it."""
    made = SqliteStore(folder) if kind == "workspace" else JsonlStore(folder)
    return filled(made)


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine from a synchronous test; raise the first error of an exception group."""
    try:
        return anyio.run(work)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def asked(
    opened: AbstractAsyncContextManager[Client], *calls: Asked
) -> Callable[[], Awaitable[list[CallToolResult]]]:
    """Return a coroutine function that makes several tool calls with one client."""

    async def work() -> list[CallToolResult]:
        async with opened as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return work


def here(
    library: SessionLibrary, *calls: Asked, current: str | None = None
) -> list[CallToolResult]:
    """Call tools of an MCP server for a library in this process, without a transport."""
    from ctxlab.serve.mcp import make_server

    return run(asked(Client(make_server(library, current_session_id=current)), *calls))


def one(library: SessionLibrary, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, assert that it succeeds, and return its structured result."""
    (answer,) = here(library, (name, arguments))
    assert not answer.is_error, answer.content
    return dict(answer.structured_content or {})


def refused(library: SessionLibrary, name: str, **arguments: Any) -> str:
    """Call a tool, assert that it fails, and return the error message."""
    (answer,) = here(library, (name, arguments))
    assert answer.is_error
    assert answer.structured_content is None
    return text_of(answer)


def text_of(answer: CallToolResult) -> str:
    (part,) = answer.content
    assert part.type == "text"
    return part.text


def heard(process: subprocess.Popen[str]) -> str:
    """Read the address of an HTTP server from its standard error."""
    assert process.stderr
    line = process.stderr.readline()
    assert "http://" in line, line + process.stderr.read()
    return line[line.index("http://") :].strip()


def over_stdio(path: Path, mode: str = "auto") -> Client:
    """Return a client that starts a server process and uses its standard streams."""
    command, *arguments = STDIO
    server = StdioServerParameters(command=command, args=[*arguments, str(path)], cwd=HERE)
    return Client(server, mode=mode)


@contextmanager
def listening(path: Path, port: int = 0) -> Iterator[str]:
    """Start an HTTP server process with the token ``TOKEN``, yield its address, and stop it."""
    env = {**os.environ, "CTXLAB_TOKEN": TOKEN}
    command = [*HTTP, "--port", str(port), str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=HERE) as process:
        try:
            yield heard(process)
        finally:
            process.terminate()
            process.wait(60)


@asynccontextmanager
async def over_http(
    address: str, token: str | None = TOKEN, mode: str = "auto"
) -> AsyncIterator[Client]:
    """Yield a client of an HTTP server."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client

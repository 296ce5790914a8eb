"""Sessions to find one's way in, and the MCP server over them as a process of its own."""

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
"""Ids of the sessions: the active one, one with a long turn, and one of many turns."""

TOKEN = "a-token-of-32-letters-or-so-00001"
"""What the servers over HTTP are sent, and ask for."""

LENGTH = 2_000_000
"""Characters of the long turn's result."""

HERE = Path(__file__).parents[2]
STDIO = (*PROGRAM, "serve", "mcp")
HTTP = (*STDIO, "--http")
"""A server as a process of its own; what it serves is named behind it."""

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
    """Three sessions, of which ``PARSER`` was worked on last and is active."""
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
    store.retitle(PARSER, "Documentation of the parser", turn=3)
    store.save(PARSER)
    return store


def stored(kind: str, folder: Path) -> SessionStore:
    """A store of that kind, which any process can open by the same folder."""
    made = SqliteStore(folder) if kind == "workspace" else JsonlStore(folder)
    return filled(made)


def run(work: Callable[[], Awaitable[T]]) -> T:
    """The end of a coroutine, from a test that is none; an error in a group is that error."""
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
    """The answers of several tools, from one client."""

    async def work() -> list[CallToolResult]:
        async with opened as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return work


def here(
    library: SessionLibrary, *calls: Asked, current: str | None = None
) -> list[CallToolResult]:
    """What the tools answer over a library, to the SDK's client without any transport."""
    from ctxlab.serve.mcp import make_server

    return run(asked(Client(make_server(library, current_session_id=current)), *calls))


def one(library: SessionLibrary, name: str, **arguments: Any) -> dict[str, Any]:
    """The data of one answer, which is no error."""
    (answer,) = here(library, (name, arguments))
    assert not answer.is_error, answer.content
    return dict(answer.structured_content or {})


def refused(library: SessionLibrary, name: str, **arguments: Any) -> str:
    """The sentence of an answer that is an error."""
    (answer,) = here(library, (name, arguments))
    assert answer.is_error
    assert answer.structured_content is None
    return text_of(answer)


def text_of(answer: CallToolResult) -> str:
    (part,) = answer.content
    assert part.type == "text"
    return part.text


def heard(process: subprocess.Popen[str]) -> str:
    """The address that a server over HTTP says it has."""
    assert process.stderr
    line = process.stderr.readline()
    assert "http://" in line, line + process.stderr.read()
    return line[line.index("http://") :].strip()


def over_stdio(path: Path, mode: str = "auto") -> Client:
    """A client whose server is a process of its own."""
    command, *arguments = STDIO
    server = StdioServerParameters(command=command, args=[*arguments, str(path)], cwd=HERE)
    return Client(server, mode=mode)


@contextmanager
def listening(path: Path, port: int = 0) -> Iterator[str]:
    """The address of a server over HTTP, a process of its own, whose token is ``TOKEN``."""
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
    """A client of a server over HTTP."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client

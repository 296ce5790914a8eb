"""Tests of the MCP server with the official client over both transports, and of its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client, MCPError
from navigating import (
    EARLIER,
    HELLO,
    HERE,
    HTTP,
    LONG,
    PARSER,
    STDIO,
    TOKEN,
    asked,
    heard,
    here,
    listening,
    over_http,
    over_stdio,
    run,
    stored,
)

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.serve.auth import MAX_BODY_BYTES
from ctxlab.serve.mcp import serve_http
from ctxlab.serve.mcp.dispatch import TOOL_NAMES
from ctxlab.sessions.open import open_library
from ctxlab.sessions.sqlite.store import SqliteStore

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("current_session", {}),
    ("session_toc", {"session_id": EARLIER, "start": 3, "limit": 5}),
    ("session_title_history", {}),
    ("search_session", {"query": "parser"}),
    ("search_all_sessions", {"query": "apples", "limit": 3}),
    ("list_sessions", {"limit": 2}),
    ("get_turn", {"turn": 1, "session_id": LONG}),
    ("get_turns", {"start": 1}),
    ("get_interaction", {"interaction_id": f"{PARSER}:2"}),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("current_session", {"x": 1}),
    ("session_toc", {"session_id": "../../etc/passwd"}),
    ("session_title_history", {"session_id": "' OR 1=1 --"}),
    ("search_session", {"query": '"*'}),
    ("search_all_sessions", {"query": ""}),
    ("list_sessions", {"before": "tomorrow"}),
    ("get_turn", {"turn": 10**30}),
    ("get_turns", {"start": -1}),
    ("get_interaction", {"interaction_id": "x"}),
    ("no_such_tool", {}),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Create both kinds of stores and a folder of logs, once for all tests."""
    return cache(lambda kind: made(kind, tmp_path_factory.mktemp(kind)))


def made(kind: str, folder: Path) -> Path:
    if kind == "logs":
        exported = stored("chunks", folder / "store")
        for session in exported.sessions():
            lines = [json.dumps(m.to_dict()) for m in exported.read_messages(session.id)]
            (folder / "logs").mkdir(exist_ok=True)
            (folder / "logs" / f"{session.id}.jsonl").write_text("\n".join(lines))
        return folder / "logs"
    stored(kind, folder)
    return folder


@contextmanager
def connected(
    transport: str, path: Path, mode: str
) -> Iterator[AbstractAsyncContextManager[Client]]:
    """Start a server and yield a client of it."""
    if transport == "stdio":
        yield over_stdio(path, mode)
        return
    with listening(path) as address:
        yield over_http(address, mode=mode)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("kind", "transport", "mode"),
    [
        *(("workspace", "stdio", "auto"), ("workspace", "http", "auto")),
        *(("workspace", "stdio", "legacy"), ("workspace", "http", "legacy")),
        *(("chunks", "stdio", "auto"), ("logs", "http", "auto")),
    ],
)
def test_every_tool_answers_over_every_transport_as_it_does_without(
    kind: str, transport: str, mode: str, paths: Callable[[str], Path]
) -> None:
    """Seed 003, separation: any agent that speaks MCP has every tool, over stdio and over HTTP."""
    path = paths(kind)
    assert {name for name, _ in RIGHT} == set(TOOL_NAMES)
    with connected(transport, path, mode) as client:
        answers = run(asked(client, *RIGHT, *WRONG))
    expected = here(open_library(path), *RIGHT, *WRONG)
    for answer, same, (name, _) in zip(answers, expected, [*RIGHT, *WRONG], strict=True):
        assert answer.content == same.content, name
        assert answer.structured_content == same.structured_content, name
    assert [answer.is_error for answer in answers] == [False] * len(RIGHT) + [True] * len(WRONG)


@pytest.mark.e2e
def test_two_clients_read_a_store_that_is_written_meanwhile(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, fsync="never")
    store.create(id="live")
    store.append("live", Message("user", "number 0"))
    over = threading.Event()

    def write() -> None:
        number = 1
        while not over.is_set():
            store.append("live", Message("user", f"number {number}"))
            number += 1
            time.sleep(0.002)

    async def read(opened: AbstractAsyncContextManager[Client]) -> None:
        seen = 0
        async with opened as client:
            for _ in range(15):
                now = (await client.call_tool("current_session", {})).structured_content
                assert now["total_turns"] >= seen
                seen = now["total_turns"]
                turn = await client.call_tool("get_turn", {"turn": seen})
                (message,) = turn.structured_content["interaction"]["messages"]
                assert message["text"] == f"number {seen - 1}"
                found = await client.call_tool("search_session", {"query": f"number {seen - 1}"})
                assert found.structured_content["results"][0]["turn"] == seen
        assert seen > 1

    async def both(address: str) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(read, over_http(address))
            group.start_soon(read, over_http(address))
            group.start_soon(read, over_stdio(tmp_path))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with listening(tmp_path) as address:
            run(lambda: both(address))
    finally:
        over.set()
        writer.join()
        store.close()


@pytest.mark.e2e
def test_a_token_is_asked_of_every_request(tmp_path: Path) -> None:
    stored("workspace", tmp_path)
    with listening(tmp_path) as address:
        (answer,) = run(asked(over_http(address, TOKEN), ("current_session", {})))
        assert not answer.is_error
        for token in (None, TOKEN[:-1], TOKEN + "x"):
            with pytest.raises(MCPError):
                run(asked(over_http(address, token), ("current_session", {})))
            assert posted(address, token).status_code == 401


@pytest.mark.e2e
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_goes_on_with_a_server_that_was_started_again(mode: str, tmp_path: Path) -> None:
    stored("workspace", tmp_path)

    async def work() -> list[bool | None]:
        with listening(tmp_path) as address:
            port = int(address.rsplit(":", 1)[1].partition("/")[0])
            opened = over_http(address, mode=mode)
            client = await opened.__aenter__()
            answers = [await client.call_tool("current_session", {})]
        with listening(tmp_path, port=port):
            answers.append(await client.call_tool("current_session", {}))
            await opened.__aexit__(None, None, None)
        return [answer.is_error for answer in answers]

    assert run(work) == [False, False]


def posted(address: str, token: str | None = TOKEN, **more: Any) -> httpx.Response:
    """Send an HTTP request as a client would, without a client."""
    call = {"name": "current_session", "arguments": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream", **more.pop("headers", {})}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    with httpx.Client(trust_env=False) as client:
        content = more.pop("content", None) or json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
        return client.post(address, content=content, headers=headers, **more)


@pytest.mark.e2e
def test_a_page_of_another_site_and_a_body_that_is_too_long_are_refused(tmp_path: Path) -> None:
    stored("workspace", tmp_path)
    with listening(tmp_path) as address:
        assert posted(address).status_code == 200
        elsewhere = {"Origin": "https://evil.example"}
        assert posted(address, headers=elsewhere).status_code == 403
        assert posted(address, None, headers=elsewhere).status_code == 401
        assert posted(address, headers={"Origin": "http://localhost:6274"}).status_code == 200
        assert posted(address, content=b"x" * (MAX_BODY_BYTES + 1)).status_code == 413
        chunked = posted(address, content=iter([b"x" * 65_536] * 20))
        assert chunked.status_code == 413
        assert chunked.headers["content-type"] == "application/problem+json"
        assert posted(address, content=b"{no json").status_code == 400
        assert posted(address).json()["result"]["structuredContent"]["session_id"] == PARSER


@pytest.mark.e2e
def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    with listening(stored("workspace", tmp_path) and tmp_path) as address:
        port = int(address.rsplit(":", 1)[1].partition("/")[0])
        with pytest.raises(SpecError, match=f"port {port}"):
            serve_http(SqliteStore(tmp_path), port=port)


def begun(path: Path) -> subprocess.Popen[str]:
    """Start a server over stdio and wait for its first answer."""
    process = subprocess.Popen(
        [*STDIO, str(path)],
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(json.dumps(HELLO) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"]
    return process


@pytest.mark.e2e
@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_server_over_stdio_stops_at_once_with_its_pipe_open(
    told: signal.Signals, tmp_path: Path
) -> None:
    stored("workspace", tmp_path)
    with begun(tmp_path) as process:
        process.send_signal(told)
        assert process.wait(60) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "Cancelled\n")


@pytest.mark.e2e
def test_a_server_over_stdio_ends_with_its_client(tmp_path: Path) -> None:
    stored("workspace", tmp_path)
    with begun(tmp_path) as process:
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


@pytest.mark.e2e
@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_server_over_http_stops_while_a_client_listens(
    told: signal.Signals, tmp_path: Path
) -> None:
    stored("workspace", tmp_path)
    with (
        subprocess.Popen(
            [*HTTP, "--port", "0", str(tmp_path)],
            cwd=HERE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CTXLAB_TOKEN": TOKEN},
        ) as process,
        httpx.Client(trust_env=False) as client,
    ):
        address = heard(process)
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {TOKEN}"}
        with client.stream("GET", address, headers=headers) as held:
            assert held.status_code == 200
            process.send_signal(told)
            assert process.wait(60) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "Cancelled\n")


@pytest.mark.e2e
def test_standard_output_is_the_protocols_whatever_is_printed(tmp_path: Path) -> None:
    stored("workspace", tmp_path)
    code = """
import sys
from ctxlab.serve.mcp import serve_stdio
from ctxlab.sessions.sqlite.store import SqliteStore
class Loud(SqliteStore):
    def sessions(self, *given, **more):
        print("looking"); sys.stdout.flush()
        return super().sessions(*given, **more)
serve_stdio(Loud(sys.argv[1]))
"""
    from mcp import StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable, args=["-c", code, str(tmp_path)], cwd=os.getcwd()
    )
    (answer,) = run(asked(Client(server), ("current_session", {})))
    assert answer.structured_content["session_id"] == PARSER


@pytest.mark.e2e
def test_a_server_loads_nothing_heavy(tmp_path: Path) -> None:
    stored("workspace", tmp_path)
    code = """
import sys, ctxlab.cli
from ctxlab.serve.mcp import make_http_app, make_server
from ctxlab.sessions.open import open_library
make_http_app(make_server(open_library(sys.argv[1])))
heavy = {"litellm", "pandas", "matplotlib", "tiktoken", "openai", "PIL", "scipy"}
print(*heavy & set(sys.modules))
"""
    said = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == ""


@pytest.mark.e2e
@pytest.mark.parametrize(("missing", "more"), [("mcp", ()), ("uvicorn", ("--http",))])
def test_where_the_extra_is_not_installed_the_server_says_what_to_install(
    missing: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from ctxlab.cli import main; main()"
    stored("workspace", tmp_path)
    command = [sys.executable, "-c", code, "serve", "mcp", *more, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, input="", cwd=HERE, timeout=60)
    assert said.stdout == ""
    assert said.stderr.count("\n") == 1
    assert "run pip install '.[serve]' in a clone of ctxlab" in said.stderr


@pytest.mark.e2e
def test_lines_that_are_no_messages_stop_nothing(tmp_path: Path) -> None:
    stored("workspace", tmp_path)
    with begun(tmp_path) as process:
        for line in ("", "{", "[]", "null", '{"jsonrpc": "2.0"}', "\x00\x1f", "x" * 300_000):
            process.stdin.write(line + "\n")
        call = {"name": "current_session", "arguments": {}}
        asked_for = {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": call}
        process.stdin.write(json.dumps(asked_for) + "\n")
        process.stdin.flush()
        answers = iter(lambda: json.loads(process.stdout.readline()), None)
        last = next(each for each in answers if each.get("id") == "last")
        assert last["result"]["structuredContent"]["session_id"] == PARSER, last
        process.stdin.close()

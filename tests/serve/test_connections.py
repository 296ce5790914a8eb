"""Tests that slow and incomplete connections neither block the server nor fill its log."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_serving import bearer
from running import PROGRAM

from ctxlab.serve.connections import ConnectionLimits
from ctxlab.serve.runner import run_uvicorn

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits are those of POSIX")

TOKEN = "the-token"
DRIP = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 4000
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ASKED: dict[str, dict[str, Any]] = {
    "http": {"method": "GET", "url": "/health"},
    "mcp": {"method": "POST", "url": "/mcp", "json": CALL},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@contextmanager
def server(which: str, workspace: Path, files: int | None) -> Iterator[tuple[int, Path]]:
    """Start a server with a limit of open files; yield its port and the file of its stderr."""
    import resource

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    said = workspace / "stderr"
    over_http = ["--http"] if which == "mcp" else []
    command = [*PROGRAM, "serve", which, *over_http, "--port", "0"]
    env = {**os.environ, "CTXLAB_TOKEN": TOKEN, "CTXLAB_MODEL": ""}
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            command, cwd=workspace, stderr=errors, env=env, preexec_fn=limit
        ) as process,
    ):
        try:
            while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", said.read_text())):
                assert process.poll() is None, said.read_text()
                time.sleep(0.05)
            yield int(found[1]), said
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def dripping(port: int, count: int) -> Iterator[None]:
    """Keep ``count`` connections open that send one byte per second; reopen closed ones."""
    over, begun = threading.Event(), threading.Event()

    def opened() -> list[Any]:
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.setblocking(False)
        return [connection, 0]

    def drip() -> None:
        held: list[list[Any]] = []
        while not over.is_set():
            while len(held) < count and not over.is_set():
                try:
                    held.append(opened())
                except OSError:  # the queue of the system is full just now
                    break
            kept = []
            for each in held:
                connection, sent = each
                try:
                    connection.send(DRIP[sent : sent + 1])
                    each[1] += 1
                    if connection.recv(4096) != b"":
                        raise OSError("it was answered")
                except BlockingIOError:
                    kept.append(each)
                except OSError:
                    connection.close()
                else:
                    connection.close()
            held = kept
            begun.set()
            over.wait(1)
        for connection, _ in held:
            connection.close()

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        over.set()
        thread.join(60)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("which", "files"),
    [("http", None), ("http", 256), ("mcp", 256)],
    ids=["http", "http with 256 files", "mcp with 256 files"],
)
def test_a_client_is_served_within_5_seconds_while_300_connections_drip(
    which: str, files: int | None, tmp_path: Path
) -> None:
    with server(which, tmp_path, files) as (port, said), dripping(port, 300):
        address, before = f"http://127.0.0.1:{port}", said.stat().st_size
        for _ in range(8):  # for longer than a connection may be pending
            with httpx.Client(base_url=address, headers=ACCEPT, trust_env=False) as client:
                assert client.request(**ASKED[which], timeout=60).status_code == 401
                client.headers.update(bearer(TOKEN))
            began = time.monotonic()
            with httpx.Client(base_url=address, headers=client.headers, trust_env=False) as client:
                response = client.request(**ASKED[which], timeout=60)
            assert time.monotonic() - began < 5
            assert response.status_code == 200
            time.sleep(1.5)
        told = said.read_text()[before:]
        assert told.count("\n") <= 1, told


@contextmanager
def listening(app: Any, monkeypatch: pytest.MonkeyPatch, **limits: float) -> Iterator[int]:
    """Serve an app in this process with the given limits and yield its port."""
    import uvicorn

    made = ConnectionLimits(**limits)  # type: ignore[arg-type]
    monkeypatch.setattr(ConnectionLimits, "for_process", classmethod(lambda cls: made))
    servers: list[uvicorn.Server] = []
    startup = uvicorn.Server.startup

    async def noted(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        servers.append(self)
        await startup(self, sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", noted)
    heard: list[str] = []
    thread = threading.Thread(
        target=run_uvicorn,
        args=(app, "127.0.0.1", 0),
        kwargs={"on_listening": heard.append},
        daemon=True,
    )
    thread.start()
    until(lambda: heard and servers and servers[0].started)
    try:
        yield int(heard[0].rpartition(":")[2])
    finally:
        servers[0].should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def until(true: Callable[[], object]) -> None:
    latest = time.monotonic() + 60
    while not true():
        assert time.monotonic() < latest, "it did not come about"
        time.sleep(0.01)


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Answer later than the time limit for pending connections."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await asyncio.sleep(1.0)
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"done"})


def guarded() -> Any:
    from ctxlab.serve.auth import AuthMiddleware

    return AuthMiddleware(slow, TOKEN)


def connected(port: int, request: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(request)
    return made


def rest(connection: socket.socket) -> bytes:
    """Return all data that arrives until the server closes the connection."""
    said = b""
    try:
        while piece := connection.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    finally:
        connection.close()
    return said


RIGHT = f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
WRONG = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.e2e
def test_headers_that_are_not_whole_in_time_are_answered_408(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(guarded(), monkeypatch, pending_timeout=0.3) as port:
        for begun in (b"", b"G", RIGHT[:-2]):
            said = rest(connected(port, begun))
            assert said.startswith(b"HTTP/1.1 408 ")
            assert b"application/problem+json" in said


@pytest.mark.e2e
def test_a_request_with_the_token_may_take_its_time_and_so_may_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(guarded(), monkeypatch, pending_timeout=0.3) as port:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            for _ in range(2):
                assert client.get("/", headers=bearer(TOKEN), timeout=60).text == "done"
        both = connected(port, RIGHT + RIGHT)  # the second waits behind the first
        assert rest(both).count(b"done") == 2


@pytest.mark.e2e
@pytest.mark.parametrize(
    "request_",
    [
        WRONG,
        WRONG * 3 + RIGHT[:20],
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{",
    ],
    ids=["nothing more", "half another", "half a body"],
)
def test_a_connection_that_was_refused_has_no_more_time_than_one_that_said_nothing(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(guarded(), monkeypatch, pending_timeout=0.5) as port:
        held = connected(port, request_)
        over = threading.Event()

        def drip() -> None:
            while not over.wait(0.05):
                try:
                    held.send(b"x" if b"POST" in request_ else b"")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        said = rest(held)
        over.set()
        dripping.join()
        assert set(re.findall(rb"HTTP/1.1 (\d+)", said)) <= {b"401"}


@pytest.mark.e2e
def test_of_too_many_pending_connections_the_oldest_is_closed_and_none_with_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(guarded(), monkeypatch, max_open=8, max_pending=3) as port:
        working = connected(port, RIGHT[:-2] + b"Connection: close\r\n\r\n")
        time.sleep(0.2)
        pending = [connected(port, b"GET") for _ in range(3)]
        time.sleep(0.2)
        more = connected(port, b"GET")
        assert rest(pending[0]) == b""  # the first one, and no other
        for each in (*pending[1:], more):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)
            each.close()
        assert rest(working).endswith(b"done")


def test_limits_leave_half_of_the_files_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for files, most in ((64, 32), (256, 128), (1024, 512), (1 << 20, 1024), (-1, 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        limits = ConnectionLimits.for_process()
        assert limits.max_open == most
        assert limits.max_pending <= min(128, most // 2)
        # What was accepted but not counted yet, and what is closed but not gone yet.
        assert files == -1 or limits.max_open + 4 * limits.accept_batch_size <= files

"""Tests that another user of the machine cannot use a server without its token or read its files.

Servers, stores and caches are made under the widest umask, in a folder that everybody can enter.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from http_serving import bearer
from running import PROGRAM
from talking import talking

from ctxlab.messages.types import Message, ToolCall

pytestmark = pytest.mark.skipif(os.name == "nt", reason="accounts and modes are those of POSIX")

TOKEN = "the-token-of-the-owner"

MAKE = """
import sys
from pathlib import Path
from ctxlab.llm.base import Request
from ctxlab.cli.chat.input_history import InputHistory
from ctxlab.messages.types import Message
from ctxlab.llm import CachedClient, ScriptedClient
from ctxlab.sessions.jsonl.store import JsonlStore

folder = Path(sys.argv[1])
store = JsonlStore(folder / "chunks")
id = store.create(title="a secret").id
store.append(id, Message("user", "a secret"), Message("assistant", "kept"))
store.save(id)
client = CachedClient(ScriptedClient("an answer"), folder / ".ctxlab/calls")
client.complete(Request("gpt-4o", (Message("user", "a secret"),)))
InputHistory(folder / ".ctxlab/chat_history").store_string("a secret")
"""

# What another user does, who has nothing but the addresses and the names of files. Python is started
# before, since it may lie where that user cannot go.
LOOK = """
import encodings.idna, http.client, json, os, sys, urllib.parse
told = json.load(sys.stdin)
os.chdir("/")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
found = {"answers": [], "files": {}}
for address, method, path, body in told["requests"]:
    place = urllib.parse.urlsplit(address)
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer guessed"}):
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        headers = dict(headers, **({"Content-Type": "application/json"} if body else {}))
        connection.request(method, path, body, headers)
        found["answers"].append([method, path, connection.getresponse().status])
        connection.close()
for path in told["files"]:
    try:
        open(path, "rb").close()
        found["files"][path] = "opened"
    except OSError as error:
        found["files"][path] = type(error).__name__
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder that all users can enter, unlike pytest's folders."""
    made = Path(tempfile.mkdtemp(prefix="ctxlab-other-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Create a workspace with sessions, start both servers, and yield their addresses."""
    import pty

    workspace = folder / "workspace"
    workspace.mkdir(mode=0o755)
    workspace.chmod(0o755)
    typed, terminal = pty.openpty()
    command = [sys.executable, "-c", MAKE, str(workspace)]
    subprocess.run(command, stdin=terminal, umask=0, check=True)
    os.close(typed)
    os.close(terminal)
    call = ToolCall("c1", "run_command", '{"command": "id"}')
    with talking([Message("assistant", tool_calls=(call,)), "Done."]) as model:
        env = {
            **os.environ,
            **dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), model.address),
            "OPENAI_API_KEY": "sk-test",
            "CTXLAB_MODEL": "openai/gpt-4o-mini",
            "CTXLAB_TOKEN": TOKEN,
        }
        servers = []
        addresses = {}
        for which, arguments in {
            "http": ["http", "--workspace", str(workspace)],
            "mcp": ["mcp", "--http", str(workspace)],
        }.items():
            servers.append(
                subprocess.Popen(
                    [*PROGRAM, "serve", *arguments, "--port", "0"],
                    stderr=subprocess.PIPE,
                    text=True,
                    env=env,
                    umask=0,
                )
            )
            line = servers[-1].stderr.readline()
            addresses[which] = line[line.index("http://") :].strip().removesuffix("/mcp")
        try:
            with httpx.Client(
                base_url=addresses["http"], headers=bearer(TOKEN), trust_env=False
            ) as client:
                said = client.post("/chat", json={"message": "who am I?"}, timeout=120).json()
            assert said["response"] == "Done."
            yield {**addresses, "workspace": str(workspace), "session": said["session_id"]}
        finally:
            for server in servers:
                server.terminate()
                server.communicate(timeout=60)


def requests(served: dict[str, str]) -> list[tuple[str, str, str, str | None]]:
    """Return requests for all routes of both servers, and some others."""
    with httpx.Client(base_url=served["http"], headers=bearer(TOKEN), trust_env=False) as client:
        document = client.get("/openapi.json").json()
    values = {"path": quote(served["workspace"], safe=""), "id": served["session"]}
    values |= {"turn": "1", "call": "c1"}
    bodies: dict[str, Any] = {
        "/chat": {"message": "hi"},
        "/sessions": {"workspacePath": served["workspace"]},
        "/sessions/{id}/messages": {"message": "hi"},
        "/sessions/{id}/approvals/{call}": {"decision": "once"},
    }
    made = [
        (served["http"], method.upper(), path.format(**values), _json(bodies.get(path)))
        for path, methods in document["paths"].items()
        for method in methods
    ]
    assert {"POST /chat", "GET /health"} <= {f"{method} {path}" for _, method, path, _ in made}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for server in ("http", "mcp"):
        for path in ("/openapi.json", "/health", "/mcp", "/", "/no/such/address", "/docs"):
            made += [(served[server], method, path, None) for method in ("GET", "OPTIONS", "HEAD")]
            made.append((served[server], "POST", path, _json(call)))
    return made


def _json(body: object) -> str | None:
    return None if body is None else json.dumps(body)


def stored(workspace: Path) -> list[Path]:
    """Return all files and folders that belong to stored sessions."""
    made = [path for top in (".ctxlab", "chunks") for path in (workspace / top).rglob("*")]
    names = {path.name for path in made}
    assert {"sessions.db", "sessions.db-wal", "cache.db", "chat_history"} <= names
    assert any(name.endswith(".1.jsonl") for name in names)
    return [*made, workspace / ".ctxlab", workspace / "chunks"]


def seen_by_another(told: dict[str, Any]) -> dict[str, Any]:
    """Return what a process of another user can access."""
    command = [sys.executable, "-I", "-S", "-c", LOOK]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.e2e
def test_another_user_without_the_token_is_answered_401_and_can_read_no_file(
    served: dict[str, str],
) -> None:
    asked = requests(served)
    paths = stored(Path(served["workspace"]))
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; the modes are right")
    found = seen_by_another({"requests": asked, "files": [str(path) for path in paths]})
    assert len(found["answers"]) == 3 * len(asked)
    public = {(method, path) for method, path, status in found["answers"] if status != 401}
    assert public == {("GET", "/"), ("HEAD", "/")}  # the page, which contains no data itself
    assert set(found["files"]) == {str(path) for path in paths}
    assert {*found["files"].values()} == {"PermissionError"}


@pytest.mark.e2e
def test_another_user_cannot_read_the_files_one_by_one_either(served: dict[str, str]) -> None:
    """Where the folders were there before, with the usual mode, the files are closed themselves."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    workspace = Path(served["workspace"])
    paths = stored(workspace)
    folders = [path for path in paths if path.is_dir()]
    for path in folders:
        path.chmod(0o755)
    try:
        files = [str(path) for path in paths if not path.is_dir()]
        found = seen_by_another({"requests": [], "files": files})
        assert {*found["files"].values()} == {"PermissionError"}
    finally:
        for path in folders:
            path.chmod(0o700)

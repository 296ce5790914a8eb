"""Tests that no credential is printed or written: not by commands, errors, clients, or caches."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from running import PROGRAM

from ctxlab.errors import ModelRequestRejected, ReadError, SpecError, redact_urls
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results
from ctxlab.formats import LoadReport, load
from ctxlab.llm import CachedClient
from ctxlab.llm.base import Request
from ctxlab.llm.litellm import LiteLLMClient
from ctxlab.messages.types import Message

TURN = [{"role": "user", "content": "more " * 400}, {"role": "assistant", "content": "ho"}]
LOG = (json.dumps({"messages": TURN * 4}) + "\n").encode()
# Every secret contains this word.
WORD = "s3cret"


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(200, b"", len(LOG))

    def do_GET(self) -> None:
        status = 403 if "denied" in self.path else 404 if "missing" in self.path else 200
        self._answer(status, LOG if status == 200 else b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        echoed = f"wrong key {self.headers['Authorization']}, {self.headers['X-Api-Key']}, "
        echoed += f"http://me:{WORD}@host{self.path}?token={WORD}"
        self._answer(401, json.dumps({"error": {"message": echoed}}).encode())

    def _answer(self, status: int, content: bytes, size: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if size is None else size))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def signed(host: str, name: str = "a.jsonl") -> str:
    return f"http://me:{WORD}@{host}/{name}?token={WORD}.x"


def everything_in(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


@pytest.mark.e2e
def test_no_command_prints_or_writes_the_credentials_of_a_url_or_a_model(
    host: str, tmp_path: Path
) -> None:
    environ = os.environ | {
        "OPENAI_API_KEY": f"sk-{WORD}-0123456789",
        "OPENAI_API_BASE": f"http://{host}/v1",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    summary = "rolling_summary(model='openai/gpt-4o')"
    commands = [
        ["eval", signed(host), "-l", "1k", "-s", "full", "--out", "run"],
        ["eval", signed(host), "-l", "1k", "-s", summary, "--out", "asked"],
        ["eval", "run"],
        ["eval", signed(host, "denied.jsonl")],
        ["eval", signed(host, "missing.jsonl")],
        ["describe", signed(host), "--json"],
        ["describe", f"zip://*::{signed(host)}"],
    ]
    said = []
    for command in commands:
        ran = subprocess.run(
            [*PROGRAM, *command], cwd=tmp_path, env=environ, capture_output=True, text=True
        )
        said.append(ran.stdout + ran.stderr)
        assert "Traceback" not in said[-1]
    assert WORD not in "".join(said)
    assert WORD.encode() not in everything_in(tmp_path)
    assert "wrong key Bearer ***" in said[1]
    assert "name the URL again, with its credentials" in said[2]
    source = Results.load(tmp_path / "run").recordings[0]["source"]
    assert source == f"http://***@{host}/a.jsonl?***"


def test_a_recording_and_its_report_do_not_contain_the_credentials_of_its_url(host: str) -> None:
    report = LoadReport()
    found = list(load(signed(host), report=report))
    assert [recording.id for recording in found] == ["a"]
    manifest = evaluate(found, "full", 1000, data=[signed(host)], workers=1).manifest
    assert WORD not in f"{found}{report}{manifest}"
    with pytest.raises(ReadError) as caught:
        list(load(signed(host, "denied.jsonl")))
    assert WORD not in f"{caught.value}{vars(caught.value)}"


def test_a_url_whose_credentials_were_hidden_is_not_opened(host: str) -> None:
    with pytest.raises(SpecError, match="name the URL again, with its credentials"):
        load(redact_urls(signed(host)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a:b@host/x", "https://***@host/x"),
        ("https://a:b/c@host/x", "https://***@host/x"),
        ("https://host:80/x@1", "https://host:80/x@1"),
        ("http://a:b@[::1]:80/x?sig=1", "http://***@[::1]:80/x?***"),
        ("zip://*::https://host/x.zip?a=b&c=d", "zip://*::https://host/x.zip?***"),
        ("zip://run-?.json::logs.zip", "zip://run-?.json::logs.zip"),
        ("s3://bucket/x?X-Amz-Signature=b", "s3://bucket/x?***"),
        ("see https://host/x#access_token=b.", "see https://host/x#***."),
        ("no URL: a?b=c", "no URL: a?b=c"),
    ],
)
def test_the_credentials_of_a_url_are_hidden(text: str, shown: str) -> None:
    assert redact_urls(text) == shown
    assert redact_urls(shown) == shown


def test_a_client_shows_no_credentials_and_its_errors_neither(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ctxlab")
    client = LiteLLMClient(
        api_base=f"http://me:{WORD}@{host}/v1",
        api_key=f"{WORD}-key",
        extra_headers={"X-Api-Key": f"{WORD}-header"},
        retries=0,
    )
    cached = CachedClient(client, tmp_path / "cache")
    with pytest.raises(ModelRequestRejected) as caught:
        cached.complete(Request("openai/gpt-4o", (Message("user", "hi"),)))
    assert WORD not in f"{caught.value}{client!r}{cached!r}{caplog.text}"
    assert WORD.encode() not in everything_in(tmp_path)


def test_credentials_do_not_change_the_key_of_a_cached_reply(tmp_path: Path) -> None:
    def key(**options: object) -> str:
        client = CachedClient(LiteLLMClient(**options), tmp_path)
        return client.cache_key(Request("gpt-4o", (Message("user", "hi"),)))

    named = ("api_token", "extra_headers", "authorization", "aws_secret_access_key")
    assert {key(**{name: value}) for name in named for value in ("a", "b")} == {key()}
    assert key(base_url="http://a:b@host") == key(base_url="http://c:d@host")
    assert key(reasoning_effort="low") != key(reasoning_effort="high")

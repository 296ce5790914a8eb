"""Tests of invalid and hostile HTTP requests: each is refused with an error, and the server goes on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_serving import bearer, created, said, serving, sessions_at

from ctxlab.errors import SpecError
from ctxlab.sessions.sqlite.store import DATABASE_FILE


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def client(workspace: Path) -> Iterator[httpx.Client]:
    with serving(workspace, max_body=100_000, body_timeout=1.0) as client:
        yield client
        assert client.get("/health").json() == {"status": "ok"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def same(served: Path) -> Iterator[httpx.Client]:
    """Run one server for all tests that do not change its state."""
    with serving(served, max_body=100_000, body_timeout=1.0) as client:
        yield client


@pytest.fixture(autouse=True)
def _goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "same" in request.fixturenames:
        answer = request.getfixturevalue("same").get("/health")
        assert answer.json() == {"status": "ok"}


def refused(response: httpx.Response, *statuses: int) -> str:
    """Assert that the answer is a problem document with one of the statuses; return its detail."""
    assert response.status_code in statuses, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["type"] == "about:blank"
    assert problem["title"]
    assert "Traceback" not in response.text
    return str(problem["detail"])


def raw(client: httpx.Client, request: bytes, *more: bytes, pause: float = 0.0) -> bytes:
    """Send raw bytes in pieces, with the token added before ``Host``, and return the answer."""
    address = (client.base_url.host, client.base_url.port or 80)
    token = b"\r\nAuthorization: " + client.headers["authorization"].encode()
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(request.replace(b"\r\nHost:", token + b"\r\nHost:", 1))
        for piece in more:
            time.sleep(pause)
            try:
                connection.sendall(piece)
            except OSError:
                break
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
                if answer.endswith((b"}", b"0\r\n\r\n")):
                    break
        except OSError:
            pass
    return answer


def post(path: str, *headers: str, host: str = "localhost") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


# --- workspaces -----------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_folder_that_is_no_workspace_of_the_server_is_refused(
    client: httpx.Client, workspace: Path
) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    below = workspace / "below"
    below.mkdir()
    link = workspace / "link"
    link.symlink_to(outside)
    circle = workspace / "circle"
    circle.symlink_to(circle)
    for path in (outside, below, link, circle, Path("/"), workspace.parent, workspace / ".."):
        refused(client.get(sessions_at(path)), 403)
        refused(client.post("/sessions", json={"workspacePath": str(path)}), 403)
        refused(client.post("/chat", json={"message": "hi", "workspace": str(path)}), 403)
    assert not [*outside.rglob("*"), *below.rglob("*")]


@pytest.mark.e2e
def test_a_workspace_is_known_by_any_path_that_leads_to_it(
    client: httpx.Client, workspace: Path
) -> None:
    link = workspace.parent / "link"
    link.symlink_to(workspace)
    for path in (link, workspace / "." / "x" / "..", f"{workspace}/", f"//{workspace}"):
        assert client.get(sessions_at(Path(path))).status_code == 200
        assert client.post("/sessions", json={"workspacePath": str(path)}).status_code == 201


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "path",
    [
        "/workspaces/..%2f..%2fetc/sessions",
        "/workspaces/%2e%2e/%2e%2e/etc/sessions",
        "/workspaces/%2F..%2F..%2Fetc%2Fpasswd/sessions",
        "/workspaces/..%5c..%5cetc/sessions",
        "/workspaces/%252e%252e%252fetc/sessions",
        "/workspaces/%00/sessions",
        "/workspaces/a%00b/sessions",
        "/workspaces/%ff%fe/sessions",
        "/workspaces/%ed%a0%80/sessions",
        "/workspaces/" + "a" * 4000 + "/sessions",
        "/workspaces/~root/sessions",
        "/workspaces/$HOME/sessions",
        "/workspaces//sessions",
        "/workspaces/sessions",
        "/workspaces/../../etc/passwd",
        "/sessions/../../etc/passwd",
        "/api/v1/sessions/..%2F..%2Fetc%2Fpasswd/toc",
        "/api/v1/sessions/%2e%2e/toc",
        "/api/v1/sessions/%00/toc",
        "/api/v1/sessions/a%20b/toc",
        "/api/v1/sessions/" + "a" * 5000 + "/toc",
        "/api/v1/sessions/x'%20OR%20'1'='1/toc",
        "/api/v1/sessions/no-such/toc",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/openapi.json/../../x",
    ],
)
def test_addresses_that_lead_out_are_refused(same: httpx.Client, path: str) -> None:
    answer = raw(same, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] in (b"403", b"404", b"422"), head
    assert b"application/problem+json" in head
    assert b"root:" not in body
    assert json.loads(body)["detail"]


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_body_that_is_too_large_is_refused_however_it_is_sent(client: httpx.Client) -> None:
    big = json.dumps({"message": "x" * 200_000}).encode()
    assert "100,000" in refused(client.post("/chat", content=big), 413)

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(big), 10_000):
            yield big[start : start + 10_000]

    headers = {"content-type": "application/json"}
    refused(client.post("/chat", content=pieces(), headers=headers), 413)
    # Said to be huge, and never sent.
    answer = raw(client, post("/chat", "Content-Length: 99999999999999999999"))
    assert answer.split()[1] in (b"413", b"400")
    # Said to be short: what comes after it is no part of it.
    lying = raw(client, post("/chat", "Content-Length: 5") + big)
    assert lying.split()[1] in (b"400", b"422")


@pytest.mark.e2e
def test_the_largest_body_that_is_allowed_is_taken(client: httpx.Client) -> None:
    empty = len(json.dumps({"message": ""}))
    fits = json.dumps({"message": "x" * (100_000 - empty)}).encode()
    headers = {"content-type": "application/json"}
    assert client.post("/chat", content=fits, headers=headers).status_code == 200
    refused(client.post("/chat", content=fits + b" ", headers=headers), 413)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b'"text"',
        b"{",
        b"{}",
        b'{"message": null}',
        b'{"message": 1}',
        b'{"message": ""}',
        b'{"message": " \\n\\t "}',
        b'{"message": "hi", "active_file": 1}',
        b'{"message": "hi", "active_file": ["a"]}',
        b'{"message": "hi", "session_id": {}}',
        b'{"message": NaN}',
        b'{"message": Infinity}',
        b'{"message": "hi", "workspace": 1e999}',
        b'{"message": "\\ud800"}',
        b'{"message": "hi", "active_file": "\\udfff"}',
        b'{"message": "\xff\xfe"}',
        b'\xef\xbb\xbf{"message": "hi"}'[:-1],
        b'{"message": "hi"} trailing',
        b'{"message": ' + b"9" * 5000 + b"}",
        b"[" * 50_000,
        b'{"a":' * 10_000,
        b"message=hi",
        b"\x00" * 100,
        b'{"message": "hi", "workspace": "\\u0000"}',
        b'{"message": "hi", "workspace": "' + b"a" * 5000 + b'"}',
    ],
)
def test_a_body_that_makes_no_sense_is_refused(same: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    for path in ("/chat", "/sessions", "/sessions/no-such/messages"):
        detail = refused(same.post(path, content=body, headers=headers), 400, 403, 404, 422)
        assert len(detail) < 2000


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json", "é"]
)
def test_a_body_that_is_said_to_be_no_json_is_refused(same: httpx.Client, kind: str) -> None:
    """A form of a page of another site could send these without being asked about."""
    headers = {"content-type": kind.encode()}
    body = b'{"message": "hi"}'
    refused(same.post("/chat", content=body, headers=headers), 415)  # type: ignore[arg-type]


@pytest.mark.e2e
def test_a_body_that_comes_slowly_is_not_waited_for_and_nobody_waits_behind_it(
    client: httpx.Client,
) -> None:
    slow = raw(client, post("/chat", "Content-Length: 50"), *[b"{"] * 15, pause=0.1)
    assert slow.split()[1] == b"408"
    assert b"application/problem+json" in slow
    chunked = post("/chat", "Transfer-Encoding: chunked") + b"1\r\n{\r\n"
    assert raw(client, chunked, *[b"1\r\n \r\n"] * 15, pause=0.1).split()[1] == b"408"


@pytest.mark.e2e
def test_many_slow_clients_keep_nobody_from_an_answer(client: httpx.Client) -> None:
    address = (client.base_url.host, client.base_url.port or 80)
    waiting = [socket.create_connection(address, timeout=60) for _ in range(60)]
    try:
        for number, each in enumerate(waiting):
            each.sendall(post("/chat", "Content-Length: 50")[: 20 + number])
        start = time.monotonic()
        assert client.post("/chat", json={"message": "hi"}).status_code == 200
        assert time.monotonic() - start < 30  # one after the other they would hold it up for longer
    finally:
        for each in waiting:
            each.close()


@pytest.mark.parametrize(
    "request_",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n\r\n\x00\xff\r\n\r\n"],
)
def test_what_is_no_http_is_refused(same: httpx.Client, request_: bytes) -> None:
    answer = raw(same, request_ + b"\r\n\r\n")
    assert answer == b"" or answer.split()[1] == b"400"


# --- who asks -------------------------------------------------------------------------------------


def every_route(workspace: Path) -> list[tuple[str, str, Any]]:
    return [
        ("GET", "/health", None),
        ("GET", "/openapi.json", None),
        ("POST", "/chat", {"message": "hi"}),
        ("GET", sessions_at(workspace), None),
        ("POST", "/sessions", {"workspacePath": str(workspace)}),
        ("POST", "/sessions/x/messages", {"message": "hi"}),
        ("DELETE", "/sessions/x", None),
        ("GET", "/api/v1/sessions/x/toc", None),
        ("GET", "/api/v1/sessions/x/turns/1", None),
        ("GET", "/api/v1/sessions/x/search?q=a", None),
        ("GET", "/api/v1/sessions", None),
        ("GET", "/api/v1/sessions/x", None),
        ("GET", "/api/v1/search?q=a", None),
        ("POST", "/", None),
        ("GET", "/page/", None),
        ("GET", "/page/page.html", None),
        ("GET", "/no/such/address", None),
    ]


@pytest.mark.e2e
def test_without_the_right_token_nothing_is_answered(workspace: Path) -> None:
    wrong = [
        *({}, {"authorization": ""}, {"authorization": "Bearer"}),
        *({"authorization": "Bearer wrong"}, {"authorization": "Basic c2VjcmV0"}),
        *({"authorization": "secret"}, {"authorization": "Bearer secret2"}),
        *({"authorization": "Bearer secre"}, {"cookie": "token=secret"}),
    ]
    with serving(workspace, authorized=False, token="secret") as client:
        for headers in wrong:
            for method, path, body in every_route(workspace):
                response = client.request(method, path, json=body, headers=headers)
                refused(response, 401)
                assert response.headers["www-authenticate"] == "Bearer"
        assert not list(workspace.iterdir())
        right = {"authorization": "Bearer secret"}
        for method, path, body in every_route(workspace):
            assert client.request(method, path, json=body, headers=right).status_code != 401


@pytest.mark.e2e
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]"]
)
def test_a_page_under_a_name_that_leads_here_by_a_trick_has_no_token(
    same: httpx.Client, served: Path, host: str
) -> None:
    """DNS rebinding: the page's own name resolves to this machine."""
    with httpx.Client(base_url=same.base_url, trust_env=False) as page:
        for method, path, body in every_route(served):
            for headers in ({"host": host}, {"host": host, "origin": f"http://{host}"}):
                refused(page.request(method, path, json=body, headers=headers), 401)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example"]
)
def test_a_page_of_another_site_is_refused_with_the_token_too_and_told_nothing(
    client: httpx.Client, workspace: Path, origin: str
) -> None:
    for method, path, body in every_route(workspace):
        response = client.request(method, path, json=body, headers={"origin": origin})
        refused(response, 403)
        assert "access-control-allow-origin" not in response.headers
    asked = {"origin": origin, "access-control-request-method": "POST"}
    assert client.options("/chat", headers=asked).status_code == 403
    assert not list(workspace.iterdir())


def test_a_page_of_an_allowed_site_needs_the_token_and_is_answered(tmp_path: Path) -> None:
    """Seed 000, request flow: the plugin of an editor, whose page has an origin of its own."""
    origin = "app://obsidian.md"
    with serving(tmp_path, authorized=False, token="right", allowed_origins=[origin]) as client:
        asked = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        assert (
            client.options("/chat", headers=asked).headers["access-control-allow-origin"] == origin
        )
        body = {"message": "hello", "file": "a.md"}
        told = client.post("/chat", json=body, headers={"origin": origin})
        assert (told.status_code, told.headers["access-control-allow-origin"]) == (401, origin)
        told = client.post("/chat", json=body, headers={"origin": origin, **bearer("right")})
        assert (told.status_code, told.headers["access-control-allow-origin"]) == (200, origin)
        other = {"origin": "https://evil.example", **bearer("right")}
        refused(client.post("/chat", json=body, headers=other), 403)
    for wrong in (
        "*",
        "null",
        "obsidian.md",
        "https://a.example/",
        "http://a:b",
        "https://*.example",
    ):
        with (
            pytest.raises(SpecError, match="Expected an origin"),
            serving(tmp_path, allowed_origins=[wrong]),
        ):
            pass


# --- queries and ids ------------------------------------------------------------------------------

QUERIES = [
    *(
        "' OR 1=1 --",
        "'; DROP TABLE chat_sessions; --",
        '"',
        "'",
        "*",
        "a*",
        "a AND",
        "OR",
        "NOT b",
    ),
    *(
        "NEAR(a b, 5)",
        "title:x",
        "{a b}:c",
        "(",
        ")",
        "^a",
        "a + b",
        "-a",
        "a OR b NOT c",
        '"a" "b',
    ),
    *(
        "%",
        "_",
        "\\",
        "\x00",
        "a\x00b",
        "\ufffe",
        "\U0001f600",
        "a" * 1000,
        "( " * 400,
        "?",
        "?1",
        ":x",
    ),
]


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_words_whatever_it_looks_like(
    same: httpx.Client, served: Path, query: str
) -> None:
    id = created(same, served)
    said(same, id, "the walrus sleeps")
    response = same.get(f"/api/v1/sessions/{id}/search", params={"q": query})
    assert response.status_code == 200
    assert response.json()["query"] == query
    found = same.get(f"/api/v1/sessions/{id}/search", params={"q": "walrus"}).json()["results"]
    assert found
    assert (served / DATABASE_FILE).is_file()


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "query",
    [
        *(
            "q=",
            "",
            "q=" + "a" * 1001,
            "q=a&limit=0",
            "q=a&limit=-1",
            "q=a&limit=1001",
            "q=a&limit=x",
        ),
        *("q=a&offset=-1", "q=a&offset=99999999999", "q=a&limit=" + "9" * 5000, "q=a&limit=1e3"),
        "q=a&limit=" + "%00",
    ],
)
def test_a_query_that_is_out_of_bounds_is_refused(same: httpx.Client, query: str) -> None:
    refused(same.get(f"/api/v1/sessions/x/search?{query}"), 422)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "number", ["0", "-1", "x", "1.5", "1.0", "1.", "99999999999", "9" * 400, "%00", "1%2F2", "１"]
)
def test_a_turn_is_a_number_that_can_be(same: httpx.Client, served: Path, number: str) -> None:
    id = created(same, served)
    said(same, id, "hello")
    response = same.get(f"/api/v1/sessions/{id}/turns/{number}")
    if number == "１":  # a one, in the letters of another script
        assert response.status_code in (200, 422)
    else:
        refused(response, 404, 422)


@pytest.mark.e2e
def test_a_session_is_not_resumed_under_an_id_that_is_none(
    client: httpx.Client, workspace: Path
) -> None:
    for id in ("../x", "a/b", "", ".", "..", ".x", "a" * 101, "x\x00", "x'; --", "é", "a b"):
        body = {"workspacePath": str(workspace), "sessionId": id}
        refused(client.post("/sessions", json=body), 422)
    assert not list(workspace.iterdir())


def test_a_method_that_an_address_does_not_take_is_refused(same: httpx.Client) -> None:
    for method, path in (("GET", "/chat"), ("PUT", "/sessions"), ("TRACE", "/health")):
        response = same.request(method, path)
        refused(response, 405)
        assert response.headers["allow"]


def test_a_store_that_is_broken_is_a_failure_that_is_told_without_a_traceback(
    client: httpx.Client, workspace: Path
) -> None:
    (workspace / DATABASE_FILE).parent.mkdir()
    (workspace / DATABASE_FILE).write_bytes(b"this is no database" * 100)
    refused(client.get(sessions_at(workspace)), 500)
    refused(client.post("/chat", json={"message": "hi"}), 500)

"""Tests of authorization: requests are checked first, and refusals are problem details."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import SpecError
from ctxlab.serve.auth import AuthMiddleware, check_or_generate_token

TOKEN = "a-token"
RIGHT = f"Bearer {TOKEN}"
HEADERS = [(b"authorization", RIGHT.encode())]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body, then wait until the client disconnects."""
    length, more = 0, True
    while more:
        part = await receive()
        length, more = length + len(part["body"]), part.get("more_body", False)
    assert (await receive())["type"] == "http.disconnect"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


def answered(
    middleware: AuthMiddleware, *parts: bytes, kind: str = "http", **headers: str | list[str]
) -> tuple[Any, bytes, dict[bytes, bytes]]:
    """Return status, body and headers of the answer to a request."""
    pairs = [
        (name.replace("_", "-").encode(), each.encode("latin-1"))
        for name, values in headers.items()
        for each in ([values] if isinstance(values, str) else values)
    ]
    waiting = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts or (b"",), 1)
    ]
    waiting += [{"type": "http.disconnect"}]
    sent = list[Any]()

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(middleware({"type": kind, "headers": pairs}, receive, send))
    first = sent[0]
    return (
        first.get("status", first["type"]),
        sent[-1].get("body", b""),
        dict(first.get("headers", ())),
    )


def test_the_token_is_asked_and_nothing_else_will_do() -> None:
    middleware = AuthMiddleware(app, TOKEN)
    for right in ("Bearer a-token", "bearer a-token", "BEARER  a-token"):
        assert answered(middleware, authorization=right)[0] == 200
    wrong: list[Any] = ["", "Bearer", "Bearer ", "Basic a-token", "a-token", "Bearer a-token x"]
    wrong += ["Bearer A-TOKEN", "Bearer a-toke", "Bearer a-tokenn", "Bearer ä-token"]
    wrong += [["Bearer a-token", "Bearer no"], ["Bearer no", "Bearer a-token"]]
    for each in wrong:
        status, body, headers = answered(middleware, authorization=each)
        assert (status, headers[b"www-authenticate"]) == (401, b"Bearer")
        assert headers[b"content-type"] == b"application/problem+json"
        problem = json.loads(body)
        assert problem.keys() == {"type", "title", "status", "detail"}
        assert TOKEN not in body.decode()
    assert answered(middleware)[0] == 401
    assert answered(middleware, kind="websocket")[0] == "websocket.close"


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 100))
def test_a_body_is_whole_or_refused_however_it_comes(parts: list[bytes], limit: int) -> None:
    whole = sum(map(len, parts))
    status, body, _ = answered(
        AuthMiddleware(app, TOKEN, max_body=limit), *parts, authorization=RIGHT
    )
    assert (status, body) == (200, str(whole).encode()) if whole <= limit else status == 413


@given(st.integers(0, 10**30))
def test_a_body_that_is_said_to_be_too_long_is_not_read(length: int) -> None:
    middleware = AuthMiddleware(app, TOKEN, max_body=1_000)
    status, _, _ = answered(middleware, b"", authorization=RIGHT, content_length=str(length))
    assert status == (200 if length <= 1_000 else 413)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8000"}, 200),
        ({"host": "example.org"}, 200),
        ({"host": "[::1"}, 200),
        ({"host": "127.0.0.1", "origin": "http://localhost:3000"}, 200),
        ({"host": "example.org:443", "origin": "https://example.org"}, 200),
        ({"host": "127.0.0.1", "origin": "https://evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example", "origin": "https://evil.example"}, 403),
        ({"host": "", "origin": "https://"}, 403),
        ({"host": "[::1", "origin": "http://[::1"}, 403),
        ({"origin": ["http://localhost", "https://evil.example"]}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_with_the_token_pages_of_other_sites_are_refused_and_without_it_everybody(
    headers: dict[str, Any], status: int
) -> None:
    assert answered(AuthMiddleware(app, TOKEN), authorization=RIGHT, **headers)[0] == status
    assert answered(AuthMiddleware(app, TOKEN), **headers)[0] == 401


def test_a_guard_without_a_token_makes_one_that_nobody_guesses() -> None:
    middlewares = [AuthMiddleware(app) for _ in range(3)]
    assert len({middleware.token for middleware in middlewares}) == 3
    for middleware in middlewares:
        assert len(middleware.token) >= 43
        assert answered(middleware)[0] == 401
        assert answered(middleware, authorization="Bearer None")[0] == 401
        assert answered(middleware, authorization=f"Bearer {middleware.token}")[0] == 200


@pytest.mark.parametrize("token", ["", " ", "two words", "ä", "a\n", "a\0"])
def test_a_token_that_no_header_carries_is_refused(token: str) -> None:
    with pytest.raises(SpecError, match="printable ASCII") as told:
        check_or_generate_token(token)
    assert not token.strip() or token not in str(told.value)


@pytest.mark.parametrize("parts", [[], [b"{", b"}"]], ids=["nothing", "a piece at a time"])
def test_a_body_that_is_not_whole_in_time_is_refused_and_not_given_on(parts: list[bytes]) -> None:
    sent, given_on = list[Any](), list[Any]()
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def never(scope: Any, receive: Any, send: Any) -> None:
        given_on.append(scope)

    async def receive() -> Any:
        if not coming:
            await asyncio.Event().wait()
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    middleware = AuthMiddleware(never, TOKEN, body_timeout=0.05)
    asyncio.run(middleware({"type": "http", "headers": HEADERS}, receive, send))
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"connection"]) == (408, b"close")
    assert json.loads(sent[1]["body"])["title"] == "Request Timeout"
    assert not given_on


def test_what_a_client_broke_off_is_not_given_on() -> None:
    sent, given_on = list[Any](), list[Any]()
    coming = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def never(scope: Any, receive: Any, send: Any) -> None:
        given_on.append(scope)

    async def receive() -> Any:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(AuthMiddleware(never, TOKEN)({"type": "http", "headers": HEADERS}, receive, send))
    assert (sent, given_on) == ([], [])

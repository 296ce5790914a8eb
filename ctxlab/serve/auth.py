"""A server answers whoever has its token, and nobody else.

Both servers stand behind ``AuthMiddleware``: it looks at a request before the server does. What it
refuses it answers with problem details (RFC 9457).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ctxlab.errors import SpecError

__all__ = [
    "BODY_TIMEOUT",
    "MAX_BODY_BYTES",
    "ON_AUTHENTICATED_KEY",
    "ASGIApp",
    "AuthMiddleware",
    "check_or_generate_token",
    "is_loopback",
    "problem_details",
]

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
"""A server as ASGI has it."""

_Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

MAX_BODY_BYTES = 1_000_000
"""Bytes of a request's body at most, where nothing else is said."""

BODY_TIMEOUT = 30.0
"""Seconds in which a body must have come, so that slow clients hold nothing for long."""

ON_AUTHENTICATED_KEY = "ctxlab.authenticated"
"""The key of an ASGI scope whose function ``AuthMiddleware`` calls once the token was right."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name other than localhost is not looked up.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "db.local")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_or_generate_token(token: str | None) -> str:
    """Check a token, or make a random one where there is none.

    Parameters
    ----------
    token : str or None
        What clients must send. None: 32 random bytes, as 43 characters that need no escaping in a URL.

    Returns
    -------
    str
        The token.

    Raises
    ------
    SpecError
        If no header could carry the token: it is empty, or not all printable ASCII without spaces.

    Examples
    --------
    >>> check_or_generate_token("a-token"), len(check_or_generate_token(None))
    ('a-token', 43)
    >>> check_or_generate_token("")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: Expected a token of printable ASCII without spaces, got an empty one; \
leave it out for a random one
    """
    if token is None:
        return secrets.token_urlsafe(32)
    if not token or not all("!" <= letter <= "~" for letter in token):
        got = "one with other characters" if token else "an empty one"
        raise SpecError(
            f"Expected a token of printable ASCII without spaces, got {got}; "
            "leave it out for a random one"
        )
    return token


def problem_details(status: int, detail: str) -> dict[str, Any]:
    """What went wrong, as RFC 9457 has it.

    >>> problem_details(401, "send a token")["title"]
    'Unauthorized'
    """
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail}


class AuthMiddleware:
    """Lets a request through to ``app`` if it brings the token, is not too long and came in time.

    401: the token is missing or wrong (compared in constant time). 403: the request comes from a web
    page of another site (``Origin``). 413: the body has more than ``max_body`` bytes, whether or not
    its length was told. 408: it was not whole after ``body_timeout``. The server sees none of these,
    nor what a client broke off.

    No ``Host`` is refused: a page that reaches the server under a name of its own (DNS rebinding) has no
    token to send. ``Origin`` is looked at because the MCP specification asks for it.

    Parameters
    ----------
    app : ASGIApp
        The server behind it.
    token : str or None
        What a request must bring as ``Authorization: Bearer TOKEN``. None: a random one.
    max_body : int
        Bytes of a body at most.
    body_timeout : float
        Seconds in which a body must have come.

    Attributes
    ----------
    token : str
        The token that is asked for.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None = None,
        max_body: int = MAX_BODY_BYTES,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        self.app = app
        self.token = check_or_generate_token(token)
        self.body_timeout = body_timeout
        self.max_body = max_body

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """One request, as ASGI calls a server."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = self._check_headers(scope["headers"])
        if (refusal is None or refusal[0] != 401) and ON_AUTHENTICATED_KEY in scope:
            scope[ON_AUTHENTICATED_KEY]()
        if scope["type"] != "http":
            if refusal is None:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        too_long = (413, f"a request has at most {self.max_body:,} bytes")
        if refusal is None and _declared_length(scope["headers"]) > self.max_body:
            refusal = too_long
        if refusal is None:
            try:
                async with asyncio.timeout(self.body_timeout):
                    body = await _read_body(receive, self.max_body)
            except TimeoutError:
                refusal = 408, f"the request was not whole after {self.body_timeout:g} seconds"
            else:
                if body is not None and body[-1]["type"] == "http.disconnect":
                    return  # nobody is there to be answered
                if body is not None:
                    await self.app(scope, _prepend_received(body, receive), send)
                    return
                refusal = too_long
        await _send_problem(send, *refusal)

    def _check_headers(self, headers: _Headers) -> tuple[int, str] | None:
        """Status and reason, where the headers are enough to say no."""
        values_by_header: dict[bytes, list[bytes]] = {
            b"authorization": [],
            b"origin": [],
            b"host": [],
        }
        for name, value in headers:
            if name in values_by_header:
                values_by_header[name].append(value)
        sent = values_by_header[b"authorization"]
        scheme, _, word = (sent[0] if len(sent) == 1 else b"").partition(b" ")
        right = hmac.compare_digest(word.strip(), self.token.encode())
        if not right or scheme.lower() != b"bearer":
            return 401, "send the server's token: Authorization: Bearer TOKEN"
        hosts = {
            _parse_hostname("//" + value.decode("latin-1")) for value in values_by_header[b"host"]
        }
        for value in values_by_header[b"origin"]:
            origin = _parse_hostname(value.decode("latin-1"))
            if not origin or not (is_loopback(origin) or origin in hosts):
                return 403, "this server answers no pages of other sites"
        return None


def _parse_hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _declared_length(headers: _Headers) -> int:
    """The length that the body is said to have; 0 where nothing is said."""
    said = [value for name, value in headers if name == b"content-length" and value.isdigit()]
    return max((int(value[:18]) for value in said), default=0)  # more digits are too many anyway


async def _read_body(receive: _Receive, limit: int) -> list[MutableMapping[str, Any]] | None:
    """The parts of a body, or what came instead of its end; None where it is too long."""
    parts, length = [], 0
    while length <= limit:
        parts.append(part := await receive())
        length += len(part.get("body", b""))
        if part["type"] != "http.request" or not part.get("more_body"):
            break
    return parts if length <= limit else None


def _prepend_received(received: list[MutableMapping[str, Any]], receive: _Receive) -> _Receive:
    """Gives what was received already, then goes on."""
    waiting = iter(received)

    async def receive_next() -> MutableMapping[str, Any]:
        part = next(waiting, None)
        return await receive() if part is None else part

    return receive_next


async def _send_problem(send: _Send, status: int, detail: str) -> None:
    body = json.dumps(problem_details(status, detail)).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),
        *([(b"connection", b"close")] if status == 408 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

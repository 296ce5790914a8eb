"""Token authentication and request limits of both servers.

Both servers run behind ``AuthMiddleware``, which checks each request first. Refusals are problem
details (RFC 9457).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ctxlab.errors import SpecError

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
"""An ASGI application."""

_Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

MAX_BODY_BYTES = 1_000_000
"""Default maximum size of a request body, in bytes."""

BODY_TIMEOUT = 30.0
"""Default time limit for receiving a body, in seconds, so that slow clients hold no resources."""

ON_AUTHENTICATED_KEY = "ctxlab.authenticated"
"""Key in the ASGI scope of a function that is called when a request has the right token."""


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address.

    Names other than localhost are not resolved.

    Parameters
    ----------
    host : str
        IP address or host name.

    Returns
    -------
    bool
        True for a loopback address or localhost.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "db.local")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_or_generate_token(token: str | None) -> str:
    """Check a token, or generate a random one.

    Parameters
    ----------
    token : str or None
        Token that clients must send. None generates 32 random bytes, written as 43 characters that
        need no escaping in a URL.

    Returns
    -------
    str
        The token.

    Raises
    ------
    SpecError
        If a header cannot carry the token: it is empty, or not all printable ASCII without spaces.

    Examples
    --------
    >>> check_or_generate_token("a-token"), len(check_or_generate_token(None))
    ('a-token', 43)
    >>> check_or_generate_token("")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: expected a token of printable ASCII without spaces, got an empty one; \
leave it out to generate a random one
    """
    if token is None:
        return secrets.token_urlsafe(32)
    if not token or not all("!" <= letter <= "~" for letter in token):
        got = "one with other characters" if token else "an empty one"
        raise SpecError(
            f"expected a token of printable ASCII without spaces, got {got}; "
            "leave it out to generate a random one"
        )
    return token


def problem_details(status: int, detail: str) -> dict[str, Any]:
    """Build the problem details of an error, as defined by RFC 9457.

    Parameters
    ----------
    status : int
        HTTP status code.
    detail : str
        Explanation of the error.

    Returns
    -------
    dict
        JSON object with ``type``, ``title``, ``status`` and ``detail``.

    References
    ----------
    RFC 9457, Problem Details for HTTP APIs.

    Examples
    --------
    >>> problem_details(401, "send a token")["title"]
    'Unauthorized'
    """
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail}


class AuthMiddleware:
    """ASGI middleware that checks the token, size and duration of each request.

    Requests that fail a check are not passed to ``app``. They are answered with these statuses:

    - 401: the token is missing or wrong (compared in constant time)
    - 403: the request comes from a web page of another site (``Origin``)
    - 408: the body was not complete after ``body_timeout``
    - 413: the body has more than ``max_body`` bytes, whether or not its length was declared

    A request that the client aborts is dropped.

    ``Host`` is not checked: a page that reaches the server under its own name (DNS rebinding) has
    no token to send. ``Origin`` is checked because the MCP specification requires it.

    Parameters
    ----------
    app : ASGIApp
        Application to protect.
    token : str, optional
        Token that requests must send as ``Authorization: Bearer TOKEN``. By default, a random one.
    max_body : int, default 1_000_000
        Maximum size of a body in bytes.
    body_timeout : float, default 30.0
        Time limit for receiving a body, in seconds.

    Attributes
    ----------
    token : str
        Token that requests must send.
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
        """Handle one ASGI request."""
        body: _Receive | None = receive
        try:
            if scope["type"] != "lifespan":
                self._check_token(scope["headers"])
                if ON_AUTHENTICATED_KEY in scope:
                    scope[ON_AUTHENTICATED_KEY]()
                _check_origin(scope["headers"])
            if scope["type"] == "http":
                body = await self._receive_body(scope["headers"], receive)
        except _Refused as refusal:
            if scope["type"] == "http":
                await _send_problem(send, *refusal.args)
            else:
                await send({"type": "websocket.close", "code": 1008})
        else:
            if body is not None:
                await self.app(scope, body, send)

    def _check_token(self, headers: _Headers) -> None:
        sent = _header_values(headers, b"authorization")
        scheme, _, word = (sent[0] if len(sent) == 1 else "").partition(" ")
        right = hmac.compare_digest(word.strip(" \t").encode("latin-1"), self.token.encode())
        if not right or scheme.lower() != "bearer":
            raise _Refused(401, "send the server's token: Authorization: Bearer TOKEN")

    async def _receive_body(self, headers: _Headers, receive: _Receive) -> _Receive | None:
        """Wait for the body and return a function that yields its parts; None if the client is gone."""
        too_long = _Refused(413, f"the body exceeds {self.max_body:,} bytes")
        declared = filter(str.isdecimal, _header_values(headers, b"content-length"))
        if any(int(digits[:18]) > self.max_body for digits in declared):  # 18 are too many
            raise too_long
        parts, length = deque[MutableMapping[str, Any]](), 0
        try:
            async with asyncio.timeout(self.body_timeout):
                while not parts or parts[-1].get("more_body"):
                    parts.append(await receive())
                    length += len(parts[-1].get("body", b""))
                    if length > self.max_body:
                        raise too_long
        except TimeoutError:
            why = f"the request was incomplete after {self.body_timeout:g} seconds"
            raise _Refused(408, why) from None

        async def receive_next() -> MutableMapping[str, Any]:
            return parts.popleft() if parts else await receive()

        return None if parts[-1]["type"] == "http.disconnect" else receive_next


class _Refused(Exception):
    """Status and explanation of a request that fails a check."""


def _check_origin(headers: _Headers) -> None:
    hosts = {_parse_hostname(f"//{host}") for host in _header_values(headers, b"host")}
    for origin in map(_parse_hostname, _header_values(headers, b"origin")):
        if not origin or not (is_loopback(origin) or origin in hosts):
            raise _Refused(403, "requests from web pages of other sites are not allowed")


def _header_values(headers: _Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _parse_hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


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

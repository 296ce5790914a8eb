"""Token authentication and request limits of the HTTP servers.

The applications of ``ctxlab serve http`` and ``ctxlab serve mcp --http`` run inside
``AuthMiddleware``, which checks each request first. A rejected request is answered with problem
details (RFC 9457), a JSON object that describes the error.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
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
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/*?#@,:]+)(:\d{1,5})?")

MAX_BODY_BYTES = 1_000_000
"""Default maximum size of a request body, in bytes."""

BODY_TIMEOUT = 30.0
"""Default time limit for receiving a request body, in seconds. Slower clients get status 408."""

ON_AUTHENTICATED_KEY = "ctxlab.authenticated"
"""Key in the ASGI scope for a callback. The callback is called if a request has the right token."""


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address, which only the same machine can reach.

    Host names are not resolved. The result is False for all names except ``localhost``.

    Parameters
    ----------
    host : str
        IP address or host name.

    Returns
    -------
    bool
        True if ``host`` is a loopback IP address, such as 127.0.0.1, or ``localhost``.

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
    """Check the characters of a token, or generate a random token if None is passed.

    Parameters
    ----------
    token : str or None
        Token that clients must send. If None, a token with 32 random bytes is generated. It has 43
        characters and needs no escaping in a URL.

    Returns
    -------
    str
        The given or generated token.

    Raises
    ------
    SpecError
        If the token is empty, or if it contains a space, a control character or a non-ASCII
        character. Such a token cannot be sent in an HTTP header.

    Examples
    --------
    >>> check_or_generate_token("a-token"), len(check_or_generate_token(None))
    ('a-token', 43)
    >>> check_or_generate_token("")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: Expected a token of printable ASCII characters without spaces, \
got an empty string; omit the token to generate a random one
    """
    if token is None:
        return secrets.token_urlsafe(32)
    if not token or not all("!" <= letter <= "~" for letter in token):
        got = "a token with other characters" if token else "an empty string"
        raise SpecError(
            f"Expected a token of printable ASCII characters without spaces, got {got}; "
            "omit the token to generate a random one"
        )
    return token


def check_origin_name(text: str) -> str:
    """Check that a text is an origin, which is how a browser names the site of a web page.

    Parameters
    ----------
    text : str
        Scheme, host and, if it is not the default one, port.

    Returns
    -------
    str
        The origin.

    Raises
    ------
    SpecError
        If the text is not an origin.

    Examples
    --------
    >>> check_origin_name("app://obsidian.md")
    'app://obsidian.md'
    """
    if not _ORIGIN.fullmatch(text):
        raise SpecError(
            f"Expected an origin such as https://notes.example or app://obsidian.md, got {text!r}; "
            "write the scheme and the host, without a path"
        )
    return text


def problem_details(status: int, detail: str) -> dict[str, Any]:
    """Return the JSON object that describes an error to the client, as defined by RFC 9457.

    Parameters
    ----------
    status : int
        HTTP status code of the response.
    detail : str
        Description of the error.

    Returns
    -------
    dict
        JSON object with the keys ``type``, ``title``, ``status`` and ``detail``. The title is the
        standard phrase of the status code, such as "Not Found".

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
    """ASGI middleware that checks the token, origin, body size and duration of each request.

    A request that fails a check is not passed to ``app``. It is answered with one of these
    statuses:

    - 401: The token is missing or wrong. Tokens are compared in constant time. Only requests for
      ``public_paths`` need no token.
    - 403: The ``Origin`` header shows that a web page of another site sent the request.
    - 408: The body was not complete after ``body_timeout`` seconds.
    - 413: The body has more than ``max_body`` bytes. This is checked even if the request does not
      declare the length of its body.

    If the client disconnects before the body is complete, the request is dropped without an
    answer.

    The ``Host`` header is not checked, although such a check is a common protection against DNS
    rebinding. In that attack, a web page makes its own host name resolve to the server. The page
    does not know the token, so its requests are rejected anyway. ``Origin`` is checked because the
    MCP specification requires it.

    Parameters
    ----------
    app : ASGIApp
        Application to protect.
    token : str, optional
        Token that requests must send as ``Authorization: Bearer TOKEN``. By default, a random token
        is generated.
    max_body : int, default 1_000_000
        Maximum size of a request body, in bytes.
    body_timeout : float, default 30.0
        Time limit for receiving a request body, in seconds.
    public_paths : collection of str, optional
        Paths that clients may read without the token, with GET or HEAD. They must not contain data of
        users.
    allowed_origins : collection of str, optional
        Origins of other sites whose web pages may send requests, such as ``app://obsidian.md``. They
        need the token, too.

    Attributes
    ----------
    token : str
        The given or generated token that requests must send.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None = None,
        max_body: int = MAX_BODY_BYTES,
        body_timeout: float = BODY_TIMEOUT,
        public_paths: Collection[str] = (),
        allowed_origins: Collection[str] = (),
    ) -> None:
        self.app = app
        self.token = check_or_generate_token(token)
        self.body_timeout = body_timeout
        self.max_body = max_body
        self.public_paths = public_paths
        self.allowed_origins = allowed_origins

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Check one ASGI request, then reject it or pass it to the application."""
        body: _Receive | None = receive
        try:
            if scope["type"] != "lifespan":
                if not self._is_public(scope):
                    self._check_token(scope["headers"])
                    if ON_AUTHENTICATED_KEY in scope:
                        scope[ON_AUTHENTICATED_KEY]()
                self._check_origin(scope["headers"])
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

    def _is_public(self, scope: _Scope) -> bool:
        is_reading = scope["type"] == "http" and scope.get("method") in ("GET", "HEAD")
        return is_reading and scope.get("path") in self.public_paths

    def _check_token(self, headers: _Headers) -> None:
        sent = _header_values(headers, b"authorization")
        scheme, _, word = (sent[0] if len(sent) == 1 else "").partition(" ")
        right = hmac.compare_digest(word.strip(" \t").encode("latin-1"), self.token.encode())
        if not right or scheme.lower() != "bearer":
            raise _Refused(
                401,
                "missing or wrong token; send the header 'Authorization: Bearer TOKEN' with the "
                "token of this server",
            )

    def _check_origin(self, headers: _Headers) -> None:
        hosts = {_parse_hostname(f"//{host}") for host in _header_values(headers, b"host")}
        for origin in _header_values(headers, b"origin"):
            name = _parse_hostname(origin)
            known = name and (is_loopback(name) or name in hosts)
            if not known and origin not in self.allowed_origins:
                raise _Refused(
                    403,
                    "Expected an Origin header with localhost or the host of this server, "
                    f"got host {name[:200]!r}; web pages of other sites cannot use this server "
                    "unless their origins are allowed when it starts",
                )

    async def _receive_body(self, headers: _Headers, receive: _Receive) -> _Receive | None:
        """Receive the whole body, and return an ASGI ``receive`` function that replays the body.

        Return None if the client has disconnected.
        """
        too_long = _Refused(413, f"the body exceeds {self.max_body:,} bytes; send a smaller body")
        declared = filter(str.isdecimal, _header_values(headers, b"content-length"))
        if any(int(digits[:18]) > self.max_body for digits in declared):  # 18 digits suffice
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
            why = f"the body was incomplete after {self.body_timeout:g} seconds; send it faster"
            raise _Refused(408, why) from None

        async def receive_next() -> MutableMapping[str, Any]:
            return parts.popleft() if parts else await receive()

        return None if parts[-1]["type"] == "http.disconnect" else receive_next


class _Refused(Exception):
    """Error for a request that failed a check, with the HTTP status and an explanation."""


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

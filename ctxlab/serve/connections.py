"""Limits on the number and duration of connections without the server's token.

uvicorn waits for the headers of a request without a time limit, and accepts connections until the
process runs out of file descriptors. Every account of the machine could exploit both without a
token. Here a connection is *pending* until ``AuthMiddleware`` has found the right token on it, and
again after each complete response. It may be pending for ``HEADER_TIMEOUT``. If too many are
pending, the oldest one is closed, so that a client that sends its headers at once is always served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ctxlab.serve.auth import ON_AUTHENTICATED_KEY, ASGIApp, problem_details

HEADER_TIMEOUT = 10.0
"""Time limit for complete request headers with the right token, in seconds."""

_MAX_OPEN, _MAX_PENDING, _MAX_ACCEPT_BATCH = 1024, 128, 16


class ConnectionLimits:
    """Open and pending connections of a server.

    Parameters
    ----------
    max_open : int, default 1024
        Maximum number of connections.
    max_pending : int, default 128
        Maximum number of pending connections.
    pending_timeout : float, default 10.0
        Maximum time that a connection may be pending, in seconds.
    """

    def __init__(
        self,
        max_open: int = _MAX_OPEN,
        max_pending: int = _MAX_PENDING,
        pending_timeout: float = HEADER_TIMEOUT,
    ) -> None:
        self.max_open, self.max_pending = max_open, max_pending
        self.pending_timeout = pending_timeout
        self.open: set[LimitedProtocol] = set()
        self.pending: dict[LimitedProtocol, asyncio.TimerHandle] = {}
        "pending connections, oldest first, each with the timer that closes it"

    @classmethod
    def for_process(cls) -> ConnectionLimits:
        """Return limits that leave half of the process's file descriptors to the server itself.

        Returns
        -------
        ConnectionLimits
            The limits.
        """
        try:
            from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
        except ImportError:  # Windows has no such limit
            return cls()
        files, _ = getrlimit(RLIMIT_NOFILE)
        most = _MAX_OPEN if files == RLIM_INFINITY else max(8, min(_MAX_OPEN, files // 2))
        return cls(most, min(_MAX_PENDING, most // 2))

    @property
    def accept_batch_size(self) -> int:
        """Number of connections to accept at a time; even those to be closed hold file descriptors."""
        return max(1, min(_MAX_ACCEPT_BATCH, self.max_open // 8))

    def add(self, connection: LimitedProtocol) -> None:
        """Count a new connection; if there are too many, close the one that has been pending longest.

        Parameters
        ----------
        connection : LimitedProtocol
            New connection.
        """
        self.open.add(connection)
        self.mark_pending(connection)
        if len(self.pending) > self.max_pending or len(self.open) > self.max_open:
            oldest = next(iter(self.pending))
            self.discard(oldest)
            oldest.transport.abort()

    def mark_pending(self, connection: LimitedProtocol) -> None:
        """Start the time limit of a connection, unless it is pending already.

        Parameters
        ----------
        connection : LimitedProtocol
            Open connection.
        """
        if connection not in self.pending:
            later = connection.loop.call_later
            self.pending[connection] = later(self.pending_timeout, connection.close_timed_out)

    def mark_authenticated(self, connection: LimitedProtocol) -> None:
        """Stop the time limit of a connection, since its request has the token.

        Parameters
        ----------
        connection : LimitedProtocol
            Open connection.
        """
        if (timer := self.pending.pop(connection, None)) is not None:
            timer.cancel()

    def discard(self, connection: LimitedProtocol) -> None:
        """Remove a closed connection.

        Parameters
        ----------
        connection : LimitedProtocol
            Closed connection.
        """
        self.open.discard(connection)
        self.mark_authenticated(connection)


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 connection of uvicorn, limited while it has not sent the token.

    Parameters
    ----------
    *args : object
        Positional arguments of uvicorn's protocol.
    limits : ConnectionLimits
        Limits shared by all connections of a server.
    **kwargs : object
        Keyword arguments of uvicorn's protocol.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self._request_received = self._has_authenticated = False
        "a complete request was received, and one had the token"
        self._wrapped_app: ASGIApp = self.app
        self.app = self._run_app

    async def _run_app(self, scope: Any, receive: Any, send: Any) -> None:
        self._request_received = True
        scope[ON_AUTHENTICATED_KEY] = self._on_authenticated
        await self._wrapped_app(scope, receive, send)

    def _on_authenticated(self) -> None:
        self._has_authenticated = True
        self.limits.mark_authenticated(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its time limit.

        Parameters
        ----------
        transport : asyncio.Transport
            Transport of the connection.
        """
        super().connection_made(transport)
        self.limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection.

        Parameters
        ----------
        exc : Exception or None
            Error that closed the connection.
        """
        self.limits.discard(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the time limit of the next request."""
        if self in self.limits.open:
            self.limits.mark_pending(self)
        super().on_response_complete()

    def close_timed_out(self) -> None:
        """Close a connection that has been pending for too long."""
        if not (self._request_received or self.transport.is_closing()):
            self._send_timeout_response()
        if self._has_authenticated or not self.transport.get_write_buffer_size():
            self.transport.close()  # who has the token may still be reading the last answer
        else:
            self.transport.abort()  # a client that never reads would block a graceful close

    def _send_timeout_response(self) -> None:
        why = f"the headers were incomplete after {self.limits.pending_timeout:g} seconds"
        body = json.dumps(problem_details(408, why)).encode()
        head = (
            "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
            f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


class LogRateLimiter:
    """Log filter that passes each distinct warning about connections once per interval.

    A client without a token can cause such warnings as often as it likes. Errors of the
    application, which have a traceback, always pass.

    Parameters
    ----------
    interval : float, default 60.0
        Minimum time between two equal records, in seconds.

    Examples
    --------
    >>> same = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid request", (), None)
    >>> limit = LogRateLimiter()
    >>> [limit(same) for _ in range(3)]
    [True, False, False]
    """

    def __init__(self, interval: float = 60.0) -> None:
        self.interval = interval
        self._last_logged: dict[str, float] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Return True if a record is to be logged."""
        text = str(record.msg).partition("\n")[0]
        if record.name == "asyncio" and text.startswith("socket."):
            record.msg, record.args, record.exc_info = text, (), None  # one line
        elif record.name == "asyncio" or record.exc_info or record.levelno > logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._last_logged.get(text, -self.interval) < self.interval:
            return False
        self._last_logged[text] = now
        return True

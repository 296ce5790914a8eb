"""Limits on the connections of clients that have not sent the server's token.

Without these limits, clients that do not know the token could block the server, because uvicorn
waits for the headers of a request without a time limit, and accepts connections until the process
has no file descriptors left.

A new connection is *pending* until ``AuthMiddleware`` finds the right token in a request. After the
response to this request, the connection is pending again until the next request with the token. A
connection that is pending for longer than ``HEADER_TIMEOUT`` is closed. If too many connections are
pending, the one that has been pending longest is closed. Therefore, a client that sends the token
immediately after connecting is still served.
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
"""Default time limit for sending request headers with the right token, in seconds."""

_MAX_OPEN, _MAX_PENDING, _MAX_ACCEPT_BATCH = 1024, 128, 16


class ConnectionLimits:
    """Limits on the open and the pending connections of a server.

    A connection is pending while the server waits for a request with the right token. The object
    keeps a list of all connections, and closes pending connections when a limit is exceeded.

    Parameters
    ----------
    max_open : int, default 1024
        Maximum number of open connections, including the pending ones.
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
        "timer that closes each pending connection; the longest pending connection comes first"

    @classmethod
    def for_process(cls) -> ConnectionLimits:
        """Return limits that fit the maximum number of file descriptors of this process.

        Connections may use at most half of the file descriptors. The server needs the other half
        for files.

        Returns
        -------
        ConnectionLimits
            Limits of 1,024 open and 128 pending connections. They are lower if the process may open
            fewer than 2,048 file descriptors.
        """
        try:
            from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
        except ImportError:  # not available on Windows
            return cls()
        files, _ = getrlimit(RLIMIT_NOFILE)
        most = _MAX_OPEN if files == RLIM_INFINITY else max(8, min(_MAX_OPEN, files // 2))
        return cls(most, min(_MAX_PENDING, most // 2))

    @property
    def accept_batch_size(self) -> int:
        """Maximum number of connections that the server accepts at a time.

        The number is small because every accepted connection uses a file descriptor, even if it is
        closed immediately to stay within the limits.
        """
        return max(1, min(_MAX_ACCEPT_BATCH, self.max_open // 8))

    def add(self, connection: LimitedProtocol) -> None:
        """Add a new connection, which is open and pending.

        If a limit is exceeded, the connection that has been pending longest is closed.

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
        """Mark a connection as pending and start its time limit, unless it is already pending.

        Parameters
        ----------
        connection : LimitedProtocol
            Open connection.
        """
        if connection not in self.pending:
            later = connection.loop.call_later
            self.pending[connection] = later(self.pending_timeout, connection.close_timed_out)

    def mark_authenticated(self, connection: LimitedProtocol) -> None:
        """Mark a connection as not pending and stop its time limit.

        Called when a request of the connection has the right token.

        Parameters
        ----------
        connection : LimitedProtocol
            Open connection.
        """
        if (timer := self.pending.pop(connection, None)) is not None:
            timer.cancel()

    def discard(self, connection: LimitedProtocol) -> None:
        """Remove a connection and stop its time limit.

        Parameters
        ----------
        connection : LimitedProtocol
            Connection that is closed or will be closed immediately.
        """
        self.open.discard(connection)
        self.mark_authenticated(connection)


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 connection of uvicorn that is subject to ``ConnectionLimits``.

    uvicorn creates one object of this class for each connection.

    Parameters
    ----------
    *args : object
        Positional arguments of uvicorn's ``H11Protocol``.
    limits : ConnectionLimits
        Limits, shared by all connections of a server.
    **kwargs : object
        Keyword arguments of uvicorn's ``H11Protocol``.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self._request_received = self._has_authenticated = False
        "whether complete request headers were received, and whether a request had the right token"
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
        """Register the new connection. asyncio calls this method when a connection is opened.

        Parameters
        ----------
        transport : asyncio.Transport
            Transport that sends and receives the data of the connection.
        """
        super().connection_made(transport)
        self.limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection. asyncio calls this method when a connection is closed.

        Parameters
        ----------
        exc : Exception or None
            Error that closed the connection; None if the connection was closed without an error.
        """
        self.limits.discard(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Mark the connection as pending again, which starts the time limit for the next request."""
        if self in self.limits.open:
            self.limits.mark_pending(self)
        super().on_response_complete()

    def close_timed_out(self) -> None:
        """Close the connection because it has been pending for too long.

        If the client has never sent complete request headers, it gets status 408 first.
        """
        if not (self._request_received or self.transport.is_closing()):
            self._send_timeout_response()
        if self._has_authenticated or not self.transport.get_write_buffer_size():
            self.transport.close()  # an authenticated client may still read the last response
        else:
            self.transport.abort()  # close() would wait for a client that never reads

    def _send_timeout_response(self) -> None:
        why = f"the request headers were incomplete after {self.limits.pending_timeout:g} seconds"
        body = json.dumps(problem_details(408, why)).encode()
        head = (
            "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
            f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


class LogRateLimiter:
    """Log filter that drops repeated warnings about connections.

    Warnings with the same text are logged at most once per ``interval``. Otherwise, clients without
    a token could fill the log with warnings. Messages of asyncio about sockets are shortened to one
    line. Errors of the application, which have a traceback, are always logged.

    Parameters
    ----------
    interval : float, default 60.0
        Minimum time between two log records with the same text, in seconds.

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
        """Return True if a log record should be logged, False if it should be dropped."""
        text = str(record.msg).partition("\n")[0]
        if record.name == "asyncio" and text.startswith("socket."):
            record.msg, record.args, record.exc_info = text, (), None  # keep only its first line
        elif record.name == "asyncio" or record.exc_info or record.levelno > logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._last_logged.get(text, -self.interval) < self.interval:
            return False
        self._last_logged[text] = now
        return True

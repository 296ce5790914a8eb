"""Limits on connections that have not shown the server's token: how many, and for how long.

uvicorn waits for the headers of a request without end, and takes connections until the process has no
file descriptor left. Both are open to every account of the machine, before any token is asked for. Here
a connection is *pending* until ``Guard`` has found the right token on it, and again when the answer is
complete. It may be pending for ``HEADER_SECONDS``. Where too many are, the oldest is closed, so that a
client that sends its headers at once is always served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ctxlab.serve.auth import (
    AUTHENTICATED,
    App,
    problem,
)

__all__ = ["HEADER_SECONDS", "ConnectionLimits", "LimitedProtocol", "RateLimit"]

HEADER_SECONDS = 10.0
"""Seconds in which the headers of a request must be whole, with the right token."""

_MAX_OPEN, _MAX_PENDING, _BATCH = 1024, 128, 16


class ConnectionLimits:
    """The open connections of a server, and which of them are pending.

    Parameters
    ----------
    max_open : int
        Connections at most.
    max_pending : int
        Pending connections at most.
    seconds : float
        Seconds that a connection may be pending.
    """

    def __init__(
        self,
        max_open: int = _MAX_OPEN,
        max_pending: int = _MAX_PENDING,
        seconds: float = HEADER_SECONDS,
    ) -> None:
        self.max_open, self.max_pending, self.seconds = max_open, max_pending, seconds
        self.open: set[LimitedProtocol] = set()
        self.pending: dict[LimitedProtocol, asyncio.TimerHandle] = {}
        "in the order in which they became pending, each with the timer that closes it"

    @classmethod
    def of_process(cls) -> ConnectionLimits:
        """Limits that leave half of the process's file descriptors to the server itself."""
        try:
            from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
        except ImportError:  # Windows has no such limit
            return cls()
        files, _ = getrlimit(RLIMIT_NOFILE)
        most = _MAX_OPEN if files == RLIM_INFINITY else max(8, min(_MAX_OPEN, files // 2))
        return cls(most, min(_MAX_PENDING, most // 2))

    @property
    def batch(self) -> int:
        """Connections to accept at a time: those that are to be closed still hold descriptors."""
        return max(1, min(_BATCH, self.max_open // 8))

    def add(self, connection: LimitedProtocol) -> None:
        """Count a new connection; close the one that has been pending longest if there are too many."""
        self.open.add(connection)
        self.wait(connection)
        if len(self.pending) > self.max_pending or len(self.open) > self.max_open:
            oldest = next(iter(self.pending))
            self.discard(oldest)
            oldest.transport.abort()

    def wait(self, connection: LimitedProtocol) -> None:
        """Make a connection pending; one that is goes on with the time that it has left."""
        if connection not in self.pending:
            later = connection.loop.call_later
            self.pending[connection] = later(self.seconds, connection.close_late)

    def authenticated(self, connection: LimitedProtocol) -> None:
        """End the time of a pending connection: its request has the token."""
        if (timer := self.pending.pop(connection, None)) is not None:
            timer.cancel()

    def discard(self, connection: LimitedProtocol) -> None:
        """Forget a connection that is closed."""
        self.open.discard(connection)
        self.authenticated(connection)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection, with limits while it has not shown the token.

    Parameters
    ----------
    *given, **named
        As uvicorn calls its protocol.
    limits : ConnectionLimits
        Shared by all connections of a server.
    """

    def __init__(self, *given: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*given, **named)
        self.limits = limits
        self._asked = self._known = False
        "whether a request was whole, and whether one had the token"
        self._guarded: App = self.app
        self.app = self._run

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        self._asked = True
        scope[AUTHENTICATED] = self._authenticated
        await self._guarded(scope, receive, send)

    def _authenticated(self) -> None:
        self._known = True
        self.limits.authenticated(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its time."""
        super().connection_made(transport)
        self.limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.limits.discard(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request, within the same limits."""
        if self in self.limits.open:
            self.limits.wait(self)
        super().on_response_complete()

    def close_late(self) -> None:
        """Close a connection that has been pending for too long."""
        if not (self._asked or self.transport.is_closing()):
            self._answer_late()
        if self._known or not self.transport.get_write_buffer_size():
            self.transport.close()  # who has the token may still be reading the last answer
        else:
            self.transport.abort()  # else who never reads would never be closed

    def _answer_late(self) -> None:
        why = f"the headers of the request were not whole after {self.limits.seconds:g} seconds"
        body = json.dumps(problem(408, why)).encode()
        head = (
            "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
            f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)


class RateLimit:
    """A log filter that lets the same complaint about connections through once a while.

    A client without a token can cause such complaints as often as it likes. Failures of the application
    are no such complaints: they come with their traceback, every time.

    Parameters
    ----------
    seconds : float
        Seconds between two records that say the same.

    Examples
    --------
    >>> same = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid request", (), None)
    >>> limit = RateLimit()
    >>> [limit(same) for _ in range(3)]
    [True, False, False]
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self._last: dict[str, float] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be logged."""
        said = str(record.msg).partition("\n")[0]
        if record.name == "asyncio" and said.startswith("socket."):
            record.msg, record.args, record.exc_info = said, (), None  # one line
        elif record.name == "asyncio" or record.exc_info or record.levelno > logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._last.get(said, -self.seconds) < self.seconds:
            return False
        self._last[said] = now
        return True

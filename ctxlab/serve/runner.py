"""A server listens until it is told to stop, and says in one sentence why it cannot."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial

from ctxlab._utils.signals import cancelled_when_terminated
from ctxlab.errors import (
    DataMissing,
    SpecError,
)
from ctxlab.serve.auth import (
    App,
    is_loopback,
)

__all__ = ["address_of", "listen"]

_PATIENCE = 2
"""Seconds that open answers have to end in, once the server is told to stop."""

_QUEUE = 128
"""Connections that wait in the system until they are accepted."""


def listen(
    app: App, host: str, port: int, *, heard: Callable[[str], None] = lambda address: None
) -> None:
    """Serves ``app`` with uvicorn until SIGINT or SIGTERM, which raise ``KeyboardInterrupt`` after it.

    Answers that are open then have two seconds to end; what is broken off is no error any more.
    ``port`` 0 takes a free one; ``heard`` is told the address once connections are taken. Connections
    without the token of ``app`` are limited, see ``ctxlab.serve.connections``. Raises ``SpecError``
    where the address cannot be had, ``DataMissing`` where uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise DataMissing(f"{error}: pip install 'ctxlab[serve]'") from None
    from ctxlab.serve.connections import (
        ConnectionLimits,
        LimitedProtocol,
        RateLimit,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for each in sockets or ():  # asyncio queues as few as it accepts at a time
                each.listen(_QUEUE)

    limits = ConnectionLimits.of_process()
    config = uvicorn.Config(
        app,
        # Others, which uvicorn would take where they are installed, have no such limits.
        loop="asyncio",
        http=partial(LimitedProtocol, limits=limits),  # type: ignore[arg-type]
        ws="none",
        backlog=limits.batch,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
    )
    with _bound(host, port) as bound:
        heard(address_of(host, bound.getsockname()[1]))
        server = Server(config)
        complaints = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
        complaints[0].addFilter(going := lambda record: not server.should_exit)
        rarely = RateLimit()
        for each in complaints:
            each.addFilter(rarely)
        try:
            with cancelled_when_terminated():
                server.run(sockets=[bound])
        finally:
            complaints[0].removeFilter(going)
            for each in complaints:
                each.removeFilter(rarely)


def address_of(host: str, port: int) -> str:
    """Where a browser or client finds a server.

    >>> address_of("::1", 9878), address_of("[::1]", 9878), address_of("0.0.0.0", 80)
    ('http://[::1]:9878', 'http://[::1]:9878', 'http://0.0.0.0:80')
    """
    host = host.strip("[]")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise SpecError(f"port {port} is not between 0 and 65535")
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=_QUEUE)
    except (OSError, UnicodeError, ValueError) as error:
        why = (getattr(error, "strerror", None) or "no such address").partition(" (while")[0]
        other = "another --port" if is_loopback(name) else "another --host or --port"
        raise SpecError(f"cannot serve on {host}, port {port}: {why}; give {other}") from None

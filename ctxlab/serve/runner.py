"""Run an ASGI application with uvicorn until a signal stops it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

from ctxlab._utils.signals import sigterm_as_keyboard_interrupt
from ctxlab.errors import DataMissing, SpecError
from ctxlab.serve.auth import ASGIApp, is_loopback

_SHUTDOWN_TIMEOUT = 2
"""Number of seconds that open responses have to finish after a signal."""

_LISTEN_BACKLOG = 128
"""Maximum number of connections that the operating system keeps until they are accepted."""


def run_uvicorn(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    on_listening: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve an application with uvicorn until SIGINT or SIGTERM, then raise ``KeyboardInterrupt``.

    After the signal, open responses have two seconds to finish. Then they are cut off, and no error
    is logged. The number of connections that have not sent the token of ``app`` is limited (see
    ``ctxlab.serve.connections``).

    Parameters
    ----------
    app : ASGIApp
        Application to serve.
    host : str
        IP address or host name to listen on.
    port : int
        Port to listen on; 0 chooses a free port.
    on_listening : callable, optional
        Function that is called once with the URL, as soon as the server listens on the port.

    Raises
    ------
    SpecError
        If the port is invalid or the server cannot listen on the address.
    DataMissing
        If uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise DataMissing(f"{error}: run pip install '.[serve]' in a clone of ctxlab") from None
    from ctxlab.serve.connections import ConnectionLimits, LimitedProtocol, LogRateLimiter

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for each in sockets or ():  # asyncio has set the queue to the size of an accept batch
                each.listen(_LISTEN_BACKLOG)

    limits = ConnectionLimits.for_process()
    config = uvicorn.Config(
        app,
        # uvicorn prefers other event loops and protocols if installed; they lack these limits.
        loop="asyncio",
        http=partial(LimitedProtocol, limits=limits),  # type: ignore[arg-type]
        ws="none",
        backlog=limits.accept_batch_size,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
    )
    with _bind_socket(host, port) as bound:
        on_listening(server_url(host, bound.getsockname()[1]))
        server = Server(config)
        loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
        loggers[0].addFilter(going := lambda record: not server.should_exit)
        rate_limiter = LogRateLimiter()
        for each in loggers:
            each.addFilter(rate_limiter)
        try:
            with sigterm_as_keyboard_interrupt():
                server.run(sockets=[bound])
        finally:
            loggers[0].removeFilter(going)
            for each in loggers:
                each.removeFilter(rate_limiter)


def server_url(host: str, port: int) -> str:
    """Return the HTTP URL of a server.

    Parameters
    ----------
    host : str
        IP address or host name.
    port : int
        Port of the server.

    Returns
    -------
    str
        URL without a path. An IPv6 address is written in brackets.

    Examples
    --------
    >>> server_url("::1", 9878), server_url("[::1]", 9878), server_url("0.0.0.0", 80)
    ('http://[::1]:9878', 'http://[::1]:9878', 'http://0.0.0.0:80')
    """
    host = host.strip("[]")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def page_url(server_url: str, token: str) -> str:
    """Return the URL of the page with the token.

    The token is in the fragment, which a browser sends neither to the server nor as a referrer.

    Parameters
    ----------
    server_url : str
        URL of the server, without a path.
    token : str
        Token of the server.

    Returns
    -------
    str
        URL to open in a browser. If the server listens on all addresses, it is that of this machine.

    Examples
    --------
    >>> page_url("http://0.0.0.0:9879", "a/b")
    'http://127.0.0.1:9879/#token=a%2Fb'
    """
    local = server_url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return f"{local}/#token={quote(token, safe='')}"


def _bind_socket(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise SpecError(f"Expected a port from 0 to 65535, got {port}")
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=_LISTEN_BACKLOG)
    except (OSError, UnicodeError, ValueError) as error:
        why = (getattr(error, "strerror", None) or "no such address").partition(" (while")[0]
        other = "another --port" if is_loopback(name) else "another --host or --port"
        raise SpecError(f"cannot listen on {host}, port {port}: {why}; choose {other}") from None

"""Run an MCP server on standard input and output so that signals can stop the server.

The MCP SDK reads standard input in a thread that cannot be stopped. With the SDK's own reader, the
server would keep running after a signal until the client closes the pipe.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server import Server
from mcp.server.stdio import stdio_server


def run_stdio(server: Server[Any]) -> bool:
    """Serve one client over standard input and output until the input ends or a signal arrives.

    Parameters
    ----------
    server : Server
        Server to run.

    Returns
    -------
    bool
        True if SIGINT or SIGTERM stopped the server; False if standard input ended.
    """
    return anyio.run(_serve_until_stopped, server)


async def _serve_until_stopped(server: Server[Any]) -> bool:
    stopped = False

    async def serve() -> None:
        async with stdio_server(stdin=cast("Any", _StdinLines())) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    async with anyio.create_task_group() as group:

        async def listen_for_signals() -> None:
            nonlocal stopped
            if threading.current_thread() is not threading.main_thread():
                return  # only the main thread receives signals
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    stopped = True
                    group.cancel_scope.cancel()

        group.start_soon(listen_for_signals)
        await serve()
        group.cancel_scope.cancel()
    return stopped


class _StdinLines:
    """Asynchronous iterator over the lines of standard input, used by the SDK to read requests."""

    def __aiter__(self) -> AsyncIterator[str]:
        return self._read_lines()

    async def _read_lines(self) -> AsyncIterator[str]:
        # A separate descriptor without a buffer: the lock of a buffer could block Python's exit.
        source = os.dup(sys.stdin.fileno())
        send, receive = anyio.create_memory_object_stream[bytes]()
        loop = asyncio.get_running_loop()
        threading.Thread(target=_pump_stdin, args=(source, send, loop), daemon=True).start()
        rest = bytearray()
        async with receive:
            async for piece in receive:
                *lines, last = piece.split(b"\n")
                for line in lines:
                    yield (rest + line).decode("utf-8", "replace")
                    rest.clear()
                rest += last
        if rest:
            yield rest.decode("utf-8", "replace")


def _pump_stdin(
    source: int, send: MemoryObjectSendStream[bytes], loop: asyncio.AbstractEventLoop
) -> None:
    """Send standard input to the event loop in pieces; wait until each piece is consumed."""
    with suppress(OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while piece := os.read(source, 65_536):
            asyncio.run_coroutine_threadsafe(send.send(piece), loop).result()
        os.close(source)
        loop.call_soon_threadsafe(send.close)

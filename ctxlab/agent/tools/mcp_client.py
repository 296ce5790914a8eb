"""Tools of MCP servers for an agent, through the official SDK (the package ``mcp``).

A server is a command that speaks over its standard input and output, or an address (streamable HTTP).
The connections live in a background thread. A command runs under the supervisor of
``ctxlab.agent.tools.process_supervisor``, so that it and its descendants end with this program, even by
``kill -9``. It does not inherit environment variables whose names suggest secrets.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import math
import os
import re
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from ctxlab._utils.jsonio import dump_json
from ctxlab.agent.tools.environment import names_to_keep, without_secrets
from ctxlab.agent.tools.processes import SUPERVISOR_SCRIPT
from ctxlab.agent.tools.result import ToolResult, cancelled_result, failed_result
from ctxlab.agent.tools.tool import Tool
from ctxlab.errors import CtxlabError, SpecError

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as McpTool

START_TIMEOUT = 30.0
"""Default maximum seconds until a server has started and listed its tools."""

CALL_TIMEOUT = 60.0
"""Default maximum seconds of a tool call."""

MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS = 3_750_000, 8_000
"""Maximum size of an image and maximum length of its sides, which all providers accept."""

_MAX_NAME, _MAX_SERVER_NAME, _MAX_TOOLS = 64, 24, 1_000
_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]+")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_MAX_LOG_LINE, _LOG_TIMEOUT = 1_000, 1.0
"maximum characters of a line of standard error; seconds to read the rest after the server has ended"

_LOG = logging.getLogger("ctxlab.mcp")


class McpServers:
    """Connections to MCP servers, and their tools for an agent.

    The servers are started when the ``with`` block is entered, all at the same time. A server that ends
    is started again at the next call of one of its tools.

    Parameters
    ----------
    servers : iterable of str
        For each server, a shell command, or an address that begins with ``http://`` or ``https://``.
    cwd : str or pathlib.Path, optional
        Working directory of the commands; None uses the working directory of this program.
    keep_env : iterable of str, optional
        Names of variables that commands inherit even if the names suggest secrets.
    token : str, optional
        Token that is sent to the addresses, in the header ``Authorization: Bearer TOKEN``.
    start_timeout : float, optional
        Maximum seconds until a server has started and listed its tools.
    call_timeout : float, optional
        Maximum seconds of a tool call.

    Raises
    ------
    SpecError
        If a server is an empty string, if an address has no host, or if a token would be sent without
        encryption to another computer.
    CtxlabError
        If the package ``mcp`` is not installed.

    Examples
    --------
    >>> import tempfile
    >>> command = f"{sys.executable} -m ctxlab serve mcp"
    >>> with tempfile.TemporaryDirectory() as folder, McpServers([command], cwd=folder) as servers:
    ...     print(servers.tools[0].name, servers.tools[0].read_only)
    ctxlab-sessions__current_session True
    """

    def __init__(
        self,
        servers: Iterable[str],
        *,
        cwd: str | Path | None = None,
        keep_env: Iterable[str] = (),
        token: str | None = None,
        start_timeout: float = START_TIMEOUT,
        call_timeout: float = CALL_TIMEOUT,
    ) -> None:
        if isinstance(servers, str):
            raise SpecError(f"Expected a list of MCP servers, got {servers!r}; pass [{servers!r}]")
        if find_spec("mcp") is None:
            advice = "in a clone of ctxlab, run: pip install '.[serve]'"
            raise CtxlabError(f"MCP servers need the package mcp, which is not installed; {advice}")
        self._servers = [
            _Server(each, cwd, names_to_keep(keep_env), token, start_timeout, call_timeout)
            for each in servers
        ]
        self._stack = ExitStack()
        self.tools: tuple[Tool, ...] = ()
        """tools of all servers; their names are ``SERVER__TOOL``"""

    def __enter__(self) -> McpServers:
        """Start the servers and read their lists of tools.

        Raises
        ------
        CtxlabError
            If a server cannot be started or does not answer in time.
        """
        from anyio.from_thread import start_blocking_portal

        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name="ctxlab-mcp"))
            for server in self._servers:
                server.start(portal)
                stack.callback(server.stop)
            for server in self._servers:
                server.wait_until_ready()
            self.tools = _make_tools(self._servers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the connections and all processes of the servers."""
        self._stack.close()


class _Server:
    """One MCP server, with its current connection."""

    def __init__(
        self,
        address: str,
        cwd: str | Path | None,
        keep_env: frozenset[str],
        token: str | None,
        start_timeout: float,
        call_timeout: float,
    ) -> None:
        self.address = address.strip()
        self.is_http = self.address.startswith(("http://", "https://"))
        self._cwd, self._keep_env, self._token = cwd, keep_env, token
        self._start_timeout, self._call_timeout = start_timeout, call_timeout
        self._connection: _Connection | None = None
        self._last_line = ""
        self._lock = threading.Lock()
        self._running: set[Future[CallToolResult]] = set()
        if not self.address or "\0" in self.address:
            raise SpecError(f"Expected a command or an address of an MCP server, got {address!r}")
        if self.is_http:
            host = urlsplit(self.address).hostname
            if not host:
                raise SpecError(f"Expected an address such as http://HOST/mcp, got {self.label}")
            if token and self.address.startswith("http:") and host not in _LOOPBACK:
                raise SpecError(
                    f"Expected an https:// address for a token, got {self.label}; the token would be "
                    "sent without encryption"
                )

    @property
    def label(self) -> str:
        """Address or command for messages, without user names, passwords and queries."""
        if self.is_http:
            parts = urlsplit(self.address)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return repr(self.address if len(self.address) <= 60 else self.address[:59] + "…")

    @property
    def name(self) -> str:
        """Name that the server gives itself, else the name of its program or host."""
        assert self._connection is not None
        client = self._connection.ready.result()[0]
        known = client.server_info.name if client.server_info else ""
        other = urlsplit(self.address).hostname if self.is_http else self.address.split()[0]
        return known or Path(other or "").name

    def start(self, portal: BlockingPortal) -> None:
        """Start the server without waiting for it."""
        self._portal = portal
        self._connection = _Connection(portal, self._serve)

    def stop(self) -> None:
        """End the connection and the processes of the server."""
        if self._connection is not None:
            self._connection.close()

    def wait_until_ready(self) -> list[McpTool]:
        """Wait until the server has started, and return its tools."""
        assert self._connection is not None
        try:
            return self._connection.ready.result()[1]
        except TimeoutError as error:
            said = f"MCP server {self.label} did not answer within {self._start_timeout:g} s"
            raise CtxlabError(
                f"{said}; check that it is an MCP server and that it starts"
            ) from error
        except Exception as error:
            said = f"cannot connect to MCP server {self.label}: {_describe(error)}"
            if self._last_line:
                said += f"; its last line was {self._last_line!r}"
            raise CtxlabError(f"{said}; check the command or the address") from error

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool and wait for its result. Ctrl+C cancels the call."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.ended:
                self.stop()
                self.start(self._portal)
            assert self._connection is not None
            connection = self._connection
            try:
                self.wait_until_ready()
            except CtxlabError as error:
                return failed_result(str(error), "network_error")
        client = connection.ready.result()[0]
        future = self._portal.start_task_soon(self._call, client, name, arguments)
        self._running.add(future)
        try:
            answer = future.result()
        except CancelledError:
            return cancelled_result()
        except TimeoutError:
            told = f"{self.label} did not answer within {self._call_timeout:g} s; the call was cancelled"
            return failed_result(f"MCP server {told}", "timeout")
        except Exception as error:
            if connection.ended or not _is_answer(error):
                connection.ended = True
                told = f"MCP server {self.label} ended during the call: {_describe(error)}"
                return failed_result(f"{told}; the next call starts it again", "network_error")
            return failed_result(_describe(error), "execution_error")
        except BaseException:
            future.cancel()
            raise
        finally:
            self._running.discard(future)
        return _convert_result(answer)

    def cancel_calls(self) -> None:
        """End all calls that are running, from another thread."""
        for future in tuple(self._running):
            future.cancel()

    async def _call(self, client: Client, name: str, arguments: dict[str, Any]) -> CallToolResult:
        import anyio

        with anyio.fail_after(self._call_timeout):
            return await client.call_tool(name, arguments)

    @asynccontextmanager
    async def _serve(self, on_end: Callable[[], None]) -> AsyncGenerator[Any, None]:
        """Connect to the server; yield the client and the tools of the server."""
        import anyio
        from mcp import Client

        with anyio.CancelScope(deadline=anyio.current_time() + self._start_timeout) as scope:
            async with AsyncExitStack() as stack:
                transport = await stack.enter_async_context(self._open_transport())
                client = await stack.enter_async_context(
                    Client(_WatchedTransport(transport, on_end), cache=None)
                )
                tools, cursor = list[Any](), None
                while len(tools) < _MAX_TOOLS:
                    page = await client.list_tools(cursor=cursor)
                    tools += page.tools
                    if not (cursor := page.next_cursor):
                        break
                scope.deadline = math.inf
                yield client, tools
        if scope.cancelled_caught:
            raise TimeoutError

    @asynccontextmanager
    async def _open_transport(self) -> AsyncGenerator[Any, None]:
        if self.is_http:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            local = urlsplit(self.address).hostname in _LOOPBACK
            timeout = httpx2.Timeout(max(self._start_timeout, self._call_timeout) + 5)
            async with httpx2.AsyncClient(
                headers=headers, timeout=timeout, trust_env=not local
            ) as http:
                yield streamable_http_client(self.address, http_client=http)
            return
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        if os.name != "posix":
            raise CtxlabError(f"Expected Linux or macOS to run commands, got {sys.platform!r}")
        spec = find_spec("psutil")
        psutil = str(Path(spec.origin).parents[1]) if spec and spec.origin else ""
        script, parent = str(SUPERVISOR_SCRIPT), str(os.getpid())
        server = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-S", script, parent, "-1", psutil, self.address],
            env=without_secrets(os.environ, self._keep_env),
            cwd=self._cwd,
            encoding_error_handler="replace",
        )
        with _LineReader(self._log_line) as errors:
            yield stdio_client(server, errlog=errors)

    def _log_line(self, line: str) -> None:
        self._last_line = line.strip() or self._last_line
        _LOG.info("%s: %s", self.label, line)


class _Connection:
    """A connection in the background thread, which is opened and closed by one task there."""

    def __init__(self, portal: BlockingPortal, connect: Callable[..., Any]) -> None:
        import anyio

        self.ready: Future[tuple[Client, list[McpTool]]] = Future()
        self.ended = False
        self._portal, self._connect = portal, connect
        self._closing, self._scope = portal.call(lambda: (anyio.Event(), anyio.CancelScope()))
        self._task = portal.start_task_soon(self._run)

    def close(self) -> None:
        with suppress(RuntimeError):  # the background thread has ended
            self._portal.start_task_soon(self._request_close)
        with suppress(Exception):
            self._task.result()

    async def _request_close(self) -> None:
        self._closing.set()
        if not self.ready.done():
            self._scope.cancel()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._connect(self._mark_ended) as opened:
                    self.ready.set_result(opened)
                    await self._closing.wait()
        except Exception as error:
            self._fail(error)
            _LOG.debug("connection to an MCP server ended", exc_info=True)
        finally:
            self.ended = True
            self._fail(ConnectionError("the start was cancelled"))

    def _fail(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(_first_error(error))

    def _mark_ended(self) -> None:
        self.ended = True


class _WatchedTransport:
    """Transport of the SDK that tells when the server has closed its end of the connection."""

    def __init__(self, transport: Any, on_end: Callable[[], None]) -> None:
        self._transport, self._on_end = transport, on_end

    async def __aenter__(self) -> Any:
        read, write = await self._transport.__aenter__()
        return _WatchedStream(read, self._on_end), write

    async def __aexit__(self, *error: Any) -> Any:
        return await self._transport.__aexit__(*error)


class _WatchedStream:
    """Stream of messages from a server that tells when it ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._on_end()
            raise

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:
            self._on_end()
            raise

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class _LineReader:
    """Context manager with a file whose lines a thread passes to a function."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line

    def __enter__(self) -> TextIO:
        read, write = os.pipe()
        self._file = os.fdopen(write, "w")
        self._thread = threading.Thread(
            target=self._read, args=(read,), name="ctxlab-mcp-log", daemon=True
        )
        self._thread.start()
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._thread.join(_LOG_TIMEOUT)

    def _read(self, read: int) -> None:
        with os.fdopen(read, errors="replace") as lines:
            while line := lines.readline(_MAX_LOG_LINE):
                self._on_line(line.rstrip("\n"))


def _make_tools(servers: Sequence[_Server]) -> tuple[Tool, ...]:
    made: dict[str, Tool] = {}
    prefixes: set[str] = set()
    for server in servers:
        prefix = _unique_name(_valid_name(server.name, "server")[:_MAX_SERVER_NAME], prefixes)
        prefixes.add(prefix)
        for tool in server.wait_until_ready():
            name = _unique_name(f"{prefix}__{_valid_name(tool.name, 'tool')}", made)
            hints = tool.annotations
            schema = {"type": "object", "properties": {}, **tool.input_schema}
            made[name] = Tool(
                name,
                tool.description or "",
                schema,
                _bind(server, tool.name),
                read_only=bool(hints and hints.read_only_hint),
                cancel=server.cancel_calls,
            )
    return tuple(made.values())


def _bind(server: _Server, name: str) -> Callable[..., ToolResult]:
    def call(**arguments: Any) -> ToolResult:
        return server.call(name, arguments)

    return call


def _valid_name(name: str, default: str) -> str:
    return _INVALID_NAME_CHARS.sub("_", name).strip("_") or default


def _unique_name(name: str, taken: Iterable[str]) -> str:
    """Shorten a name to the maximum length; change its end if it is taken."""
    if len(name) > _MAX_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: _MAX_NAME - 9]}_{digest}"
    made, number = name, 2
    while made in taken:
        suffix = f"_{number}"
        made, number = name[: _MAX_NAME - len(suffix)] + suffix, number + 1
    return made


def _convert_result(answer: CallToolResult) -> ToolResult:
    """Convert the result of an MCP call. Structured content is used where there is no text."""
    texts: list[str] = []
    images: list[str] = []
    for block in answer.content:
        data, kind = None, getattr(block, "mime_type", None)
        if block.type == "text":
            texts.append(block.text)
            continue
        if block.type == "resource_link":
            texts.append(f"[resource {block.uri}: {block.name}, not read]")
            continue
        if block.type == "resource":
            resource = block.resource
            kind = resource.mime_type
            if (text := getattr(resource, "text", None)) is not None:
                texts.append(f"[resource {resource.uri}]\n{text}")
                continue
            data = getattr(resource, "blob", None)
        else:
            data = getattr(block, "data", None)
        if (url := _image_url(data)) is not None:
            images.append(url)
        else:
            size = f", {len(data):,} characters of base64" if isinstance(data, str) else ""
            texts.append(f"[{kind or block.type}{size}, not shown]")
    if not any(texts) and answer.structured_content is not None:
        texts.append(dump_json(answer.structured_content))
    text = "\n".join(filter(None, texts))
    if answer.is_error:
        said = text or "the tool failed and gave no reason"
        return failed_result(said, "execution_error", images=images or None)
    shown = text or ("" if images else "(no output)")
    return ToolResult(ok=True, data=shown, images=images or None)


def _image_url(data: Any) -> str | None:
    """Return an image as a data URL; None if a provider would reject it, and with it each request."""
    from PIL import Image

    if not isinstance(data, str):
        return None
    try:
        blob = base64.b64decode(data, validate=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about very large images, which are not decoded
            with Image.open(io.BytesIO(blob), formats=_IMAGE_FORMATS) as image:
                kind, sides = Image.MIME[str(image.format)], image.size
    except Exception:  # Pillow's parsers raise many types for invalid images
        return None
    if len(blob) > MAX_IMAGE_BYTES or max(sides) > MAX_IMAGE_PIXELS:
        return None
    return f"data:{kind};base64,{base64.b64encode(blob).decode()}"


def _is_answer(error: Exception) -> bool:
    """Return True for an error that the server has sent, and False if the connection failed."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    return isinstance(error, MCPError) and error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)


def _first_error(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _describe(error: Exception) -> str:
    error = _first_error(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

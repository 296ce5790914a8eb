"""Read-only MCP server that lists, reads and searches recorded sessions for MCP clients."""

from ctxlab.serve.mcp.server import (
    DEFAULT_PORT,
    ENDPOINT_PATH,
    SESSION_ENV_VAR,
    make_http_app,
    make_server,
    serve_http,
    serve_stdio,
)

__all__ = [
    "DEFAULT_PORT",
    "ENDPOINT_PATH",
    "SESSION_ENV_VAR",
    "make_http_app",
    "make_server",
    "serve_http",
    "serve_stdio",
]

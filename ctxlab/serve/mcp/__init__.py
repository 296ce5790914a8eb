"""MCP server for sessions: contents, turns and search for any MCP client, read-only."""

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

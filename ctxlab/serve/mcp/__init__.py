"""The session MCP server: contents, turns and search for any MCP client, read-only."""

from ctxlab.serve.mcp.server import (
    CURRENT,
    PATH,
    PORT,
    http_app,
    make_server,
    serve_http,
    serve_stdio,
)

__all__ = ["CURRENT", "PATH", "PORT", "http_app", "make_server", "serve_http", "serve_stdio"]

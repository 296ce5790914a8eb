"""HTTP API to chat with an agent, to list and resume sessions, and to read turns."""

from ctxlab.serve.http.server import DEFAULT_HOST, DEFAULT_PORT, make_app, serve

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "make_app", "serve"]

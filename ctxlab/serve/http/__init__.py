"""HTTP API: chat with an agent, list and resume sessions, read turns."""

from ctxlab.serve.http.server import DEFAULT_HOST, DEFAULT_PORT, make_app, serve

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "make_app", "serve"]

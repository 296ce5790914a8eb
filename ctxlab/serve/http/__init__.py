"""The HTTP API: chat with an agent, list and resume sessions, read what was said."""

from ctxlab.serve.http.server import (
    HOST,
    PORT,
    make_app,
    serve,
)

__all__ = ["HOST", "PORT", "make_app", "serve"]

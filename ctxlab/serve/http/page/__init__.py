"""Web page of the HTTP server, on which a user reads and searches sessions.

The page consists of static files: HTML, style sheets and ES modules, which a browser runs unchanged.
They contain no data, so they are served without the token. The script takes the token from the
fragment of the URL, which browsers do not send to servers, and reads the sessions through the HTTP
API. Some of the files are shared with reports and widgets (``ctxlab.evaluation.frontend``).
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctxlab.evaluation.frontend import read_asset

_OWN_FILES = (
    *("page.css", "main.js", "api.js", "sessions.js", "session.js", "conversation.js"),
    *("message.js", "markdown.js", "title_history.js", "search.js"),
)
_SHARED_FILES = ("style.css", "dom.js", "virtual_list.js")
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

PAGE_PATHS = frozenset(["/", *(f"/page/{name}" for name in (*_OWN_FILES, *_SHARED_FILES))])
"""URL paths of the files of the page, which contain no data of users."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Policy of the page: no inline script or style, and no request to another server."""

_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class SecurityHeaders:
    """ASGI middleware that adds security headers to each response, also to refused requests.

    Parameters
    ----------
    app : ASGIApp
        Application whose responses get the headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and add the headers to its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def read_page_file(path: str) -> str:
    """Read a file of the page.

    Parameters
    ----------
    path : str
        URL path of the file, one of ``PAGE_PATHS``.

    Returns
    -------
    str
        Content of the file.

    Examples
    --------
    >>> read_page_file("/").splitlines()[0]
    '<!doctype html>'
    """
    name = path.rpartition("/")[2] or "page.html"
    if name in _SHARED_FILES:
        return read_asset(name)
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def add_page(app: FastAPI) -> None:
    """Add the routes of the page's files to an application.

    Parameters
    ----------
    app : FastAPI
        Application of the HTTP API.
    """
    for path in sorted(PAGE_PATHS):
        media_type = _MEDIA_TYPES[path.rpartition(".")[2]] if path != "/" else "text/html"
        # It is a Starlette route, so that the OpenAPI document leaves it out.
        app.add_route(path, partial(_send_file, read_page_file(path), media_type), ["GET", "HEAD"])


def _send_file(text: str, media_type: str, request: Request) -> Response:
    return Response(text, media_type=f"{media_type}; charset=utf-8")

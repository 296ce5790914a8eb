"""FastAPI application of the HTTP API, with its routes, error handlers and authentication."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ctxlab import __version__
from ctxlab.serve.auth import AuthMiddleware
from ctxlab.serve.http.errors import Problem, add_problem_handlers
from ctxlab.serve.http.page import PAGE_PATHS, SecurityHeaders, add_page
from ctxlab.serve.http.routes import make_router
from ctxlab.serve.http.service import ChatService
from ctxlab.serve.http.sse import TurnEvent

_DESCRIPTION = """\
Chat sessions with an agent, grouped by workspace. All errors are returned as problem details \
(RFC 9457). A workspace runs one turn at a time."""


def build_app(
    service: ChatService,
    *,
    token: str,
    max_body: int,
    body_timeout: float,
    allowed_origins: Sequence[str] = (),
) -> FastAPI:
    """Build the FastAPI application that makes a ``ChatService`` available over HTTP.

    Parameters
    ----------
    service : ChatService
        Service that handles the requests.
    token : str
        Token that requests must send.
    max_body : int
        Maximum size of a request body, in bytes.
    body_timeout : float
        Time limit for receiving a request body, in seconds.
    allowed_origins : sequence of str, optional
        Origins of other sites whose web pages may send requests and read the answers.

    Returns
    -------
    FastAPI
        Application with all routes. It starts the service when the server starts, and closes the
        service when the server stops.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        sweeping = asyncio.create_task(_close_idle_agents(service))
        try:
            yield
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
            await asyncio.to_thread(service.close)

    # FastAPI's documentation pages are disabled because they load scripts from another site.
    app = FastAPI(
        title="ctxlab sessions",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service, app.state.token = service, token
    app.include_router(make_router(service))
    add_problem_handlers(app)
    add_page(app)
    app.add_middleware(
        AuthMiddleware,
        token=token,
        max_body=max_body,
        body_timeout=body_timeout,
        public_paths=PAGE_PATHS,
        allowed_origins=allowed_origins,
    )
    app.add_middleware(SecurityHeaders)  # added late, so that refused requests have them, too
    if allowed_origins:  # a browser first asks, without the token, whether it may send a request
        app.add_middleware(
            CORSMiddleware, allow_origins=allowed_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.openapi = cache(partial(_openapi_document, app))  # type: ignore[method-assign]
    return app


def _openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the authentication and the schemas of errors and events.

    FastAPI would leave out these schemas, because no route declares them as its response model.
    """
    about: Any = {"title": app.title, "version": app.version, "description": _DESCRIPTION}
    schema = get_openapi(**about, routes=app.routes)
    ref = "#/components/schemas/{model}"
    named: list[type[BaseModel]] = [Problem, *TurnEvent.__subclasses__()]
    _, shapes = models_json_schema([(each, "serialization") for each in named], ref_template=ref)
    parts = schema.setdefault("components", {})
    parts.setdefault("schemas", {}).update(shapes["$defs"])
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    return schema


async def _close_idle_agents(service: ChatService) -> None:
    """Close idle agents periodically while the server runs."""
    while True:
        await asyncio.sleep(max(1.0, min(60.0, service.agent_pool.idle_timeout / 4)))
        await asyncio.to_thread(service.agent_pool.close_idle)

"""Sessions over HTTP: chat with an agent, list and resume sessions, read what was said.

It answers those who have its token, and serves no folder that it was not given.
It needs fastapi and uvicorn: ``pip install '.[serve]'`` in a clone of ctxlab.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.errors import DataMissing
from ctxlab.serve.auth import BODY_TIMEOUT, MAX_BODY_BYTES, check_or_generate_token

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ctxlab.agent.loop import Agent
    from ctxlab.llm.base import Client
    from ctxlab.sessions.base import SessionStore

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "make_app", "serve"]

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9879


def make_app(
    workspaces: Sequence[Path | str],
    *,
    agent_for: Callable[[Path], Agent],
    client: Client | None = None,
    summary_model: str | None = None,
    store_for: Callable[[Path], SessionStore] | None = None,
    token: str | None = None,
    max_body: int = MAX_BODY_BYTES,
    body_timeout: float = BODY_TIMEOUT,
    idle_timeout: float = 600.0,
    max_agents: int = 16,
) -> FastAPI:
    """The server as an ASGI app, to be given to ``serve``.

    ``workspaces``: the folders whose sessions it serves; links are followed, and any other folder is
    refused (403). ``agent_for``: makes the agent of a session in a workspace; what it raises as
    ``CtxlabError``, say that no model is named, is told with 503. Where its tools run commands, so may
    whoever can use the server. ``summary_model``: writes lines of contents and titles, asked by
    ``client``; None: they are extracted. ``store_for``: the store of a workspace; None:
    ``SqliteStore``. ``token``: what each request must bring as ``Authorization: Bearer TOKEN``;
    None: a random one; either way it is ``app.state.token``. ``max_body``: bytes of a request at most
    (413), which must have come after ``body_timeout`` (408). ``max_agents``: how many are kept in memory
    between turns, each for ``idle_timeout`` seconds; what is not in memory is resumed from the store.

    One turn at a time is at work in a workspace (else 409); those of several workspaces run side by
    side. Raises ``SpecError`` for a workspace that is no folder and for a token that no header
    carries, and ``DataMissing`` where fastapi is not installed.
    """
    token = check_or_generate_token(token)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise DataMissing(
            f"the HTTP server needs {error.name}: run pip install '.[serve]' in a clone of ctxlab"
        ) from None
    from ctxlab.serve.http.app import build_fastapi_app
    from ctxlab.serve.http.service import ChatService
    from ctxlab.sessions.background_summaries import BackgroundSummarizer

    def summaries_for(store: SessionStore) -> BackgroundSummarizer:
        return BackgroundSummarizer(store, client, summary_model)

    service = ChatService(
        [Path(each) for each in workspaces],
        agent_for,
        store_for or _default_store,
        summaries_for,
        idle_timeout=idle_timeout,
        max_agents=max_agents,
    )
    return build_fastapi_app(service, token=token, max_body=max_body, body_timeout=body_timeout)


def serve(
    app: FastAPI,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    on_listening: Callable[[str, str], None] = lambda address, token: None,
) -> None:
    """Serves an app of ``make_app`` until SIGINT or SIGTERM, which raise ``KeyboardInterrupt`` after it.

    Turns at work have two seconds to end and are cancelled then; their sessions are consistent, and
    nothing that they began runs on. ``on_listening`` is told the address and the token once
    connections are taken. Raises ``SpecError`` where the address cannot be had.
    """
    from ctxlab.serve.runner import run_uvicorn

    try:
        run_uvicorn(
            app, host, port, on_listening=lambda address: on_listening(address, app.state.token)
        )
    finally:
        app.state.service.close()


def _default_store(workspace: Path) -> SessionStore:
    from ctxlab.sessions.sqlite.store import SqliteStore

    return SqliteStore(workspace)

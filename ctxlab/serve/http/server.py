"""HTTP server: chat with an agent, list and resume sessions, read turns.

It answers only clients with its token, and serves only the folders that it was given. It needs
fastapi and uvicorn: ``pip install '.[serve]'`` in a clone of ctxlab.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.errors import DataMissing
from ctxlab.serve.auth import BODY_TIMEOUT, MAX_BODY_BYTES, check_or_generate_token

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ctxlab.agent.loop import Agent
    from ctxlab.llm.base import Client
    from ctxlab.sessions.base import SessionStore

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
    """Create the server as an ASGI application, to be passed to ``serve``.

    A workspace runs one turn at a time (otherwise status 409); different workspaces run in
    parallel.

    Parameters
    ----------
    workspaces : sequence of Path or str
        Folders whose sessions are served. Symbolic links are followed. Any other folder is refused
        (status 403).
    agent_for : callable
        Function that creates the agent of a session in a workspace. A ``CtxlabError`` that it
        raises, for example because no model is named, is answered with status 503. If the agent's
        tools run commands, everybody who can use the server can run commands.
    client : Client, optional
        Client that calls ``summary_model``. By default, a ``LiteLLMClient``.
    summary_model : str, optional
        Model that writes turn summaries and titles. By default, they are extracted.
    store_for : callable, optional
        Function that returns the store of a workspace. By default, ``SqliteStore``.
    token : str, optional
        Token that requests must send as ``Authorization: Bearer TOKEN``. By default, a random one.
        It is available as ``app.state.token``.
    max_body : int, default 1_000_000
        Maximum size of a request body in bytes (otherwise status 413).
    body_timeout : float, default 30.0
        Time limit for receiving a body, in seconds (otherwise status 408).
    idle_timeout : float, default 600.0
        Time that an idle agent is kept in memory, in seconds. Later its session is resumed from the
        store.
    max_agents : int, default 16
        Maximum number of idle agents in memory.

    Returns
    -------
    FastAPI
        The application.

    Raises
    ------
    SpecError
        If a workspace is not a folder, or if a header cannot carry the token.
    DataMissing
        If fastapi or uvicorn is not installed.
    """
    token = check_or_generate_token(token)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        hint = "run pip install '.[serve]' in a clone of ctxlab"
        raise DataMissing(f"the HTTP server needs {error.name}: {hint}") from None
    from ctxlab.serve.http.app import build_app
    from ctxlab.serve.http.service import AgentPool, ChatService
    from ctxlab.sessions.background_summaries import BackgroundSummarizer
    from ctxlab.sessions.sqlite.store import SqliteStore

    summaries_for = partial(BackgroundSummarizer, client=client, model=summary_model)
    pool = AgentPool(max_agents, idle_timeout)
    service = ChatService(workspaces, agent_for, store_for or SqliteStore, summaries_for, pool)
    return build_app(service, token=token, max_body=max_body, body_timeout=body_timeout)


def serve(
    app: FastAPI,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    on_listening: Callable[[str, str], None] = lambda address, token: None,
) -> None:
    """Serve an application of ``make_app`` until SIGINT or SIGTERM, then raise ``KeyboardInterrupt``.

    Running turns have two seconds to finish and are then cancelled. Their sessions stay consistent,
    and no process that they started keeps running.

    Parameters
    ----------
    app : FastAPI
        Application of ``make_app``.
    host : str, default '127.0.0.1'
        Address to listen on.
    port : int, default 9879
        Port to listen on; 0 chooses a free one.
    on_listening : callable, optional
        Function that is called with the URL and the token when the server accepts connections.

    Raises
    ------
    SpecError
        If the server cannot listen on the address.
    """
    from ctxlab.serve.runner import run_uvicorn

    try:
        run_uvicorn(app, host, port, on_listening=lambda url: on_listening(url, app.state.token))
    finally:
        app.state.service.close()

"""HTTP server to chat with an agent, to list and resume sessions, and to read turns.

The server answers only clients that send its token. It serves only the folders that are passed to
``make_app``. It needs fastapi and uvicorn; run ``pip install '.[serve]'`` in a clone of ctxlab to
install them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.errors import DataMissing
from ctxlab.serve.auth import (
    BODY_TIMEOUT,
    MAX_BODY_BYTES,
    check_or_generate_token,
    check_origin_name,
)

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
    allowed_origins: Sequence[str] = (),
) -> FastAPI:
    """Create the ASGI application of the HTTP server. Run it with ``serve``.

    Each workspace runs one turn at a time. A message that arrives during a turn is rejected with
    status 409. Different workspaces run turns in parallel.

    Parameters
    ----------
    workspaces : sequence of Path or str
        Folders to serve, as workspaces. Symbolic links are followed. Requests for other folders are
        rejected with status 403.
    agent_for : callable
        Function that takes the path of a workspace and returns a new agent for a session. If it
        raises a ``CtxlabError``, for example because no model is configured, the request is
        answered with status 503. If the agent has tools that run commands, every client with the
        token can run commands.
    client : Client, optional
        Client that sends requests to ``summary_model``. By default, a ``LiteLLMClient``.
    summary_model : str, optional
        Model that writes turn summaries and session titles. By default, both are extracted from the
        messages without a model.
    store_for : callable, optional
        Function that takes the path of a workspace and returns its session store. By default,
        ``SqliteStore``.
    token : str, optional
        Token that requests must send as ``Authorization: Bearer TOKEN``. By default, a random token
        is generated. The token is available as ``app.state.token``.
    max_body : int, default 1_000_000
        Maximum size of a request body, in bytes. Larger bodies are rejected with status 413.
    body_timeout : float, default 30.0
        Time limit for receiving a request body, in seconds. Slower clients get status 408.
    idle_timeout : float, default 600.0
        Time for which an idle agent is kept in memory, in seconds. If its session continues later,
        the session is loaded from the store.
    max_agents : int, default 16
        Maximum number of idle agents in memory.
    allowed_origins : sequence of str, optional
        Origins of other sites whose web pages may use the server with the token, such as
        ``app://obsidian.md``.

    Returns
    -------
    FastAPI
        Application to pass to ``serve``.

    Raises
    ------
    SpecError
        If no workspace is given, if a workspace is not a folder, or if the token is empty or
        contains characters that cannot be sent in an HTTP header, or if an origin is invalid.
    DataMissing
        If fastapi or uvicorn is not installed.
    """
    token = check_or_generate_token(token)
    origins = [check_origin_name(origin) for origin in allowed_origins]
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
    return build_app(
        service,
        token=token,
        max_body=max_body,
        body_timeout=body_timeout,
        allowed_origins=origins,
    )


def serve(
    app: FastAPI,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    on_listening: Callable[[str, str], None] = lambda address, token: None,
) -> None:
    """Run the server until SIGINT or SIGTERM, then raise ``KeyboardInterrupt``.

    When the server stops, running turns have two seconds to end and are then cancelled. The
    sessions of cancelled turns stay consistent, and the processes that the turns started are
    killed.

    Parameters
    ----------
    app : FastAPI
        Application created by ``make_app``.
    host : str, default '127.0.0.1'
        IP address or host name to listen on.
    port : int, default 9879
        Port to listen on. If 0, the system chooses a free port.
    on_listening : callable, optional
        Function that is called once with the URL and the token, as soon as the server listens on
        the port.

    Raises
    ------
    SpecError
        If the server cannot listen on the address, for example because the port is in use.
    """
    from ctxlab.serve.runner import run_uvicorn

    try:
        run_uvicorn(app, host, port, on_listening=lambda url: on_listening(url, app.state.token))
    finally:
        app.state.service.close()

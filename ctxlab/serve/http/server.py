"""Sessions over HTTP: chat with an agent, list and resume sessions, read what was said.

It answers those who have its token, and serves no folder that it was not given.
fastapi and uvicorn are imported when an app is made: ``pip install 'ctxlab[serve]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.errors import DataMissing
from ctxlab.serve.auth import (
    BODY_SECONDS,
    MAX_BODY,
    token_or_new,
)

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ctxlab.agent.loop import Agent
    from ctxlab.llm.base import Client
    from ctxlab.sessions.base import Store

__all__ = ["HOST", "PORT", "make_app", "serve"]

HOST, PORT = "127.0.0.1", 9879


def make_app(
    workspaces: Sequence[Path | str],
    *,
    agent_for: Callable[[Path], Agent],
    client: Client | None = None,
    summary_model: str | None = None,
    store_for: Callable[[Path], Store] | None = None,
    token: str | None = None,
    max_body: int = MAX_BODY,
    body_seconds: float = BODY_SECONDS,
    idle: float = 600.0,
    agents: int = 16,
) -> FastAPI:
    """The server as an ASGI app, to be given to ``serve``.

    ``workspaces``: the folders whose sessions it serves; links are followed, and any other folder is
    refused (403). ``agent_for``: makes the agent of a session in a workspace; what it raises as
    ``CtxlabError``, say that no model is named, is told with 503. Where its tools run commands, so may
    whoever can use the server. ``summary_model``: writes lines of contents and titles, asked by
    ``client``; None: they are extracted. ``store_for``: the store of a workspace; None:
    ``WorkspaceStore``. ``token``: what each request must bring as ``Authorization: Bearer TOKEN``;
    None: a random one; either way it is ``app.state.token``. ``max_body``: bytes of a request at most
    (413), which must have come after ``body_seconds`` (408). ``agents``: how many are kept in memory
    between turns, each for ``idle`` seconds; what is not in memory is resumed from the store.

    One turn at a time is at work in a workspace (else 409); those of several workspaces run side by
    side. Raises ``SpecError`` for a workspace that is no folder and for a token that no header
    carries, and ``DataMissing`` where fastapi is not installed.
    """
    token = token_or_new(token)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise DataMissing(
            f"the HTTP server needs {error.name}: pip install 'ctxlab[serve]'"
        ) from None
    from ctxlab.serve.http.app import assemble
    from ctxlab.serve.http.service import Desk
    from ctxlab.sessions.background_summaries import Summaries

    def summaries_for(store: Store) -> Summaries:
        return Summaries(store, client, summary_model)

    desk = Desk(
        [Path(each) for each in workspaces],
        agent_for,
        store_for or _store,
        summaries_for,
        idle=idle,
        most=agents,
    )
    return assemble(desk, token=token, max_body=max_body, body_seconds=body_seconds)


def serve(
    app: FastAPI,
    host: str = HOST,
    port: int = PORT,
    *,
    heard: Callable[[str, str], None] = lambda address, token: None,
) -> None:
    """Serves an app of ``make_app`` until SIGINT or SIGTERM, which raise ``KeyboardInterrupt`` after it.

    Turns at work have two seconds to end and are cancelled then; their sessions are consistent, and
    nothing that they began runs on. ``heard`` is told the address and the token once connections are
    taken. Raises ``SpecError`` where the address cannot be had.
    """
    from ctxlab.serve.runner import listen

    try:
        listen(app, host, port, heard=lambda address: heard(address, app.state.token))
    finally:
        app.state.desk.close()


def _store(workspace: Path) -> Store:
    from ctxlab.sessions.sqlite.store import WorkspaceStore

    return WorkspaceStore(workspace)

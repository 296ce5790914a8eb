"""``ctxlab serve`` gives sessions to other programs: over MCP to agents, over HTTP to whatever asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab.cli.agent_options import (
    Answerer,
    KeepEnv,
    ManagedBy,
    MaxIterations,
    NoTools,
    ReadOnly,
    SummaryModel,
    Window,
    a_workspace,
    agent_of,
    model_named,
    no_model,
)
from ctxlab.cli.options import (
    Reserve,
    reserved,
)
from ctxlab.cli.output import note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.sessions.base import Library

__all__ = ["app", "http", "mcp"]

_Host = Annotated[str | None, typer.Option(metavar="H", help="Where to listen [127.0.0.1].")]
_Port = Annotated[
    int | None, typer.Option(metavar="N", min=0, max=65_535, help="0 is any that is free.")
]
_Token = Annotated[
    str | None,
    typer.Option(
        metavar="T",
        envvar="CTXLAB_TOKEN",
        show_envvar=False,
        help="What clients must send [CTXLAB_TOKEN, else a random one, which is printed]. Others on "
        "this machine can see a command line: use CTXLAB_TOKEN.",
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _begin(context: typer.Context) -> None:
    """Serve sessions to other programs, until Ctrl+C.

    \b
    Examples:
      ctxlab serve mcp                          this folder's sessions, for an agent that starts it
      ctxlab serve mcp ~/.claude/projects       recorded logs, read-only
      ctxlab serve mcp --http                   prints an address and a token
      CTXLAB_TOKEN=… ctxlab serve mcp --http --host 0.0.0.0
      ctxlab serve http --workspace . --model gpt-5-mini

    By HTTP every request needs the token: "Authorization: Bearer TOKEN", else it is answered with 401.
    The token is that of --token or CTXLAB_TOKEN, else a random one, which is printed.

    Both need: pip install 'ctxlab[serve]'.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("mcp", short_help="Let agents find their way in sessions, by MCP.")
def mcp(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH…",
            help="A workspace, a folder of chunks, or logs, of which there may be several "
            "[the current folder].",
            show_default=False,
        ),
    ] = None,
    over_http: Annotated[
        bool, typer.Option("--http", help="Streamable HTTP instead of standard input and output.")
    ] = False,
    host: _Host = None,
    port: _Port = None,
    token: _Token = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The current session [what CTXLAB_SESSION says, else newest]."
        ),
    ] = None,
) -> None:
    """Let agents find their way in sessions: contents, search, turns; all of it read-only.

    \b
    As an agent's configuration has it:
      {"command": "ctxlab", "args": ["serve", "mcp", "/home/me/project"]}
    """
    from ctxlab.cli.session_lookup import session_of
    from ctxlab.serve import mcp as server
    from ctxlab.sessions.log_library import Logs
    from ctxlab.sessions.open import (
        open_library,
        open_store,
    )

    if not over_http and (host is not None or port is not None):
        raise SpecError("--host and --port say where to listen by HTTP: add --http")
    given = _given(token)
    library: Library
    if not paths:  # also before the first chat
        library = open_store(".")
    elif len(paths) == 1:
        library = open_library(paths[0], future=True)
    else:
        library = Logs(paths)
        library.sessions()  # what cannot be read is said now
    current = None if session is None else session_of(library, session).id
    if not over_http:
        return server.serve_stdio(library, current=current)
    return server.serve_http(
        library,
        host or "127.0.0.1",
        server.PORT if port is None else port,
        given,
        current=current,
        heard=_said("sessions are served by MCP", given),
    )


@app.command("http", short_help="Serve chats and sessions by HTTP.")
def http(
    workspace: Annotated[
        list[str] | None,
        typer.Option(
            "--workspace",
            metavar="DIR",
            help="A folder to serve, may be repeated [the current one].",
        ),
    ] = None,
    host: _Host = None,
    port: _Port = None,
    token: _Token = None,
    model: Answerer = None,
    strategy: ManagedBy = None,
    limit: Window = None,
    reserve: Reserve = None,
    max_iterations: MaxIterations = 10,
    read_only: ReadOnly = False,
    no_tools: NoTools = False,
    keep_env: KeepEnv = None,
    summary_model: SummaryModel = None,
) -> None:
    """Serve chats and sessions of workspaces by HTTP; /openapi.json describes it.

    Where no model is named, sessions can be read and nobody answers. Whoever has the token may have
    files written and commands run, as you: --read-only or --no-tools where that is not wanted.
    """
    from ctxlab.agent.tools.environment import names_to_keep
    from ctxlab.llm import LiteLLMClient
    from ctxlab.serve import http as server
    from ctxlab.sessions.sqlite.store import WorkspaceStore
    from ctxlab.strategies import parse

    if strategy is not None:
        parse(strategy)  # a wrong one is said before anything is served
    named, client = model_named(model), LiteLLMClient()

    def agent_for(folder: Path) -> Agent:
        if named is None:
            raise no_model()
        return agent_of(
            folder,
            named,
            client,
            strategy=strategy,
            limit=limit,
            reserve=reserved(reserve),
            max_iterations=max_iterations,
            read_only=read_only,
            no_tools=no_tools,
            keep_env=keep_env or (),
        )

    names_to_keep(keep_env or ())
    folders = [a_workspace(folder) for folder in workspace or ["."]]
    if named is not None:
        agent_for(folders[0])  # as is a limit
    given = _given(token)
    made = server.make_app(
        folders,
        agent_for=agent_for,
        client=client,
        summary_model=summary_model,
        store_for=lambda folder: WorkspaceStore(folder, client=client, model=summary_model),
        token=given,
    )
    server.serve(
        made,
        host or server.HOST,
        server.PORT if port is None else port,
        heard=_said(f"{', '.join(map(str, folders))}: served", given),
    )


def _given(token: str | None) -> str | None:
    """The token that the user chose; None where there is none, also where the variable is empty."""
    # What the server starts must not inherit it.
    os.environ.pop("CTXLAB_TOKEN", None)
    return token or None


def _said(what: str, given: str | None) -> Callable[[str, str], None]:
    """Prints the address, and the token where the user does not know it."""

    def heard(address: str, token: str) -> None:
        note(f"{what} at {address}")
        if given is None:
            note(f"every request needs the header  Authorization: Bearer {token}")

    return heard

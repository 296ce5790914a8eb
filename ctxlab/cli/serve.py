"""``ctxlab serve`` gives sessions to other programs: over MCP to agents, over HTTP to whatever asks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab.cli.agents import (
    Answerer,
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
from ctxlab.cli.options import Reserve, reserved
from ctxlab.cli.speak import note
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
        help="What clients must send; needed where others can reach the address. Others on this machine "
        "see a command line: better set CTXLAB_TOKEN.",
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
      CTXLAB_TOKEN=… ctxlab serve mcp --http --host 0.0.0.0
      ctxlab serve http --workspace . --model gpt-5-mini

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
    from ctxlab.cli.stored import session_of
    from ctxlab.serve import mcp as server
    from ctxlab.sessions.logs import Logs
    from ctxlab.sessions.opening import open_library, open_store

    if not over_http and (host is not None or port is not None):
        raise SpecError("--host and --port say where to listen by HTTP: add --http")
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
        token or None,
        current=current,
        heard=lambda address: note(f"sessions are served by MCP at {address}"),
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
    summary_model: SummaryModel = None,
) -> None:
    """Serve chats and sessions of workspaces by HTTP; /openapi.json describes it.

    Where no model is named, sessions can be read and nobody answers.
    """
    from ctxlab.llm import LiteLLMClient
    from ctxlab.serve import http as server
    from ctxlab.sessions.workspace.store import WorkspaceStore
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
        )

    folders = [a_workspace(folder) for folder in workspace or ["."]]
    if named is not None:
        agent_for(folders[0])  # as is a limit
    where = host or server.HOST
    made = server.make_app(
        folders,
        agent_for=agent_for,
        client=client,
        summary_model=summary_model,
        store_for=lambda folder: WorkspaceStore(folder, client=client, model=summary_model),
        host=where,
        token=token or None,
    )
    server.serve(
        made,
        where,
        server.PORT if port is None else port,
        heard=lambda address: note(f"{', '.join(map(str, folders))}: served at {address}"),
    )

"""``ctxlab serve``: serve sessions to other programs, by MCP or HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.cli.agent_options import AgentOptions, resolve_workspace
from ctxlab.cli.options import App, argument, flag, option, with_options
from ctxlab.cli.output import print_note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.sessions.base import SessionLibrary

_HOST = option("--host HOST", "Address to listen on [127.0.0.1].")
_PORT = option("--port PORT", "Port to listen on; 0 picks one that is free.", min=0, max=65_535)
_TOKEN = option(
    "--token TOKEN",
    "Token that clients must send [$CTXLAB_TOKEN, else a random one, which is printed]. Other "
    "users of this machine can see command lines, so prefer CTXLAB_TOKEN.",
    envvar="CTXLAB_TOKEN",
    show_envvar=False,
)

app = App()


@app.callback()
def _describe() -> None:
    """Serve sessions to other programs, until Ctrl+C.

    Examples
    --------
    ctxlab serve mcp                          sessions of this folder, over standard input/output
    ctxlab serve mcp ~/.claude/projects       logs of another product, read-only
    ctxlab serve mcp --http                   over HTTP; prints a URL and a token
    CTXLAB_TOKEN=… ctxlab serve mcp --http --host 0.0.0.0
    ctxlab serve http --workspace . --model gpt-5-mini

    Over HTTP every request needs the header "Authorization: Bearer TOKEN"; without it the answer is
    401. The token comes from --token or CTXLAB_TOKEN; otherwise a random one is made and printed.

    Both commands need an extra; in a clone of ctxlab run: pip install '.[serve]'
    """


@app.command("mcp", short_help="Let agents read sessions, by MCP.")
def mcp(
    paths: list[str] | None = argument(
        "PATH…",
        "A workspace, a folder of session files, or one or more paths of logs [the current "
        "folder].",
        show_default=False,
    ),
    over_http: bool = flag("--http", "Use streamable HTTP instead of standard input and output."),
    host: str | None = _HOST,
    port: int | None = _PORT,
    token: str | None = _TOKEN,
    session: str | None = option(
        "--session ID", "Session that tools use by default [$CTXLAB_SESSION, else the newest]."
    ),
) -> None:
    """Let agents list, search and read sessions by MCP. All access is read-only.

    Configuration of an agent:
      {"command": "ctxlab", "args": ["serve", "mcp", "/home/me/project"]}
    """
    from ctxlab.cli.session_lookup import find_session
    from ctxlab.serve import mcp as server
    from ctxlab.sessions.log_library import LogLibrary
    from ctxlab.sessions.open import open_library, open_store

    if not over_http and (host is not None or port is not None):
        raise SpecError("--host and --port have an effect over HTTP only; add --http")
    chosen_token = _take_token(token)
    library: SessionLibrary
    if not paths:  # creates the store if there was no chat yet
        library = open_store(".")
    elif len(paths) == 1:
        library = open_library(paths[0], allow_empty=True)
    else:
        library = LogLibrary(paths)
        library.sessions()  # fail now if logs cannot be read
    current = None if session is None else find_session(library, session).id
    if not over_http:
        return server.serve_stdio(library, current_session_id=current)
    return server.serve_http(
        library,
        host or "127.0.0.1",
        server.DEFAULT_PORT if port is None else port,
        chosen_token,
        current_session_id=current,
        on_listening=_address_printer("serving sessions by MCP", chosen_token),
    )


@app.command("http", short_help="Serve chats and sessions by HTTP.")
@with_options()
def http(
    options: AgentOptions,
    workspace: list[str] | None = option(
        "--workspace DIR", "Folder to serve [the current one]. May be repeated."
    ),
    host: str | None = _HOST,
    port: int | None = _PORT,
    token: str | None = _TOKEN,
) -> None:
    """Serve chats and sessions of workspaces by HTTP. /openapi.json describes the interface.

    Without a model, sessions can be read but not continued.

    Everyone who has the token can let the agent write files and run commands with your permissions.
    Use --read-only or --no-tools to prevent that.
    """
    from ctxlab.agent.tools.environment import names_to_keep
    from ctxlab.llm import LiteLLMClient
    from ctxlab.serve import http as server
    from ctxlab.sessions.sqlite.store import SqliteStore
    from ctxlab.strategies import parse_strategy

    if options.strategy is not None:
        parse_strategy(options.strategy)  # fail on a wrong strategy before serving
    client, summary_model = LiteLLMClient(), options.summary_model

    def agent_for(folder: Path) -> Agent:
        return options.make_agent(folder, client)

    names_to_keep(options.keep_env or ())
    folders = [resolve_workspace(folder) for folder in workspace or ["."]]
    if options.named_model is not None:
        agent_for(folders[0])  # fail on a wrong limit before serving
    chosen_token = _take_token(token)
    made = server.make_app(
        folders,
        agent_for=agent_for,
        client=client,
        summary_model=summary_model,
        store_for=lambda folder: SqliteStore(folder, client=client, model=summary_model),
        token=chosen_token,
    )
    server.serve(
        made,
        host or server.DEFAULT_HOST,
        server.DEFAULT_PORT if port is None else port,
        on_listening=_address_printer(f"serving {', '.join(map(str, folders))}", chosen_token),
    )


def _take_token(token: str | None) -> str | None:
    """Return the token that the user chose, or None; removes it from the environment."""
    # Commands that the server starts must not inherit the token.
    os.environ.pop("CTXLAB_TOKEN", None)
    return token or None


def _address_printer(what: str, chosen_token: str | None) -> Callable[[str, str], None]:
    """Return a function that prints the address, and the token if the user did not choose it."""

    def heard(address: str, token: str) -> None:
        print_note(f"{what} at {address}")
        if chosen_token is None:
            print_note(f"every request needs the header  Authorization: Bearer {token}")

    return heard

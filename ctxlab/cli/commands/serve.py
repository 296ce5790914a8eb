"""``ctxlab serve``: serve sessions to other programs, over MCP or HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.cli.agent_options import AgentOptions, resolve_workspace
from ctxlab.cli.options import App, argument, flag, option, with_options
from ctxlab.cli.output import print_note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.sessions.base import SessionLibrary

_HOST = option("--host HOST", "Address to listen on. Default: 127.0.0.1, for local clients only.")
_PORT = option(
    "--port PORT",
    "Port to listen on; 0 picks a free port. Default: 9877 for serve desktop, 9878 for serve mcp, "
    "9879 for serve http.",
    min=0,
    max=65_535,
)
_TOKEN = option(
    "--token TOKEN",
    "Token that clients must send. It is safer to set CTXLAB_TOKEN, because other users of the "
    "computer can see command lines. Default: $CTXLAB_TOKEN, else a random token, which is printed.",
    envvar="CTXLAB_TOKEN",
    show_envvar=False,
)

_NO_STREAM = (
    "nobody can be asked in a request without a stream of events; "
    "the server can be started with --approval auto"
)

app = App()


@app.callback()
def _describe() -> None:
    """Serve sessions to other programs until you press Ctrl+C.

    Examples
    --------
    ctxlab serve mcp                     over standard input/output
    ctxlab serve mcp ~/.claude/projects  logs of another agent, read-only
    ctxlab serve mcp --http              over HTTP; prints the URL and the token
    CTXLAB_TOKEN=… ctxlab serve mcp --http --host 0.0.0.0
    ctxlab serve http --workspace . --model gpt-5-mini
    ctxlab serve http --open             opens a page to read the sessions

    Over HTTP, every request needs the header "Authorization: Bearer TOKEN". Requests without the token
    are answered with 401. The token comes from --token or CTXLAB_TOKEN. If neither is set, a random
    token is generated and printed.

    Both commands need optional packages. In a clone of ctxlab, run: pip install '.[serve]'
    """


@app.command("mcp", short_help="Let agents read sessions over MCP.")
def mcp(
    paths: list[str] | None = argument(
        "PATH…",
        "A workspace, a folder of session files, or one or more paths of logs of other agents. "
        "Default: the current folder.",
        show_default=False,
    ),
    over_http: bool = flag("--http", "Use streamable HTTP instead of standard input and output."),
    host: str | None = _HOST,
    port: int | None = _PORT,
    token: str | None = _TOKEN,
    session: str | None = option(
        "--session ID",
        "Session to use if a tool call names none. Default: $CTXLAB_SESSION, else the newest.",
    ),
) -> None:
    """Let agents list, search and read sessions over MCP. All access is read-only.

    To add the server to an agent, use a configuration such as:
      {"command": "ctxlab", "args": ["serve", "mcp", "/home/me/project"]}
    """
    from ctxlab.cli.session_lookup import find_session
    from ctxlab.serve import mcp as server
    from ctxlab.sessions.log_library import LogLibrary
    from ctxlab.sessions.open import open_library, open_store

    if not over_http and (host is not None or port is not None):
        raise SpecError("--host and --port have no effect without --http; add --http")
    chosen_token = _take_token(token)
    library: SessionLibrary
    if not paths:  # the store is created if it does not exist
        library = open_store(".")
    elif len(paths) == 1:
        library = open_library(paths[0], allow_empty=True)
    else:
        library = LogLibrary(paths)
        library.sessions()  # report unreadable logs before serving
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


@app.command("http", short_help="Serve chats and sessions over HTTP.")
@with_options()
def http(
    options: AgentOptions,
    workspace: list[str] | None = option(
        "--workspace DIR", "Folder to serve. May be repeated. Default: the current folder."
    ),
    host: str | None = _HOST,
    port: int | None = _PORT,
    token: str | None = _TOKEN,
    store: Path | None = option(
        "--store DIR", "Folder in which sessions are stored, instead of the workspace."
    ),
    open_page: bool = flag("--open", "Open the page with the sessions in the browser."),
    allow_origin: list[str] | None = option(
        "--allow-origin ORIGIN",
        "Site whose web pages may use the server with the token, such as app://obsidian.md. May be "
        "repeated. Default: none but this server.",
    ),
) -> None:
    """Serve chats and sessions of workspaces over HTTP, and a page to read them in a browser.

    Open the printed address in a browser: the page shows sessions with their contents, and searches
    them. /openapi.json describes the API for other programs. If no model is set, clients can read
    sessions but not continue them.

    Before the agent changes a file or runs a command, the stream of events asks the client (event
    approval_required), which answers at /sessions/{id}/approvals/{call}. Everyone who has the token can
    allow it with your permissions. Use --approval read-only or --no-tools to prevent that.
    """
    from ctxlab.agent.tools.environment import names_to_keep
    from ctxlab.cli.browser import open_in_browser
    from ctxlab.cli.chat.storage import make_store_folder, open_chat_store
    from ctxlab.serve import http as server
    from ctxlab.serve.runner import page_url
    from ctxlab.strategies import parse_strategy

    settings = options.resolve()
    if settings.values["strategy"] is not None:
        parse_strategy(settings.values["strategy"])  # report an invalid strategy before serving
    client, summary_model = settings.make_client(), settings.summary_model

    names_to_keep(options.keep_env or ())
    folders = [resolve_workspace(folder) for folder in workspace or ["."]]
    if store is not None and len(folders) > 1:
        raise SpecError(f"--store: expected one workspace, got {len(folders)}; serve one at a time")
    place = None if store is None else make_store_folder(store)
    chosen_token = _take_token(token)
    what = f"serving {', '.join(map(str, folders))}"
    with ExitStack() as opened:
        tools = {folder: options.start_mcp_servers(folder, opened) for folder in folders}

        def agent_for(folder: Path) -> Agent:
            return settings.make_agent(folder, client, _NO_STREAM, tools[folder])

        if settings.model is not None:
            agent_for(folders[0])  # report an invalid limit before serving
        made = server.make_app(
            folders,
            agent_for=agent_for,
            client=client,
            summary_model=summary_model,
            store_for=lambda folder: open_chat_store(place or folder, client, summary_model),
            token=chosen_token,
            allowed_origins=allow_origin or (),
        )

        def on_listening(address: str, token: str) -> None:
            page = page_url(address, token)
            _address_printer(what, chosen_token)(address, token)
            shown = page if chosen_token is None else f"{address}/#token= followed by your token"
            print_note(f"to read sessions in a browser, open {shown}")
            if open_page:
                failed = "Expected a browser, found none; open the page yourself"
                opened.enter_context(open_in_browser(page, lambda: print_note(failed)))

        server.serve(
            made,
            host or server.DEFAULT_HOST,
            server.DEFAULT_PORT if port is None else port,
            on_listening=on_listening,
        )


@app.command("desktop", short_help="Let agents see and use a desktop over MCP.")
def desktop(
    over_http: bool = flag("--http", "Use streamable HTTP instead of standard input and output."),
    host: str | None = _HOST,
    port: int | None = _PORT,
    token: str | None = _TOKEN,
    display: str | None = option(
        "--display D", "Display, such as :0 or wayland-1. Default: $WAYLAND_DISPLAY, then $DISPLAY."
    ),
    folder: Path = option(
        "--folder DIR", "Folder in which screenshots are saved.", default=Path(), file_okay=False
    ),
    allow: str = option(
        "--allow type,click,clipboard",
        "What agents may do besides taking screenshots. Separate several by commas. Default: nothing.",
        default="",
    ),
    window: list[str] | None = option(
        "--window TITLE",
        "Type and click only in windows with this title, or with a title that fits a pattern such as "
        "'*Firefox'. May be repeated. Default: all windows.",
    ),
    read_only: bool = flag("--read-only", "Refuse everything but taking screenshots."),
) -> None:
    """Let agents see a desktop over MCP, and use it as far as you allow.

    Examples
    --------
    ctxlab serve desktop  screenshots only
    ctxlab serve desktop --allow type,click --window '*Firefox'
    ctxlab serve desktop --http --display :99 --allow type,click,clipboard

    What the screen shows can contain instructions for the agent from strangers, such as a web page.
    Allow only what the task needs, use a desktop of its own (Xvfb, a virtual machine), and name its
    windows.
    Every call is logged in DIR/.ctxlab/desktop.jsonl, typed texts by their length only.

    On X11, xclip is needed for the clipboard. On Wayland, grim, wtype and wl-clipboard are needed.
    In a clone of ctxlab, run: pip install '.[desktop]'
    """
    from ctxlab.serve import desktop as server

    if not over_http and (host is not None or port is not None):
        raise SpecError("--host and --port have no effect without --http; add --http")
    chosen_token = _take_token(token)
    allowed = [each.strip() for each in allow.split(",") if each.strip()]
    tools = server.DesktopTools(
        folder,
        allowed,
        window or (),
        read_only=read_only,
        audit=server.default_audit_path(folder),
    )
    with server.DesktopServer(tools, display) as desktop_server:
        desktop_server.check()
        if not over_http:
            return desktop_server.serve_stdio()
        desktop_server.serve_http(
            host or "127.0.0.1",
            server.DEFAULT_PORT if port is None else port,
            chosen_token,
            _address_printer("serving a desktop by MCP", chosen_token),
        )
    return None


def _take_token(token: str | None) -> str | None:
    """Return the token that the user chose, or None, and remove it from the environment."""
    # Commands that the server starts must not inherit the token.
    os.environ.pop("CTXLAB_TOKEN", None)
    return token or None


def _address_printer(what: str, chosen_token: str | None) -> Callable[[str, str], None]:
    """Return a function that prints the server's address, and also the token if it is random."""

    def heard(address: str, token: str) -> None:
        print_note(f"{what} at {address}")
        if chosen_token is None:
            print_note(f"every request needs the header: Authorization: Bearer {token}")

    return heard

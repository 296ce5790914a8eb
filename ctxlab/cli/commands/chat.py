"""``ctxlab chat``: chat with an agent about a folder, in sessions that can be resumed."""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.agent_options import AgentOptions, resolve_workspace
from ctxlab.cli.options import flag, option, with_options
from ctxlab.cli.output import one_line, print_note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.tools.tool import Tool
    from ctxlab.cli.chat.prompt import LineReader
    from ctxlab.sessions.base import Session, SessionStore


@with_options()
def command(
    options: AgentOptions,
    workspace: Path = option(
        "--workspace DIR",
        "Folder in which the agent works and sessions are stored.",
        default=Path(),
    ),
    new: bool = flag("--new", "Start a new session without asking which one to resume."),
    session: str | None = option(
        "--session ID", "Resume the session whose id is ID or begins with ID."
    ),
    mcp: list[str] | None = option(
        "--mcp SERVER",
        "Give the agent the tools of an MCP server: a command, such as 'ctxlab serve desktop', or an "
        "address, such as http://127.0.0.1:9000/mcp. Addresses get the token in CTXLAB_MCP_TOKEN. "
        "May be repeated.",
    ),
) -> None:
    """Chat with an agent about a folder. Sessions are stored in the folder and can be resumed.

    Examples
    --------
    ctxlab chat --model gpt-5-mini
    ctxlab chat --session 3f2a  resume a session
    ctxlab chat --new --read-only -l 32k -s 'observation_mask(keep=10) | panic'
    echo "What is in this folder?" | ctxlab chat   print only the answer

    If the folder has sessions, you are asked which one to resume. A resumed session uses its earlier
    model, strategy and limit, unless an option names others. ctxlab config shows the settings that hold
    where you give no option. In the chat, type /help for a list of commands.

    The agent lists, searches, reads and writes files in the folder, and runs commands in it, without
    asking for permission. To prevent changes, use --read-only or a copy of the folder. Commands do not
    inherit environment variables that look like keys, tokens or passwords, but they can read every
    file that you can read.

    --mcp adds tools of MCP servers, such as a desktop, a browser or a database. A command runs in the
    folder, without variables that look like secrets. It ends with the chat. With --read-only, only tools
    are added that their server declares to be read-only.

    Ctrl+C stops an answer and the commands that it runs. At a prompt with text, Ctrl+C discards the
    text. At an empty prompt, Ctrl+C ends the chat.

    Sessions are stored in DIR/.ctxlab/sessions.db. ctxlab sessions lists and shows them. ctxlab eval
    can replay this file.
    """
    from ctxlab.agent.session import AgentSession
    from ctxlab.cli.chat.prompt import LineReader
    from ctxlab.cli.chat.repl import ChatRepl
    from ctxlab.sessions.background_summaries import BackgroundSummarizer
    from ctxlab.sessions.sqlite.store import SqliteStore

    # Exclude litellm from Python's last garbage collection; scanning it takes as long as importing it.
    atexit.register(gc.freeze)
    if new and session is not None:
        raise SpecError("expected --new or --session, got both; use only one of them")
    folder = resolve_workspace(workspace)
    reader = LineReader(folder / ".ctxlab" / "chat_history")
    with ExitStack() as stack:
        settings = options.resolve()
        client = settings.make_client()
        store = SqliteStore(folder, client=client, model=settings.summary_model)
        stack.enter_context(closing(store))
        resumed = None if new else _pick_session(store, session, reader)
        settings = options.resolve(resumed)
        agent = settings.make_agent(folder, client, _start_mcp(mcp, folder, options, stack))
        if agent.processes is not None:
            stack.callback(agent.processes.kill_all)
        summaries = stack.enter_context(BackgroundSummarizer(store, client, settings.summary_model))
        agent_session = None
        if resumed is not None:
            agent_session = AgentSession.resume(store, resumed.id, agent, summarizer=summaries)

        def begin(title: str) -> AgentSession:
            return AgentSession.start(
                store,
                agent,
                title=title,
                agent_name=settings.values["agent"],
                summarizer=summaries,
                meta=settings.stored,
            )

        chat = ChatRepl(store, agent, begin, reader, agent_session)
        try:
            if chat.interactive:
                client.warm_up()  # in the background, while the user types the first line
                _print_greeting(chat.session, agent.model)
            chat.run()
        finally:
            if chat.agent_session is not None:
                chat.agent_session.close()
                # A new session stays empty if every request failed.
                if resumed is None and not chat.agent_session.session.messages:
                    store.delete(chat.agent_session.id)
                elif chat.interactive:
                    reader.save_history()
                    print_note(_resume_hint(store, chat.agent_session.id, workspace))


def _start_mcp(
    servers: list[str] | None, folder: Path, options: AgentOptions, stack: ExitStack
) -> Iterable[Tool]:
    """Start MCP servers, which end with ``stack``, and return their tools."""
    if not servers:
        return ()
    if options.no_tools:
        raise SpecError("expected --mcp or --no-tools, got both; use only one of them")
    from ctxlab.agent.tools.mcp_client import McpServers

    token = os.environ.get("CTXLAB_MCP_TOKEN")
    opened = McpServers(servers, cwd=folder, keep_env=options.keep_env or (), token=token)
    tools = stack.enter_context(opened).tools
    return [tool for tool in tools if tool.read_only or not options.read_only]


def _pick_session(store: SessionStore, wanted: str | None, reader: LineReader) -> Session | None:
    """Return the session whose id begins with ``wanted``. If it is not given, the user picks one.

    Return None to start a new session: the user chose this, there is no session to pick, or the
    input comes from a pipe.
    Ctrl+D ends the command.
    """
    from ctxlab.cli.chat.session_picker import choose_session, session_choices_table
    from ctxlab.cli.render.format import render_to_text
    from ctxlab.cli.session_lookup import find_session

    if wanted is not None:
        return find_session(store, wanted)
    if not reader.interactive:
        return None
    known = [session for session in store.sessions() if not session.system]
    if not known:
        return None
    print(render_to_text(session_choices_table(known)), file=sys.stderr)
    try:
        return choose_session(known, reader.ask, print_note)
    except EOFError:
        raise typer.Exit from None


def _print_greeting(session: Session | None, model: str) -> None:
    if session is None:
        said = "new session"
    else:
        messages = pluralize(session.messages, "message")
        said = f"resumed {one_line(session.title) or session.id} ({messages})"
    print_note(f"{said}; model {one_line(model)}; /help lists commands")


def _resume_hint(store: SessionStore, id: str, workspace: Path) -> str:
    """Return a note with the id of a session and the command that resumes the session."""
    from ctxlab.cli.session_lookup import list_all_sessions, short_ids

    shown = short_ids(session.id for session in list_all_sessions(store)).get(id, id)
    where = [] if workspace == Path() else ["--workspace", str(workspace)]
    command = shlex.join(["ctxlab", "chat", *where, "--session", shown])
    return f"session stored as {id}; resume it with: {command}"

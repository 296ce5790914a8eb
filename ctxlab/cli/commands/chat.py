"""``ctxlab chat``: chat with an agent about a folder, in sessions that can be resumed."""

from __future__ import annotations

import atexit
import gc
import shlex
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ctxlab._utils.humanize import parse_limit
from ctxlab.cli.agent_options import AgentOptions, resolve_workspace
from ctxlab.cli.options import argument, flag, option, with_options
from ctxlab.cli.output import print_note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.cli.agent_options import AgentSettings
    from ctxlab.cli.chat.connection import ChatConnection
    from ctxlab.cli.chat.prompt import LineReader
    from ctxlab.sessions.base import Session, SessionStore


_NO_TERMINAL = "nobody can be asked, because the input is a pipe; --approval auto allows it"


@with_options()
def command(
    options: AgentOptions,
    question: str | None = argument(
        "QUESTION", "Ask one question, print the answer, and end. Text from a pipe follows it."
    ),
    workspace: Path = option(
        "--workspace DIR",
        "Folder in which the agent works and sessions are stored.",
        default=Path(),
    ),
    new: bool = flag("--new", "Start a new session without asking which one to resume."),
    session: str | None = option(
        "--session ID", "Resume the session whose id is ID or begins with ID."
    ),
    store: Path | None = option(
        "--store DIR", "Folder in which sessions are stored, instead of the workspace."
    ),
    no_save: bool = flag("--no-save", "Save nothing: the session ends with the chat."),
    json: bool = flag("--json", "Print each event of a single answer as a line of JSON."),
) -> None:
    """Chat with an agent about a folder. Sessions are stored in the folder and can be resumed.

    Examples
    --------
    ctxlab chat --model gpt-5-mini
    ctxlab chat --session 3f2a  resume a session
    ctxlab chat --new --approval read-only -l 32k -s 'observation_mask(keep=10) | panic'
    ctxlab chat "What is in this folder?"       one answer, then end
    git diff | ctxlab chat "Review this."       the question and the text are one message
    ctxlab chat --json --session 3f2a "And?"    events as lines of JSON

    If the folder has sessions, you are asked which one to resume. A resumed session uses its earlier
    model, strategy and limit, unless an option names others. ctxlab config shows the settings that hold
    where you give no option. In the chat, type /help for a list of commands.

    The agent lists, searches and reads files in the folder. Before it changes a file or runs a command,
    it shows the change or the command and asks you. To allow everything, use --approval auto; to prevent
    changes, use --approval read-only. If the input comes from a pipe, nobody can be asked, so changes
    and commands are refused. Commands do not inherit environment variables that look like keys, tokens
    or passwords, but they can read every file that you can read.

    All of standard input is one message, and only the answer is written to standard output. The exit
    code is 0 after an answer, 2 after an error, 3 if the agent reached the maximum number of model
    calls, and 130 after Ctrl+C.

    --mcp adds tools of MCP servers, such as a desktop, a browser or a database. A command runs in the
    folder, without variables that look like secrets. It ends with the chat. With --approval read-only,
    only tools are added that their server declares to be read-only.

    On a terminal, answers are shown as Markdown, and a line tells tokens, window, cost and time. Tab
    completes commands, files and sessions; @ searches files; the arrow keys recall messages. The path of
    an image in a message attaches the image. /undo drops the last message and its answer, /retry asks
    it again. With NO_COLOR, and in a pipe, the text of the model is printed as it is.

    Ctrl+C stops an answer and the commands that it runs. At a prompt with text, Ctrl+C discards the
    text. At an empty prompt, Ctrl+C and Ctrl+D end the chat. During an answer, Ctrl+D is ignored.

    Sessions are stored in DIR/.ctxlab/sessions.db. If this folder cannot be written, or with --no-save,
    the chat works, but nothing is saved. ctxlab sessions lists and shows them. ctxlab eval
    can replay this file.
    """
    from ctxlab.cli.chat.loading import BackgroundLoader
    from ctxlab.cli.chat.prompt import LineReader
    from ctxlab.cli.chat.repl import ChatRepl, greeting, new_session_greeting
    from ctxlab.cli.chat.single_turn import read_message
    from ctxlab.cli.chat.storage import is_writable, make_store_folder

    # Exclude litellm from Python's last garbage collection; scanning it takes as long as importing it.
    atexit.register(gc.freeze)
    if new and session is not None:
        raise SpecError("expected --new or --session, got both; use only one of them")
    folder = resolve_workspace(workspace)
    reader = LineReader(folder / ".ctxlab" / "chat_history")
    once = question is not None or not reader.interactive
    if json and not once:
        raise SpecError(
            "--json: expected a question, got none; pass it as an argument or in a pipe"
        )
    text = read_message(question) if once else ""
    with ExitStack() as stack:
        settings, loader = options.resolve(), BackgroundLoader()
        place = folder if store is None else make_store_folder(store)
        saved = not no_save and is_writable(place)
        if not saved:
            why = "--no-save" if no_save else f"{place} cannot be written"
            print_note(f"{why}: nothing of this chat is saved")

        def connect() -> ChatConnection:
            from ctxlab.cli.chat.storage import open_chat_store, unsaved_copy

            client, summary_model = settings.make_client(), settings.summary_model
            used = place if saved else stack.enter_context(unsaved_copy(place))
            opened = open_chat_store(used, client, summary_model)
            stack.enter_context(closing(opened))
            resumed = None
            if session is not None or not (new or once):
                resumed = _pick_session(opened, session, reader)
            loader.wait()
            from ctxlab.cli.chat.approval_prompt import ApprovalPrompt
            from ctxlab.cli.chat.connection import ChatConnection
            from ctxlab.sessions.background_summaries import BackgroundSummarizer

            summaries = stack.enter_context(BackgroundSummarizer(opened, client, summary_model))
            tools = options.start_mcp_servers(folder, stack)

            def make_agent(settings: AgentSettings) -> Agent:
                agent = settings.make_agent(folder, client, _NO_TERMINAL, tools)
                if reader.interactive and agent.approver is not None:
                    agent.approver.ask = ApprovalPrompt(reader.ask, reader.discard_typed).decide
                if agent.processes is not None:
                    stack.callback(agent.processes.kill_all)
                return agent

            connection = ChatConnection(opened, options.resolve, make_agent, summaries)
            connection.open(resumed)
            return connection

        chat = ChatRepl(connect, reader, folder)
        code = 0
        try:
            if once:
                code = chat.answer(text, as_json=json)
            else:
                reader.on_first_prompt = loader.start
                is_new = new or not (session or (place / ".ctxlab").exists())
                if is_new and not store and _can_connect_later(options, settings):
                    print_note(new_session_greeting(settings.model or ""))
                else:
                    first, *exchange = greeting(chat.connection).split("\n")
                    print_note(first)
                    for line in exchange:  # control characters are removed already
                        print(line, file=sys.stderr)
                chat.run()
        finally:
            id = chat.close()
            if id is not None and not once and saved:
                reader.save_history()
                print_note(_resume_hint(chat.store, id, workspace, store))
        if code:
            raise typer.Exit(code)


def _can_connect_later(options: AgentOptions, settings: AgentSettings) -> bool:
    """Return True if the settings of a new session need no check by the modules of the agent.

    The first prompt can then be shown before the agent is created.
    """
    values = settings.values
    if options.mcp or options.reserve is not None or settings.model is None:
        return False
    try:
        in_tokens = values["limit"] is None or isinstance(parse_limit(values["limit"]), int)
    except SpecError:  # the agent raises an error that fits the option
        return False
    known = values["approval"] in ("ask", "auto", "read-only")
    return in_tokens and known and values["strategy"] is None


def _pick_session(store: SessionStore, wanted: str | None, reader: LineReader) -> Session | None:
    """Return the session whose id begins with ``wanted``. If it is not given, the user picks one.

    Return None to start a new session: the user chose this, or there is no session to pick. Ctrl+D ends
    the command.
    """
    from ctxlab.cli.chat.session_picker import choose_session, session_choices_table
    from ctxlab.cli.render.format import render_to_text
    from ctxlab.cli.session_lookup import find_session

    if wanted is not None:
        return find_session(store, wanted)
    known = [session for session in store.sessions() if not session.system]
    if not known:
        return None
    print(render_to_text(session_choices_table(known)), file=sys.stderr)
    try:
        return choose_session(known, reader.ask, print_note)
    except EOFError:
        raise typer.Exit from None


def _resume_hint(store: SessionStore, id: str, workspace: Path, place: Path | None) -> str:
    """Return a note with the id of a session and the command that resumes the session."""
    from ctxlab.cli.session_lookup import list_all_sessions, short_ids

    shown = short_ids(session.id for session in list_all_sessions(store)).get(id, id)
    where = [] if workspace == Path() else ["--workspace", str(workspace)]
    where += [] if place is None else ["--store", str(place)]
    command = shlex.join(["ctxlab", "chat", *where, "--session", shown])
    return f"session stored as {id}; resume it with: {command}"

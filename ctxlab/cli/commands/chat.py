"""``ctxlab chat`` is a conversation with an agent about a folder, which is kept there and can go on."""

from __future__ import annotations

import atexit
import gc
import shlex
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab._utils.humanize import many
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
from ctxlab.cli.output import (
    note,
    one_line,
)
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.cli.chat.prompt import Prompt
    from ctxlab.sessions.base import (
        Session,
        Store,
    )

__all__ = ["command"]


def command(
    workspace: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder that it is about, where it is kept.")
    ] = Path(),
    new: Annotated[bool, typer.Option("--new", help="A new session, without asking.")] = False,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", help="Go on with this one; the beginning of its id will do."
        ),
    ] = None,
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
    """Talk with an agent about a folder; what is said is kept there, and any day can go on.

    \b
    Examples:
      ctxlab chat --model gpt-5-mini
      ctxlab chat --session 3f2a                     go on with a session
      ctxlab chat --new --read-only -l 32k -s 'observation_mask(keep=10) | panic'
      echo "What is in this folder?" | ctxlab chat   prints the answer alone

    Where there are sessions it asks which to go on with. The agent lists, searches, reads and writes
    files of the folder and runs commands in it; nobody is asked before it does, so --read-only or a
    copy of the folder where that is not wanted. Commands do not inherit variables that look like keys,
    tokens or passwords, but can read what you can. /help lists what else can be said.

    Ctrl+C stops an answer and the commands that it runs. At a prompt it throws away the line; where
    there is none it leaves. Sessions lie in DIR/.ctxlab/sessions.db: ctxlab sessions shows them, and
    ctxlab eval takes that file as data.
    """
    from ctxlab.agent.session import Live
    from ctxlab.cli.chat.prompt import Prompt
    from ctxlab.cli.chat.repl import Chat
    from ctxlab.llm import LiteLLMClient
    from ctxlab.sessions.background_summaries import Summaries
    from ctxlab.sessions.sqlite.store import WorkspaceStore

    # Else Python's last collection goes through all of litellm, which takes as long as its import.
    atexit.register(gc.freeze)
    if new and session is not None:
        raise SpecError("--new begins a session and --session goes on with one: take one of them")
    folder, model = a_workspace(workspace), model_named(model)
    prompt = Prompt(folder / ".ctxlab" / "chat_history")
    with ExitStack() as stack:
        client = LiteLLMClient()
        store = stack.enter_context(
            closing(WorkspaceStore(folder, client=client, model=summary_model))
        )
        resumed = None if new else _resumed(store, session, prompt)
        model = model or (resumed.model if resumed else None)
        if model is None:
            raise no_model()
        agent = agent_of(
            folder,
            model,
            client,
            strategy=strategy or (resumed.strategy if resumed else None),
            limit=limit,
            reserve=reserved(reserve),
            max_iterations=max_iterations,
            read_only=read_only,
            no_tools=no_tools,
            keep_env=keep_env or (),
        )
        if agent.processes is not None:
            stack.callback(agent.processes.kill_all)
        summaries = stack.enter_context(Summaries(store, client, summary_model))
        live = None
        if resumed is not None:
            live = Live.resume(store, resumed.id, agent, summaries=summaries)

        def begin(title: str) -> Live:
            return Live.start(store, agent, title=title, summaries=summaries)

        chat = Chat(store, agent, begin, prompt, live)
        try:
            if chat.interactive:
                client.warm_up()  # while the first line is typed
                _greet(chat.session, model)
            chat.run()
        finally:
            if chat.live is not None:
                chat.live.close()
                if resumed is None and not chat.live.session.messages:  # all was refused
                    store.delete(chat.live.id)
                elif chat.interactive:
                    prompt.keep()
                    note(_farewell(store, chat.live.id, workspace))


def _resumed(store: Store, wanted: str | None, prompt: Prompt) -> Session | None:
    """The session to go on with, where one was named or is picked; Ctrl+D ends the command."""
    from ctxlab.cli.chat.session_picker import (
        choose,
        sessions_list,
    )
    from ctxlab.cli.render.format import drawn
    from ctxlab.cli.session_lookup import session_of

    if wanted is not None:
        return session_of(store, wanted)
    if not prompt.interactive:
        return None
    known = [session for session in store.sessions() if not session.system]
    if not known:
        return None
    print(drawn(sessions_list(known)), file=sys.stderr)
    try:
        return choose(known, prompt.ask, note)
    except EOFError:
        raise typer.Exit from None


def _greet(session: Session | None, model: str) -> None:
    if session is None:
        said = "a new session"
    else:
        said = (
            f"{one_line(session.title) or session.id}, {many(session.messages, 'message')} so far"
        )
    note(f"{said}; {one_line(model)}; /help says what there is")


def _farewell(store: Store, id: str, workspace: Path) -> str:
    """Where a session was kept, and the command that goes on with it."""
    from ctxlab.cli.session_lookup import (
        every,
        short_ids,
    )

    shown = short_ids(session.id for session in every(store)).get(id, id)
    where = [] if workspace == Path() else ["--workspace", str(workspace)]
    command = shlex.join(["ctxlab", "chat", *where, "--session", shown])
    return f"kept as {id}; {command} goes on with it"

"""The loop of ``ctxlab chat``: read a line from the user, and run a turn of the agent.

The effect of Ctrl+C depends on when it is pressed:

- during an answer: the agent and the commands that it runs are stopped, and the prompt returns. What
  was typed ahead is discarded.
- at a prompt with text: the text is discarded
- at an empty prompt: the chat ends with exit code 130. In the first second after an answer was
  cancelled, Ctrl+C is ignored, because users often press it twice.

Ctrl+D ends the chat at an empty prompt. During an answer it is ignored; what is typed meanwhile appears
at the next prompt.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.chat.event_printer import EventPrinter
from ctxlab.cli.chat.prompt import LineCleared, LineReader
from ctxlab.cli.chat.single_turn import answer_once, print_events
from ctxlab.cli.chat.slash_commands import (
    SLASH_COMMANDS,
    parse_slash_command,
    run_slash_command,
)
from ctxlab.cli.chat.status_line import ChatStatus
from ctxlab.cli.output import one_line, print_note
from ctxlab.cli.render.control_characters import strip_control_characters
from ctxlab.errors import CtxlabError, SpecError, UnknownSession

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from ctxlab.agent.loop import Agent
    from ctxlab.cli.chat.connection import ChatConnection
    from ctxlab.sessions.base import Session, SessionStore

_DOUBLE_PRESS_SECONDS = 1.0
_MAX_IMAGES = 10  # in one message
_MAX_SHOWN_LINES = 12  # lines of the last message, and of the last answer, of a resumed session


class ChatRepl:
    """A conversation between a user and an agent on the command line.

    An error of ctxlab is printed as one sentence, and the chat continues.

    Parameters
    ----------
    connect : callable
        Function that creates the agent and opens the session. It is called when they are needed first,
        so that the first prompt is shown before.
    reader : LineReader
        Reader of the user's lines.
    workspace : Path
        Folder in which the agent works.
    """

    def __init__(
        self, connect: Callable[[], ChatConnection], reader: LineReader, workspace: Path
    ) -> None:
        self._connect = connect
        self._connection: ChatConnection | None = None
        self._reader = reader
        self._workspace = workspace
        self._printer = EventPrinter()
        self.usd = 0.0
        "cost of all answers of this chat, in US dollars"
        self._cancelled_at = -_DOUBLE_PRESS_SECONDS
        self._ending = False

    @property
    def connection(self) -> ChatConnection:
        """Agent and session of the chat."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @property
    def agent(self) -> Agent:
        """Agent that answers."""
        return self.connection.agent

    @property
    def store(self) -> SessionStore:
        """Store that contains the session."""
        return self.connection.store

    @property
    def session(self) -> Session | None:
        """Description of the session, read from the store; None before the first message."""
        return self.connection.session

    @property
    def interactive(self) -> bool:
        """True if the user's lines come from a terminal, False if they come from a pipe."""
        return self._reader.interactive

    def run(self) -> None:
        """Read and answer lines until there are no more lines or the user leaves the chat.

        Raises
        ------
        KeyboardInterrupt
            If the user pressed Ctrl+C at an empty prompt, or if SIGTERM or SIGHUP ended the chat.
        """
        self._reader.make_completer = self._make_completer
        with self._show_log_records(), self._exit_on_signals():
            going = True
            while going:
                try:
                    line = self._read_line()
                    going = line is not None and (not line.strip() or self._handle_line(line))
                except KeyboardInterrupt:
                    waited = time.monotonic() - self._cancelled_at
                    if self._ending or waited > _DOUBLE_PRESS_SECONDS:
                        raise

    def close(self) -> str | None:
        """Close the session of the chat.

        Returns
        -------
        str or None
            Id of the session; None if there is none.
        """
        return None if self._connection is None else self._connection.close()

    def answer(self, text: str, *, as_json: bool = False) -> int:
        """Answer a single message.

        Parameters
        ----------
        text : str
            Message of the user. It is never a slash command.
        as_json : bool, default False
            True to print each event as a line of JSON.

        Returns
        -------
        int
            Exit code of the program.
        """
        with self._show_log_records(), self._exit_on_signals():
            session = self.connection.start()
            return (
                print_events(session, text)
                if as_json
                else answer_once(session, text, self._printer)
            )

    def _make_completer(self) -> Completer:
        from ctxlab.cli.chat.completion import ChatCompleter

        commands = {name: meaning for name, (_, meaning) in SLASH_COMMANDS.items()}
        return ChatCompleter(self._workspace, commands)

    def _read_line(self) -> str | None:
        while True:
            self._printer.flush_log_lines()
            try:
                return self._reader.read_line()
            except EOFError:
                return None
            except LineCleared:
                continue

    def _handle_line(self, line: str) -> bool:
        """Run a slash command or a turn. Return False if the chat should end."""
        try:
            command = parse_slash_command(line)
            if command is not None:
                return run_slash_command(self, *command)
            self.run_turn(line, self._read_images(line))
        except CtxlabError as error:
            print_note(self._explain(error))
        except KeyboardInterrupt:
            if self._ending:
                raise
            self._cancelled_at = time.monotonic()
            print("Cancelled", file=sys.stderr)
        return True

    def _explain(self, error: CtxlabError) -> str:
        current = None if self._connection is None else self._connection.agent_session
        if isinstance(error, UnknownSession) and current is not None and error.id == current.id:
            return "another process deleted the session of this chat; start one with /new"
        return str(error)

    def run_turn(self, text: str, images: Sequence[str] = ()) -> None:
        """Send a message to the agent, and print the answer.

        Parameters
        ----------
        text : str
            Message of the user.
        images : sequence of str, optional
            URLs of images that the message contains.
        """
        from ctxlab.agent.events import TurnFinished

        session, started = self.connection.start(), time.monotonic()
        with self._reader.hold_input():
            self._printer.start_turn()
            try:
                # Ctrl+C can be pressed between two events, so the stream must be closed explicitly.
                with closing(session.stream(text.strip(), images=images)) as events:
                    for event in events:
                        self._printer.print_event(event)
                        if isinstance(event, TurnFinished):
                            self.usd += event.result.usd
            finally:
                self._printer.end_turn()
        self._printer.print_chat_status(self._status(time.monotonic() - started))

    def _read_images(self, text: str) -> list[str]:
        """Read the images whose paths are in a message, and print a line about each of them."""
        from ctxlab.cli.chat.image_paths import find_image_paths

        urls: list[str] = []
        for name, path in find_image_paths(text, self._workspace).items():
            from ctxlab.agent.images import read_image

            if len(urls) == _MAX_IMAGES:
                self._printer.print_status_line(f"  not attached: images after {_MAX_IMAGES}")
                break
            try:
                image = read_image(path)
            except SpecError as error:
                self._printer.print_status_line(f"  not attached: {one_line(name)}: {error}")
                continue
            urls.append(image.url)
            size = f"{image.width:,} × {image.height:,} pixels"
            self._printer.print_status_line(f"  attached: {one_line(name)}, {size}")
        return urls

    def _status(self, seconds: float) -> ChatStatus:
        """Return the state of the chat after a turn."""
        manager = self.agent.manager
        tokens, limit = manager.tokens, manager.budget.limit
        return ChatStatus(self.agent.model, tokens, limit, self.usd, seconds)

    @contextmanager
    def _show_log_records(self) -> Iterator[None]:
        """Print log records of ctxlab with the event printer."""
        logger = logging.getLogger("ctxlab")
        logger.addHandler(self._printer)
        try:
            yield
        finally:
            logger.removeHandler(self._printer)

    @contextmanager
    def _exit_on_signals(self) -> Iterator[None]:
        """Make SIGTERM and SIGHUP end the chat instead of only the current answer."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(*_: Any) -> None:
            self._ending = True
            raise KeyboardInterrupt

        names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), end) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)


def new_session_greeting(model: str) -> str:
    """Return the line that is shown when a new session begins.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    str
        Line to show before the first prompt.
    """
    return f"new session; model {one_line(model)}; /help lists commands"


def greeting(connection: ChatConnection) -> str:
    """Return a line about the session of a chat, and the last exchange of a session that goes on.

    Parameters
    ----------
    connection : ChatConnection
        Agent and session of the chat.

    Returns
    -------
    str
        Text to show before the first prompt.
    """
    session, model = connection.session, one_line(connection.agent.model)
    if session is None:
        return new_session_greeting(model)
    named = one_line(session.title) or session.id
    messages = pluralize(session.messages, "message")
    said = f"resumed {named} ({messages}); model {model}; /help lists commands"
    return "\n".join([said, *_last_exchange(connection.store, session.id)])


def _last_exchange(store: SessionStore, id: str) -> list[str]:
    """Return the lines of the last message of the user and of the answer, as far as they fit."""
    from ctxlab.sessions.table_of_contents import get_turn

    if not (turns := store.count_turns(id)):
        return []
    last = get_turn(store, id, turns, limit=0).interaction
    lines = []
    for sign, text in (("> ", last.prompt), ("", last.response)):
        kept = strip_control_characters(text.strip()).splitlines()
        more = len(kept) - _MAX_SHOWN_LINES
        shown = [f"{sign}{line}" for line in kept[:_MAX_SHOWN_LINES]]
        lines += shown + ([f"… ({pluralize(more, 'more line')})"] if more > 0 else [])
    return lines

"""The loop of ``ctxlab chat``: read a line from the user, and run a turn of the agent.

The effect of Ctrl+C depends on when it is pressed:

- during an answer: the agent and the commands that it runs are stopped, and the prompt returns
- at a prompt with text: the text is discarded
- at an empty prompt: the chat ends with exit code 130. In the first second after an answer was
  cancelled, Ctrl+C is ignored, because users often press it twice.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from ctxlab.cli.chat.event_printer import EventPrinter
from ctxlab.cli.chat.prompt import LineCleared, LineReader
from ctxlab.cli.chat.single_turn import answer_once, print_events
from ctxlab.cli.chat.slash_commands import parse_slash_command, run_slash_command
from ctxlab.cli.output import print_note
from ctxlab.errors import CtxlabError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import AgentSession
    from ctxlab.sessions.base import Session, SessionStore

_DOUBLE_PRESS_SECONDS = 1.0


class ChatRepl:
    """A conversation between a user and an agent on the command line.

    An error of ctxlab is printed as one sentence, and the chat continues.

    Parameters
    ----------
    store : SessionStore
        Store that contains the session.
    agent : Agent
        Agent that answers.
    start_session : callable
        Function that creates the session when the user sends the first message. It takes the title of
        the session, which may be empty.
    reader : LineReader
        Reader of the user's lines.
    agent_session : AgentSession, optional
        Session to continue. None starts a new session.
    """

    def __init__(
        self,
        store: SessionStore,
        agent: Agent,
        start_session: Callable[[str], AgentSession],
        reader: LineReader,
        agent_session: AgentSession | None = None,
    ) -> None:
        self.store, self.agent, self.agent_session = store, agent, agent_session
        self.title = ""
        self._start_session = start_session
        self._reader = reader
        self._printer = EventPrinter()
        self._cancelled_at = -_DOUBLE_PRESS_SECONDS
        self._ending = False

    @property
    def interactive(self) -> bool:
        """True if the user's lines come from a terminal, False if they come from a pipe."""
        return self._reader.interactive

    @property
    def session(self) -> Session | None:
        """Description of the session, read from the store; None before the first message."""
        return None if self.agent_session is None else self.store.get(self.agent_session.id)

    def set_title(self, title: str) -> str:
        """Set the title of the session. Before the first message, keep it in memory.

        Parameters
        ----------
        title : str
            New title.

        Returns
        -------
        str
            Title that was set. The first message creates the session and stores the title.
        """
        if self.agent_session is None:
            self.title = title
            return title
        return self.store.retitle(self.agent_session.id, title).title

    def run(self) -> None:
        """Read and answer lines until there are no more lines or the user leaves the chat.

        Raises
        ------
        KeyboardInterrupt
            If the user pressed Ctrl+C at an empty prompt, or if SIGTERM or SIGHUP ended the chat.
        """
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
            if self.agent_session is None:
                self.agent_session = self._start_session(self.title)
            if as_json:
                return print_events(self.agent_session, text)
            return answer_once(self.agent_session, text, self._printer)

    def _read_line(self) -> str | None:
        while True:
            self._printer.flush_log_lines()
            try:
                return self._reader.read_line()
            except EOFError:
                print(file=sys.stderr)
                return None
            except LineCleared:
                continue

    def _handle_line(self, line: str) -> bool:
        """Run a slash command or a turn. Return False if the chat should end."""
        try:
            command = parse_slash_command(line)
            if command is not None:
                return run_slash_command(self, *command)
            self._run_turn(line)
        except CtxlabError as error:
            print_note(str(error))
        except KeyboardInterrupt:
            if self._ending:
                raise
            self._cancelled_at = time.monotonic()
            print("Cancelled", file=sys.stderr)
        return True

    def _run_turn(self, text: str) -> None:
        if self.agent_session is None:
            self.agent_session = self._start_session(self.title)
        self._printer.start_turn()
        try:
            # Ctrl+C can be pressed between two events, so the stream must be closed explicitly.
            with closing(self.agent_session.stream(text.strip())) as events:
                for event in events:
                    self._printer.print_event(event)
        finally:
            self._printer.end_turn()

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

"""The read-answer loop of ``ctxlab chat``.

Ctrl+C during an answer stops it and the commands that it runs, prints "Cancelled" and returns to the
prompt. At a prompt it discards what was typed. At an empty prompt it leaves the chat with exit code 130,
unless an answer was cancelled less than a second ago, since users often press Ctrl+C twice.
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
from ctxlab.cli.chat.slash_commands import parse_slash_command, run_slash_command
from ctxlab.cli.output import print_note
from ctxlab.errors import CtxlabError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import AgentSession
    from ctxlab.sessions.base import Session, SessionStore

_DOUBLE_PRESS_SECONDS = 1.0


class ChatRepl:
    """A conversation at the command line.

    Errors of ctxlab are printed as one sentence and lead back to the prompt; if lines come from a pipe
    they end the chat.

    Parameters
    ----------
    store : SessionStore
        The store of the session.
    agent : Agent
        The agent that answers.
    start_session : callable
        Creates the session when the user says something first. Takes a title, which may be empty.
    reader : LineReader
        Reads the user's lines.
    agent_session : AgentSession, optional
        The session to continue; None starts a new one.
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
        """True if lines come from a terminal."""
        return self._reader.interactive

    @property
    def session(self) -> Session | None:
        """The session as it is stored now; None before the first message."""
        return None if self.agent_session is None else self.store.get(self.agent_session.id)

    def set_title(self, title: str) -> str:
        """Set the title of the session, or of the session that will be created.

        Parameters
        ----------
        title : str
            The title.

        Returns
        -------
        str
            The title as it is stored.
        """
        if self.agent_session is None:
            self.title = title
            return title
        return self.store.retitle(self.agent_session.id, title).title

    def run(self) -> None:
        """Answer lines until they end or the user leaves.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl+C was pressed at an empty prompt, or a signal ended the chat.
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

    def _read_line(self) -> str | None:
        while True:
            self._printer.flush_log_lines()
            try:
                return self._reader.read_line()
            except EOFError:
                if self.interactive:
                    print(file=sys.stderr)
                return None
            except LineCleared:
                continue

    def _handle_line(self, line: str) -> bool:
        """Answer a line; return False to end the chat."""
        try:
            command = parse_slash_command(line)
            if command is not None:
                return run_slash_command(self, *command)
            self._run_turn(line)
        except CtxlabError as error:
            if not self.interactive:
                raise
            print_note(str(error))
        except KeyboardInterrupt:
            if self._ending or not self.interactive:
                raise
            self._cancelled_at = time.monotonic()
            print("Cancelled", file=sys.stderr)
        return True

    def _run_turn(self, text: str) -> None:
        if self.agent_session is None:
            self.agent_session = self._start_session(self.title)
        self._printer.start_turn()
        try:
            # Close the stream here, since an interruption may come between two events.
            with closing(self.agent_session.stream(text.strip())) as events:
                for event in events:
                    self._printer.print_event(event)
        finally:
            self._printer.end_turn()

    @contextmanager
    def _show_log_records(self) -> Iterator[None]:
        """Print what ctxlab logs through the event printer."""
        logger = logging.getLogger("ctxlab")
        logger.addHandler(self._printer)
        try:
            yield
        finally:
            logger.removeHandler(self._printer)

    @contextmanager
    def _exit_on_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGHUP end the chat, not only the current answer."""
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

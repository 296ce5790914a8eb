"""A chat reads a line, lets the agent answer it, and does so again; whatever goes wrong, it goes on.

Ctrl+C during an answer stops it, ends the commands that it runs, says "Cancelled" and leads back to the
prompt. At a prompt it throws away what was typed; where nothing was, it leaves with 130, unless an
answer was cancelled less than a second ago: whoever presses twice means the answer.
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

from ctxlab.cli.chat.event_printer import Teller
from ctxlab.cli.chat.prompt import (
    Cleared,
    Prompt,
)
from ctxlab.cli.chat.slash_commands import (
    obey,
    split,
)
from ctxlab.cli.output import note
from ctxlab.errors import CtxlabError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import Live
    from ctxlab.sessions.base import (
        Session,
        Store,
    )

__all__ = ["Chat"]

_TWICE = 1.0  # seconds


class Chat:
    """A conversation at the command line; ``begin`` makes its session once something is said.

    ``begin`` is given the title that was chosen before, or an empty text. Errors of ctxlab are one
    sentence and lead back to the prompt; where lines come from a pipe they end the chat.
    """

    def __init__(
        self,
        store: Store,
        agent: Agent,
        begin: Callable[[str], Live],
        prompt: Prompt,
        live: Live | None = None,
    ) -> None:
        self.store, self.agent, self.live = store, agent, live
        self.title = ""
        self._begin = begin
        self._prompt = prompt
        self._teller = Teller()
        self._cancelled = -_TWICE
        self._ending = False

    @property
    def interactive(self) -> bool:
        """Whether somebody types."""
        return self._prompt.interactive

    @property
    def session(self) -> Session | None:
        """The session as it is stored now; None before anything was said."""
        return None if self.live is None else self.store.get(self.live.id)

    def entitle(self, title: str) -> str:
        """Gives the session a title, or the one that is to come; returns it."""
        if self.live is None:
            self.title = title
            return title
        return self.store.retitle(self.live.id, title).title

    def run(self) -> None:
        """Goes on until the lines end, ``/quit``, or ``KeyboardInterrupt`` at an empty prompt."""
        with self._heard(), self._ended_by_signals():
            going = True
            while going:
                try:
                    line = self._line()
                    going = line is not None and (not line.strip() or self._answer(line))
                except KeyboardInterrupt:
                    if self._ending or time.monotonic() - self._cancelled > _TWICE:
                        raise

    def _line(self) -> str | None:
        while True:
            self._teller.flush_remarks()
            try:
                return self._prompt.read()
            except EOFError:
                if self.interactive:
                    print(file=sys.stderr)
                return None
            except Cleared:
                continue

    def _answer(self, line: str) -> bool:
        """Answers a line; False where the chat is to end."""
        try:
            command = split(line)
            if command is not None:
                return obey(self, *command)
            self._turn(line)
        except CtxlabError as error:
            if not self.interactive:
                raise
            note(str(error))
        except KeyboardInterrupt:
            if self._ending or not self.interactive:
                raise
            self._cancelled = time.monotonic()
            print("Cancelled", file=sys.stderr)
        return True

    def _turn(self, text: str) -> None:
        if self.live is None:
            self.live = self._begin(self.title)
        self._teller.begin()
        try:
            # Closed here, since an interruption may come between two events.
            with closing(self.live.stream(text.strip())) as events:
                for event in events:
                    self._teller.tell(event)
        finally:
            self._teller.end()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """What ctxlab logs is shown where it does no harm."""
        logger = logging.getLogger("ctxlab")
        logger.addHandler(self._teller)
        try:
            yield
        finally:
            logger.removeHandler(self._teller)

    @contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """SIGTERM, and SIGHUP of a terminal that is closed, end the chat and not only an answer."""
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

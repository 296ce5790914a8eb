"""A turn of an agent runs in a thread of its own, and what happens in it is read from the event loop.

A turn that is cancelled ends with the next thing that happens in it; the processes that it began are
killed until then, and the agent closes what it left open, so that the session is consistent. A model
that does not answer is not waited for: what it says later is not stored.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from ctxlab.agent.events import AgentEvent, TurnFinished
from ctxlab.errors import CtxlabError
from ctxlab.serve.http.errors import INTERNAL_ERROR_DETAIL, HTTPProblem

if TYPE_CHECKING:
    from ctxlab.agent.events import TurnResult
    from ctxlab.agent.session import AgentSession

__all__ = ["TurnRunner"]

_LOGGER = logging.getLogger("ctxlab.serve")

_CANCEL_POLL_INTERVAL = 0.05
"seconds between looks at a cancelled turn: a process may have begun just then"
_ABANDON_TIMEOUT = 3.0
"seconds after which a cancelled turn in which nothing happens is left to itself"


class TurnRunner:
    """One message to a session, and what comes of it.

    ``open_session`` gives the live session; it runs in the thread as well, since it reads the disk.
    ``on_end`` is told once of the end, from some thread: of the live session if it can go on, of
    None if it cannot. Made on the event loop on which it is read.
    """

    def __init__(
        self,
        open_session: Callable[[], AgentSession],
        on_end: Callable[[AgentSession | None], None],
        text: str,
        file: str | None,
    ) -> None:
        self.agent_session: AgentSession | None = None
        "None before the session is open"
        self._open_session, self._on_end, self._text, self._file = open_session, on_end, text, file
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[AgentEvent | BaseException | None] = asyncio.Queue()
        self._session_opened: asyncio.Future[None] = self._loop.create_future()
        self._cancel_reason: Exception | None = None
        self._cancel_lock, self._end_lock = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        # A daemon: a model that does not answer must not keep the server from ending.
        self._thread = threading.Thread(target=self._run, name="ctxlab-turn", daemon=True)

    def start(self) -> None:
        """Sets to work."""
        self._thread.start()

    async def wait_until_open(self) -> AgentSession:
        """The session, once it is open; raises what it cannot be opened for."""
        await asyncio.shield(self._session_opened)
        assert self.agent_session is not None
        return self.agent_session

    async def next_event(self, timeout: float | None = None) -> AgentEvent | None:
        """What happens next, None after the end; raises what the turn failed or was cancelled with.

        ``TimeoutError`` after so many seconds in which nothing happens.
        """
        async with asyncio.timeout(timeout):
            item = await self._events.get()
        if isinstance(item, BaseException):
            raise item
        return item

    async def wait_for_outcome(self) -> TurnResult:
        """How it ended."""
        while not isinstance(event := await self.next_event(), TurnFinished):
            pass
        return event.result

    def cancel(self, reason: Exception) -> None:
        """Ends the turn as soon as may be, with ``reason``; returns at once, from any thread."""
        if not self._ended.is_set() and self._cancel_lock.acquire(blocking=False):
            self._cancel_reason = reason
            threading.Thread(target=self._run_cancel, name="ctxlab-cancel", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Waits for the end; whether it has come."""
        return self._ended.wait(timeout)

    def _run_cancel(self) -> None:
        latest = time.monotonic() + _ABANDON_TIMEOUT
        while not self._ended.wait(_CANCEL_POLL_INTERVAL):
            self._stop_agent()
            if self.agent_session is not None and time.monotonic() > latest:
                self.agent_session.closed = True  # so that nothing more of this turn is stored
                self._finish(self._cancel_reason, None)

    def _stop_agent(self) -> None:
        if self.agent_session is not None:
            self.agent_session.agent.stop()

    def _run(self) -> None:
        whole: AgentSession | None = None
        end: AgentEvent | BaseException | None = None
        try:
            agent_session = self.agent_session = self._open_session()
            self._call_in_loop(self._resolve_opened, None)
            with closing(agent_session.stream(self._text, file=self._file)) as stream:
                for event in stream:
                    if isinstance(event, TurnFinished):
                        end = event  # told once the session is free for the next turn
                    else:
                        self._call_in_loop(self._events.put_nowait, event)
                        if self._cancel_reason is not None:
                            raise self._cancel_reason
            whole = agent_session
        except BaseException as error:
            end = self._cancel_reason or error
        if not self._finish(end, whole):
            self._stop_agent()  # given up before; what came of it is thrown away

    def _finish(self, end: AgentEvent | BaseException | None, whole: AgentSession | None) -> bool:
        """The end is told once: whether it was by this call."""
        if not self._end_lock.acquire(blocking=False):
            return False
        try:
            self._on_end(whole)
        except BaseException as error:
            end = error
        if isinstance(end, BaseException) and not isinstance(end, (CtxlabError, HTTPProblem)):
            _LOGGER.error("a turn failed", exc_info=end)
            end = HTTPProblem(500, INTERNAL_ERROR_DETAIL)
        self._ended.set()
        if isinstance(end, BaseException):
            self._call_in_loop(self._resolve_opened, end)
        self._call_in_loop(self._events.put_nowait, end)
        self._call_in_loop(self._events.put_nowait, None)
        return True

    def _resolve_opened(self, error: BaseException | None) -> None:
        if self._session_opened.done():
            return
        if error is None:
            self._session_opened.set_result(None)
        else:
            self._session_opened.set_exception(error)
            self._session_opened.exception()  # nobody need ask

    def _call_in_loop(self, hear: Callable[..., None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(hear, what)

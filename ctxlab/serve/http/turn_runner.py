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

from ctxlab.agent.events import (
    Done,
    Event,
)
from ctxlab.errors import CtxlabError
from ctxlab.serve.http.errors import (
    FAILED,
    Refused,
)

if TYPE_CHECKING:
    from ctxlab.agent.events import Outcome
    from ctxlab.agent.session import Live

__all__ = ["Turn"]

_LOG = logging.getLogger("ctxlab.serve")

_AGAIN = 0.05
"seconds between looks at a cancelled turn: a process may have begun just then"
_GIVEN_UP = 3.0
"seconds after which a cancelled turn in which nothing happens is left to itself"


class Turn:
    """One message to a session, and what comes of it.

    ``begin`` gives the live session; it runs in the thread as well, since it reads the disk. ``over`` is
    told once of the end, from some thread: of the live session if it can go on, of None if it cannot.
    Made on the event loop on which it is read.
    """

    def __init__(
        self,
        begin: Callable[[], Live],
        over: Callable[[Live | None], None],
        text: str,
        file: str | None,
    ) -> None:
        self.live: Live | None = None
        "None before the session is open"
        self._begin, self._over, self._text, self._file = begin, over, text, file
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
        self._open: asyncio.Future[None] = self._loop.create_future()
        self._why: Exception | None = None
        self._cancelling, self._ending = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        # A daemon: a model that does not answer must not keep the server from ending.
        self._thread = threading.Thread(target=self._run, name="ctxlab-turn", daemon=True)

    def start(self) -> None:
        """Sets to work."""
        self._thread.start()

    async def opened(self) -> Live:
        """The session, once it is open; raises what it cannot be opened for."""
        await asyncio.shield(self._open)
        assert self.live is not None
        return self.live

    async def next(self, patience: float | None = None) -> Event | None:
        """What happens next, None after the end; raises what the turn failed or was cancelled with.

        ``TimeoutError`` after so many seconds in which nothing happens.
        """
        async with asyncio.timeout(patience):
            item = await self._heard.get()
        if isinstance(item, BaseException):
            raise item
        return item

    async def outcome(self) -> Outcome:
        """How it ended."""
        while not isinstance(event := await self.next(), Done):
            pass
        return event.outcome

    def cancel(self, why: Exception) -> None:
        """Ends the turn as soon as may be, with ``why``; returns at once, from any thread."""
        if not self._ended.is_set() and self._cancelling.acquire(blocking=False):
            self._why = why
            threading.Thread(target=self._stop, name="ctxlab-cancel", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Waits for the end; whether it has come."""
        return self._ended.wait(timeout)

    def _stop(self) -> None:
        latest = time.monotonic() + _GIVEN_UP
        while not self._ended.wait(_AGAIN):
            self._halt()
            if self.live is not None and time.monotonic() > latest:
                self.live.closed = True  # so that nothing more of this turn is stored
                self._end(self._why, None)

    def _halt(self) -> None:
        if self.live is not None:
            self.live.agent.stop()

    def _run(self) -> None:
        whole: Live | None = None
        end: Event | BaseException | None = None
        try:
            live = self.live = self._begin()
            self._tell(self._set_open, None)
            with closing(live.stream(self._text, file=self._file)) as stream:
                for event in stream:
                    if isinstance(event, Done):
                        end = event  # told once the session is free for the next turn
                    else:
                        self._tell(self._heard.put_nowait, event)
                        if self._why is not None:
                            raise self._why
            whole = live
        except BaseException as error:
            end = self._why or error
        if not self._end(end, whole):
            self._halt()  # given up before; what came of it is thrown away

    def _end(self, end: Event | BaseException | None, whole: Live | None) -> bool:
        """The end is told once: whether it was by this call."""
        if not self._ending.acquire(blocking=False):
            return False
        try:
            self._over(whole)
        except BaseException as error:
            end = error
        if isinstance(end, BaseException) and not isinstance(end, (CtxlabError, Refused)):
            _LOG.error("a turn failed", exc_info=end)
            end = Refused(500, FAILED)
        self._ended.set()
        if isinstance(end, BaseException):
            self._tell(self._set_open, end)
        self._tell(self._heard.put_nowait, end)
        self._tell(self._heard.put_nowait, None)
        return True

    def _set_open(self, error: BaseException | None) -> None:
        if self._open.done():
            return
        if error is None:
            self._open.set_result(None)
        else:
            self._open.set_exception(error)
            self._open.exception()  # nobody need ask

    def _tell(self, hear: Callable[..., None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(hear, what)

"""Run a turn of an agent in a thread and pass its events to an event loop.

A cancelled turn ends at its next event. Processes that the turn starts before this event are killed.
The agent adds results for unfinished tool calls, so that the session stays consistent. If a
cancelled turn does not end within a few seconds, for example because the model does not reply, the
turn is abandoned. A reply that arrives later is not stored.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from ctxlab.agent.approval import ApprovalRequest, Decision
from ctxlab.agent.events import AgentEvent, ApprovalRequired, TurnFinished
from ctxlab.errors import CtxlabError, SpecError
from ctxlab.serve.http.errors import INTERNAL_ERROR_DETAIL

if TYPE_CHECKING:
    from ctxlab.agent.events import TurnResult
    from ctxlab.agent.session import AgentSession

_LOGGER = logging.getLogger("ctxlab.serve")

_CANCEL_POLL_INTERVAL = 0.05
"interval at which new processes of a cancelled turn are killed, in seconds"
APPROVAL_TIMEOUT = 600.0
"""Time after which a tool call that nobody has approved is refused, in seconds."""

_ABANDON_TIMEOUT = 3.0
"time after which a cancelled turn that has not ended is abandoned, in seconds"


class TurnRunner:
    """Runner of the turn in which an agent answers a message of the user.

    The turn runs in its own thread, after a call of ``start``. Create the runner in the event loop
    that reads the events of the turn.

    Parameters
    ----------
    open_session : callable
        Function that opens and returns the session of the turn. It is called in the thread of the
        turn, because it reads files.
    on_end : callable
        Function that is called once when the turn ends, in any thread. Its argument is the session,
        or None if the turn was cancelled or ended with an error.
    text : str
        Message of the user.
    file : str or None
        Path of the file that the user has open.
    can_ask : bool, default False
        True if the client reads the events, so that it can be asked to approve tool calls.
    """

    def __init__(
        self,
        open_session: Callable[[], AgentSession],
        on_end: Callable[[AgentSession | None], None],
        text: str,
        file: str | None,
        *,
        can_ask: bool = False,
    ) -> None:
        self._can_ask = can_ask
        self._questions: dict[str, tuple[ApprovalRequest, SimpleQueue[Decision]]] = {}
        self.agent_session: AgentSession | None = None
        "session of the turn; None until the session is open"
        self._open_session, self._on_end, self._text, self._file = open_session, on_end, text, file
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[AgentEvent | BaseException | None] = asyncio.Queue()
        self._session_opened: asyncio.Future[None] = self._loop.create_future()
        self._cancel_reason: Exception | None = None
        self._cancel_lock, self._end_lock = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        # A daemon thread, so that a model that does not answer cannot block the exit.
        self._thread = threading.Thread(target=self._run, name="ctxlab-turn", daemon=True)

    def start(self) -> None:
        """Start the thread of the turn."""
        self._thread.start()

    @property
    def session_id(self) -> str | None:
        """Id of the session; None until the session is open."""
        return None if self.agent_session is None else self.agent_session.id

    async def wait_until_open(self) -> AgentSession:
        """Wait until the thread of the turn has opened the session.

        Returns
        -------
        AgentSession
            Session of the turn.

        Raises
        ------
        Exception
            The error that occurred while the session was opened.
        """
        await asyncio.shield(self._session_opened)
        assert self.agent_session is not None
        return self.agent_session

    async def next_event(self, timeout: float | None = None) -> AgentEvent | None:
        """Wait for the next event of the turn.

        Parameters
        ----------
        timeout : float, optional
            Maximum time to wait, in seconds. By default, no limit.

        Returns
        -------
        AgentEvent or None
            Next event of the turn; None after the last event.

        Raises
        ------
        TimeoutError
            If there was no event within ``timeout`` seconds.
        Exception
            The error that ended the turn, or the ``reason`` that was passed to ``cancel``.
        """
        async with asyncio.timeout(timeout):
            item = await self._events.get()
        if isinstance(item, BaseException):
            raise item
        return item

    async def wait_for_outcome(self) -> TurnResult:
        """Wait until the turn ends and return its result. The events of the turn are discarded.

        Returns
        -------
        TurnResult
            Result of the turn.

        Raises
        ------
        Exception
            The error that ended the turn, or the ``reason`` that was passed to ``cancel``.
        """
        while not isinstance(event := await self.next_event(), TurnFinished):
            pass
        return event.result

    def answer(self, call_id: str, decision: Decision) -> bool:
        """Answer the question whether a tool may be called.

        Parameters
        ----------
        call_id : str
            Id of the tool call.
        decision : Decision
            Decision of the user.

        Returns
        -------
        bool
            False if there is no such question, or if it was answered before.

        Raises
        ------
        SpecError
            If the question does not offer this decision. It then still waits for an answer.
        """
        asked = self._questions.get(call_id)
        if asked is None:
            return False
        request, _ = asked
        if decision.allowed and decision.scope not in request.choices:
            raise SpecError(
                f"Expected one of {', '.join(request.choices)} as decision, got {decision.scope!r}"
            )
        if (question := self._questions.pop(call_id, None)) is None:
            return False  # another client was faster
        question[1].put(decision)
        return True

    def cancel(self, reason: Exception) -> None:
        """Request that the turn ends as soon as possible, and return immediately.

        The method can be called from any thread. It does nothing if the turn has already ended.

        Parameters
        ----------
        reason : Exception
            Error that ``next_event`` and ``wait_for_outcome`` raise when the turn ends.
        """
        if not self._ended.is_set() and self._cancel_lock.acquire(blocking=False):
            self._cancel_reason = reason
            threading.Thread(target=self._run_cancel, name="ctxlab-cancel", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Block the calling thread until the turn ends.

        Parameters
        ----------
        timeout : float
            Maximum time to wait, in seconds.

        Returns
        -------
        bool
            True if the turn has ended, False if it is still running after ``timeout`` seconds.
        """
        return self._ended.wait(timeout)

    def _ask_client(self, request: ApprovalRequest) -> Decision:
        """Wait until the client answers a question. ``_run`` has sent it as an event before."""
        question = self._questions[request.call.id][1]
        latest = time.monotonic() + APPROVAL_TIMEOUT
        while self._cancel_reason is None and time.monotonic() < latest:
            with suppress(Empty):
                return question.get(timeout=_CANCEL_POLL_INTERVAL)
        if self._questions.pop(request.call.id, None) is None:
            return question.get()  # answered in the last moment
        return Decision(False, reason=f"nobody answered within {APPROVAL_TIMEOUT:g} s")

    def _run_cancel(self) -> None:
        latest = time.monotonic() + _ABANDON_TIMEOUT
        while not self._ended.wait(_CANCEL_POLL_INTERVAL):
            self._stop_agent()
            if self.agent_session is not None and time.monotonic() > latest:
                self.agent_session.abandon()
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
            if (approver := agent_session.agent.approver) is not None:
                approver.ask = self._ask_client if self._can_ask else None
            with closing(agent_session.stream(self._text, file=self._file)) as stream:
                for event in stream:
                    if isinstance(event, TurnFinished):
                        end = event  # reported when the session is free for another turn
                    else:
                        if isinstance(event, ApprovalRequired) and self._can_ask:
                            asked = event.request, SimpleQueue[Decision]()
                            self._questions[event.request.call.id] = asked
                        self._call_in_loop(self._events.put_nowait, event)
                        if self._cancel_reason is not None:
                            raise self._cancel_reason
            whole = agent_session
        except BaseException as error:
            end = self._cancel_reason or error
        if not self._finish(end, whole):
            self._stop_agent()  # abandoned; kill its last processes

    def _finish(self, end: AgentEvent | BaseException | None, whole: AgentSession | None) -> bool:
        """Report the end of the turn. Return False if the end was already reported.

        ``end`` is the last event of the turn or the error that ended it. ``whole`` is the session,
        or None if the turn was cancelled or ended with an error.
        """
        if not self._end_lock.acquire(blocking=False):
            return False
        try:
            self._on_end(whole)
        except BaseException as error:
            end = error
        if isinstance(end, BaseException) and not isinstance(end, (CtxlabError, HTTPException)):
            _LOGGER.error("a turn failed", exc_info=end)
            end = HTTPException(500, INTERNAL_ERROR_DETAIL)
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
            self._session_opened.exception()  # avoid asyncio's warning if nobody awaits it

    def _call_in_loop(self, hear: Callable[..., None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(hear, what)

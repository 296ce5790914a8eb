"""A live session is an agent whose conversation is stored as it goes: a message is on disk before
anything is done that relies on it, so that a killed process loses nothing that was shown.

Source: seed design "Workspace-scoped sessions" (start, resume, flush at the end of a turn).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from dataclasses import replace
from itertools import takewhile
from typing import Any, Protocol

from ctxlab.agent.events import (
    Done,
    Event,
    Outcome,
    outcome_of,
)
from ctxlab.agent.loop import Agent
from ctxlab.context.turns import (
    Turns,
    number_from,
)
from ctxlab.errors import (
    SessionAhead,
    SessionError,
    SpecError,
)
from ctxlab.messages.types import Message
from ctxlab.sessions.base import (
    Plan,
    Resume,
    Session,
    Store,
)
from ctxlab.sessions.message_units import (
    Unit,
    interrupted,
)
from ctxlab.sessions.resume_message import seeded

__all__ = ["Completed", "Live"]

_LOG = logging.getLogger("ctxlab.agent")
_OPENING = 4
"how many messages at the beginning of a transcript are looked at for its system prompt"


class Completed(Protocol):
    """Whoever is to know that a turn is over: ``ctxlab.sessions.background_summaries.Summaries``."""

    def turn_completed(self, id: str) -> None:
        """A turn of this session is stored whole."""
        ...


class Live:
    """An agent and the session of a store that its conversation goes into.

    Made by ``start`` or ``resume``, each with an agent that has said nothing yet. What was said is
    appended at once; ``Store.save`` follows at the end of a turn, however it ends. Where the session has
    gone on elsewhere, in another process say, nothing more is stored: ``SessionAhead``, once.
    """

    def __init__(
        self,
        store: Store,
        id: str,
        agent: Agent,
        *,
        plan: Plan | None = None,
        file: str | None = None,
        summaries: Completed | None = None,
        stored: int | None = None,
    ) -> None:
        if agent.heard is not None:
            raise SpecError("the agent's conversation is stored already: give a new agent")
        self.store = store
        self.id = id
        self.agent = agent
        self.file = file
        "the file of turns that name none"
        self.summaries = summaries
        "told of each turn that is over"
        self.closed = False
        self._stored = store.get(id).messages if stored is None else stored
        agent.plan = plan
        agent.planned = self._planned
        agent.heard = self._hear
        agent.fetch_turn = self._fetch

    def __repr__(self) -> str:
        return f"<Live {self.id}: {self.agent!r}>"

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def start(
        cls,
        store: Store,
        agent: Agent,
        *,
        title: str = "",
        file: str | None = None,
        name: str | None = None,
        summaries: Completed | None = None,
        **made: Any,
    ) -> Live:
        """A new session; ``name``: of the agent; ``made``: what else ``Store.create`` is told of it."""
        _refuse_begun(agent)
        session = store.create(
            title=title,
            model=agent.model,
            agent=name,
            file=file,
            strategy=repr(agent.manager.strategy),
            tools=agent.definitions,
            **made,
        )
        return cls(store, session.id, agent, file=file, summaries=summaries)

    @classmethod
    def resume(
        cls, store: Store, id: str, agent: Agent, *, summaries: Completed | None = None
    ) -> Live:
        """A stored session goes on where it was left, whatever its length.

        The agent begins with its system prompt, or the stored one where it has none; one message of the
        engine's with summary and plan, which is stored nowhere; and the newest messages. Calls that a
        crash left without a result are answered in the store. Turns keep their numbers. Raises
        ``UnknownSession``.
        """
        _refuse_begun(agent)
        session = store.get(id)
        stored, resumed = session.messages, store.open(id)
        if left := _unanswered(store, id):
            stored = store.append(id, *left, at=stored) + len(left)
            resumed = store.open(id)
        _begin(agent, store, id, resumed)
        return cls(
            store,
            id,
            agent,
            plan=resumed.plan,
            file=session.file,
            summaries=summaries,
            stored=stored,
        )

    @property
    def session(self) -> Session:
        """What the store knows of the session now."""
        return self.store.get(self.id)

    @property
    def plan(self) -> Plan | None:
        """What the agent set out to do and where it stands; setting it stores it."""
        return self.agent.plan

    @plan.setter
    def plan(self, plan: Plan | None) -> None:
        self.agent.keep_plan(plan)

    def stream(self, text: str, *, file: str | None = None) -> Generator[Event, None, None]:
        """``Agent.stream``, stored as it goes; the turn is saved before ``Done`` comes.

        A session that was closed or archived meanwhile is active again.
        """
        self._refuse_closed()
        turn = self.agent.stream(text, file=self.file if file is None else file)
        if self.session.status != "active":
            self.store.open(self.id)
        return self._saved(turn)

    def turn(self, text: str, *, file: str | None = None) -> Outcome:
        """The whole turn: what came of it once all its events are over."""
        return outcome_of(self.stream(text, file=file))

    def close(self) -> None:
        """Ends a turn that was left in the middle, and closes the session; it can be resumed."""
        self.agent.cancel()
        if self.closed:
            return
        self.store.save(self.id, plan=self.plan)
        if self.session.status == "active":  # and was not archived meanwhile
            self.store.mark(self.id, "closed")
        self.closed = True

    # --- storing -------------------------------------------------------------------------------

    def _saved(self, turn: Generator[Event, None, None]) -> Generator[Event, None, None]:
        saved = False
        try:
            for event in turn:
                if isinstance(event, Done):
                    saved = True  # once: where it is interrupted or fails, a resume reads what is stored
                    self._leave_plan(waits=event.outcome.finish == "limit")
                    self.store.save(self.id, plan=self.plan)
                    if self.summaries is not None:
                        self.summaries.turn_completed(self.id)
                yield event
        finally:
            turn.close()  # which answers what is open, before the window is saved
            if not saved and not self.closed:
                self._leave_plan(paused=True)
                try:
                    self.store.save(self.id, plan=self.plan)
                except Exception:
                    # What ended the turn goes on to the caller; all its messages are stored.
                    _LOG.exception("session %s: an interrupted turn could not be saved", self.id)

    def _leave_plan(self, *, waits: bool = False, paused: bool = False) -> None:
        """How the turn left the step that is being worked on: done with, cut short, or broken off."""
        if (plan := self.plan) is not None and plan.current is not None:
            self.agent.plan = replace(plan, awaiting_continuation=waits, paused=paused)

    def _hear(self, messages: tuple[Message, ...]) -> None:
        self._refuse_closed()
        try:
            self.store.append(self.id, *messages, at=self._stored)
        except SessionAhead:
            self.closed = True
            raise
        self._stored += len(messages)

    def _planned(self, plan: Plan | None) -> None:
        self._refuse_closed()
        self.store.save(self.id, plan=plan)

    def _fetch(self, number: int) -> list[dict[str, Any]]:
        return [message.to_dict() for message in self.store.turn(self.id, number)[1]]

    def _refuse_closed(self) -> None:
        if self.closed:
            raise SessionError(f"session {self.id!r} was closed: resume it to go on")


def _refuse_begun(agent: Agent) -> None:
    if agent.begun or agent.heard is not None:
        raise SpecError("the agent has a conversation already: give a new agent")


def _begin(agent: Agent, store: Store, id: str, resumed: Resume) -> None:
    """The agent knows of the session what a resume gives, each turn under its number."""
    opening: list[Message] = []
    if agent.system is None:
        stored = store.read(id, 0, _OPENING)
        opening += takewhile(lambda message: message.role == "system", stored)
    recent = [message for message in resumed.recent if message.role != "system"]
    if not recent and not resumed.summary:
        return  # nothing was said: the system prompt is stored with the first turn
    agent.begin(seeded(replace(resumed, recent=(*opening, *recent))))
    numbers, counted = Turns(), 0
    for message in recent:
        counted = numbers.add(message)
    history = agent.manager.history
    number_from(history, len(history) - len(recent), max(0, store.turns(id) - counted))


def _unanswered(store: Store, id: str) -> list[Message]:
    """The results that a crash left out, of the newest calls of a transcript."""
    last: Unit | None = None
    for message in store.turn(id, store.turns(id))[1]:
        if message.role == "tool":
            if last is not None and message.tool_call_id in last.open:
                last.answer(message)
        else:
            last = Unit(message)
    left = [] if last is None else last.open.values()
    return [interrupted(call).replace(time=time.time()) for call in left]

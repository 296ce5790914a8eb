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

from ctxlab.agent.events import AgentEvent, TurnFinished, TurnResult, collect_result
from ctxlab.agent.loop import Agent
from ctxlab.context.turns import TurnCounter, set_turn_offset
from ctxlab.errors import SessionConflict, SessionError, SpecError
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState, Session, SessionStore
from ctxlab.sessions.resume_messages import MessageUnit, build_resumed_messages, interrupted_result

__all__ = ["AgentSession", "TurnObserver"]

_LOG = logging.getLogger("ctxlab.agent")
_MAX_OPENING_MESSAGES = 4
"how many messages at the beginning of a transcript are looked at for its system prompt"


class TurnObserver(Protocol):
    """Whoever is to know that a turn is over: ``ctxlab.sessions.BackgroundSummarizer``."""

    def turn_completed(self, id: str) -> None:
        """A turn of this session is stored whole."""
        ...


class AgentSession:
    """An agent and the session of a store that its conversation goes into.

    Made by ``start`` or ``resume``, each with an agent that has said nothing yet. What was said is
    appended at once; ``SessionStore.save`` follows at the end of a turn, however it ends. Where the
    session has gone on elsewhere, in another process say, nothing more is stored: ``SessionConflict``,
    once. It is the agent's ``ConversationObserver``.
    """

    def __init__(
        self,
        store: SessionStore,
        id: str,
        agent: Agent,
        *,
        plan: AgentPlan | None = None,
        file: str | None = None,
        summarizer: TurnObserver | None = None,
        stored_messages: int | None = None,
    ) -> None:
        self.store = store
        self.id = id
        self.agent = agent
        self.file = file
        "the file of turns that name none"
        self.summarizer = summarizer
        "told of each turn that is over"
        self.closed = False
        self._stored_count = store.get(id).messages if stored_messages is None else stored_messages
        agent.attach(self, plan=plan)

    def __repr__(self) -> str:
        return f"<AgentSession {self.id}: {self.agent!r}>"

    def __enter__(self) -> AgentSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def start(
        cls,
        store: SessionStore,
        agent: Agent,
        *,
        title: str = "",
        file: str | None = None,
        agent_name: str | None = None,
        summarizer: TurnObserver | None = None,
        **create_options: Any,
    ) -> AgentSession:
        """A new session; ``create_options``: what else ``SessionStore.create`` is told of it."""
        _raise_if_started(agent)
        session = store.create(
            title=title,
            model=agent.model,
            agent=agent_name,
            file=file,
            strategy=repr(agent.manager.strategy),
            tools=agent.tool_definitions,
            **create_options,
        )
        return cls(store, session.id, agent, file=file, summarizer=summarizer)

    @classmethod
    def resume(
        cls, store: SessionStore, id: str, agent: Agent, *, summarizer: TurnObserver | None = None
    ) -> AgentSession:
        """A stored session goes on where it was left, whatever its length.

        The agent begins with its system prompt, or the stored one where it has none; one message of the
        engine's with summary and plan, which is stored nowhere; and the newest messages. Calls that a
        crash left without a result are answered in the store. Turns keep their numbers. Raises
        ``UnknownSession``.
        """
        _raise_if_started(agent)
        session = store.get(id)
        stored, resumed = session.messages, store.open(id)
        if left := _missing_results(store, id):
            stored = store.append(id, *left, expected_position=stored) + len(left)
            resumed = store.open(id)
        _load_resumed(agent, store, id, resumed)
        return cls(
            store,
            id,
            agent,
            plan=resumed.plan,
            file=session.file,
            summarizer=summarizer,
            stored_messages=stored,
        )

    @property
    def session(self) -> Session:
        """What the store knows of the session now."""
        return self.store.get(self.id)

    @property
    def plan(self) -> AgentPlan | None:
        """What the agent set out to do and where it stands; setting it stores it."""
        return self.agent.plan

    @plan.setter
    def plan(self, plan: AgentPlan | None) -> None:
        self.agent.set_plan(plan)

    def stream(self, text: str, *, file: str | None = None) -> Generator[AgentEvent, None, None]:
        """``Agent.stream``, stored as it goes; the turn is saved before ``TurnFinished`` comes.

        A session that was closed or archived meanwhile is active again.
        """
        self._raise_if_closed()
        turn = self.agent.stream(text, file=self.file if file is None else file)
        if self.session.status != "active":
            self.store.open(self.id)
        return self._stream_and_save(turn)

    def run(self, text: str, *, file: str | None = None) -> TurnResult:
        """The whole turn: what came of it once all its events are over."""
        return collect_result(self.stream(text, file=file))

    def close(self) -> None:
        """Ends a turn that was left in the middle, and closes the session; it can be resumed."""
        self.agent.cancel()
        if self.closed:
            return
        self.store.save(self.id, plan=self.plan)
        if self.session.status == "active":  # and was not archived meanwhile
            self.store.set_status(self.id, "closed")
        self.closed = True

    # --- storing -------------------------------------------------------------------------------

    def _stream_and_save(
        self, turn: Generator[AgentEvent, None, None]
    ) -> Generator[AgentEvent, None, None]:
        saved = False
        try:
            for event in turn:
                if isinstance(event, TurnFinished):
                    saved = True  # once: where it is interrupted or fails, a resume reads what is stored
                    self.agent.mark_plan(awaiting_continuation=event.result.finish == "limit")
                    self.store.save(self.id, plan=self.plan)
                    if self.summarizer is not None:
                        self.summarizer.turn_completed(self.id)
                yield event
        finally:
            turn.close()  # which answers what is open, before the window is saved
            if not saved and not self.closed:
                self.agent.mark_plan(paused=True)
                try:
                    self.store.save(self.id, plan=self.plan)
                except Exception:
                    # What ended the turn goes on to the caller; all its messages are stored.
                    _LOG.exception("session %s: an interrupted turn could not be saved", self.id)

    def on_messages(self, messages: tuple[Message, ...]) -> None:
        """Appends messages to the stored session, before the agent relies on them."""
        self._raise_if_closed()
        try:
            self.store.append(self.id, *messages, expected_position=self._stored_count)
        except SessionConflict:
            self.closed = True
            raise
        self._stored_count += len(messages)

    def on_plan(self, plan: AgentPlan | None) -> None:
        """Stores a plan, before the agent relies on it."""
        self._raise_if_closed()
        self.store.save(self.id, plan=plan)

    def fetch_turn(self, number: int) -> list[dict[str, Any]]:
        """The messages of a stored turn in full; turns count from 1."""
        return [message.to_dict() for message in self.store.read_turn(self.id, number)[1]]

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise SessionError(f"session {self.id!r} was closed: resume it to go on")


def _raise_if_started(agent: Agent) -> None:
    if agent.has_started or agent.observer is not None:
        raise SpecError("the agent has a conversation already: give a new agent")


def _load_resumed(agent: Agent, store: SessionStore, id: str, resumed: ResumeState) -> None:
    """The agent knows of the session what a resume gives, each turn under its number."""
    opening: list[Message] = []
    if agent.system is None:
        stored = store.read_messages(id, 0, _MAX_OPENING_MESSAGES)
        opening += takewhile(lambda message: message.role == "system", stored)
    recent = [message for message in resumed.recent if message.role != "system"]
    if not recent and not resumed.summary:
        return  # nothing was said: the system prompt is stored with the first turn
    agent.load_history(build_resumed_messages(replace(resumed, recent=(*opening, *recent))))
    numbers, counted = TurnCounter(), 0
    for message in recent:
        counted = numbers.add(message)
    history = agent.manager.history
    set_turn_offset(history, len(history) - len(recent), max(0, store.count_turns(id) - counted))


def _missing_results(store: SessionStore, id: str) -> list[Message]:
    """The results that a crash left out, of the newest calls of a transcript."""
    last: MessageUnit | None = None
    for message in store.read_turn(id, store.count_turns(id))[1]:
        if message.role == "tool":
            if last is not None and message.tool_call_id in last.open_calls:
                last.add_result(message)
        else:
            last = MessageUnit(message)
    left = [] if last is None else last.open_calls.values()
    return [interrupted_result(call).replace(time=time.time()) for call in left]

"""Live sessions: agents whose conversation is stored as it proceeds.

A message is on disk before anything depends on it, so a killed process loses nothing that was
shown.
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

_LOG = logging.getLogger("ctxlab.agent")
_MAX_OPENING_MESSAGES = 4
"number of messages at the start of a transcript that are searched for its system prompt"


class TurnObserver(Protocol):
    """Receives the end of each turn, such as ``ctxlab.sessions.BackgroundSummarizer``."""

    def turn_completed(self, id: str) -> None:
        """Receive the end of a turn, after all of it was stored.

        Parameters
        ----------
        id : str
            Id of the session.
        """


class AgentSession:
    """An agent and the stored session of its conversation.

    Use ``start`` or ``resume`` with a new agent. Each message is appended to the store at once, and
    ``SessionStore.save`` is called at the end of a turn, however it ends. If the session was
    continued elsewhere, for instance in another process, ``SessionConflict`` is raised once and
    nothing more is stored. The session is the agent's ``ConversationObserver``.

    Parameters
    ----------
    store : SessionStore
        The store.
    session : Session
        The session as it is in the store.
    agent : Agent
        The agent.
    plan : AgentPlan, optional
        Plan of the stored session.
    summarizer : TurnObserver, optional
        Called at the end of each turn.
    """

    def __init__(
        self,
        store: SessionStore,
        session: Session,
        agent: Agent,
        *,
        plan: AgentPlan | None = None,
        summarizer: TurnObserver | None = None,
    ) -> None:
        self.store = store
        self.id = session.id
        self.agent = agent
        self.file = session.file
        "file of turns that name none"
        self.summarizer = summarizer
        self.closed = False
        self._stored_count = session.messages
        agent.attach(self, plan=plan)

    def __repr__(self) -> str:
        """Show the id of the session and the agent."""
        return f"<AgentSession {self.id}: {self.agent!r}>"

    def __enter__(self) -> AgentSession:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
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
        """Create a session in the store.

        Parameters
        ----------
        store : SessionStore
            The store.
        agent : Agent
            An agent without a conversation.
        title : str, optional
            Title of the session.
        file : str, optional
            File of turns that name none.
        agent_name : str, optional
            Name of the agent, which is stored with the session.
        summarizer : TurnObserver, optional
            Called at the end of each turn.
        **create_options : object
            Further parameters of ``SessionStore.create``.

        Returns
        -------
        AgentSession
            The session.

        Raises
        ------
        SpecError
            If the agent already has a conversation.
        """
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
        return cls(store, session, agent, summarizer=summarizer)

    @classmethod
    def resume(
        cls, store: SessionStore, id: str, agent: Agent, *, summarizer: TurnObserver | None = None
    ) -> AgentSession:
        """Continue a stored session where it was left, whatever its length.

        The agent starts with its system prompt, or with the stored one if it has none. Then follow
        a message with summary and plan, which is not stored, and the newest messages. Tool calls
        that a crash left without a result get one in the store. Turns keep their numbers.

        Parameters
        ----------
        store : SessionStore
            The store.
        id : str
            Id of the session.
        agent : Agent
            An agent without a conversation.
        summarizer : TurnObserver, optional
            Called at the end of each turn.

        Returns
        -------
        AgentSession
            The session.

        Raises
        ------
        SpecError
            If the agent already has a conversation.
        UnknownSession
            If the store has no such session.
        """
        _raise_if_started(agent)
        session, resumed = store.get(id), store.open(id)
        if missing := _missing_results(store, id):
            store.append(id, *missing, expected_position=session.messages)
            session, resumed = store.get(id), store.open(id)
        _load_resumed(agent, store, id, resumed)
        return cls(store, session, agent, plan=resumed.plan, summarizer=summarizer)

    @property
    def session(self) -> Session:
        """The session as the store knows it now."""
        return self.store.get(self.id)

    @property
    def plan(self) -> AgentPlan | None:
        """The agent's plan and its current step; setting it stores it."""
        return self.agent.plan

    @plan.setter
    def plan(self, plan: AgentPlan | None) -> None:
        self.agent.set_plan(plan)

    def stream(self, text: str, *, file: str | None = None) -> Generator[AgentEvent, None, None]:
        """Run ``Agent.stream`` and store the turn; it is saved before ``TurnFinished`` is yielded.

        A session that was closed or archived in the store becomes active again.

        Parameters
        ----------
        text : str
            The user's message.
        file : str, optional
            File that the user has open; None uses the session's file.

        Returns
        -------
        generator of AgentEvent
            Events of the turn.

        Raises
        ------
        SessionError
            If this ``AgentSession`` was closed.
        """
        self._raise_if_closed()
        turn = self.agent.stream(text, file=self.file if file is None else file)
        if self.session.status != "active":
            self.store.open(self.id)
        return self._stream_and_save(turn)

    def run(self, text: str, *, file: str | None = None) -> TurnResult:
        """Run a turn to its end; see ``stream``.

        Parameters
        ----------
        text : str
            The user's message.
        file : str, optional
            File that the user has open; None uses the session's file.

        Returns
        -------
        TurnResult
            Result of the turn.
        """
        return collect_result(self.stream(text, file=file))

    def close(self) -> None:
        """End a turn that was left in the middle and close the session; it can be resumed."""
        self.agent.cancel()
        if self.closed:
            return
        self.store.save(self.id, plan=self.plan)
        if self.session.status == "active":  # it may have been archived in the meantime
            self.store.set_status(self.id, "closed")
        self.closed = True

    def _stream_and_save(
        self, turn: Generator[AgentEvent, None, None]
    ) -> Generator[AgentEvent, None, None]:
        saved = False
        try:
            for event in turn:
                if isinstance(event, TurnFinished):
                    saved = True  # do not repeat a failed save: a resume reads the stored messages
                    self.agent.mark_plan(awaiting_continuation=event.result.finish == "limit")
                    self.store.save(self.id, plan=self.plan)
                    if self.summarizer is not None:
                        self.summarizer.turn_completed(self.id)
                yield event
        finally:
            turn.close()  # answers open tool calls, so do it before saving
            if not saved and not self.closed:
                self.agent.mark_plan(paused=True)
                try:
                    self.store.save(self.id, plan=self.plan)
                except Exception:
                    # The caller gets the error that ended the turn; all its messages are stored.
                    _LOG.exception("session %s: cannot save an interrupted turn", self.id)

    def on_messages(self, messages: tuple[Message, ...]) -> None:
        """Append messages to the stored session, before they take effect.

        Parameters
        ----------
        messages : tuple of Message
            The messages, in order.

        Raises
        ------
        SessionConflict
            If the session was continued elsewhere.
        """
        self._raise_if_closed()
        try:
            self.store.append(self.id, *messages, expected_position=self._stored_count)
        except SessionConflict:
            self.closed = True
            raise
        self._stored_count += len(messages)

    def on_plan(self, plan: AgentPlan | None) -> None:
        """Store a plan, before it takes effect.

        Parameters
        ----------
        plan : AgentPlan or None
            The new plan; None if there is none.
        """
        self._raise_if_closed()
        self.store.save(self.id, plan=plan)

    def fetch_turn(self, number: int) -> list[dict[str, Any]]:
        """Return all messages of a stored turn.

        Parameters
        ----------
        number : int
            Number of the turn, from 1.

        Returns
        -------
        list of dict
            Messages in OpenAI's format.
        """
        return [message.to_dict() for message in self.store.read_turn(self.id, number)[1]]

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise SessionError(f"session {self.id!r} is closed; resume it to continue")


def _raise_if_started(agent: Agent) -> None:
    if agent.has_started or agent.observer is not None:
        raise SpecError("the agent already has a conversation; use a new agent")


def _load_resumed(agent: Agent, store: SessionStore, id: str, resumed: ResumeState) -> None:
    """Load the resumed conversation into the agent and keep the numbers of its turns."""
    opening: list[Message] = []
    if agent.system is None:
        stored = store.read_messages(id, 0, _MAX_OPENING_MESSAGES)
        opening += takewhile(lambda message: message.role == "system", stored)
    recent = [message for message in resumed.recent if message.role != "system"]
    if not recent and not resumed.summary:
        return  # no messages yet: the system prompt is stored with the first turn
    agent.load_history(build_resumed_messages(replace(resumed, recent=(*opening, *recent))))
    numbers, counted = TurnCounter(), 0
    for message in recent:
        counted = numbers.add(message)
    history = agent.manager.history
    set_turn_offset(history, len(history) - len(recent), max(0, store.count_turns(id) - counted))


def _missing_results(store: SessionStore, id: str) -> list[Message]:
    """Return results for the newest tool calls of a transcript that a crash left without one."""
    last = MessageUnit(Message("user", ""))
    for message in store.read_turn(id, store.count_turns(id))[1]:
        if message.role != "tool":
            last = MessageUnit(message)
        elif message.tool_call_id in last.open_calls:
            last.add_result(message)
    now = time.time()
    return [interrupted_result(call).replace(time=now) for call in last.open_calls.values()]

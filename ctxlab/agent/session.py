"""Sessions that store the conversation of a live agent, message by message.

Each message is stored before the agent uses it. If the process is killed, only an unfinished tool call
is lost. The text of an incomplete reply is kept beside the store until the session is resumed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import dropwhile, takewhile
from typing import Any, Protocol

from ctxlab.agent.events import AgentEvent, TurnFinished, TurnResult, collect_result
from ctxlab.agent.loop import Agent
from ctxlab.agent.memory import SessionMemory
from ctxlab.agent.messages import partial_answer
from ctxlab.context.turns import TurnCounter, TurnLabel, set_turn_offset
from ctxlab.errors import (
    SessionConflict,
    SessionError,
    SpecError,
    StoreNotWritable,
    UnknownSession,
)
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState, Session, SessionStore
from ctxlab.sessions.partial_answer import PartialAnswer
from ctxlab.sessions.resume_messages import (
    MessageUnit,
    build_resumed_messages,
    has_cut_images,
    interrupted_result,
    restore_images,
)
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.strategies.helpers.text import clip_text

_LOG = logging.getLogger("ctxlab.agent")
_MAX_OPENING_MESSAGES = 4
"number of messages at the start of a stored session that may be system prompts"
_SUMMARY_PART = 5  # of the available tokens, at most one part of this many is for the summary


class TurnObserver(Protocol):
    """Object that is called after each turn, such as ``ctxlab.sessions.BackgroundSummarizer``."""

    def turn_completed(self, id: str) -> None:
        """Handle the end of a turn, after all its messages were stored.

        Parameters
        ----------
        id : str
            Id of the session.
        """


class AgentSession:
    """Agent whose conversation is stored in a session.

    Create an ``AgentSession`` by passing a new agent to ``start`` or ``resume``. Each message is
    appended to the store at once. ``SessionStore.save`` is called at the end of each turn, even if
    the turn fails. If another process or another ``AgentSession`` has continued the session,
    ``SessionConflict`` is raised, nothing more is stored, and later turns raise ``SessionError``.
    An ``AgentSession`` is the ``ConversationObserver`` of its agent.

    Parameters
    ----------
    store : SessionStore
        Store that contains the session.
    session : Session
        Metadata of the session, as currently stored.
    agent : Agent
        Agent that has loaded the conversation of the session.
    plan : AgentPlan, optional
        Plan of the stored session.
    summarizer : TurnObserver, optional
        Object that is called after each turn.
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
        "path of the open file, used if no ``file`` is passed to ``stream`` or ``run``"
        self.summarizer = summarizer
        self.closed = False
        self.allow_unsaved = False
        "if True, a turn goes on where the disk is full; its messages are stored as soon as they can be"
        self._unsaved: tuple[Message, ...] = ()
        self._stored_count = session.messages
        path = store.partial_path(session.id)
        self._partial = None if path is None else PartialAnswer(path)
        agent.attach(self, plan=plan)
        agent.memory = SessionMemory(store, self.id)

    def __repr__(self) -> str:
        """Show the id of the session and the agent."""
        return f"<AgentSession {self.id}: {self.agent!r}>"

    def __enter__(self) -> AgentSession:
        """Return this ``AgentSession``."""
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
        """Create a session in a store and connect an agent to it.

        Parameters
        ----------
        store : SessionStore
            Store in which the session is created.
        agent : Agent
            Agent without a conversation.
        title : str, optional
            Title of the session.
        file : str, optional
            Path of the file that the user has open. It is used for each turn for which no ``file``
            is passed to ``stream`` or ``run``.
        agent_name : str, optional
            Name of the agent, which is stored with the session.
        summarizer : TurnObserver, optional
            Object that is called after each turn.
        **create_options : object
            Further keyword arguments of ``SessionStore.create``.

        Returns
        -------
        AgentSession
            New session of the agent.

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
        cls,
        store: SessionStore,
        id: str,
        agent: Agent,
        *,
        summarizer: TurnObserver | None = None,
        messages: Sequence[Message] | None = None,
    ) -> AgentSession:
        """Load a stored session of any length into an agent, so that the agent continues it.

        The conversation consists of the agent's system prompt, a message with the summary and the
        plan of the session, and the newest messages, within the store's size limits. The newest three
        messages with images keep them. If the agent
        has no system prompt, the stored one is used. The message with the summary is not stored. If
        a crash left tool calls without results, results that report the interruption are added to
        the store, and so is the text of an answer that a crash interrupted. Turns, steps and tool
        results keep their numbers.

        Parameters
        ----------
        store : SessionStore
            Store that contains the session.
        id : str
            Id of the session.
        agent : Agent
            Agent without a conversation.
        summarizer : TurnObserver, optional
            Object that is called after each turn.
        messages : sequence of Message, optional
            Messages of the conversation that the agent continues, if another agent of this program has
            them in memory. By default, they are read from the store.

        Returns
        -------
        AgentSession
            Session that the agent continues.

        Raises
        ------
        SpecError
            If the agent already has a conversation.
        UnknownSession
            If the store has no session with this id.
        """
        _raise_if_started(agent)
        session, resumed = store.get(id), store.open(id)
        missing = _missing_results(store, id)
        if (path := store.partial_path(id)) is not None:
            text = PartialAnswer(path).take(session.messages)
            answer = partial_answer([text], stopped=False)
            missing += [] if answer is None else [answer]
        if missing:
            store.append(id, *missing, expected_position=session.messages)
            session, resumed = store.get(id), store.open(id)
        if messages is None:
            _load_resumed(agent, store, id, resumed)
        else:
            _load(agent, store, id, messages)
        history = agent.manager.history
        loaded = 0 if agent.has_unstored_prompt else len(history)
        history.message_offset = session.messages - loaded
        return cls(store, session, agent, plan=resumed.plan, summarizer=summarizer)

    @property
    def session(self) -> Session:
        """Current metadata of the session, read from the store."""
        return self.store.get(self.id)

    @property
    def plan(self) -> AgentPlan | None:
        """Current plan of the agent; assigning a new plan also stores it."""
        return self.agent.plan

    @plan.setter
    def plan(self, plan: AgentPlan | None) -> None:
        self.agent.set_plan(plan)

    def stream(
        self, text: str, *, file: str | None = None, images: Sequence[str] = ()
    ) -> Generator[AgentEvent, None, None]:
        """Run a turn, store its messages and yield its events; see ``Agent.stream``.

        The session is saved before ``TurnFinished`` is yielded. If the session was closed or
        archived in the store, it becomes active again.

        Parameters
        ----------
        text : str
            Text of the user's message.
        file : str, optional
            Path of the file that the user has open; None uses the session's file.
        images : sequence of str, optional
            URLs of images that the message contains; see ``ctxlab.agent.images``.

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
        turn = self.agent.stream(text, file=self.file if file is None else file, images=images)
        if self.session.status != "active":
            with self._tolerate_unsaved():
                self.store.open(self.id)
        return self._stream_and_save(turn)

    def run(self, text: str, *, file: str | None = None, images: Sequence[str] = ()) -> TurnResult:
        """Run a turn, store its messages and return its result; see ``Agent.run``.

        Parameters
        ----------
        text : str
            Text of the user's message.
        file : str, optional
            Path of the file that the user has open; None uses the session's file.
        images : sequence of str, optional
            URLs of images that the message contains; see ``ctxlab.agent.images``.

        Returns
        -------
        TurnResult
            Result of the turn.
        """
        return collect_result(self.stream(text, file=file, images=images))

    def close(self) -> None:
        """Cancel an unfinished turn and close the session, which can be resumed later."""
        self.agent.cancel()
        if self._partial is not None:
            self._partial.remove()
        if self.closed:
            return
        with self._tolerate_unsaved():
            self._store()
            self.store.save(self.id, plan=self.plan)
            if self.session.status == "active":  # the store may have archived it in the meantime
                self.store.set_status(self.id, "closed")
        self.closed = True

    def _stream_and_save(
        self, turn: Generator[AgentEvent, None, None]
    ) -> Generator[AgentEvent, None, None]:
        saved = False
        try:
            for event in turn:
                if isinstance(event, TurnFinished):
                    saved = True  # even if saving fails: the messages are stored already
                    self.agent.mark_plan(awaiting_continuation=event.result.finish == "limit")
                    with self._tolerate_unsaved():
                        self.store.save(self.id, plan=self.plan)
                    if self.summarizer is not None:
                        self.summarizer.turn_completed(self.id)
                yield event
        finally:
            turn.close()  # adds missing tool results, so close the turn before saving
            if not saved and not self.closed:
                self._save_interrupted()

    def abandon(self) -> None:
        """Leave a turn that does not end. Its plan is paused, and a later reply is not stored."""
        self.closed = True
        self._save_interrupted()

    def _save_interrupted(self) -> None:
        self.agent.mark_plan(paused=True)
        try:
            self.store.save(self.id, plan=self.plan)
        except UnknownSession:
            _LOG.debug("session %s was deleted during a turn", self.id)
        except Exception:
            # The caller receives the error that ended the turn. The messages are stored already.
            _LOG.exception("session %s: cannot save an interrupted turn", self.id)

    def on_messages(self, messages: tuple[Message, ...]) -> None:
        """Append new messages to the stored session, before the agent uses them.

        Parameters
        ----------
        messages : tuple of Message
            New messages, in order.

        Raises
        ------
        SessionConflict
            If another process or another ``AgentSession`` has continued the session.
        """
        self._raise_if_closed()
        try:
            self._store(*messages)
        except SessionConflict:
            self.closed = True
            raise
        except StoreNotWritable as error:
            if not self.allow_unsaved:
                raise
            if not self._unsaved:
                said = "the conversation goes on, but new messages are not saved"
                _LOG.warning("%s; %s", error, said)
            self._unsaved += messages
        if self._partial is not None:
            self._partial.remove()

    def store_unsaved(self) -> None:
        """Store the messages that could not be stored so far.

        Raises
        ------
        StoreNotWritable
            If they still cannot be stored.
        """
        self._store()

    @property
    def unsaved_count(self) -> int:
        """Number of messages that could not be stored so far."""
        return len(self._unsaved)

    def _store(self, *messages: Message) -> None:
        """Store messages, after those that could not be stored before."""
        waiting = (*self._unsaved, *messages)
        if waiting:
            self.store.append(self.id, *waiting, expected_position=self._stored_count)
            self._stored_count += len(waiting)
            if self._unsaved:
                self._unsaved = ()
                _LOG.warning("session %s: all messages are saved again", self.id)

    @contextmanager
    def _tolerate_unsaved(self) -> Iterator[None]:
        """Ignore a store that cannot be written, if ``allow_unsaved`` is True."""
        try:
            yield
        except StoreNotWritable:
            if not self.allow_unsaved:
                raise

    def on_text(self, text: str) -> None:
        """Keep a piece of an answer on disk until the answer is stored.

        Parameters
        ----------
        text : str
            Text that the model has sent.
        """
        if self._partial is not None:
            self._partial.add(text, self._stored_count)

    def on_plan(self, plan: AgentPlan | None) -> None:
        """Store a new plan, before the agent uses it.

        Parameters
        ----------
        plan : AgentPlan or None
            New plan; None if the agent drops its plan.
        """
        self._raise_if_closed()
        with self._tolerate_unsaved():
            self.store.save(self.id, plan=plan)

    def fetch_turn(self, turn: int | str) -> list[dict[str, Any]]:
        """Return all messages of a stored turn or step.

        Parameters
        ----------
        turn : int or str
            Number of a turn, such as ``3``, or label of a step, such as ``"3.2"``.

        Returns
        -------
        list of dict
            Messages of the turn or step, in OpenAI's format; empty if it does not exist.

        Raises
        ------
        SpecError
            If ``turn`` is neither a turn nor a step.
        """
        messages = self.store.read_turn(self.id, *TurnLabel.parse(turn))[1]
        return [message.to_dict() for message in messages]

    def fetch_result(self, number: int) -> str | None:
        """Return the whole text of a stored tool result.

        Parameters
        ----------
        number : int
            Number of the message in the session, from 1.

        Returns
        -------
        str or None
            Text of the result; None if there is no tool result with this number.
        """
        if number < 1:
            return None
        message = next(self.store.read_messages(self.id, number - 1, number), None)
        return message.text if message is not None and message.role == "tool" else None

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise SessionError(f"session {self.id!r} is closed; resume it to continue")


def _raise_if_started(agent: Agent) -> None:
    if agent.has_started or agent.observer is not None:
        raise SpecError("the agent already has a conversation; use a new agent")


def _load_resumed(agent: Agent, store: SessionStore, id: str, resumed: ResumeState) -> None:
    """Load a stored conversation into an agent. Its turns and steps keep their stored numbers."""
    opening: list[Message] = []
    if agent.system is None:
        stored = store.read_messages(id, 0, _MAX_OPENING_MESSAGES)
        opening += takewhile(lambda message: message.role == "system", stored)
    recent = [message for message in resumed.recent if message.role != "system"]
    if not recent and not resumed.summary:
        return  # no messages yet: the system prompt is stored with the first turn
    if has_cut_images(recent):
        first = max(0, store.get(id).messages - 2 * len(recent))
        recent = restore_images(recent, store.read_messages(id, first))
    if recent and recent[0].role != "user":  # the turn began before: its file is that of its user
        _, turn = store.read_turn(id, _counter_before(store, id, recent).turn)
        file = next((message.file for message in turn if message.role == "user"), None)
        recent[0] = recent[0].replace(file=file)
    summary = _clip_to_window(agent, resumed.summary)
    state = replace(resumed, summary=summary, recent=(*opening, *recent))
    _load(agent, store, id, build_resumed_messages(state))


def _load(agent: Agent, store: SessionStore, id: str, messages: Iterable[Message]) -> None:
    """Load messages into an agent, and number the turns and steps so that they end as in the store."""
    agent.load_history(messages)
    history = agent.manager.history
    recent = list(dropwhile(_precedes_conversation, history))
    set_turn_offset(history, len(history) - len(recent), _counter_before(store, id, recent))


def _precedes_conversation(message: Message) -> bool:
    return message.role == "system" or ENGINE_MESSAGE_KEY in message.extra


def _clip_to_window(agent: Agent, summary: str) -> str:
    """Cut a summary to a fifth of the available tokens, since no strategy shortens it later."""
    most = agent.manager.budget.available // _SUMMARY_PART
    used = agent.manager.history.counter.count_text(summary)
    return summary if used <= most else clip_text(summary, len(summary) * most // used)


def _counter_before(store: SessionStore, id: str, recent: Sequence[Message]) -> TurnCounter:
    """Return the counter of the messages that precede the newest messages of a session.

    The numbers are counted back from the end, since ``recent`` may lack some stored messages.
    """
    counter = TurnCounter()
    labels = [counter.add(message) for message in recent]
    first = max(0, store.count_turns(id) - counter.turn + 1)  # the turn of the first message
    spoken = next((message.role for message in recent if message.role != "tool"), "user")
    if spoken == "user":
        earlier = max(0, first - 1)
        return TurnCounter(earlier, store.count_steps(id, earlier))
    known = max(label.step for label in labels if label.turn == 1)
    earlier = store.count_steps(id, first) - known
    return TurnCounter(first, earlier) if earlier > 0 else TurnCounter(first, 1, replied=False)


def _missing_results(store: SessionStore, id: str) -> list[Message]:
    """Build results for the last tool calls of a session if a crash left them without results."""
    last = MessageUnit(Message("user", ""))
    turn = store.count_turns(id)
    for message in store.read_turn(id, turn, store.count_steps(id, turn))[1]:
        if message.role != "tool":
            last = MessageUnit(message)
        elif message.tool_call_id in last.open_calls:
            last.add_result(message)
    now = time.time()
    return [interrupted_result(call).replace(time=now) for call in last.open_calls.values()]

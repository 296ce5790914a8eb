"""Create the agent of a chat, and connect it to a session of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ctxlab.errors import SpecError, UnknownSession
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import AgentSession, TurnObserver
    from ctxlab.cli.agent_options import AgentSettings
    from ctxlab.messages.types import Message
    from ctxlab.sessions.base import Session, SessionStore


class ChatConnection:
    """The agent of a chat and its session. Both are replaced when the user changes the session.

    A new session is stored with its first message, so that a chat in which nothing is said leaves none.

    Parameters
    ----------
    store : SessionStore
        Store of the sessions.
    settings_for : callable
        Function that gets the session to resume, or None, and returns the settings of the agent.
    make_agent : callable
        Function that creates an agent with such settings.
    summarizer : TurnObserver
        Object that is called after each turn.
    """

    def __init__(
        self,
        store: SessionStore,
        settings_for: Callable[[Session | None], AgentSettings],
        make_agent: Callable[[AgentSettings], Agent],
        summarizer: TurnObserver,
    ) -> None:
        self.store = store
        self.agent_session: AgentSession | None = None
        "session of the chat; None before the first message"
        self.title = ""
        "title of a session that is not stored yet"
        self._start_options: dict[str, Any] = {}  # of a session that replaces an undone one
        self._settings_for, self._make_agent = settings_for, make_agent
        self._summarizer = summarizer
        self._started: list[str] = []
        self._copies: dict[str, tuple[int, str]] = {}
        "number of messages of each copy when it was made, and the session that keeps the dropped turn"
        self.agent: Agent
        "agent that answers"

    @property
    def session(self) -> Session | None:
        """Description of the session, read from the store; None before the first message."""
        return None if self.agent_session is None else self.store.get(self.agent_session.id)

    def open(
        self,
        session: Session | None,
        model: str | None = None,
        messages: Sequence[Message] | None = None,
    ) -> None:
        """Leave the current session, and connect a new agent to a session.

        Parameters
        ----------
        session : Session or None
            Session to resume; None for a new session.
        model : str, optional
            Model of the agent. By default, that of the settings or of the session.
        messages : sequence of Message, optional
            Messages that the chat has in memory; see ``AgentSession.resume``.

        Raises
        ------
        SpecError
            If no model is set, or a setting is not valid. The current session then stays open.
        """
        from ctxlab.agent.session import AgentSession

        settings = self._settings_for(session)
        if model is not None:
            settings.values["model"] = model
        agent = self._make_agent(settings)
        self.close()
        self.agent, self._settings, self.agent_session = agent, settings, None
        if session is not None:
            if model is not None:
                self.store.set_model(session.id, model)
            self.agent_session = AgentSession.resume(
                self.store,
                session.id,
                agent,
                summarizer=self._summarizer,
                messages=messages,
            )
            self.agent_session.allow_unsaved = True

    def start(self) -> AgentSession:
        """Return the session of the chat, and create it if there is none.

        Returns
        -------
        AgentSession
            Session of the agent.
        """
        from ctxlab.agent.session import AgentSession

        if self.agent_session is None:
            options = {"agent_name": self._settings.values["agent"], **self._start_options}
            options["meta"] = options.get("meta", {}) | self._settings.stored
            self.agent_session = AgentSession.start(
                self.store, self.agent, title=self.title, summarizer=self._summarizer, **options
            )
            self.agent_session.allow_unsaved = True
            self._started.append(self.agent_session.id)
        return self.agent_session

    def set_title(self, title: str) -> str:
        """Set the title of the session. Before the first message, keep it in memory.

        Parameters
        ----------
        title : str
            New title.

        Returns
        -------
        str
            Title that was set.
        """
        if self.agent_session is None:
            self.title = title
            return title
        return self.store.retitle(self.agent_session.id, title).title

    def change_model(self, model: str) -> None:
        """Continue the conversation with another model.

        Parameters
        ----------
        model : str
            Name of the model.

        Raises
        ------
        SpecError
            If the name is empty.
        StoreNotWritable
            If there are messages that cannot be stored.
        """
        if not model.strip():
            raise SpecError("expected the name of a model, such as /model gpt-5-mini, got none")
        if self.agent_session is None:
            title, options = self.title, self._start_options
            self.open(None, model.strip())
            self.title, self._start_options = title, options
            return
        self.agent_session.store_unsaved()
        self.open(self.session, model.strip(), self._messages())

    def undo(self) -> tuple[tuple[Message, ...], str]:
        """Drop the last turn from the conversation.

        Stores only append, so the conversation continues in a copy of the session without this turn. The
        session itself keeps all its messages and is archived.

        Returns
        -------
        dropped : tuple of Message
            Messages of the dropped turn.
        id : str
            Id of the archived session that contains them.

        Raises
        ------
        SpecError
            If there is no turn.
        StoreNotWritable
            If there are messages that cannot be stored.
        """
        from ctxlab.agent.plan import PLAN_TOOL_NAME

        if self.agent_session is not None:
            self.agent_session.store_unsaved()
        session = self.session
        turns = 0 if session is None else self.store.count_turns(session.id)
        if session is None or not turns:
            raise SpecError("the conversation has no turn yet; send a message first")
        _, dropped = self.store.read_turn(session.id, turns)
        calls = (call.name for message in dropped for call in message.tool_calls)
        plan = None if PLAN_TOOL_NAME in calls else self.agent.plan
        # A session without turns is not stored, so before the first turn a new one begins.
        copied = self.store.copy(session.id, turns=turns - 1, plan=plan) if turns > 1 else None
        title = next((each.title for each in session.titles if not each.turn), "")
        again = {"file": session.file, "agent_name": session.agent, "meta": session.meta}
        messages, source = self._copies.get(session.id, (-1, ""))
        unused = session.messages == messages  # the session that it was copied from contains them
        kept = source if unused else session.id
        self.open(copied, self.agent.model, _without_last_turn(self._messages() or ()))
        self.title, self._start_options = ("", {}) if copied else (title, again)
        if copied is not None:
            self._copies[copied.id] = (copied.messages, kept)
        if unused:
            self.store.delete(session.id)
        else:
            self.store.set_status(session.id, "archived")
        return dropped, kept

    def _messages(self) -> tuple[Message, ...] | None:
        """Return the messages in memory; None if another process has continued the session."""
        if self.agent_session is None or self.agent_session.closed:
            return None
        return tuple(self.agent.manager.history)

    def close(self) -> str | None:
        """Close the session of the chat. A session that was started but has no message is deleted.

        Returns
        -------
        str or None
            Id of the session; None if there is none, or if another process deleted it.
        """
        closed, self.agent_session = self.agent_session, None
        self.title, self._start_options = "", {}
        if closed is None:
            return None
        try:
            closed.close()
        except UnknownSession:  # another process deleted the session
            return None
        # A new session stays empty if every request failed.
        if closed.id in self._started and not closed.session.messages:
            self.store.delete(closed.id)
            return None
        return closed.id


def _without_last_turn(history: Iterable[Message]) -> tuple[Message, ...] | None:
    """Return the messages before the last message of the user; None if there is no such message."""
    messages = tuple(history)
    for position in reversed(range(len(messages))):
        message = messages[position]
        if message.role == "user" and ENGINE_MESSAGE_KEY not in message.extra:
            return messages[:position]
    return None

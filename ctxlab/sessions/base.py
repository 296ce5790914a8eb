"""Base classes for reading and storing sessions, and their data types.

``SessionLibrary`` is the read-only interface. ``LogLibrary`` implements it for log files.
``SessionStore`` adds the methods that an agent calls to store its conversation. ``JsonlStore`` and
``SqliteStore`` implement both.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from uuid import uuid4

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import repair_surrogates
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError, SessionError, UnknownName, UnknownSession
from ctxlab.formats.ctxlab_sessions.chunks import COPIED_FROM_KEY, SESSION_META_KEYS
from ctxlab.formats.fields import get_text
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.common import check_not_negative, check_session_id, encode_json
from ctxlab.sessions.text_search import SearchHit, search_messages
from ctxlab.sessions.titles import (
    TitleChange,
    single_line,
    title_at_turn,
    titles_after_change,
)

SessionStatus: TypeAlias = Literal["active", "closed", "archived"]
STATUSES: tuple[str, ...] = get_args(SessionStatus)

_LOG = logging.getLogger("ctxlab.sessions")


@dataclass(frozen=True)
class AgentPlan:
    """Plan of an agent: the steps, and the index of the current step."""

    steps: tuple[str, ...] = ()
    "descriptions of the steps, in order"
    current: int | None = None
    "index of the current step, from 0; None if no step has begun"
    awaiting_continuation: bool = False
    "True if the agent reached its maximum number of steps and waits for the user to continue"
    paused: bool = False
    "True if the plan is paused"


@dataclass(frozen=True, repr=False)
class Session:
    """Description of a session, without its messages.

    Examples
    --------
    >>> Session("3f2a", "Fix the parser", messages=12)
    <Session 3f2a: Fix the parser, 12 messages, active>
    """

    id: str
    "session id"
    title: str = ""
    "the current title; empty if none is set"
    model: str | None = None
    "name of the model"
    status: SessionStatus = "active"
    "``active``, ``closed`` or ``archived``"
    created: float = 0.0
    "time of creation, in seconds since 1970"
    updated: float = 0.0
    "time of the last change, in seconds since 1970"
    messages: int = 0
    "number of stored messages"
    agent: str | None = None
    "name of the agent that the session belongs to"
    file: str | None = None
    "file that the session is about; None if there is no such file"
    strategy: str | None = None
    "specification of the context strategy"
    system: bool = False
    "True for the internal use of a program: no title is derived and no summaries are written"
    titles: tuple[TitleChange, ...] = ()
    "title history, newest first; limited to the newest ``MAX_TITLES`` titles"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's format"
    meta: dict[str, Any] = field(default_factory=dict)
    "additional JSON values stored with the session"

    def __repr__(self) -> str:
        """Return the session's id, title, number of messages and status."""
        said = f"{self.title or '(no title)'}, {pluralize(self.messages, 'message')}"
        return f"<Session {self.id}: {said}, {self.status}>"


@dataclass(frozen=True)
class ResumeState:
    """State to resume a session from: a summary, the newest messages and the plan.

    Its size is limited, however long the session is.
    """

    summary: str = ""
    "summary of the messages before ``recent``"
    recent: tuple[Message, ...] = ()
    "newest messages, within the store's size limits; each tool call is followed by its result"
    plan: AgentPlan | None = None
    "the saved plan; None if the agent saved no plan"


class SessionLibrary(ABC):
    """Read access to sessions.

    Methods that take an ``id`` raise ``UnknownSession`` if no session has this id.
    """

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: SessionStatus | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """Return the sessions, most recently updated first.

        Sessions with malformed files are left out, and a warning is logged for each of them.

        Parameters
        ----------
        query : str, optional
            Words that the title must contain. Upper and lower case are not distinguished.
        since : float, optional
            Return only sessions updated at this time or later, in seconds since 1970.
        before : float, optional
            Return only sessions updated at this time or earlier, in seconds since 1970.
        status : {'active', 'closed', 'archived'}, optional
            Return only sessions with this status. By default, archived sessions are left out.
        agent : str, optional
            Return only sessions of the agent with this name.

        Returns
        -------
        list of Session
            The sessions, most recently updated first.

        Raises
        ------
        UnknownName
            If ``status`` is not one of the three values.
        """
        if status is not None:
            _check_status(status)
        words = (query or "").casefold().split()
        found = [
            session
            for session in self._iter_sessions(status)
            if (session.status == status if status else session.status != "archived")
            and (agent is None or session.agent == agent)
            and (since is None or session.updated >= since)
            and (before is None or session.updated <= before)
            and all(word in session.title.casefold() for word in words)
        ]
        return sorted(found, key=lambda session: session.updated, reverse=True)

    @abstractmethod
    def _iter_sessions(self, status: SessionStatus | None) -> Iterable[Session]:
        """Yield all sessions. The method ``sessions`` selects those with the requested status.

        To save time, a subclass may leave out sessions that do not have this status.
        """

    @abstractmethod
    def get(self, id: str) -> Session:
        """Return the description of a session.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Session
            Title, status, times and other values of the session, without its messages.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    @abstractmethod
    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """Return an iterator over the messages at positions ``[start, stop)``.

        Parameters
        ----------
        id : str
            Session id.
        start : int, default 0
            Position of the first message.
        stop : int, optional
            Position after the last message. By default, read to the end.

        Returns
        -------
        iterator of Message
            The messages in order, read from disk as they are needed.

        Raises
        ------
        UnknownSession
            If no session has this id.
        ReadError
            If a line of a log or chunk is malformed.
        SessionError
            If a message in a database is malformed.
        """

    @abstractmethod
    def read_turn(self, id: str, turn: int, step: int = 0) -> tuple[int, tuple[Message, ...]]:
        """Return the messages of a turn or of a step, and the position of the first one.

        A turn is a user message with everything that answers it. A step is one reply with its tool
        calls and their results; see ``ctxlab.context.turns``. In a session store, the run time does
        not depend on the length of the session.

        Parameters
        ----------
        id : str
            Session id.
        turn : int
            Turn number, from 1.
        step : int, default 0
            Number of the step in the turn, from 1; 0 reads the whole turn.

        Returns
        -------
        position : int
            Position of the first message in the session. If there is no such turn or step, this is
            the number of messages of the session.
        messages : tuple of Message
            The messages. Empty if there is no such turn or step.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    @abstractmethod
    def count_turns(self, id: str) -> int:
        """Return the number of turns of a session.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        int
            Number of turns, as ``ctxlab.context.turns`` counts them.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    def count_steps(self, id: str, turn: int) -> int:
        """Return the number of steps of a turn.

        Parameters
        ----------
        id : str
            Session id.
        turn : int
            Turn number, from 1.

        Returns
        -------
        int
            Number of steps, as ``ctxlab.context.turns`` counts them; 0 if there is no such turn.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        counter = TurnCounter()
        for message in self.read_turn(id, turn)[1]:
            counter.add(message)
        return counter.step

    @abstractmethod
    def turn_summaries(self, id: str) -> dict[int, str]:
        """Return the stored one-line summaries of a session's turns.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        dict of int to str
            One-line summary by turn number.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[SearchHit]:
        """Return the messages that contain all words of a query, best match first.

        Parameters
        ----------
        query : str
            Words to find. Characters other than letters and digits separate words. They have no
            other meaning: there is no query syntax.
        id : str, optional
            Session to search. By default, search all sessions except archived ones and those that
            programs use internally (``Session.system``).
        limit : int, default 20
            Maximum number of hits.
        offset : int, default 0
            Number of hits to skip.

        Returns
        -------
        list of SearchHit
            Matching messages, best match first.

        Raises
        ------
        SpecError
            If ``limit`` or ``offset`` is negative.
        UnknownSession
            If ``id`` is given and no session has this id.
        """
        check_not_negative("limit", limit)
        return self._search(query, id, limit, check_not_negative("offset", offset))

    def _search(self, query: str, id: str | None, limit: int, offset: int) -> list[SearchHit]:
        """Search with validated arguments. This implementation reads all messages.

        A subclass that has a full-text index overrides this method.
        """
        if id is not None:
            return search_messages([(id, self.read_messages(id))], query, limit, offset)
        ids = (session.id for session in self.sessions() if not session.system)
        return search_messages(((id, self._iter_readable(id)) for id in ids), query, limit, offset)

    def _iter_readable(self, id: str) -> Iterator[Message]:
        """Yield the messages of a session. Stop with a logged warning at a malformed message."""
        try:
            yield from self.read_messages(id)
        except UnknownSession:
            pass  # deleted in the meantime
        except (ReadError, SessionError) as error:
            _LOG.warning("session %r: search stopped at a malformed message: %s", id, error)

    def recording(self, id: str) -> Recording:
        """Return a whole session as a recording, for replay.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Recording
            The session as a recording, equal to what ``ctxlab.load`` reads from the session's files.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        session, lines = self.get(id), self.turn_summaries(id)
        meta = {key: value for key in SESSION_META_KEYS if (value := getattr(session, key))}
        if lines:
            meta["lines"] = {str(turn): line for turn, line in lines.items()}
        messages = tuple(self.read_messages(id))
        cluster, meta = get_text(session.meta, COPIED_FROM_KEY), session.meta | meta
        return Recording(id, messages, session.tools, session.model, cluster=cluster, meta=meta)


class SessionStore(SessionLibrary):
    """Read and write access to sessions, safe for several processes at once.

    When a method returns, its changes are on disk and are not lost if the process is killed.
    """

    def create(
        self,
        *,
        id: str | None = None,
        title: str = "",
        model: str | None = None,
        agent: str | None = None,
        file: str | None = None,
        strategy: str | None = None,
        system: bool = False,
        tools: tuple[dict[str, Any], ...] = (),
        meta: dict[str, Any] | None = None,
    ) -> Session:
        """Create a session and make it active.

        Parameters
        ----------
        id : str, optional
            Session id. By default, a new UUID.
        title : str, default ''
            Title. If empty, the title is derived from the first user message.
        model : str, optional
            Name of the model.
        agent : str, optional
            Name of the agent that the session belongs to.
        file : str, optional
            File that the session is about.
        strategy : str, optional
            Specification of the context strategy.
        system : bool, default False
            If True, the session is for the internal use of a program: no title is derived, no
            summaries are written, and searches of all sessions leave it out.
        tools : tuple of dict, optional
            Tool definitions in OpenAI's format.
        meta : dict, optional
            Additional JSON values to store with the session.

        Returns
        -------
        Session
            The new session, with status ``active``.

        Raises
        ------
        SessionError
            If the id is invalid or already in use, or if a value cannot be stored as JSON.
        """
        names = (name and repair_surrogates(name) for name in (model, agent, file, strategy))
        model, agent, file, strategy = names
        id, title, now = str(uuid4()) if id is None else id, single_line(title), time.time()
        session = Session(
            check_session_id(id),
            title,
            model,
            created=now,
            updated=now,
            agent=agent,
            file=file,
            strategy=strategy,
            system=system,
            titles=titles_after_change(id, (), title, 0, now),
            tools=tools,
            meta=meta or {},
        )
        encode_json(session.tools, "a tool definition")
        encode_json(session.meta, "the session's meta")
        self._create(session)
        return self.get(id)

    @abstractmethod
    def _create(self, session: Session) -> None:
        """Store a new session whose values are validated. Raise ``SessionError`` if its id is in use."""

    @abstractmethod
    def open(self, id: str) -> ResumeState:
        """Make a session active and return the state to resume it from.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        ResumeState
            Summary, newest messages and plan of the session.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    @abstractmethod
    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        """Add messages to the end of a session in one atomic write.

        Either all messages are added, at consecutive positions, or none of them. If the session has
        no title, the title is derived from the first user message.

        Parameters
        ----------
        id : str
            Session id.
        *messages : Message
            Messages to add.
        expected_position : int, optional
            Position that the first message must get. By default, no position is required.

        Returns
        -------
        int
            Position of the first new message.

        Raises
        ------
        UnknownSession
            If no session has this id.
        SessionConflict
            If the next position is not ``expected_position``. In this case nothing is added.
        """

    def save(self, id: str, *, plan: AgentPlan | None = None) -> None:
        """Update the stored resume state at the end of a turn: summary, newest messages and plan.

        Parameters
        ----------
        id : str
            Session id.
        plan : AgentPlan, optional
            Plan that replaces the stored one. By default, the stored plan is removed.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        if plan is not None:
            plan = replace(plan, steps=tuple(map(repair_surrogates, plan.steps)))
        self._save(id, plan)

    @abstractmethod
    def _save(self, id: str, plan: AgentPlan | None) -> None:
        """Store the resume state and the plan. The caller has removed lone surrogates from the plan."""

    def copy(self, id: str, *, turns: int | None = None, plan: AgentPlan | None = None) -> Session:
        """Copy a session, or its first turns, to a new session, which becomes active.

        Messages, turn summaries, model, strategy and tools are copied, and the title that the session
        had then, with its history. Turns and steps keep their numbers. The ``meta`` of the copy has the
        id of the session with the key ``copied_from``; in a copy of a copy, it is the id of the first
        session. Recordings with the same ``copied_from`` are one cluster.

        Parameters
        ----------
        id : str
            Session id.
        turns : int, optional
            Number of turns to copy. By default, copy all of them.
        plan : AgentPlan, optional
            Plan of the new session. By default, it has none.

        Returns
        -------
        Session
            The new session.

        Raises
        ------
        SessionError
            If the session does not have so many turns.
        UnknownSession
            If no session has this id.
        """
        session, known = self.get(id), self.count_turns(id)
        turns = known if turns is None else turns
        if not 0 <= turns <= known:
            raise SessionError(f"session {id!r}: expected 0 to {known} turns to copy, got {turns}")
        stop = self.read_turn(id, turns + 1)[0] if turns < known else session.messages
        new, now = str(uuid4()), time.time()
        titles = tuple(title_at_turn(t, new, t.turn) for t in session.titles if t.turn <= turns)
        self._create(
            replace(
                session,
                id=new,
                title=titles[0].title if titles else "",
                titles=titles,
                created=now,
                updated=now,
                status="active",
                meta={COPIED_FROM_KEY: id} | session.meta,
            )
        )
        try:
            self.append(new, *self.read_messages(id, 0, stop))
            for turn, summary in self.turn_summaries(id).items():
                if turn <= turns:
                    self.save_turn_summary(new, turn, summary)
            self.save(new, plan=plan)
        except BaseException:
            self.delete(new)
            raise
        return self.get(new)

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """Set the title of a session and add it to the title history.

        Stored messages are not rewritten.

        Parameters
        ----------
        id : str
            Session id.
        title : str
            New title.
        turn : int, default 0
            Turn that the title comes from; 0 if a user set the title.

        Returns
        -------
        Session
            The session with its new title.

        Raises
        ------
        SessionError
            If the title is empty.
        UnknownSession
            If no session has this id.
        """
        title = single_line(title)
        if not title:
            raise SessionError(f"session {id!r}: the new title is empty; pass a title with text")
        self._retitle(id, title, turn)
        return self.get(id)

    @abstractmethod
    def _retitle(self, id: str, title: str, turn: int) -> None:
        """Set the title of a session. ``title`` is a single line and not empty."""

    def set_status(self, id: str, status: SessionStatus) -> Session:
        """Close, archive or reactivate a session.

        Parameters
        ----------
        id : str
            Session id.
        status : {'active', 'closed', 'archived'}
            New status.

        Returns
        -------
        Session
            The session with its new status.

        Raises
        ------
        UnknownName
            If ``status`` is not one of the three values.
        UnknownSession
            If no session has this id.
        """
        _check_status(status)
        self._set_status(id, status)
        return self.get(id)

    def set_model(self, id: str, model: str) -> Session:
        """Store the name of the model with which a session goes on.

        Parameters
        ----------
        id : str
            Session id.
        model : str
            Name of the model.

        Returns
        -------
        Session
            The session with its new model.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """
        self._set_model(id, repair_surrogates(model))
        return self.get(id)

    @abstractmethod
    def _set_model(self, id: str, model: str) -> None:
        """Store the name of the model of a session."""

    @abstractmethod
    def _set_status(self, id: str, status: SessionStatus) -> None:
        """Set the status of a session. ``status`` is one of the three valid values."""

    @abstractmethod
    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        """Store the one-line summary of a turn.

        Parameters
        ----------
        id : str
            Session id.
        turn : int
            Turn number, from 1.
        summary : str
            One-line summary.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    @abstractmethod
    def delete(self, id: str) -> None:
        """Delete a session and all data stored with it.

        Parameters
        ----------
        id : str
            Session id.

        Raises
        ------
        UnknownSession
            If no session has this id.
        """

    def partial_path(self, id: str) -> Path | None:
        """Return the file for the text of an answer that is being received; None for no such file.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Path or None
            Path of the file, which exists only while an answer is received, or after a kill.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Close all open files. The store reopens them when it is used again."""


def _check_status(status: str) -> None:
    if status not in STATUSES:
        raise UnknownName("status", str(status), STATUSES)

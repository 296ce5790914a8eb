"""A session is a conversation that goes on: a library lets it be read, a store keeps it.

Whatever shows, searches or serves sessions is written against ``SessionLibrary``, so that it works
on both stores and on imported logs; whatever a live agent writes goes through ``SessionStore``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from ctxlab._utils.humanize import pluralize
from ctxlab.messages.types import Message, Recording

__all__ = [
    "MAX_TITLES",
    "MAX_TITLE_LENGTH",
    "STATUSES",
    "AgentPlan",
    "ResumeState",
    "SearchHit",
    "Session",
    "SessionLibrary",
    "SessionStatus",
    "SessionStore",
    "TitleChange",
]

SessionStatus: TypeAlias = Literal["active", "closed", "archived"]
STATUSES: tuple[str, ...] = get_args(SessionStatus)

MAX_TITLE_LENGTH = 60
"""Characters of a title at most."""

MAX_TITLES = 20
"""Entries of a title history at most."""


@dataclass(frozen=True)
class TitleChange:
    """A title that a session had, and which turn it came with."""

    title: str
    changed_at: float
    "seconds since 1970"
    turn: int = 0
    "the turn that it came with; 0: it was given by hand"
    interaction_id: str = ""
    "of that turn, to jump there"


@dataclass(frozen=True)
class AgentPlan:
    """What an agent set out to do, step by step, and where it stands."""

    steps: tuple[str, ...] = ()
    current: int | None = None
    "index of the current step"
    awaiting_continuation: bool = False
    paused: bool = False


@dataclass(frozen=True, repr=False)
class Session:
    """What is known of a session without reading its messages.

    >>> Session("3f2a", "Fix the parser", messages=12)
    <Session 3f2a: Fix the parser, 12 messages, active>
    """

    id: str
    title: str = ""
    model: str | None = None
    status: SessionStatus = "active"
    created: float = 0.0
    "seconds since 1970"
    updated: float = 0.0
    messages: int = 0
    "how many are stored"
    agent: str | None = None
    "name of the agent that it belongs to"
    file: str | None = None
    "the file that it is about, where sessions are routed by file"
    strategy: str | None = None
    "the context strategy, as text"
    system: bool = False
    "made by a system for itself: it gets no summaries and no titles"
    titles: tuple[TitleChange, ...] = ()
    "newest first, at most ``MAX_TITLES``"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's shape"
    meta: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        said = f"{self.title or '(no title)'}, {pluralize(self.messages, 'message')}"
        return f"<Session {self.id}: {said}, {self.status}>"


@dataclass(frozen=True)
class ResumeState:
    """What a session goes on from: a bounded part of it, whatever its length."""

    summary: str = ""
    "of what stands before ``recent``; written by the engine"
    recent: tuple[Message, ...] = ()
    "the newest messages, within the store's caps; every call is answered and no result is orphaned"
    plan: AgentPlan | None = None


@dataclass(frozen=True)
class SearchHit:
    """A message that a search found."""

    session_id: str
    turn: int
    position: int
    "of the message in its session, from 0"
    role: str
    snippet: str
    "the words around what was found, at most 200 characters on one line"
    score: float = 0.0
    "higher is better; of one search only"
    time: float | None = None


@runtime_checkable
class SessionLibrary(Protocol):
    """Sessions that can be read. Every ``id`` that is not there raises ``UnknownSession``."""

    def sessions(
        self,
        query: str | None = None,
        *,
        since: float | None = None,
        before: float | None = None,
        status: SessionStatus | None = None,
        agent: str | None = None,
    ) -> list[Session]:
        """The sessions, the one that was updated last first.

        ``query``: words in the title, in any case. ``since`` and ``before``: of ``updated``, seconds
        since 1970. Archived ones are left out unless ``status`` asks for them.
        """
        ...

    def get(self, id: str) -> Session:
        """One of them."""
        ...

    def read_messages(self, id: str, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """The messages at positions ``[start, stop)``, one after the other from the disk."""
        ...

    def read_turn(self, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
        """The position of a turn's first message, and its messages; none where there is no such turn.

        Turns count from 1, see ``ctxlab.context.turns``. The price is that of the turn, not of the
        session.
        """
        ...

    def count_turns(self, id: str) -> int:
        """How many turns there are."""
        ...

    def turn_summaries(self, id: str) -> dict[int, str]:
        """The one-line summaries that were written and kept, by the number of their turn."""
        ...

    def search(
        self, query: str, id: str | None = None, *, limit: int = 20, offset: int = 0
    ) -> list[SearchHit]:
        """Messages that hold all the words of a query, the best first; of one session or of all.

        A query is words and nothing else: what would be syntax elsewhere is a word or is nothing.
        Archived sessions and sessions of a system are searched only where ``id`` names them.
        """
        ...

    def recording(self, id: str) -> Recording:
        """All of a session, as the lab replays it."""
        ...


@runtime_checkable
class SessionStore(SessionLibrary, Protocol):
    """Sessions that can be written, by several processes at once.

    What a method has returned from is on disk: no kill of the process loses it.
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
        """A new session, active; ``id`` None: a new UUID. Raises ``SessionError`` for a taken one."""
        ...

    def open(self, id: str) -> ResumeState:
        """What a session is resumed from; it is active from now on, whatever it was."""
        ...

    def append(self, id: str, *messages: Message, expected_position: int | None = None) -> int:
        """Adds messages, all or none of them and nothing between them; the position of the first.

        ``expected_position``: what that is to be; ``SessionConflict`` where it is another, and
        nothing is added. The first user message gives the session its title, where it has none.
        """
        ...

    def save(self, id: str, *, plan: AgentPlan | None = None) -> None:
        """A turn is over: what a resume begins with is brought up to date, ``plan`` replaced."""
        ...

    def retitle(self, id: str, title: str, turn: int = 0) -> Session:
        """Another title, which goes on top of the history of titles; no message is rewritten."""
        ...

    def set_status(self, id: str, status: SessionStatus) -> Session:
        """Closes, archives, or makes active again."""
        ...

    def save_turn_summary(self, id: str, turn: int, summary: str) -> None:
        """Keeps the one-line summary of a turn."""
        ...

    def delete(self, id: str) -> None:
        """Removes a session and everything of it."""
        ...

    def close(self) -> None:
        """Lets go of files; a store that was closed opens them again when it is used."""
        ...

"""Metadata of a chunked session, in a small file that is replaced as a whole."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec

from ctxlab.sessions.base import AgentPlan, Session, SessionStatus
from ctxlab.sessions.titles import TitleChange


class SessionMeta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Content of the meta file of a session."""

    born: str
    "unique id of this creation; tells the session from a deleted one with the same id"
    created: float
    "time of creation, in seconds since 1970"
    updated: float
    "time at which the meta file was written last; an append changes only a chunk"
    title: str = ""
    "the current title"
    model: str | None = None
    "name of the model"
    status: SessionStatus = "active"
    "``active``, ``closed`` or ``archived``"
    agent: str | None = None
    "name of the agent that the session belongs to"
    file: str | None = None
    "file that the session is about"
    strategy: str | None = None
    "context strategy, as text"
    system: bool = False
    "True for a system session"
    titles: tuple[TitleChange, ...] = ()
    "title history, newest first"
    meta: dict[str, Any] = {}
    "further JSON values"
    plan: AgentPlan | None = None
    "the saved plan"
    chunk: int = 1
    "number of an existing chunk; the newest chunk is this one or a later one"
    source: dict[str, Any] = {}
    "files that the session was migrated from"
    deleted: bool = False
    "the session is being deleted"

    @classmethod
    def from_session(cls, session: Session) -> SessionMeta:
        """Return the meta of a new session.

        Parameters
        ----------
        session : Session
            The session.

        Returns
        -------
        SessionMeta
            Its meta, with a new ``born``.
        """
        return cls(born=uuid4().hex, **{name: getattr(session, name) for name in _SESSION_FIELDS})

    def to_session(
        self, id: str, messages: int, modified: float, tools: tuple[dict[str, Any], ...]
    ) -> Session:
        """Return the description of the session.

        Parameters
        ----------
        id : str
            Session id.
        messages : int
            Number of messages.
        modified : float
            Modification time of the newest chunk, in seconds since 1970.
        tools : tuple of dict
            Tool definitions in OpenAI's format.

        Returns
        -------
        Session
            The session.
        """
        fields: dict[str, Any] = {name: getattr(self, name) for name in _SESSION_FIELDS}
        fields["updated"] = max(self.updated, modified)
        return Session(id, messages=messages, tools=tools, **fields)


_SESSION_FIELDS = set(SessionMeta.__struct_fields__) & set(Session.__dataclass_fields__)

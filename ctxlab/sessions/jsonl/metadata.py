"""Metadata of a chunked session, in a small file that is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ctxlab.errors import ReadError
from ctxlab.sessions.base import AgentPlan, Session, SessionStatus, TitleChange
from ctxlab.sessions.jsonl.files import read_first_row


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

    def replace(self, **changes: Any) -> SessionMeta:
        """Return a copy with some fields changed.

        Parameters
        ----------
        **changes : object
            New values by field name.

        Returns
        -------
        SessionMeta
            The copy.
        """
        return msgspec.structs.replace(self, **changes)


def read_meta(path: Path) -> SessionMeta:
    """Read a meta file.

    Parameters
    ----------
    path : Path
        The meta file.

    Returns
    -------
    SessionMeta
        Its content.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ReadError
        If the file is broken.
    """
    row = read_first_row(path, "session-meta")
    try:
        return msgspec.convert(row, SessionMeta)
    except (msgspec.ValidationError, ValueError) as error:
        raise ReadError(path, 1, f"invalid session meta: {error}") from None


def session_from_meta(
    id: str, meta: SessionMeta, messages: int, updated: float, tools: tuple[dict[str, Any], ...]
) -> Session:
    """Build the description of a session from its meta file.

    Parameters
    ----------
    id : str
        Session id.
    meta : SessionMeta
        Content of the meta file.
    messages : int
        Number of messages.
    updated : float
        Modification time of the newest chunk, in seconds since 1970.
    tools : tuple of dict
        Tool definitions in OpenAI's format.

    Returns
    -------
    Session
        The session.
    """
    return Session(
        id=id,
        title=meta.title,
        model=meta.model,
        status=meta.status,
        created=meta.created,
        updated=max(meta.updated, updated),
        messages=messages,
        agent=meta.agent,
        file=meta.file,
        strategy=meta.strategy,
        system=meta.system,
        titles=meta.titles,
        tools=tools,
        meta=meta.meta,
    )

"""Metadata of a session in a JSONL store, kept in a small file that is rewritten on each change."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION
from ctxlab.sessions.base import AgentPlan, Session, SessionStatus
from ctxlab.sessions.titles import TitleChange


class SessionMeta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Metadata of a session: the content of ``session-ID.meta.json``."""

    born: str
    "unique value set at creation; a later session with the same id has another value"
    created: float
    "time of creation, in seconds since 1970"
    updated: float
    "time of the last change of the metadata; an append changes only a chunk, not this value"
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
    "specification of the context strategy"
    system: bool = False
    "True for the internal use of a program: no title is derived and no summaries are written"
    titles: tuple[TitleChange, ...] = ()
    "title history, newest first"
    meta: dict[str, Any] = {}
    "additional JSON values stored with the session"
    plan: AgentPlan | None = None
    "the saved plan; None if the agent saved no plan"
    chunk: int = 1
    "number of a chunk that exists; the search for the newest chunk starts at this number"
    version: int = CHUNK_VERSION
    "version of the file; in version 1, each step of a turn counts as a turn in ``titles``"
    source: dict[str, Any] = {}
    "names of the old files that the session was migrated from"
    deleted: bool = False
    "True while the session is being deleted or migrated; readers ignore the session"

    @classmethod
    def from_session(cls, session: Session) -> SessionMeta:
        """Create the metadata of a new session.

        Parameters
        ----------
        session : Session
            Description of the new session.

        Returns
        -------
        SessionMeta
            Metadata with the values of ``session``. ``born`` is a new unique value. A later session
            with the same id has another value.
        """
        return cls(born=uuid4().hex, **{name: getattr(session, name) for name in _SESSION_FIELDS})

    def to_session(
        self, id: str, messages: int, modified: float, tools: tuple[dict[str, Any], ...]
    ) -> Session:
        """Build a session description from the metadata and values of the session's other files.

        Parameters
        ----------
        id : str
            Session id.
        messages : int
            Number of messages of the session.
        modified : float
            Modification time of the newest chunk, in seconds since 1970.
        tools : tuple of dict
            Tool definitions in OpenAI's format.

        Returns
        -------
        Session
            Description of the session, without its messages.
        """
        fields: dict[str, Any] = {name: getattr(self, name) for name in _SESSION_FIELDS}
        fields["updated"] = max(self.updated, modified)
        return Session(id, messages=messages, tools=tools, **fields)


_SESSION_FIELDS = set(SessionMeta.__struct_fields__) & set(Session.__dataclass_fields__)
_VALUE = r'\s*:\s*("(?:[^"\\]|\\.)*"|true|false|-?[0-9][0-9.eE+-]*)'


def salvage_fields(text: bytes) -> dict[str, Any]:
    """Read the fields of a damaged metadata file that are still legible.

    Parameters
    ----------
    text : bytes
        Content of the file.

    Returns
    -------
    dict of str to object
        Valid values by the names of fields of ``SessionMeta``.

    Examples
    --------
    >>> salvage_fields(b'{"type":"session-meta","title":"Fix it","status":"closed","agent":#')
    {'title': 'Fix it', 'status': 'closed'}
    """
    said = text.decode(errors="replace")
    with suppress(ValueError):
        row = parse_json(said)  # only bytes that are not UTF-8 were damaged
        if isinstance(row, dict):
            return {name: row[name] for name in _valid_fields(row)}
    found: dict[str, Any] = {}
    for name in SessionMeta.__struct_fields__:
        # The first value is that of the session; titles and the plan contain others of this name.
        if match := re.search(f'"{name}"{_VALUE}', said):
            with suppress(ValueError):
                found[name] = parse_json(match[1])
    return {name: found[name] for name in _valid_fields(found)}


def _valid_fields(row: dict[str, Any]) -> list[str]:
    """Return the names of the fields of ``SessionMeta`` whose values have the right type."""
    valid = []
    for name in SessionMeta.__struct_fields__:
        if name in row:
            needed = {"born": "", "created": 0.0, "updated": 0.0, name: row[name]}
            with suppress(msgspec.ValidationError, ValueError):
                msgspec.convert(needed, SessionMeta)
                valid.append(name)
    return valid

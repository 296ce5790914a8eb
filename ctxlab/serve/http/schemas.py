"""Schemas of requests and responses, with the names of the seed designs.

References
----------
Seed designs "Hybrid Session Management" (``POST /chat``: ``session_id``, ``active_file``) and
"Workspace-Scoped Sessions" (sessions: ``sessionId``, ``workspacePath``, ``updatedAt``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from ctxlab.sessions.base import Session, SessionStatus
from ctxlab.sessions.text_search import SearchHit

_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
_EXAMPLE_ID = "6f9ac3de-0c5f-4b0e-9f5e-0b8a1d3c7e21"
_EXAMPLE_TIME = "2026-02-07T10:30:00Z"

_IdText = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=_ID_PATTERN)]
_MessageText = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
_FilePath = Annotated[str, StringConstraints(max_length=4096)]

_MAX_INT = 2**31 - 1

SessionId = Annotated[_IdText, Path(description="Session id.")]
TurnNumber = Annotated[int, Path(description="Turn number, from 1.", ge=1, le=_MAX_INT)]
_PATH_HELP = "Path of the workspace, percent-encoded: %2Fhome%2Fme%2Fproject."
WorkspacePath = Annotated[str, Path(description=_PATH_HELP, max_length=4096)]
SearchQuery = Annotated[
    str,
    Query(
        description="Words that a message must all contain. There is no query syntax.",
        min_length=1,
        max_length=1000,
    ),
]
_STATUS_HELP = "Only sessions with this status. Default: all but archived ones."
StatusFilter = Annotated[SessionStatus | None, Query(description=_STATUS_HELP)]
Limit = Annotated[int, Query(description="Maximum number of entries.", ge=1, le=1000)]
Offset = Annotated[int, Query(description="Number of entries to skip.", ge=0, le=_MAX_INT)]
FirstTurn = Annotated[int, Query(description="First turn.", ge=1, le=_MAX_INT)]
FirstMessage = Annotated[int, Query(description="Number of messages to skip.", ge=0, le=_MAX_INT)]


def utc_datetime(seconds: float) -> datetime:
    """Convert a time to the form of responses.

    Parameters
    ----------
    seconds : float
        Time in seconds since 1970.

    Returns
    -------
    datetime
        The time in UTC.

    Examples
    --------
    >>> utc_datetime(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC)


def _with_examples(*examples: JsonDict) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [*examples]})


_CAMEL_CASE = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Health(BaseModel):
    """Sign that the server is running."""

    status: Literal["ok"] = "ok"


class ChatRequest(BaseModel):
    """A message and the file that the user has open."""

    model_config = _with_examples(
        {"message": "Where is the parser?", "session_id": None, "active_file": "src/main.py"}
    )

    message: _MessageText
    session_id: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None,
        description="Session id of the last response. The open file decides which session continues; "
        "this id only selects the workspace, if several are served.",
    )
    active_file: _FilePath | None = Field(
        None, description="File that the user has open; it decides which session continues."
    )
    workspace: _FilePath | None = Field(
        None, description="Path of the workspace; optional if only one is served."
    )


class ChatAnswer(BaseModel):
    """The reply of the agent."""

    response: str = Field(description="Text of the reply.")
    session_id: str = Field(description="Id of the session that received the message.")
    active_file: str | None = Field(description="File that the session is about.")
    finish: Literal["answered", "limit"] = Field(
        description="limit: the agent was stopped after too many steps; the text is partial."
    )
    iterations: int = Field(description="Number of requests that the agent sent to the model.")


class SessionRequest(BaseModel):
    """A workspace and the session to resume; without a session id, a new session is created."""

    model_config = _CAMEL_CASE | _with_examples(
        {"workspacePath": "/home/me/project"},
        {"workspacePath": "/home/me/project", "sessionId": _EXAMPLE_ID},
    )

    workspace_path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    session_id: _IdText | None = Field(None, description="Session to resume.")


class SessionAnswer(BaseModel):
    """A session without its messages."""

    model_config = _CAMEL_CASE | _with_examples(
        {
            "sessionId": _EXAMPLE_ID,
            "title": "Where is the parser?",
            "model": "gpt-5-mini",
            "status": "active",
            "updatedAt": _EXAMPLE_TIME,
            "createdAt": _EXAMPLE_TIME,
            "messages": 12,
            "activeFile": "src/main.py",
        }
    )

    session_id: str = Field(validation_alias="id")
    title: str
    model: str | None
    status: SessionStatus
    updated_at: datetime = Field(validation_alias="updated")
    created_at: datetime = Field(validation_alias="created")
    messages: int = Field(description="Number of stored messages.")
    active_file: str | None = Field(
        description="File that the session is about.", validation_alias="file"
    )

    @classmethod
    def from_session(cls, session: Session) -> SessionAnswer:
        """Convert a stored session.

        Parameters
        ----------
        session : Session
            Stored session.

        Returns
        -------
        SessionAnswer
            The response.
        """
        return cls.model_validate(session, from_attributes=True)


class MessageRequest(BaseModel):
    """A message to a session."""

    model_config = _with_examples({"message": "Run the tests."})

    message: _MessageText
    active_file: _FilePath | None = Field(None, description="File that the user has open.")


class Found(BaseModel):
    """A message that a search found."""

    turn: int = Field(description="Turn number, from 1.")
    role: str
    snippet: str = Field(description="Text around the first match.")
    score: float = Field(description="Higher is better; comparable within one search only.")
    created: datetime | None = None

    @classmethod
    def from_hit(cls, hit: SearchHit) -> Found:
        """Convert a hit of a search.

        Parameters
        ----------
        hit : SearchHit
            The hit.

        Returns
        -------
        Found
            The result.
        """
        created = None if hit.time is None else utc_datetime(hit.time)
        return cls(**vars(hit), created=created)


class SearchAnswer(BaseModel):
    """The messages of a session that contain all words of a query, best first."""

    session_id: str
    query: str
    results: list[Found]

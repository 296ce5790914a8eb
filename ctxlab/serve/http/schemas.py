"""The shapes of requests and answers, with the names that the seeds give them.

Source: seed designs "Hybrid Session Management" (``POST /chat``: ``session_id``, ``active_file``) and
"Workspace-Scoped Sessions" (sessions: ``sessionId``, ``workspacePath``, ``updatedAt``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from ctxlab.sessions.base import Session, SessionStatus

__all__ = [
    "ChatAnswer",
    "ChatRequest",
    "Found",
    "Health",
    "Limit",
    "MessageRequest",
    "Offset",
    "SearchAnswer",
    "SearchQuery",
    "SessionAnswer",
    "SessionId",
    "SessionRequest",
    "TurnNumber",
    "utc_datetime",
]

_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
_EXAMPLE_ID = "6f9ac3de-0c5f-4b0e-9f5e-0b8a1d3c7e21"
_EXAMPLE_TIME = "2026-02-07T10:30:00Z"

_SessionIdText = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=_ID_PATTERN)
]
_MessageText = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
_FilePath = Annotated[str, StringConstraints(max_length=4096)]

SessionId = Annotated[
    str, Path(description="Of a session.", min_length=1, max_length=100, pattern=_ID_PATTERN)
]
TurnNumber = Annotated[int, Path(alias="turn", description="Counted from 1.", ge=1, le=2**31 - 1)]
SearchQuery = Annotated[
    str,
    Query(
        description="Words that all must occur. Words and nothing else: no syntax is known.",
        min_length=1,
        max_length=1000,
    ),
]
Limit = Annotated[int, Query(description="Entries at most.", ge=1, le=1000)]
Offset = Annotated[int, Query(description="Entries that are left out before.", ge=0, le=2**31 - 1)]


def utc_datetime(seconds: float) -> datetime:
    """A time as an answer has it.

    >>> utc_datetime(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC)


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"] = "ok"


class ChatRequest(BaseModel):
    """A message, and the file that the user has open."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "message": "Where is the parser?",
                    "session_id": None,
                    "active_file": "src/main.py",
                }
            ]
        }
    )

    message: _MessageText
    session_id: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None,
        description="As the last answer gave it. The file decides which session goes on; of several "
        "workspaces the one that holds this session is taken.",
    )
    active_file: _FilePath | None = Field(
        None, description="The file that the user has open; it decides which session goes on."
    )
    workspace: _FilePath | None = Field(
        None, description="Path of the workspace; may be left out where only one is served."
    )


class ChatAnswer(BaseModel):
    """What the agent said."""

    response: str = Field(description="The agent's text.")
    session_id: str = Field(description="Of the session that the message went to.")
    active_file: str | None = Field(description="The file that the session is about.")
    finish: Literal["answered", "limit"] = Field(
        description="limit: the agent was stopped after too many steps, and the text is partial."
    )
    iterations: int = Field(description="Requests that the agent made of the model.")


class SessionRequest(BaseModel):
    """A workspace, and the session to resume; a new one where none is named."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra={
            "examples": [
                {"workspacePath": "/home/me/project"},
                {"workspacePath": "/home/me/project", "sessionId": _EXAMPLE_ID},
            ]
        },
    )

    workspace_path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    session_id: _SessionIdText | None = Field(None, description="Resumes this session.")


class SessionAnswer(BaseModel):
    """A session, without its messages."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra={
            "examples": [
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
            ]
        },
    )

    session_id: str
    title: str
    model: str | None
    status: SessionStatus
    updated_at: datetime
    created_at: datetime
    messages: int = Field(description="How many are stored.")
    active_file: str | None = Field(description="The file that it is about.")

    @classmethod
    def from_session(cls, session: Session) -> SessionAnswer:
        """A stored session as it is told."""
        return cls(
            session_id=session.id,
            title=session.title,
            model=session.model,
            status=session.status,
            updated_at=utc_datetime(session.updated),
            created_at=utc_datetime(session.created),
            messages=session.messages,
            active_file=session.file,
        )


class MessageRequest(BaseModel):
    """A message to a session."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "Run the tests."}]})

    message: _MessageText
    active_file: _FilePath | None = Field(None, description="The file that the user has open.")


class Found(BaseModel):
    """A message that a search found."""

    turn: int = Field(description="The number of its turn, from 1.")
    role: str
    snippet: str = Field(description="The words around what was found.")
    score: float = Field(description="Higher is better; of this search only.")
    created: datetime | None = None


class SearchAnswer(BaseModel):
    """The messages of a session that hold all the words, the best first."""

    session_id: str
    query: str
    results: list[Found]

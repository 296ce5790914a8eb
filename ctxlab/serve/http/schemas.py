"""Schemas of the requests and responses of the HTTP API.

References
----------
Design documents that define the field names, listed in ``tests/SEEDS.md``: "Hybrid Session
Management" (``POST /chat``: ``session_id``, ``active_file``) and "Workspace-Scoped Sessions"
(sessions: ``sessionId``, ``workspacePath``, ``updatedAt``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from ctxlab.agent.approval import Decision
from ctxlab.sessions.base import Session, SessionStatus
from ctxlab.sessions.text_search import SearchHit
from ctxlab.sessions.titles import TitleChange

_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
_EXAMPLE_ID = "6f9ac3de-0c5f-4b0e-9f5e-0b8a1d3c7e21"
_EXAMPLE_TIME = "2026-02-07T10:30:00Z"

_IdText = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=_ID_PATTERN)]
_MessageText = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
_FilePath = Annotated[str, StringConstraints(max_length=4096)]

_MAX_INT = 2**31 - 1

CallId = Annotated[str, Path(description="Id of the tool call.", max_length=500)]
SessionId = Annotated[_IdText, Path(description="Session id.")]
_LABEL_HELP = "Number of a turn, such as 3, or label of a step, such as 3.2."
TurnOrStep = Annotated[str, Path(description=_LABEL_HELP, max_length=40)]
_PATH_HELP = "Percent-encoded path of the workspace, such as %2Fhome%2Fme%2Fproject."
WorkspacePath = Annotated[str, Path(description=_PATH_HELP, max_length=4096)]
SearchQuery = Annotated[
    str,
    Query(
        description="Words to find. Each result contains all of them. There are no operators.",
        min_length=1,
        max_length=1000,
    ),
]
_STATUS_HELP = "Status of the sessions to list. By default, all except archived sessions."
TitleQuery = Annotated[
    str, Query(description="Words that the title must contain.", max_length=1000)
]
StatusFilter = Annotated[SessionStatus | None, Query(description=_STATUS_HELP)]
Limit = Annotated[int, Query(description="Maximum number of results.", ge=1, le=1000)]
Offset = Annotated[int, Query(description="Number of results to skip.", ge=0, le=_MAX_INT)]
FirstTurn = Annotated[int, Query(description="Number of the first turn.", ge=1, le=_MAX_INT)]
_STEPS_HELP = "Maximum number of steps to list for each turn; 0 lists none."
MaxSteps = Annotated[int, Query(description=_STEPS_HELP, ge=0, le=1000)]
_FIRST_STEP_HELP = "Number of the first step to list for each turn."
FirstStep = Annotated[int, Query(description=_FIRST_STEP_HELP, ge=1, le=_MAX_INT)]
FirstMessage = Annotated[int, Query(description="Number of messages to skip.", ge=0, le=_MAX_INT)]


def utc_datetime(seconds: float) -> datetime:
    """Convert a Unix timestamp to a datetime in UTC, as used in responses.

    Parameters
    ----------
    seconds : float
        Unix timestamp: seconds since the beginning of 1970 in UTC.

    Returns
    -------
    datetime
        The same time, with the time zone UTC.

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
    """Confirmation that the server is running."""

    status: Literal["ok"] = "ok"


class ChatRequest(BaseModel):
    """A message of the user, and the file that the user has open."""

    model_config = _with_examples(
        {"message": "Where is the parser?", "session_id": None, "active_file": "src/main.py"}
    )

    message: _MessageText
    session_id: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None,
        description="Session id from the last response. It is used only to find the workspace, if "
        "several are served and workspace is not set. The session is selected by active_file.",
    )
    active_file: _FilePath | None = Field(
        None, description="File that the user has open. Its session receives the message."
    )
    workspace: _FilePath | None = Field(
        None, description="Path of the workspace. Not required if only one is served."
    )


class ChatAnswer(BaseModel):
    """The reply of the agent to a message."""

    response: str = Field(description="Text of the reply.")
    session_id: str = Field(description="Id of the session that received the message.")
    active_file: str | None = Field(description="File that the session belongs to.")
    finish: Literal["answered", "limit"] = Field(
        description="limit: the agent used its maximum number of requests; the text is incomplete."
    )
    iterations: int = Field(description="Number of requests that the agent sent to the model.")


class SessionRequest(BaseModel):
    """Workspace in which a session is resumed, or created if no session id is given."""

    model_config = _CAMEL_CASE | _with_examples(
        {"workspacePath": "/home/me/project"},
        {"workspacePath": "/home/me/project", "sessionId": _EXAMPLE_ID},
    )

    workspace_path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    session_id: _IdText | None = Field(None, description="Id of the session to resume.")


class SessionAnswer(BaseModel):
    """Metadata of a session, without its messages."""

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
        description="File that the session belongs to.", validation_alias="file"
    )

    @classmethod
    def from_session(cls, session: Session) -> SessionAnswer:
        """Create the response for a session.

        Parameters
        ----------
        session : Session
            Metadata of the session, as stored.

        Returns
        -------
        SessionAnswer
            Response with the metadata of the session.
        """
        return cls.model_validate(session, from_attributes=True)


class MessageRequest(BaseModel):
    """A message of the user to a session."""

    model_config = _with_examples({"message": "Run the tests."})

    message: _MessageText
    active_file: _FilePath | None = Field(None, description="File that the user has open.")


class ApprovalAnswer(BaseModel):
    """Answer to the question whether the agent may call a tool."""

    model_config = _with_examples({"decision": "once"})

    decision: Literal["once", "kind", "tool", "no"] = Field(
        description="once: allow this call; kind: also allow calls of the same kind for the rest of the "
        "session; tool: allow all calls of the tool; no: refuse the call."
    )
    reason: str = Field("", max_length=1_000, description="Reason of a refusal, for the model.")

    def to_decision(self) -> Decision:
        """Return the decision for the agent.

        Returns
        -------
        Decision
            The decision.
        """
        if self.decision == "no":
            return Decision(False, reason=self.reason)
        return Decision(True, self.decision)


class Found(BaseModel):
    """A message found by a search."""

    turn: int = Field(description="Number of the turn with the message, counted from 1.")
    label: str = Field(description="Label of the step with the message, such as 3.2.")
    position: int = Field(description="Position of the message in the session, counted from 0.")
    role: str
    snippet: str = Field(description="Text around the first match.")
    score: float = Field(description="Relevance within this search; higher is better.")
    created: datetime | None = None

    @classmethod
    def from_hit(cls, hit: SearchHit, **more: Any) -> Self:
        """Create the response for a search hit.

        Parameters
        ----------
        hit : SearchHit
            Search hit of the session store.
        **more : object
            Fields of the subclass.

        Returns
        -------
        Found
            Response with the fields of the hit.
        """
        created = None if hit.time is None else utc_datetime(hit.time)
        return cls(**vars(hit), created=created, **more)


class SearchAnswer(BaseModel):
    """Messages of a session that contain all words of a query, most relevant first."""

    session_id: str
    query: str
    results: list[Found]


class FoundInSession(Found):
    """A message found by a search of all sessions."""

    session_id: str
    session_name: str = Field(description="Title of the session.")


class SearchAllAnswer(BaseModel):
    """Messages of all sessions that contain all words of a query, most relevant first."""

    query: str
    results: list[FoundInSession]
    next_offset: int | None = Field(
        description="Offset of the next results; null if none are left."
    )


class TitleEntry(BaseModel):
    """A title of a session, and the interaction in which it was set."""

    title: str
    changed_at: datetime
    turn: int = Field(description="Number of the turn; 0 if a user set the title.")
    interaction_id: str = Field(description="Id of the interaction; empty if a user set the title.")

    @classmethod
    def from_change(cls, change: TitleChange) -> TitleEntry:
        """Create the response for an entry of a title history.

        Parameters
        ----------
        change : TitleChange
            Entry of the title history, as stored.

        Returns
        -------
        TitleEntry
            Response with the fields of the entry.
        """
        return cls(**{**vars(change), "changed_at": utc_datetime(change.changed_at)})


class SessionEntry(BaseModel):
    """A session in a list of the sessions of all workspaces."""

    session_id: str
    session_name: str = Field(description="Title of the session; empty if it has none.")
    workspace: str = Field(description="Path of the workspace.")
    model: str | None
    status: SessionStatus
    created: datetime
    updated: datetime
    total_messages: int
    total_turns: int

    @classmethod
    def from_session(cls, session: Session, workspace: str, total_turns: int, **more: Any) -> Self:
        """Create the response for a session.

        Parameters
        ----------
        session : Session
            Metadata of the session, as stored.
        workspace : str
            Path of the workspace.
        total_turns : int
            Number of turns of the session.
        **more : object
            Fields of the subclass.

        Returns
        -------
        SessionEntry
            Response with the metadata of the session.
        """
        return cls(
            session_id=session.id,
            session_name=session.title,
            workspace=workspace,
            model=session.model,
            status=session.status,
            created=utc_datetime(session.created),
            updated=utc_datetime(session.updated),
            total_messages=session.messages,
            total_turns=total_turns,
            **more,
        )


class SessionWithTitles(SessionEntry):
    """A session with its title history."""

    title_history: list[TitleEntry] = Field(description="Titles of the session, newest first.")


class SessionsAnswer(BaseModel):
    """Sessions of all workspaces, most recently updated first."""

    total_sessions: int = Field(description="Number of sessions, regardless of limit and offset.")
    sessions: list[SessionEntry]

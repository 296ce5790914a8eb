"""What both stores are asked alike they check, choose and answer alike, with what is here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab.errors import SessionError, SpecError, UnknownName
from ctxlab.formats.ctxlab_sessions.chunks import SESSION_META_KEYS
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions.base import STATUSES, AgentPlan, Session
from ctxlab.sessions.titles import single_line

__all__ = [
    "Fsync",
    "check_choice",
    "check_session_id",
    "check_status",
    "check_title",
    "clean_plan",
    "clean_text",
    "filter_sessions",
    "is_session_id",
    "session_to_recording",
]

Fsync: TypeAlias = Literal["always", "never"]
"""``always``: what was written survives a power failure; ``never``: a kill of the process, no more."""

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def is_session_id(id: object) -> bool:
    """Whether a session can be called so: an id can stand in the name of a file."""
    return isinstance(id, str) and _ID.fullmatch(id) is not None


def check_session_id(id: str) -> str:
    """The id, where a session can be called so; else ``SessionError``.

    >>> check_session_id("../etc")
    Traceback (most recent call last):
    ctxlab.errors.SessionError: no id of a session: '../etc'; write 1 to 100 letters, digits, -, _ or .
    """
    if not is_session_id(id):
        shown = repr(id) if len(repr(id)) <= 120 else repr(id)[:119] + "…"
        raise SessionError(
            f"no id of a session: {shown}; write 1 to 100 letters, digits, -, _ or ."
        )
    return id


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raises ``SpecError`` for a setting that is none of its choices."""
    if value not in (choices := tuple(choices)):
        raise SpecError(f"{name} is {value!r}; it is one of {', '.join(map(str, choices))}")


def check_status(status: str) -> None:
    """Raises ``UnknownName`` for a status that no session has."""
    if status not in STATUSES:
        raise UnknownName("status", str(status), STATUSES)


def clean_text(text: str | None) -> str | None:
    """A text without halves of characters, which SQLite does not take."""
    return None if text is None else repair_surrogates(text)


def clean_plan(plan: AgentPlan | None) -> AgentPlan | None:
    """A plan as it is stored."""
    return plan and replace(plan, steps=tuple(clean_text(step) or "" for step in plan.steps))


def check_title(id: str, title: str) -> str:
    """A title that somebody gives; ``SessionError`` for one that says nothing."""
    if title := single_line(title):
        return title
    raise SessionError(f"session {id!r}: a title says something, and this one is empty")


def filter_sessions(
    sessions: Iterable[Session],
    query: str | None = None,
    *,
    since: float | None = None,
    before: float | None = None,
    status: str | None = None,
    agent: str | None = None,
) -> Iterator[Session]:
    """The sessions that ``SessionLibrary.sessions`` is asked for, in the order in which they come."""
    if status is not None:
        check_status(status)
    words = (query or "").casefold().split()
    for session in sessions:
        if (
            (session.status == status if status else session.status != "archived")
            and (agent is None or session.agent == agent)
            and (since is None or session.updated >= since)
            and (before is None or session.updated <= before)
            and all(word in session.title.casefold() for word in words)
        ):
            yield session


def session_to_recording(
    session: Session, messages: Iterable[Message], turn_summaries: Mapping[int, str]
) -> Recording:
    """A session as the lab replays it, and as ``ctxlab.load`` reads it."""
    said = session.meta | {
        key: value for key in SESSION_META_KEYS if (value := getattr(session, key))
    }
    if turn_summaries:
        said["lines"] = {str(turn): line for turn, line in turn_summaries.items()}
    return Recording(session.id, tuple(messages), session.tools, session.model, meta=said)

"""Helpers that the JSONL and SQLite stores share."""

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

Fsync: TypeAlias = Literal["always", "never"]
"""``always``: writes survive a power failure; ``never``: they survive a kill of the process only."""

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def is_session_id(id: object) -> bool:
    """Return True if ``id`` is a valid session id, which can be part of a file name.

    Parameters
    ----------
    id : object
        Value to check.

    Returns
    -------
    bool
        True if it is a string of 1 to 100 letters, digits, ``-``, ``_`` or ``.`` that does not
        begin with ``.``.
    """
    return isinstance(id, str) and _ID.fullmatch(id) is not None


def check_session_id(id: str) -> str:
    """Return ``id`` if it is a valid session id, else raise ``SessionError``.

    Parameters
    ----------
    id : str
        Session id to check.

    Returns
    -------
    str
        The same id.

    Raises
    ------
    SessionError
        If the id is invalid.

    Examples
    --------
    >>> check_session_id("../etc")
    Traceback (most recent call last):
    ctxlab.errors.SessionError: invalid session id '../etc'; use 1 to 100 letters, digits, -, _ or .
    """
    if not is_session_id(id):
        shown = repr(id) if len(repr(id)) <= 120 else repr(id)[:119] + "…"
        raise SessionError(f"invalid session id {shown}; use 1 to 100 letters, digits, -, _ or .")
    return id


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise ``SpecError`` if a setting has none of its allowed values.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        Value to check.
    choices : iterable of object
        Allowed values.

    Raises
    ------
    SpecError
        If ``value`` is not one of ``choices``.
    """
    if value not in (choices := tuple(choices)):
        raise SpecError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_status(status: str) -> None:
    """Raise ``UnknownName`` if ``status`` is not a session status.

    Parameters
    ----------
    status : str
        Status to check.

    Raises
    ------
    UnknownName
        If the status does not exist.
    """
    if status not in STATUSES:
        raise UnknownName("status", str(status), STATUSES)


def clean_text(text: str | None) -> str | None:
    """Replace lone surrogates, which SQLite cannot store.

    Parameters
    ----------
    text : str or None
        Text to clean.

    Returns
    -------
    str or None
        The text without lone surrogates; None for None.
    """
    return None if text is None else repair_surrogates(text)


def clean_plan(plan: AgentPlan | None) -> AgentPlan | None:
    """Return a plan whose steps can be stored.

    Parameters
    ----------
    plan : AgentPlan or None
        Plan to clean.

    Returns
    -------
    AgentPlan or None
        The plan without lone surrogates; None for None.
    """
    return plan and replace(plan, steps=tuple(clean_text(step) or "" for step in plan.steps))


def check_title(id: str, title: str) -> str:
    """Return a title as one line; raise ``SessionError`` if it is empty.

    Parameters
    ----------
    id : str
        Session id, for the error message.
    title : str
        Title to check.

    Returns
    -------
    str
        The title on one line, cut at ``MAX_TITLE_LENGTH`` characters.

    Raises
    ------
    SessionError
        If nothing is left of the title.
    """
    if title := single_line(title):
        return title
    raise SessionError(f"session {id!r}: the new title is empty; pass a title with visible text")


def filter_sessions(
    sessions: Iterable[Session],
    query: str | None = None,
    *,
    since: float | None = None,
    before: float | None = None,
    status: str | None = None,
    agent: str | None = None,
) -> Iterator[Session]:
    """Yield the sessions that match all filters, in their given order.

    Parameters
    ----------
    sessions : iterable of Session
        Sessions to filter.
    query : str, optional
        Words that the title must contain, in any case.
    since : float, optional
        Earliest time of the last update, in seconds since 1970.
    before : float, optional
        Latest time of the last update, in seconds since 1970.
    status : str, optional
        Required status. By default, archived sessions are left out.
    agent : str, optional
        Required agent.

    Yields
    ------
    Session
        The next session that matches.

    Raises
    ------
    UnknownName
        If the status does not exist.
    """
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
    """Convert a session to the recording that ``ctxlab.load`` reads from its store.

    Parameters
    ----------
    session : Session
        Description of the session.
    messages : iterable of Message
        All messages of the session.
    turn_summaries : mapping of int to str
        One-line summary by turn number.

    Returns
    -------
    Recording
        The session as a recording.
    """
    said = session.meta | {
        key: value for key in SESSION_META_KEYS if (value := getattr(session, key))
    }
    if turn_summaries:
        said["lines"] = {str(turn): line for turn, line in turn_summaries.items()}
    return Recording(session.id, tuple(messages), session.tools, session.model, meta=said)

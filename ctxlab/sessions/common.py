"""What both stores are asked alike they check, choose and answer alike, with what is here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from ctxlab._utils.jsonio import well_formed
from ctxlab.errors import (
    SessionError,
    SpecError,
    UnknownName,
)
from ctxlab.formats.ctxlab_sessions.chunks import SAID
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.sessions.base import (
    STATUSES,
    Plan,
    Session,
)
from ctxlab.sessions.titles import tidy

__all__ = [
    "Fsync",
    "check_id",
    "chosen",
    "clean",
    "clean_plan",
    "is_id",
    "known",
    "known_status",
    "recorded",
    "said_title",
]

Fsync: TypeAlias = Literal["always", "never"]
"""``always``: what was written survives a power failure; ``never``: a kill of the process, no more."""

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def is_id(id: object) -> bool:
    """Whether a session can be called so: an id can stand in the name of a file."""
    return isinstance(id, str) and _ID.fullmatch(id) is not None


def check_id(id: str) -> str:
    """The id, where a session can be called so; else ``SessionError``.

    >>> check_id("../etc")
    Traceback (most recent call last):
    ctxlab.errors.SessionError: no id of a session: '../etc'; write 1 to 100 letters, digits, -, _ or .
    """
    if not is_id(id):
        shown = repr(id) if len(repr(id)) <= 120 else repr(id)[:119] + "…"
        raise SessionError(
            f"no id of a session: {shown}; write 1 to 100 letters, digits, -, _ or ."
        )
    return id


def known(name: str, given: object, choices: Iterable[object]) -> None:
    """Raises ``SpecError`` for a setting that is none of its choices."""
    if given not in (choices := tuple(choices)):
        raise SpecError(f"{name} is {given!r}; it is one of {', '.join(map(str, choices))}")


def known_status(status: str) -> None:
    """Raises ``UnknownName`` for a status that no session has."""
    if status not in STATUSES:
        raise UnknownName("status", str(status), STATUSES)


def clean(text: str | None) -> str | None:
    """A text without halves of characters, which SQLite does not take."""
    return None if text is None else well_formed(text)


def clean_plan(plan: Plan | None) -> Plan | None:
    """A plan as it is stored."""
    return plan and replace(plan, steps=tuple(clean(step) or "" for step in plan.steps))


def said_title(id: str, title: str) -> str:
    """A title that somebody gives; ``SessionError`` for one that says nothing."""
    if title := tidy(title):
        return title
    raise SessionError(f"session {id!r}: a title says something, and this one is empty")


def chosen(
    sessions: Iterable[Session],
    query: str | None = None,
    *,
    since: float | None = None,
    before: float | None = None,
    status: str | None = None,
    agent: str | None = None,
) -> Iterator[Session]:
    """The sessions that ``Library.sessions`` is asked for, in the order in which they come."""
    if status is not None:
        known_status(status)
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


def recorded(session: Session, messages: Iterable[Message], lines: Mapping[int, str]) -> Recording:
    """A session as the lab replays it, and as ``ctxlab.load`` reads it."""
    said = session.meta | {key: value for key in SAID if (value := getattr(session, key))}
    if lines:
        said["lines"] = {str(turn): line for turn, line in lines.items()}
    return Recording(session.id, tuple(messages), session.tools, session.model, meta=said)

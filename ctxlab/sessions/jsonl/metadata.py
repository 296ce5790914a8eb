"""What is known of a chunked session stands in a small file of its own, which is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ctxlab.errors import ReadError
from ctxlab.sessions.base import AgentPlan, Session, SessionStatus, TitleChange
from ctxlab.sessions.jsonl.files import read_first_row

__all__ = ["SessionMeta", "read_meta", "session_from_meta"]


class SessionMeta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The meta file of a session."""

    born: str
    "tells the session from one of the same id that was deleted before it"
    created: float
    updated: float
    "when meta was written last; an append touches its chunk alone"
    title: str = ""
    model: str | None = None
    status: SessionStatus = "active"
    agent: str | None = None
    file: str | None = None
    strategy: str | None = None
    system: bool = False
    titles: tuple[TitleChange, ...] = ()
    meta: dict[str, Any] = {}
    plan: AgentPlan | None = None
    chunk: int = 1
    "a chunk that is there: the newest one is this one or later"
    source: dict[str, Any] = {}
    "the file that the session was migrated from"
    deleted: bool = False
    "it is being removed"

    def replace(self, **changes: Any) -> SessionMeta:
        """With some fields changed."""
        return msgspec.structs.replace(self, **changes)


def read_meta(path: Path) -> SessionMeta:
    """A meta file; ``FileNotFoundError`` where there is none, ``ReadError`` where it is broken."""
    row = read_first_row(path, "session-meta")
    try:
        return msgspec.convert(row, SessionMeta)
    except (msgspec.ValidationError, ValueError) as error:
        raise ReadError(path, 1, f"no meta of a session: {error}") from None


def session_from_meta(
    id: str, meta: SessionMeta, messages: int, updated: float, tools: tuple[dict[str, Any], ...]
) -> Session:
    """A session as everybody sees it."""
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

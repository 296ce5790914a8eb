"""A session is a row of ``chat_sessions``: its window, plan and titles are read and written here.

What somebody else wrote into the database is read with care: what is broken is reported to the logger
``ctxlab.sessions``, and the transcript stands in for it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, cast

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import SessionError
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message
from ctxlab.sessions.base import (
    STATUSES,
    Plan,
    Session,
    Status,
    TitleChange,
)
from ctxlab.sessions.resume_window import (
    Caps,
    Window,
    Write,
)
from ctxlab.sessions.trim import message_of
from ctxlab.strategies.summaries.extractive import extract

__all__ = [
    "keep_titles",
    "keep_window",
    "message_at",
    "milliseconds",
    "plan_of",
    "rows_from",
    "seconds",
    "session_of",
    "titles_of",
    "window_of",
]

_LOG = logging.getLogger("ctxlab.sessions")
_PAGE = 100


def milliseconds(seconds: float) -> int:
    """A time as it is stored."""
    return round(seconds * 1000)


def session_of(row: sqlite3.Row, titles: Iterable[TitleChange] = ()) -> Session:
    """What is known of a session."""
    tools, meta = _json(row, "tools", list), _json(row, "meta", dict)
    return Session(
        row["session_id"],
        title=str(row["title"] or ""),
        model=row["model"],
        status=cast(Status, row["status"] if row["status"] in STATUSES else "closed"),
        created=seconds(row["created_at"]),
        updated=seconds(row["updated_at"]),
        messages=row["messages"],
        agent=row["agent"],
        file=row["file"],
        strategy=row["strategy"],
        system=bool(row["system"]),
        titles=tuple(titles),
        tools=tuple(tools or ()),
        meta=meta or {},
    )


def titles_of(
    connection: sqlite3.Connection, id: str | None = None
) -> dict[str, list[TitleChange]]:
    """The histories of titles, newest first, by session; of one session or of all."""
    asked = "SELECT * FROM titles ORDER BY session_id, place"
    if id is not None:
        asked = "SELECT * FROM titles WHERE session_id = ? ORDER BY place"
    found: dict[str, list[TitleChange]] = {}
    for row in connection.execute(asked, () if id is None else (id,)):
        change = TitleChange(
            row["title"], seconds(row["changed_at"]), row["turn"], row["interaction_id"]
        )
        found.setdefault(row["session_id"], []).append(change)
    return found


def keep_titles(connection: sqlite3.Connection, id: str, titles: Iterable[TitleChange]) -> None:
    """Replaces the history of titles of a session."""
    connection.execute("DELETE FROM titles WHERE session_id = ?", (id,))
    connection.executemany(
        "INSERT INTO titles VALUES (?, ?, ?, ?, ?, ?)",
        [
            (id, place, t.title, milliseconds(t.changed_at), t.turn, t.interaction_id)
            for place, t in enumerate(titles)
        ],
    )


def plan_of(row: sqlite3.Row) -> Plan | None:
    """The plan of a session; None where it has none."""
    steps = _json(row, "plan_steps", list)
    if steps is None:
        return None
    current = row["current_step_index"]
    return Plan(
        tuple(map(str, steps)),
        current if isinstance(current, int) else None,
        bool(row["awaiting_continuation"]),
        bool(row["paused"]),
    )


def window_of(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    caps: Caps,
    write: Write = extract,
    falls: int = 1,
) -> Window:
    """The window of a session, with everything in it that was appended since it was last kept."""
    id, stop = row["session_id"], row["window_stop"]
    summary = row["summary"] if isinstance(row["summary"], str) else ""
    recent = _recent(row)
    if recent is None:
        # What the window may have held; what stands before it is in the summary.
        recent = list(_readable(connection, id, max(0, stop - caps.messages), stop))
    window = Window(caps, summary, recent, write=write, falls=falls)
    window.extend(_readable(connection, id, stop, row["messages"]))
    return window


def keep_window(connection: sqlite3.Connection, row: sqlite3.Row, window: Window) -> None:
    """Writes a window that reaches to the last message of ``row``."""
    connection.execute(
        "UPDATE chat_sessions SET summary = ?, recent_messages = ?, window_stop = ? "
        "WHERE session_id = ?",
        (window.summary, window.json, row["messages"], row["session_id"]),
    )


def rows_from(
    connection: sqlite3.Connection, id: str, start: int, stop: int
) -> list[tuple[int, str]]:
    """The first messages at positions ``[start, stop)``, a page of them."""
    asked = (
        "SELECT position, row FROM messages WHERE session_id = ? AND position >= ? "
        f"AND position < ? ORDER BY position LIMIT {_PAGE}"
    )
    return [(place, row) for place, row in connection.execute(asked, (id, start, stop))]


def message_at(id: str, position: int, text: str) -> Message:
    """A message of the transcript; raises ``SessionError`` where it is broken."""
    try:
        return message_from_row(parse_json(text))
    except (TypeError, ValueError) as error:
        raise SessionError(f"message {position} of session {id!r} is broken: {error}") from None


def _readable(connection: sqlite3.Connection, id: str, start: int, stop: int) -> Iterator[Message]:
    """The messages at positions ``[start, stop)``, without those that are broken."""
    while rows := rows_from(connection, id, start, stop):
        for position, text in rows:
            try:
                yield message_at(id, position, text)
            except SessionError as error:
                _LOG.warning("%s; it is left out of what the session goes on from", error)
        start = rows[-1][0] + 1


def _recent(row: sqlite3.Row) -> list[Message] | None:
    """``recent_messages``; None where it is broken."""
    rows = _json(row, "recent_messages", list)
    if rows is None:
        return None
    try:
        return [message_of(each) for each in rows]
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: its recent messages are broken: %s", row["session_id"], error)
        return None


def _json(row: sqlite3.Row, column: str, kind: type) -> Any:
    """The value of a column of JSON; None where there is none or it is broken."""
    text = row[column]
    if text is None:
        return None
    try:
        value = parse_json(text)
        if not isinstance(value, kind):
            raise ValueError(f"it is no {kind.__name__}")
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: %s cannot be read: %s", row["session_id"], column, error)
        return None
    return value


def seconds(stored: Any) -> float:
    """A time as it is told; 0 where none is stored."""
    return stored / 1000 if isinstance(stored, (int, float)) else 0.0

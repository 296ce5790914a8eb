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
from ctxlab.sessions.base import STATUSES, AgentPlan, Session, SessionStatus, TitleChange
from ctxlab.sessions.resume_messages import message_from_window_row
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow, SummaryWriter
from ctxlab.strategies.summaries.extractive import extract_summary

__all__ = [
    "from_milliseconds",
    "parse_stored_message",
    "plan_from_row",
    "read_message_rows",
    "read_titles",
    "read_window",
    "session_from_row",
    "to_milliseconds",
    "write_titles",
    "write_window",
]

_LOG = logging.getLogger("ctxlab.sessions")
_PAGE_ROWS = 100


def to_milliseconds(seconds: float) -> int:
    """A time as it is stored."""
    return round(seconds * 1000)


def session_from_row(row: sqlite3.Row, titles: Iterable[TitleChange] = ()) -> Session:
    """What is known of a session."""
    tools, meta = _parse_json_column(row, "tools", list), _parse_json_column(row, "meta", dict)
    return Session(
        row["session_id"],
        title=str(row["title"] or ""),
        model=row["model"],
        status=cast(SessionStatus, row["status"] if row["status"] in STATUSES else "closed"),
        created=from_milliseconds(row["created_at"]),
        updated=from_milliseconds(row["updated_at"]),
        messages=row["messages"],
        agent=row["agent"],
        file=row["file"],
        strategy=row["strategy"],
        system=bool(row["system"]),
        titles=tuple(titles),
        tools=tuple(tools or ()),
        meta=meta or {},
    )


def read_titles(
    connection: sqlite3.Connection, id: str | None = None
) -> dict[str, list[TitleChange]]:
    """The histories of titles, newest first, by session; of one session or of all."""
    asked = "SELECT * FROM titles ORDER BY session_id, place"
    if id is not None:
        asked = "SELECT * FROM titles WHERE session_id = ? ORDER BY place"
    found: dict[str, list[TitleChange]] = {}
    for row in connection.execute(asked, () if id is None else (id,)):
        change = TitleChange(
            row["title"], from_milliseconds(row["changed_at"]), row["turn"], row["interaction_id"]
        )
        found.setdefault(row["session_id"], []).append(change)
    return found


def write_titles(connection: sqlite3.Connection, id: str, titles: Iterable[TitleChange]) -> None:
    """Replaces the history of titles of a session."""
    connection.execute("DELETE FROM titles WHERE session_id = ?", (id,))
    connection.executemany(
        "INSERT INTO titles VALUES (?, ?, ?, ?, ?, ?)",
        [
            (id, place, t.title, to_milliseconds(t.changed_at), t.turn, t.interaction_id)
            for place, t in enumerate(titles)
        ],
    )


def plan_from_row(row: sqlite3.Row) -> AgentPlan | None:
    """The plan of a session; None where it has none."""
    steps = _parse_json_column(row, "plan_steps", list)
    if steps is None:
        return None
    current = row["current_step_index"]
    return AgentPlan(
        tuple(map(str, steps)),
        current if isinstance(current, int) else None,
        bool(row["awaiting_continuation"]),
        bool(row["paused"]),
    )


def read_window(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    caps: ResumeCaps,
    write_summary: SummaryWriter = extract_summary,
    min_dropped: int = 1,
) -> ResumeWindow:
    """The window of a session, with everything in it that was appended since it was last kept."""
    id, stop = row["session_id"], row["window_stop"]
    summary = row["summary"] if isinstance(row["summary"], str) else ""
    recent = _parse_recent_messages(row)
    if recent is None:
        # What the window may have held; what stands before it is in the summary.
        recent = list(_iter_readable_messages(connection, id, max(0, stop - caps.messages), stop))
    window = ResumeWindow(
        caps, summary, recent, write_summary=write_summary, min_dropped=min_dropped
    )
    window.extend(_iter_readable_messages(connection, id, stop, row["messages"]))
    return window


def write_window(connection: sqlite3.Connection, row: sqlite3.Row, window: ResumeWindow) -> None:
    """Writes a window that reaches to the last message of ``row``."""
    connection.execute(
        "UPDATE chat_sessions SET summary = ?, recent_messages = ?, window_stop = ? "
        "WHERE session_id = ?",
        (window.summary, window.recent_json, row["messages"], row["session_id"]),
    )


def read_message_rows(
    connection: sqlite3.Connection, id: str, start: int, stop: int
) -> list[tuple[int, str]]:
    """The first messages at positions ``[start, stop)``, a page of them."""
    asked = (
        "SELECT position, row FROM messages WHERE session_id = ? AND position >= ? "
        f"AND position < ? ORDER BY position LIMIT {_PAGE_ROWS}"
    )
    return [(place, row) for place, row in connection.execute(asked, (id, start, stop))]


def parse_stored_message(id: str, position: int, text: str) -> Message:
    """A message of the transcript; raises ``SessionError`` where it is broken."""
    try:
        return message_from_row(parse_json(text))
    except (TypeError, ValueError) as error:
        raise SessionError(f"message {position} of session {id!r} is broken: {error}") from None


def _iter_readable_messages(
    connection: sqlite3.Connection, id: str, start: int, stop: int
) -> Iterator[Message]:
    """The messages at positions ``[start, stop)``, without those that are broken."""
    while rows := read_message_rows(connection, id, start, stop):
        for position, text in rows:
            try:
                yield parse_stored_message(id, position, text)
            except SessionError as error:
                _LOG.warning("%s; it is left out of what the session goes on from", error)
        start = rows[-1][0] + 1


def _parse_recent_messages(row: sqlite3.Row) -> list[Message] | None:
    """``recent_messages``; None where it is broken."""
    rows = _parse_json_column(row, "recent_messages", list)
    if rows is None:
        return None
    try:
        return [message_from_window_row(each) for each in rows]
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: its recent messages are broken: %s", row["session_id"], error)
        return None


def _parse_json_column(row: sqlite3.Row, column: str, kind: type) -> Any:
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


def from_milliseconds(stored: Any) -> float:
    """A time as it is told; 0 where none is stored."""
    return stored / 1000 if isinstance(stored, (int, float)) else 0.0

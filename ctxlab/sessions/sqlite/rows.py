"""Convert rows of ``chat_sessions`` to sessions, titles, plans and windows, and back.

Other programs may have written to the database. Broken values are logged to ``ctxlab.sessions`` and
replaced by what the transcript holds.
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
from ctxlab.sessions.base import STATUSES, AgentPlan, Session, SessionStatus
from ctxlab.sessions.resume_messages import message_from_window_row
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow, SummaryWriter
from ctxlab.sessions.titles import TitleChange
from ctxlab.strategies.summaries.extractive import extract_summary

_LOG = logging.getLogger("ctxlab.sessions")
_PAGE_ROWS = 100


def to_milliseconds(seconds: float) -> int:
    """Convert a time to the stored unit.

    Parameters
    ----------
    seconds : float
        Time in seconds since 1970.

    Returns
    -------
    int
        Time in milliseconds since 1970.
    """
    return round(seconds * 1000)


def session_from_row(row: sqlite3.Row, titles: Iterable[TitleChange] = ()) -> Session:
    """Build the description of a session from its row.

    Parameters
    ----------
    row : sqlite3.Row
        Row of ``chat_sessions``.
    titles : iterable of TitleChange, optional
        Title history, newest first.

    Returns
    -------
    Session
        The session.
    """
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
    """Read the title histories of one session or of all.

    Parameters
    ----------
    connection : sqlite3.Connection
        Open connection.
    id : str, optional
        Session id. By default, all sessions.

    Returns
    -------
    dict of str to list of TitleChange
        Title history by session id, newest first.
    """
    where, values = ("", ()) if id is None else ("WHERE session_id = ?", (id,))
    asked = f"SELECT * FROM titles {where} ORDER BY session_id, place"
    found: dict[str, list[TitleChange]] = {}
    for session_id, _, title, changed_at, turn, link in connection.execute(asked, values):
        change = TitleChange(title, from_milliseconds(changed_at), turn, link)
        found.setdefault(session_id, []).append(change)
    return found


def write_titles(connection: sqlite3.Connection, id: str, titles: Iterable[TitleChange]) -> None:
    """Replace the title history of a session.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    id : str
        Session id.
    titles : iterable of TitleChange
        Title history, newest first.
    """
    connection.execute("DELETE FROM titles WHERE session_id = ?", (id,))
    connection.executemany(
        "INSERT INTO titles VALUES (?, ?, ?, ?, ?, ?)",
        [
            (id, place, t.title, to_milliseconds(t.changed_at), t.turn, t.interaction_id)
            for place, t in enumerate(titles)
        ],
    )


def update_session(connection: sqlite3.Connection, id: str, **values: Any) -> None:
    """Change some columns of a session.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    id : str
        Session id.
    **values : object
        New values by column of ``chat_sessions``.
    """
    columns = ", ".join(f"{name} = :{name}" for name in values)
    asked = f"UPDATE chat_sessions SET {columns} WHERE session_id = :session_id"
    connection.execute(asked, {**values, "session_id": id})


def plan_from_row(row: sqlite3.Row) -> AgentPlan | None:
    """Return the plan of a session.

    Parameters
    ----------
    row : sqlite3.Row
        Row of ``chat_sessions``.

    Returns
    -------
    AgentPlan or None
        The plan; None if none is stored.
    """
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
    """Read the window of a session and add the messages that were appended since it was written.

    Parameters
    ----------
    connection : sqlite3.Connection
        Open connection.
    row : sqlite3.Row
        Row of ``chat_sessions``.
    caps : ResumeCaps
        Maximum size of the window.
    write_summary : SummaryWriter, optional
        Function that extends the summary. By default, it is extracted without a model.
    min_dropped : int, default 1
        Number of messages to drop at a time; see ``ResumeWindow``.

    Returns
    -------
    ResumeWindow
        The window up to the last message.
    """
    id, stop = row["session_id"], row["window_stop"]
    summary = row["summary"] if isinstance(row["summary"], str) else ""
    recent = _parse_recent_messages(row)
    if recent is None:
        # The messages that the window can have held; earlier ones are in the summary.
        recent = list(_iter_readable_messages(connection, id, max(0, stop - caps.messages), stop))
    window = ResumeWindow(
        caps, summary, recent, write_summary=write_summary, min_dropped=min_dropped
    )
    window.extend(_iter_readable_messages(connection, id, stop, row["messages"]))
    return window


def write_window(connection: sqlite3.Connection, row: sqlite3.Row, window: ResumeWindow) -> None:
    """Store a window that reaches to the last message of a session.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    row : sqlite3.Row
        Row of ``chat_sessions``.
    window : ResumeWindow
        The window.
    """
    update_session(
        connection,
        row["session_id"],
        summary=window.summary,
        recent_messages=window.recent_json,
        window_stop=row["messages"],
    )


def read_message_rows(
    connection: sqlite3.Connection, id: str, start: int, stop: int
) -> list[tuple[int, str]]:
    """Read a page of the messages at positions ``[start, stop)``.

    Parameters
    ----------
    connection : sqlite3.Connection
        Open connection.
    id : str
        Session id.
    start : int
        Position of the first message.
    stop : int
        Position after the last message.

    Returns
    -------
    list of tuple of int and str
        Position and stored JSON of up to 100 messages.
    """
    asked = (
        "SELECT position, row FROM messages WHERE session_id = ? AND position >= ? "
        f"AND position < ? ORDER BY position LIMIT {_PAGE_ROWS}"
    )
    return [(place, row) for place, row in connection.execute(asked, (id, start, stop))]


def parse_stored_message(id: str, position: int, text: str) -> Message:
    """Parse a stored message.

    Parameters
    ----------
    id : str
        Session id, for the error message.
    position : int
        Position of the message, for the error message.
    text : str
        Stored JSON.

    Returns
    -------
    Message
        The message.

    Raises
    ------
    SessionError
        If the JSON is broken.
    """
    try:
        return message_from_row(parse_json(text))
    except (TypeError, ValueError) as error:
        raise SessionError(f"message {position} of session {id!r} is broken: {error}") from None


def _iter_readable_messages(
    connection: sqlite3.Connection, id: str, start: int, stop: int
) -> Iterator[Message]:
    """Yield the messages at positions ``[start, stop)``; log and skip broken ones."""
    while rows := read_message_rows(connection, id, start, stop):
        for position, text in rows:
            try:
                yield parse_stored_message(id, position, text)
            except SessionError as error:
                _LOG.warning("%s; the session resumes without it", error)
        start = rows[-1][0] + 1


def _parse_recent_messages(row: sqlite3.Row) -> list[Message] | None:
    """Return the messages of ``recent_messages``; None if they are broken."""
    rows = _parse_json_column(row, "recent_messages", list)
    if rows is None:
        return None
    try:
        return [message_from_window_row(each) for each in rows]
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: its recent messages are broken: %s", row["session_id"], error)
        return None


def _parse_json_column(row: sqlite3.Row, column: str, kind: type) -> Any:
    """Return the value of a JSON column; None if it is empty or broken."""
    text = row[column]
    if text is None:
        return None
    try:
        value = parse_json(text)
        if not isinstance(value, kind):
            raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: cannot read column %s: %s", row["session_id"], column, error)
        return None
    return value


def from_milliseconds(stored: Any) -> float:
    """Convert a stored time to seconds.

    Parameters
    ----------
    stored : object
        Time in milliseconds since 1970.

    Returns
    -------
    float
        Time in seconds since 1970; 0 if no number is stored.
    """
    return stored / 1000 if isinstance(stored, (int, float)) else 0.0

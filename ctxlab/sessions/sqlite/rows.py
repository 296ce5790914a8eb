"""Convert rows of the database to sessions, titles, plans and resume windows, and back.

A resume window is the messages with which a session is resumed. Other programs may write to the
database, too. A malformed value is ignored, and a warning is logged to ``ctxlab.sessions``. Only a
malformed resume window is not ignored; it is rebuilt from the messages of the session.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator
from typing import Any, cast

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import SessionError
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message
from ctxlab.sessions.base import STATUSES, AgentPlan, ResumeState, Session, SessionStatus
from ctxlab.sessions.resume_messages import message_from_window_row
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow, SummaryWriter
from ctxlab.sessions.titles import TitleChange, titles_after_change
from ctxlab.strategies.summaries.extractive import extract_summary

_LOG = logging.getLogger("ctxlab.sessions")
_SELECT_PAGE = """
SELECT position, row FROM messages
WHERE session_id = ? AND position >= ? AND position < ? ORDER BY position LIMIT 100
"""


def to_milliseconds(seconds: float) -> int:
    """Convert a time from seconds to the stored unit, milliseconds.

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


def from_milliseconds(stored: Any) -> float:
    """Convert a stored time from milliseconds to seconds.

    Parameters
    ----------
    stored : object
        Time in milliseconds since 1970.

    Returns
    -------
    float
        Time in seconds since 1970; 0 if ``stored`` is not a number.
    """
    return stored / 1000 if isinstance(stored, (int, float)) else 0.0


def session_from_row(row: sqlite3.Row, titles: Iterable[TitleChange] = ()) -> Session:
    """Build a session description from a row of the table ``chat_sessions``.

    Parameters
    ----------
    row : sqlite3.Row
        Row of the table ``chat_sessions``.
    titles : iterable of TitleChange, optional
        Title history, newest first.

    Returns
    -------
    Session
        Description of the session, without its messages.
    """
    tools, meta = _parse_json_column(row, "tools", list), _parse_json_column(row, "meta", dict)
    same = {name: row[name] for name in ("model", "messages", "agent", "file", "strategy")}
    return Session(
        row["session_id"],
        title=str(row["title"] or ""),
        status=cast(SessionStatus, row["status"] if row["status"] in STATUSES else "closed"),
        created=from_milliseconds(row["created_at"]),
        updated=from_milliseconds(row["updated_at"]),
        system=bool(row["system"]),
        titles=tuple(titles),
        tools=tuple(tools or ()),
        meta=meta or {},
        **same,
    )


def read_titles(
    connection: sqlite3.Connection, id: str | None = None
) -> dict[str, list[TitleChange]]:
    """Read the title history of one session or of all sessions.

    Parameters
    ----------
    connection : sqlite3.Connection
        Open connection.
    id : str, optional
        Session id. By default, read all sessions.

    Returns
    -------
    dict of str to list of TitleChange
        Title history by session id, each with the newest title first.
    """
    where, values = ("", ()) if id is None else ("WHERE session_id = ?", (id,))
    asked = f"SELECT * FROM titles {where} ORDER BY session_id, place"
    found: dict[str, list[TitleChange]] = {}
    for session_id, _, title, changed_at, turn, link in connection.execute(asked, values):
        change = TitleChange(title, from_milliseconds(changed_at), turn, link)
        found.setdefault(session_id, []).append(change)
    return found


def parse_stored_message(id: str, position: int, text: str) -> Message:
    """Parse the stored JSON of a message.

    Parameters
    ----------
    id : str
        Session id, for the error message.
    position : int
        Position of the message in the session, for the error message.
    text : str
        Stored JSON.

    Returns
    -------
    Message
        The parsed message.

    Raises
    ------
    SessionError
        If ``text`` is not valid JSON or not a valid message.
    """
    try:
        return message_from_row(parse_json(text))
    except (TypeError, ValueError) as error:
        raise SessionError(f"invalid message {position} of session {id!r}: {error}") from None


class StoredSession:
    """Stored session, which can be read and changed within an open transaction.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection with the open transaction.
    row : sqlite3.Row
        Row of the table ``chat_sessions``.
    """

    def __init__(self, connection: sqlite3.Connection, row: sqlite3.Row) -> None:
        self.connection, self.row = connection, row
        self.id: str = row["session_id"]

    def update(self, **values: Any) -> None:
        """Write new values to the session's row in the table ``chat_sessions``.

        The attribute ``row`` keeps the old values.

        Parameters
        ----------
        **values : object
            New values by column name.
        """
        columns = ", ".join(f"{name} = :{name}" for name in values)
        asked = f"UPDATE chat_sessions SET {columns} WHERE session_id = :session_id"
        self.connection.execute(asked, {**values, "session_id": self.id})

    def to_session(self) -> Session:
        """Build the description of the session from its row and its title history.

        Returns
        -------
        Session
            Description of the session, without its messages.
        """
        return session_from_row(self.row, read_titles(self.connection, self.id).get(self.id, ()))

    def write_titles(self, titles: Iterable[TitleChange]) -> None:
        """Replace the stored title history.

        Parameters
        ----------
        titles : iterable of TitleChange
            Title history, newest first.
        """
        said = ((t.title, to_milliseconds(t.changed_at), t.turn, t.interaction_id) for t in titles)
        rows = [(self.id, place, *each) for place, each in enumerate(said)]
        self.connection.execute("DELETE FROM titles WHERE session_id = ?", (self.id,))
        self.connection.executemany("INSERT INTO titles VALUES (?, ?, ?, ?, ?, ?)", rows)

    def retitle(self, title: str, turn: int) -> None:
        """Change the title and add it to the title history.

        Parameters
        ----------
        title : str
            New title.
        turn : int
            Turn that the title comes from; 0 if a user set the title.
        """
        titles, now = self.to_session().titles, time.time()
        self.write_titles(titles_after_change(self.id, titles, title, turn, now))
        self.update(title=title, updated_at=to_milliseconds(now))

    def resume_state(self, caps: ResumeCaps) -> ResumeState:
        """Return the state to resume the session from.

        Parameters
        ----------
        caps : ResumeCaps
            Maximum size of the state.

        Returns
        -------
        ResumeState
            Summary, newest messages and plan of the session.
        """
        row, plan = self.row, None
        if (steps := _parse_json_column(row, "plan_steps", list)) is not None:
            step, flags = row["current_step_index"], (row["awaiting_continuation"], row["paused"])
            current = step if isinstance(step, int) else None
            plan = AgentPlan(tuple(map(str, steps)), current, *map(bool, flags))
        return self.read_window(caps).resume_state(plan)

    def read_window(
        self,
        caps: ResumeCaps,
        write_summary: SummaryWriter = extract_summary,
        min_dropped: int = 1,
    ) -> ResumeWindow:
        """Read the stored resume window and add the messages that were appended after it was stored.

        A resume window contains the newest messages of a session and a summary of older messages.

        Parameters
        ----------
        caps : ResumeCaps
            Maximum size of the window.
        write_summary : SummaryWriter, optional
            Function that extends the summary. By default, the summary is extracted without a model.
        min_dropped : int, default 1
            Minimum number of messages to drop at a time; see ``ResumeWindow``.

        Returns
        -------
        ResumeWindow
            Resume window that includes the session's last message.
        """
        row, stop = self.row, self.row["window_stop"]
        summary = row["summary"] if isinstance(row["summary"], str) else ""
        recent = _parse_recent_messages(row)
        if recent is None:
            # Read the messages that the window may have contained; the summary covers earlier ones.
            recent = [*self._iter_readable_messages(max(0, stop - caps.messages), stop)]
        options: dict[str, Any] = {"write_summary": write_summary, "min_dropped": min_dropped}
        window = ResumeWindow(caps, summary, recent, **options)
        window.extend(self._iter_readable_messages(stop, row["messages"]))
        return window

    def write_window(self, window: ResumeWindow) -> None:
        """Store the newest messages of the session and the summary of older messages.

        Parameters
        ----------
        window : ResumeWindow
            Resume window to store. It must include the session's last message.
        """
        summary, recent = window.summary, window.recent_json
        self.update(summary=summary, recent_messages=recent, window_stop=self.row["messages"])

    def read_page(self, start: int, stop: int) -> list[tuple[int, str]]:
        """Read up to 100 messages, starting at position ``start`` and ending before ``stop``.

        Parameters
        ----------
        start : int
            Position of the first message.
        stop : int
            Position after the last message.

        Returns
        -------
        list of tuple of int and str
            Position and stored JSON of each message.
        """
        return self.connection.execute(_SELECT_PAGE, (self.id, start, stop)).fetchall()

    def _iter_readable_messages(self, start: int, stop: int) -> Iterator[Message]:
        """Yield the messages at positions ``[start, stop)``. Malformed ones are logged and skipped."""
        while rows := self.read_page(start, stop):
            for position, text in rows:
                try:
                    yield parse_stored_message(self.id, position, text)
                except SessionError as error:
                    _LOG.warning("%s; the session resumes without this message", error)
            start = rows[-1][0] + 1


def _parse_recent_messages(row: sqlite3.Row) -> list[Message] | None:
    """Parse the column ``recent_messages``. Return None if its content is malformed."""
    rows = _parse_json_column(row, "recent_messages", list)
    if rows is None:
        return None
    try:
        return [message_from_window_row(each) for each in rows]
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: invalid recent messages: %s", row["session_id"], error)
        return None


def _parse_json_column(row: sqlite3.Row, column: str, kind: type) -> Any:
    """Parse a JSON column of a row. Return None if the value is NULL or malformed."""
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

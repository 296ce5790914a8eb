"""Convert rows of the database to sessions, titles, plans and resume windows, and back.

A resume window is the messages with which a session is resumed. Other programs may write to the
database, too, and it can be damaged. A malformed value is ignored, and a warning is logged to
``ctxlab.sessions``. A lost message is replaced by a placeholder (``ctxlab.sessions.damage``), and a
malformed resume window is rebuilt from the messages of the session.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import parse_json
from ctxlab.context.turns import TurnCounter
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, Role
from ctxlab.sessions.base import STATUSES, AgentPlan, ResumeState, Session, SessionStatus
from ctxlab.sessions.damage import DamageLog, fill_gap, find_role, lost_message
from ctxlab.sessions.resume_messages import message_from_window_row
from ctxlab.sessions.resume_window import ResumeCaps, ResumeWindow, SummaryWriter
from ctxlab.sessions.sqlite.connection import DamagedText
from ctxlab.sessions.sqlite.salvage import counter_after
from ctxlab.sessions.titles import TitleChange, titles_after_change
from ctxlab.strategies.summaries.extractive import extract_summary

_LOG = logging.getLogger("ctxlab.sessions")
_SELECT_PAGE = """
SELECT position, turn, step, row FROM messages
WHERE session_id = ? AND position >= ? AND position < ? ORDER BY position LIMIT 100
"""
_SELECT_BEFORE = """
SELECT position, turn, step, row FROM messages
WHERE session_id = ? AND position < ? ORDER BY position DESC LIMIT 1
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


def session_from_row(row: Mapping[str, Any], titles: Iterable[TitleChange] = ()) -> Session:
    """Build a session description from a row of the table ``chat_sessions``.

    Parameters
    ----------
    row : mapping
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


class StoredSession:
    """Stored session, which can be read and changed within an open transaction.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection with the open transaction.
    row : mapping
        Row of the table ``chat_sessions``.
    damage : DamageLog
        Log for rows that cannot be read.
    """

    def __init__(
        self, connection: sqlite3.Connection, row: Mapping[str, Any], damage: DamageLog
    ) -> None:
        self.connection, self.row, self.damage = connection, row, damage
        self.id: str = row["session_id"]

    def correct_count(self) -> StoredSession:
        """Return the session with the number of its messages corrected, if its row has a wrong one.

        Returns
        -------
        StoredSession
            Session with a corrected copy of its row. Nothing is written.
        """
        for name, value in dict(self.row).items():
            if isinstance(value, DamagedText):
                said = "bytes that are not UTF-8 were replaced"
                self.damage.tell(
                    f"chat_sessions, session {self.id!r}, column {name}", said, self.id
                )
        last = self.connection.execute(_SELECT_BEFORE, (self.id, sys.maxsize)).fetchone()
        stop = 0 if last is None else last["position"] + 1
        numbers = ("messages", "turns", "steps", "window_stop")
        row = dict(self.row) | {name: _whole(self.row[name]) for name in numbers}
        end = TurnCounter(row["turns"], row["steps"], bool(row["replied"]))
        after = TurnCounter()
        if last is not None:
            after = counter_after(last["turn"], last["step"], last["row"])
        if stop == row["messages"] or (stop < row["messages"] and after != end):
            return StoredSession(self.connection, row, self.damage)
        said = (
            f"{stop:,} messages are stored, but the row of the session counts {row['messages']:,}"
        )
        self.damage.tell(f"chat_sessions, session {self.id!r}", said, self.id)
        row |= {"messages": stop, "window_stop": min(row["window_stop"], stop)}
        if last is not None:
            row |= {"turns": after.turn, "steps": after.step, "replied": after.replied}
        return StoredSession(self.connection, row, self.damage)

    def read_messages(self, start: int, stop: int) -> list[Message]:
        """Read up to 100 messages from position ``start`` on, and before ``stop``.

        Messages that are lost are replaced by placeholders.

        Parameters
        ----------
        start : int
            Position of the first message.
        stop : int
            Position after the last message, at most the number of messages.

        Returns
        -------
        list of Message
            Messages at consecutive positions; empty only if ``start`` is not before ``stop``.
        """
        rows = self.connection.execute(_SELECT_PAGE, (self.id, start, stop)).fetchall()
        read: list[Message] = []
        known: sqlite3.Row | None = None
        for row in rows:
            if row["position"] > start + len(read):
                read += self._fill(start + len(read), row["position"], known, row)
            read.append(self.parse(row, known))
            known = row
        if len(rows) < 100 and (position := start + len(read)) < stop:
            read += self._fill(position, stop, known, None)
        return read

    def parse(self, row: sqlite3.Row, before: sqlite3.Row | None = None) -> Message:
        """Parse the row of a message. If it is damaged, return a placeholder.

        Parameters
        ----------
        row : sqlite3.Row
            Position, turn, step and row of a message.
        before : sqlite3.Row, optional
            Row of the message before it.

        Returns
        -------
        Message
            The message.
        """
        text, place = row["row"], f"messages, session {self.id!r}, position {row['position']}"
        try:
            message = message_from_row(parse_json(_undecorated(text)))
        except (TypeError, ValueError) as error:
            self.damage.tell(place, f"{error}; the message is lost", self.id)
            role: Role = find_role(text) if isinstance(text, (str, bytes)) else "system"
            if role == "system" and before is not None and row["turn"] > before["turn"]:
                role = "user"
            elif role == "system" and before is not None and row["step"] > before["step"]:
                role = "assistant"
            return lost_message(role, f"message {row['position'] + 1} cannot be read")
        if isinstance(text, DamagedText):
            self.damage.tell(place, "bytes that are not UTF-8 were replaced", self.id)
        return message

    def _fill(
        self, start: int, stop: int, before: sqlite3.Row | None, after: sqlite3.Row | None
    ) -> list[Message]:
        """Return placeholders for the messages at positions ``[start, stop)``, which are lost."""
        where = f"position {start}" if stop == start + 1 else f"positions {start} to {stop - 1}"
        said = f"{pluralize(stop - start, 'row')} missing; the messages are lost"
        self.damage.tell(f"messages, session {self.id!r}, {where}", said, self.id)
        if before is None:
            found = self.connection.execute(_SELECT_BEFORE, (self.id, start)).fetchone()
            before = found if found is not None and found["position"] == start - 1 else None
        counter = TurnCounter()
        if before is not None:
            counter = counter_after(before["turn"], before["step"], before["row"])
        count, roles = stop - start, None
        no_roles: list[Role] = ["system"] * count
        for target in self._targets(counter, after):
            roles = roles or fill_gap(count, counter, target)
        return [
            lost_message(role, f"message {position + 1} is missing")
            for position, role in enumerate(roles or no_roles, start)
        ]

    def _targets(self, before: TurnCounter, after: sqlite3.Row | None) -> list[TurnCounter]:
        """Return the counters that the lost messages before the row ``after`` may lead to."""
        if after is None:
            row = self.row
            return [TurnCounter(row["turns"], row["steps"], bool(row["replied"]))]
        turn, step, role = after["turn"], after["step"], find_role(after["row"])
        if role == "user":
            turn -= 1
            return [before] if before.turn == turn else [TurnCounter(turn, 1, False)]
        if role == "assistant":
            return [TurnCounter(turn, step - 1), TurnCounter(turn, step, False), before]
        here = [before] if (before.turn, before.step) == (turn, step) else []
        return [*here, TurnCounter(turn, step), TurnCounter(turn, step, False)]

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
        return self.with_titles(read_titles(self.connection, self.id).get(self.id, ()))

    def with_titles(self, titles: Iterable[TitleChange]) -> Session:
        """Build the description of the session from its row and a title history.

        Parameters
        ----------
        titles : iterable of TitleChange
            Title history, newest first.

        Returns
        -------
        Session
            Description of the session, without its messages.
        """
        for each in (titles := tuple(titles)):
            if isinstance(each.title, DamagedText):
                said = "bytes of a title that are not UTF-8 were replaced"
                self.damage.tell(f"titles, session {self.id!r}", said, self.id)
        return session_from_row(self.row, titles)

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
            recent = [*self._iter_messages(max(0, stop - caps.messages), stop)]
        options: dict[str, Any] = {"write_summary": write_summary, "min_dropped": min_dropped}
        window = ResumeWindow(caps, summary, recent, **options)
        window.extend(self._iter_messages(stop, row["messages"]))
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

    def _iter_messages(self, start: int, stop: int) -> Iterator[Message]:
        while start < stop:
            messages = self.read_messages(start, stop)
            yield from messages
            start += len(messages)


def _undecorated(text: Any) -> Any:
    """Return a plain string for a ``DamagedText``, and other values as they are."""
    return str(text) if isinstance(text, DamagedText) else text


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**62 else 0


def _parse_recent_messages(row: Mapping[str, Any]) -> list[Message] | None:
    """Parse the column ``recent_messages``. Return None if its content is malformed."""
    rows = _parse_json_column(row, "recent_messages", list)
    if rows is None:
        return None
    try:
        return [message_from_window_row(each) for each in rows]
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: invalid recent messages: %s", row["session_id"], error)
        return None


def _parse_json_column(row: Mapping[str, Any], column: str, kind: type) -> Any:
    """Parse a JSON column of a row. Return None if the value is NULL or malformed."""
    text = row[column]
    if text is None:
        return None
    try:
        value = parse_json(_undecorated(text))
        if not isinstance(value, kind):
            raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
    except (TypeError, ValueError) as error:
        _LOG.warning("session %r: cannot read column %s: %s", row["session_id"], column, error)
        return None
    return value

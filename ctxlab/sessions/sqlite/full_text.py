"""Full-text index of the messages of a workspace.

The index uses FTS5, SQLite's extension for full-text search. Messages are split into words as in
``ctxlab.sessions.text_search``, so that a search finds the same messages with and without an index.
If SQLite was built without FTS5, no index is created and a search reads all messages.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from itertools import islice

from ctxlab._utils.jsonio import parse_json
from ctxlab.context.turns import TurnLabel
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, message_text
from ctxlab.sessions.damage import DamageLog
from ctxlab.sessions.text_search import (
    SearchHit,
    contains_words,
    make_snippet,
    query_words,
    split_for_index,
    split_words,
)

_MAX_WORDS = 64  # of an index query; further words are searched in the text of each match
_MISSING_MODULE = "no such module"

_SEARCH_SQL = """
SELECT m.session_id, m.turn, m.step, m.position, m.row, bm25(messages_fts) AS rank
FROM messages_fts JOIN messages AS m ON m.id = messages_fts.rowid
JOIN chat_sessions AS s ON s.session_id = m.session_id
WHERE messages_fts MATCH :words
    AND CASE WHEN :id IS NULL THEN s.status <> 'archived' AND NOT s.system
        ELSE m.session_id = :id END
ORDER BY rank, s.updated_at DESC, m.session_id, m.position DESC
"""


def create_index(connection: sqlite3.Connection) -> None:
    """Create the full-text index, unless it exists or SQLite was built without FTS5.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    """
    try:
        # The words are already case-folded and separated by spaces. The ``ascii`` tokenizer does not
        # split words at non-ASCII letters.
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts USING fts5(words, tokenize = 'ascii')"
        )
    except sqlite3.OperationalError as error:
        if _MISSING_MODULE not in str(error):
            raise


def has_index(connection: sqlite3.Connection) -> bool:
    """Return True if the database has a full-text index that the installed SQLite can query.

    Parameters
    ----------
    connection : sqlite3.Connection
        Open connection.

    Returns
    -------
    bool
        True if the index exists and SQLite supports FTS5.
    """
    try:
        connection.execute("SELECT rowid FROM messages_fts LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if _MISSING_MODULE in str(error) or "no such table" in str(error):
            return False
        raise
    return True


def index_message(connection: sqlite3.Connection, rowid: int, message: Message) -> None:
    """Add a message to the index.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    rowid : int
        Id of the message in the table ``messages``.
    message : Message
        Message to index.
    """
    parts = (part for word in split_words(message_text(message)) for part in split_for_index(word))
    row = rowid, " ".join(parts)
    connection.execute("INSERT INTO messages_fts (rowid, words) VALUES (?, ?)", row)


def index_missing(connection: sqlite3.Connection) -> None:
    """Add all messages that are not in the index yet.

    A message is not in the index if the process that stored it used no full-text index.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    """
    behind = "SELECT id, row FROM messages WHERE indexed = 0 ORDER BY id LIMIT 200"
    while rows := connection.execute(behind).fetchall():
        for id, text in rows:
            try:
                index_message(connection, id, message_from_row(parse_json(str(text))))
            except (TypeError, ValueError):
                connection.execute("INSERT INTO messages_fts (rowid, words) VALUES (?, '')", (id,))
        done = [(id,) for id, _ in rows]
        connection.executemany("UPDATE messages SET indexed = 1 WHERE id = ?", done)


def remove_session(connection: sqlite3.Connection, id: str) -> None:
    """Remove the messages of a session from the index.

    Call this function before the messages are deleted from the table ``messages``.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection in a write transaction.
    id : str
        Session id.
    """
    own = "SELECT id FROM messages WHERE session_id = ?"
    connection.execute(f"DELETE FROM messages_fts WHERE rowid IN ({own})", (id,))
    # Without "optimize", the deleted words would remain in the file until the index grows.
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('optimize')")


def search_index(
    connection: sqlite3.Connection,
    query: str,
    id: str | None,
    limit: int,
    offset: int,
    damage: DamageLog,
) -> list[SearchHit]:
    """Search the index for messages that contain all words of a query, best BM25 score first.

    Parameters
    ----------
    connection : sqlite3.Connection
        Open connection.
    query : str
        Words to find.
    id : str or None
        Session to search; None searches all sessions except archived ones and those that programs
        use internally (``Session.system``).
    limit : int
        Maximum number of hits.
    offset : int
        Number of hits to skip.
    damage : DamageLog
        Log for matching messages that cannot be read.

    Returns
    -------
    list of SearchHit
        Matching messages, best match first.
    """
    words = query_words(query)
    if not words or not limit:
        return []
    shown, stop = words[:_MAX_WORDS], min(offset + limit, sys.maxsize)
    matches = islice(_iter_matches(connection, words, id, damage), min(offset, stop), stop)
    return [
        SearchHit(
            session,
            label.turn,
            str(label),
            position,
            message.role,
            make_snippet(text, shown),
            -rank,
            message.time,
        )
        for (session, label, position), message, text, rank in matches
    ]


def _iter_matches(
    connection: sqlite3.Connection, words: tuple[str, ...], id: str | None, damage: DamageLog
) -> Iterator[tuple[tuple[str, TurnLabel, int], Message, str, float]]:
    """Yield the messages that contain all words, best match first.

    Each match is a tuple of its location (session id, step, position), the message, its text and its
    BM25 rank. A lower rank is better.
    """
    asked = " ".join(f'"{" ".join(split_for_index(word))}"' for word in words[:_MAX_WORDS])
    others = [w for n, w in enumerate(words) if n >= _MAX_WORDS or len(split_for_index(w)) > 1]
    found = connection.execute(_SEARCH_SQL, {"words": asked, "id": id})
    for session, turn, step, position, row, rank in found:
        try:
            message = message_from_row(parse_json(str(row)))
        except (TypeError, ValueError) as error:
            place = f"messages, session {session!r}, position {position}"
            damage.tell(place, f"{error}; the message is lost", session)
            continue
        text = message_text(message)
        if not others or contains_words(text, others):
            yield (session, TurnLabel(turn, step), position), message, text, rank

"""Words are found in all sessions of a workspace through an index, and nothing in a query is syntax.

The index is FTS5 of SQLite. It is given the words as ``ctxlab.sessions.text_search`` takes them, so
that what is found is the same with the index and without. Where SQLite lacks FTS5 there is no index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, message_text
from ctxlab.sessions.base import SearchHit
from ctxlab.sessions.text_search import (
    contains_words,
    make_snippet,
    query_words,
    split_for_index,
    split_words,
)

__all__ = [
    "create_index",
    "has_index",
    "index_message",
    "index_missing",
    "remove_session",
    "search_index",
]

_MAX_INDEX_WORDS = (
    64  # words that the index is asked for at once; a text is looked at for the others
)
_MISSING_MODULE = "no such module"

_SEARCH_SQL = """
SELECT m.session_id, m.turn, m.position, m.row, bm25(messages_fts) AS rank
FROM messages_fts JOIN messages AS m ON m.id = messages_fts.rowid
JOIN chat_sessions AS s ON s.session_id = m.session_id
WHERE messages_fts MATCH :words
    AND CASE WHEN :id IS NULL THEN s.status <> 'archived' AND NOT s.system
        ELSE m.session_id = :id END
ORDER BY rank, s.updated_at DESC, m.session_id, m.position DESC
"""


def create_index(connection: sqlite3.Connection) -> None:
    """Makes the index where there is none and this SQLite can."""
    try:
        # Words come folded and parted by spaces: to ``ascii`` a letter beyond ASCII is one of a word.
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts USING fts5(words, tokenize = 'ascii')"
        )
    except sqlite3.OperationalError as error:
        if _MISSING_MODULE not in str(error):
            raise


def has_index(connection: sqlite3.Connection) -> bool:
    """Whether there is an index that this SQLite can use."""
    try:
        connection.execute("SELECT rowid FROM messages_fts LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        if _MISSING_MODULE in str(error) or "no such table" in str(error):
            return False
        raise
    return True


def index_message(connection: sqlite3.Connection, rowid: int, message: Message) -> None:
    """Puts a message into the index; ``rowid`` is its id in ``messages``."""
    words = " ".join(
        part for word in split_words(message_text(message)) for part in split_for_index(word)
    )
    connection.execute("INSERT INTO messages_fts (rowid, words) VALUES (?, ?)", (rowid, words))


def index_missing(connection: sqlite3.Connection) -> None:
    """Puts in what was stored by a SQLite without FTS5."""
    behind = "SELECT id, row FROM messages WHERE indexed = 0 ORDER BY id LIMIT 200"
    while rows := connection.execute(behind).fetchall():
        for id, text in rows:
            try:
                index_message(connection, id, message_from_row(parse_json(text)))
            except ValueError:
                connection.execute("INSERT INTO messages_fts (rowid, words) VALUES (?, '')", (id,))
        connection.executemany(
            "UPDATE messages SET indexed = 1 WHERE id = ?", [(id,) for id, _ in rows]
        )


def remove_session(connection: sqlite3.Connection, id: str) -> None:
    """Takes a session out of the index, its words included, before its messages go."""
    connection.execute(
        "DELETE FROM messages_fts WHERE rowid IN (SELECT id FROM messages WHERE session_id = ?)",
        (id,),
    )
    # Else its words would stand there, marked as deleted, until the index grows.
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('optimize')")


def search_index(
    connection: sqlite3.Connection, query: str, id: str | None, limit: int, offset: int
) -> list[SearchHit]:
    """The messages that hold all words of a query, the best by BM25 first; see ``SessionLibrary``."""
    words = query_words(query)
    start, stop = max(0, offset), max(0, offset) + max(0, limit)
    if not words or start == stop:
        return []
    hits = []
    for place, (session, turn, position, message, rank) in enumerate(
        _iter_matches(connection, words, id)
    ):
        if place >= stop:
            break
        if place >= start:
            shown = make_snippet(message_text(message), words[:_MAX_INDEX_WORDS])
            hits.append(
                SearchHit(session, turn, position, message.role, shown, -rank, message.time)
            )
    return hits


def _iter_matches(
    connection: sqlite3.Connection, words: tuple[str, ...], id: str | None
) -> Iterator[tuple[str, int, int, Message, float]]:
    asked = " ".join(f'"{" ".join(split_for_index(word))}"' for word in words[:_MAX_INDEX_WORDS])
    others = [
        w for n, w in enumerate(words) if n >= _MAX_INDEX_WORDS or len(split_for_index(w)) > 1
    ]
    for session, turn, position, row, rank in connection.execute(
        _SEARCH_SQL, {"words": asked, "id": id}
    ):
        try:
            message = message_from_row(parse_json(row))
        except ValueError:
            continue  # the words are there, and the message cannot be shown
        if not others or contains_words(message_text(message), others):
            yield session, turn, position, message, rank

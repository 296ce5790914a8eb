"""Indexes that rank older messages by relevance: BM25 over words, and cosine over vectors.

Both hold a sliding range of a conversation: new messages are added once, and old ones are removed.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab.errors import DataMissing
from ctxlab.messages.entities import find_entities
from ctxlab.messages.types import Message, message_text

_MAX_TERMS = 32
_MAX_SCANNED_CHARS = 4000
_MIN_WORD_LENGTH = 4
_CREATE = "CREATE VIRTUAL TABLE said USING fts5(text, tokenize=\"unicode61 tokenchars '_'\")"
_INSERT = "INSERT INTO said (rowid, text) VALUES (?, ?)"
_DELETE = "DELETE FROM said WHERE rowid < ?"
_SELECT = "SELECT rowid FROM said WHERE said MATCH ? AND rowid >= ?"
_SEARCH = f"{_SELECT} ORDER BY rank, rowid DESC LIMIT ?"
_DELETE_BATCH = 250  # texts that may be removed before the rows are deleted


class _SlidingIndex:
    """The range of positions that an index holds."""

    _indexed_until = 0

    def new_positions(self, positions: range) -> range:
        """Return the positions of a range that are not indexed yet."""
        until = self._indexed_until
        return range(max(until, positions.start), max(until, positions.stop))

    def mark_indexed(self, positions: range) -> None:
        """Record that the positions of a range are indexed, and remove those before it."""
        self._indexed_until = max(self._indexed_until, positions.stop)
        self.remove_before(positions.start)

    def remove_before(self, number: int) -> None:
        """Remove what has a smaller number."""
        raise NotImplementedError


class BM25Index(_SlidingIndex):
    """BM25 index of texts, on SQLite's full-text search; a term of a query may be a phrase.

    Parameters
    ----------
    connection : sqlite3.Connection, optional
        Database for the index; by default one in memory.

    Raises
    ------
    DataMissing
        If Python's SQLite was built without FTS5.

    Examples
    --------
    >>> words = BM25Index()
    >>> words.add([(1, "the parser fails in src/io.py"), (2, "all is well"), (3, "src and io")])
    >>> words.search(["src/io.py"], 5), words.search(["io", "well"], 1)
    ([1], [2])
    """

    def __init__(self, connection: sqlite3.Connection | None = None) -> None:
        self._min_number = self._deleted_before = 0
        self._pending: list[tuple[int, str]] | None = None
        "rows added to a copy; None if this is not a copy"
        # Contexts may move between threads; only one thread uses a context at a time.
        self._connection = connection or sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._connection.execute(_CREATE)
        except sqlite3.OperationalError as error:
            raise DataMissing(
                f"retrieval needs SQLite's FTS5 ({error}); use a Python whose sqlite3 includes it, "
                "or retrieval(embedding=…)"
            ) from None

    def add(self, texts: Iterable[tuple[int, str]]) -> None:
        """Add texts to the index.

        Parameters
        ----------
        texts : iterable of tuple of int and str
            Pairs ``(number, text)`` with ascending numbers.
        """
        rows = ((number, _sqlite_text(text)) for number, text in texts)
        if self._pending is None:
            self._connection.executemany(_INSERT, rows)
        else:
            self._pending += rows

    def remove_before(self, number: int) -> None:
        """Remove texts with smaller numbers.

        Parameters
        ----------
        number : int
            Smallest number to keep.
        """
        self._min_number = number
        if number - self._deleted_before < _DELETE_BATCH:
            return
        self._deleted_before = number
        if self._pending is None:
            self._connection.execute(_DELETE, (number,))
            # Deleted rows slow down searches until the segments of the index are merged.
            self._connection.execute("INSERT INTO said (said) VALUES ('optimize')")

    def search(self, terms: Sequence[str], k: int) -> list[int]:
        """Return the texts that match terms best; rare terms weigh more.

        Parameters
        ----------
        terms : sequence of str
            Words or phrases; a text that contains one of them matches.
        k : int
            Maximum number of results.

        Returns
        -------
        list of int
            Numbers of the texts, best first.
        """
        query = " OR ".join('"' + _sqlite_text(t).replace('"', '""') + '"' for t in terms)
        if not query:
            return []
        with self._with_pending_rows():
            found = self._connection.execute(_SEARCH, (query, self._min_number, k))
            return [number for (number,) in found]

    def __deepcopy__(self, memo: dict[int, Any]) -> BM25Index:
        """Return a copy that leaves this index unchanged; it is valid until this index changes."""
        other = copy(self)
        other._pending = list(self._pending or ())
        return other

    @contextmanager
    def _with_pending_rows(self) -> Iterator[None]:
        """Apply the rows added to and removed from a copy, for the duration of one query."""
        if self._pending is None:
            yield
            return
        self._connection.execute("SAVEPOINT copied")
        try:
            self._connection.executemany(_INSERT, self._pending)
            self._connection.execute(_DELETE, (self._deleted_before,))
            yield
        finally:
            self._connection.execute("ROLLBACK TO copied")
            self._connection.execute("RELEASE copied")


class VectorIndex(_SlidingIndex):
    """Index of vectors, ranked by cosine similarity.

    Examples
    --------
    >>> vectors = VectorIndex()
    >>> vectors.add([(1, [1.0, 0.0]), (2, [0.0, 1.0]), (3, [0.6, 0.8])])
    >>> vectors.search([0.0, 2.0], 2)
    [2, 3]
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._rows: list[npt.NDArray[np.float32]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> VectorIndex:
        """Return a copy that shares the vectors."""
        other = copy(self)
        other._numbers, other._rows = self._numbers.copy(), self._rows.copy()
        return other

    def add(self, vectors: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Add vectors to the index.

        Parameters
        ----------
        vectors : iterable of tuple of int and sequence of float
            Pairs ``(number, vector)`` with ascending numbers.
        """
        for number, vector in vectors:
            self._numbers.append(number)
            self._rows.append(_normalize(vector))

    def remove_before(self, number: int) -> None:
        """Remove vectors with smaller numbers.

        Parameters
        ----------
        number : int
            Smallest number to keep.
        """
        gone = int(np.searchsorted(self._numbers, number))
        del self._numbers[:gone], self._rows[:gone]

    def search(self, vector: Sequence[float], k: int) -> list[int]:
        """Return the vectors nearest to a vector.

        Parameters
        ----------
        vector : sequence of float
            The vector of the query.
        k : int
            Maximum number of results.

        Returns
        -------
        list of int
            Numbers of the vectors, nearest first; of equally near vectors the newest comes first.
        """
        if not self._rows:
            return []
        near = np.stack(self._rows) @ _normalize(vector)
        order = np.lexsort((-np.arange(len(near)), -near))
        return [self._numbers[row] for row in order[:k]]


def query_terms(messages: Sequence[Message], question: Message | None) -> list[str]:
    """Return search terms: entities of the newest messages and the question, then their words.

    Parameters
    ----------
    messages : sequence of Message
        The newest messages.
    question : Message or None
        The newest user message, if any; its terms come first.

    Returns
    -------
    list of str
        Terms without duplicates. Tool results contribute entities only.

    Examples
    --------
    >>> said = [Message("assistant", "Now the tests in tests/test_io.py")]
    >>> query_terms(said, Message("user", "Fix io.py"))
    ['io.py', 'tests/test_io.py', 'tests']
    """
    found: dict[str, None] = {}
    by_weight = sorted(messages, key=lambda message: message.role == "tool")
    asked = [question, *by_weight] if question else by_weight
    for message in asked:
        entities = find_entities(_head_and_tail(message_text(message)))
        found.update((entity.text, None) for entity in entities)
    for message in (m for m in asked if m.role != "tool"):
        words = _head_and_tail(message.text).split()
        found.update((w, None) for w in words if len(w) >= _MIN_WORD_LENGTH and w.isalpha())
    return list(found)[:_MAX_TERMS]


def best_excerpt(text: str, terms: Sequence[str], max_chars: int) -> str:
    """Return the part of a text that contains the most terms.

    Parameters
    ----------
    text : str
        The text.
    terms : sequence of str
        Terms to look for.
    max_chars : int
        Maximum length of the excerpt, ellipses included.

    Returns
    -------
    str
        The excerpt; the whole text if it is short enough.

    Examples
    --------
    >>> text = "a long story " * 9 + "then src/io.py broke" + " and so on" * 9
    >>> best_excerpt(text, ["src/io.py"], 30)
    '…tory then src/io.py broke an…'
    """
    if len(text) <= max_chars:
        return text
    room = max(1, max_chars - 2)
    fitting = [term for term in terms if len(term) <= room]
    places = sorted((place, term) for term in fitting for place in _find_occurrences(text, term))
    inside: Counter[str] = Counter()
    most = first = start = 0
    for place, term in places:
        inside[term] += 1
        while places[first][0] < place + len(term) - room:
            gone = places[first][1]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            first += 1
        if len(inside) > most:
            most, start = len(inside), max(0, (places[first][0] + place + len(term) - room) // 2)
    stop = min(len(text), start + room)
    start = max(0, stop - room)
    return ("…" if start else "") + text[start:stop] + ("…" if stop < len(text) else "")


def _find_occurrences(text: str, term: str) -> Iterator[int]:
    """Yield the first three positions of a term."""
    place = -1
    for _ in range(3):
        place = text.find(term, place + 1)
        if place < 0:
            return
        yield place


def _head_and_tail(text: str) -> str:
    """Return the beginning and the end of a text, so that huge texts are not scanned in full."""
    half = _MAX_SCANNED_CHARS // 2
    return text if len(text) <= _MAX_SCANNED_CHARS else f"{text[:half]}\n{text[-half:]}"


def _sqlite_text(text: str) -> str:
    """Return a text that SQLite can store, without lone surrogates and NUL."""
    return repair_surrogates(text).replace("\0", " ")


def _normalize(vector: Sequence[float]) -> npt.NDArray[np.float32]:
    made = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(made))
    return made / length if length else made

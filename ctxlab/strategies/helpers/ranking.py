"""Search indexes that rank older messages by relevance to the newest ones.

``BM25Index`` ranks by words and ``VectorIndex`` by the cosine similarity of embedding vectors. Each
covers a sliding range of a conversation: new messages are added, and the oldest are removed.
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
_DELETE_BATCH = 250  # number of removed documents after which their rows are deleted


class _SlidingIndex:
    """Base class of search indexes that cover a sliding range of message positions."""

    _indexed_until = 0

    def new_positions(self, positions: range) -> range:
        """Return the positions of a range that are not yet indexed."""
        until = self._indexed_until
        return range(max(until, positions.start), max(until, positions.stop))

    def mark_indexed(self, positions: range) -> None:
        """Record that the positions of a range are indexed, and remove all earlier positions."""
        self._indexed_until = max(self._indexed_until, positions.stop)
        self.remove_before(positions.start)

    def remove_before(self, number: int) -> None:
        """Remove all entries of the index with a number below ``number``."""
        raise NotImplementedError


class _Database:
    """Database of an index and its copies. One in memory is closed with the last of them."""

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self._is_given = connection is not None
        # A context may move to another thread, but only one thread uses it at a time.
        self.connection = connection or sqlite3.connect(":memory:", check_same_thread=False)

    def __del__(self) -> None:
        if not self._is_given:
            self.connection.close()


class BM25Index(_SlidingIndex):
    """Search index of numbered documents, ranked by BM25 with SQLite's full-text search.

    Search terms can be single words or phrases.

    Parameters
    ----------
    connection : sqlite3.Connection, optional
        Database in which the index is created. None: a new database in memory.

    Raises
    ------
    DataMissing
        If Python's SQLite was built without the full-text extension FTS5.

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
        "in a copy: the documents that were added to the copy; None: this is not a copy"
        self._database = _Database(connection)
        self._connection = self._database.connection
        try:
            self._connection.execute(_CREATE)
        except sqlite3.OperationalError as error:
            raise DataMissing(
                f"retrieval needs SQLite with FTS5 ({error}); use a Python with FTS5 in its sqlite3 "
                "module, or rank with an embedding model: retrieval(embedding='MODEL')"
            ) from None

    def add(self, texts: Iterable[tuple[int, str]]) -> None:
        """Add documents to the index.

        Parameters
        ----------
        texts : iterable of tuple of int and str
            Number and text of each document, with ascending numbers.
        """
        rows = ((number, _sqlite_text(text)) for number, text in texts)
        if self._pending is None:
            self._connection.executemany(_INSERT, rows)
        else:
            self._pending += rows

    def remove_before(self, number: int) -> None:
        """Remove all documents with a number below ``number``.

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
        """Return the numbers of the documents that match search terms best.

        A document matches if it contains at least one term. Rare terms have a higher weight.

        Parameters
        ----------
        terms : sequence of str
            Words or phrases.
        k : int
            Maximum number of results.

        Returns
        -------
        list of int
            Numbers of the documents, best match first.
        """
        query = " OR ".join('"' + _sqlite_text(t).replace('"', '""') + '"' for t in terms)
        if not query:
            return []
        with self._with_pending_rows():
            found = self._connection.execute(_SEARCH, (query, self._min_number, k))
            return [number for (number,) in found]

    def __deepcopy__(self, memo: dict[int, Any]) -> BM25Index:
        """Return a copy whose changes do not affect this index.

        The copy uses the database of this index and must not be used after this index changes.
        """
        other = copy(self)
        other._pending = list(self._pending or ())
        return other

    @contextmanager
    def _with_pending_rows(self) -> Iterator[None]:
        """Write the documents added to a copy to the shared database, for the duration of one query."""
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
    """Search index of numbered vectors, ranked by cosine similarity.

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
        """Return an independent copy. The vectors are shared, because they do not change."""
        other = copy(self)
        other._numbers, other._rows = self._numbers.copy(), self._rows.copy()
        return other

    def add(self, vectors: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Add vectors to the index.

        Parameters
        ----------
        vectors : iterable of tuple of int and sequence of float
            Number and vector pairs, with ascending numbers.
        """
        for number, vector in vectors:
            self._numbers.append(number)
            self._rows.append(_normalize(vector))

    def remove_before(self, number: int) -> None:
        """Remove all vectors with a number below ``number``.

        Parameters
        ----------
        number : int
            Smallest number to keep.
        """
        gone = int(np.searchsorted(self._numbers, number))
        del self._numbers[:gone], self._rows[:gone]

    def search(self, vector: Sequence[float], k: int) -> list[int]:
        """Return the numbers of the vectors that are most similar to a query vector.

        Parameters
        ----------
        vector : sequence of float
            Query vector.
        k : int
            Maximum number of results.

        Returns
        -------
        list of int
            Numbers of the vectors, most similar first. Equally similar vectors are sorted from the
            newest to the oldest.
        """
        if not self._rows:
            return []
        near = np.stack(self._rows) @ _normalize(vector)
        order = np.lexsort((-np.arange(len(near)), -near))
        return [self._numbers[row] for row in order[:k]]


def query_terms(messages: Sequence[Message], question: Message | None) -> list[str]:
    """Return search terms to find older messages that are relevant to the newest messages.

    The entities of all messages, such as file paths and identifiers, come before all other words.
    Among the entities, and among the words, those of the question come first.

    Parameters
    ----------
    messages : sequence of Message
        Newest messages of the conversation, from which the terms are taken.
    question : Message or None
        Newest user message; None if there is no user message.

    Returns
    -------
    list of str
        Search terms without duplicates. From tool results, only entities are taken and no other words.

    Examples
    --------
    >>> said = [Message("assistant", "Now the tests in tests/test_io.py")]
    >>> query_terms(said, Message("user", "Repair io.py"))
    ['io.py', 'tests/test_io.py', 'Repair', 'tests']
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
    """Return the excerpt of a string that contains the most search terms.

    Parameters
    ----------
    text : str
        String to clip.
    terms : sequence of str
        Search terms. Upper and lower case are distinguished.
    max_chars : int
        Maximum length of the excerpt in characters, including the ellipses.

    Returns
    -------
    str
        The excerpt, with an ellipsis at each end where text was cut off; the whole text if it is
        short enough.

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
    """Yield the positions of the first three occurrences of a term."""
    place = -1
    for _ in range(3):
        place = text.find(term, place + 1)
        if place < 0:
            return
        yield place


def _head_and_tail(text: str) -> str:
    """Return the beginning and the end of a long text, to limit the time for scanning it."""
    half = _MAX_SCANNED_CHARS // 2
    return text if len(text) <= _MAX_SCANNED_CHARS else f"{text[:half]}\n{text[-half:]}"


def _sqlite_text(text: str) -> str:
    """Replace the characters that SQLite cannot store: lone surrogates and NUL."""
    return repair_surrogates(text).replace("\0", " ")


def _normalize(vector: Sequence[float]) -> npt.NDArray[np.float32]:
    made = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(made))
    return made / length if length else made

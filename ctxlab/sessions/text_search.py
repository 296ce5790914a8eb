"""Search messages by words, without an index."""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ctxlab._utils.text import one_line
from ctxlab.context.turns import TurnCounter, TurnLabel
from ctxlab.messages.types import Message, message_text

SNIPPET_LENGTH = 200
"""Maximum number of characters of a snippet."""

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_SNIPPET_LEAD = 60  # characters of a snippet before the first match
_TYPICAL_LENGTH = 2_000  # characters of a message of typical length
# Scripts without spaces between words: each letter is indexed as a word, and a query word matches
# anywhere in the text.
_UNSPACED_RANGES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"([{_UNSPACED_RANGES}])")


@dataclass(frozen=True)
class SearchHit:
    """Search result: location of a matching message, with a snippet of its text and a score.

    A hit of a search by meaning describes a whole step. Its location is that of the step's first
    message.
    """

    session_id: str
    "id of the message's session"
    turn: int
    "turn number, from 1; 0 if the message precedes the first turn"
    label: str
    "label of the message's step, such as ``3.2``; ``0`` if the message precedes the first turn"
    position: int
    "position of the message in its session, from 0"
    role: str
    "role of the message"
    snippet: str
    "text around the first match, on one line of at most 200 characters"
    score: float = 0.0
    "relevance, higher is better; scores of different searches cannot be compared"
    time: float | None = None
    "time of the message, in seconds since 1970; None if unknown"


def query_words(query: str) -> tuple[str, ...]:
    """Return the distinct words of a query.

    A word is a sequence of letters, marks and digits, where marks are the vowel signs, tone marks and
    points of many scripts. All other characters, including underscores, separate words. Case is ignored.

    Parameters
    ----------
    query : str
        Search query as a user wrote it.

    Returns
    -------
    tuple of str
        Case-folded words in order of first appearance.

    Examples
    --------
    >>> query_words('content:"read_file" OR Straße*')
    ('content', 'read', 'file', 'or', 'strasse')
    """
    return tuple(dict.fromkeys(split_words(query)))


def split_words(text: str) -> list[str]:
    """Split a string into words, keeping repeated words.

    Parameters
    ----------
    text : str
        String to split.

    Returns
    -------
    list of str
        Case-folded words in order of appearance; see ``query_words`` for what a word is.
    """
    folded = _fold_case(text)
    return (_ASCII_WORD if folded.isascii() else _non_ascii_words()).findall(folded)


def split_for_index(word: str) -> list[str]:
    """Split a word into the tokens that the full-text index stores.

    Most words are a single token. In scripts without spaces between words, such as Chinese and
    Thai, each letter is a token.

    Parameters
    ----------
    word : str
        Word as ``split_words`` returns it.

    Returns
    -------
    list of str
        Tokens of the word, in order.
    """
    return [word] if word.isascii() else _UNSPACED.sub(r" \1 ", word).split()


def contains_words(text: str, words: Iterable[str]) -> bool:
    """Return True if a string contains all words of a query.

    Parameters
    ----------
    text : str
        String to search.
    words : iterable of str
        Words as ``query_words`` returns them.

    Returns
    -------
    bool
        True if ``text`` contains every word as a whole word.
    """
    folded = _fold_case(text)
    return all(_word_pattern(word).search(folded) for word in words)


def search_messages(
    sessions: Iterable[tuple[str, Iterable[Message]]],
    query: str,
    limit: int = 20,
    offset: int = 0,
) -> list[SearchHit]:
    """Return the messages that contain all words of a query, best match first.

    Names and arguments of tool calls are searched as well. Only whole words match: ``test`` does not
    match ``tests``. The score is between 0 and 1. It increases with the frequency of the words and
    decreases with the length of the message. Messages with equal scores are returned in the order of
    ``sessions``, and within a session newest message first. A query without words finds nothing.

    ``sessions`` is iterated once. At most ``offset + limit`` messages are kept in memory.

    Parameters
    ----------
    sessions : iterable of tuple of str and iterable of Message
        Session id and all messages of each session.
    query : str
        Words to find.
    limit : int, default 20
        Maximum number of hits.
    offset : int, default 0
        Number of hits to skip.

    Returns
    -------
    list of SearchHit
        Matching messages, best match first.

    Examples
    --------
    >>> said = [Message("user", "Fix the parser"), Message("assistant", "The parser is fixed.")]
    >>> [(hit.label, hit.position, hit.role) for hit in search_messages([("a", said)], "PARSER fix")]
    [('1.1', 0, 'user')]
    """
    words = query_words(query)
    if not words or not limit:
        return []
    best = heapq.nsmallest(offset + limit, _iter_matches(sessions, words))
    return [
        SearchHit(
            id,
            label.turn,
            str(label),
            -back,
            m.role,
            make_snippet(message_text(m), words),
            -score,
            m.time,
        )
        for score, _, back, label, id, m in best[offset:]
    ]


def make_snippet(text: str, words: Sequence[str]) -> str:
    r"""Return the text around the first match of a query, on one line.

    Parameters
    ----------
    text : str
        Text of a message.
    words : sequence of str
        Words of the query, as ``query_words`` returns them.

    Returns
    -------
    str
        Snippet of at most ``SNIPPET_LENGTH`` characters, with ``…`` where text was cut off.

    Examples
    --------
    >>> make_snippet("one\ntwo " * 30 + "three", ["three"])[-17:]
    'two one two three'
    """
    text = _compose(text)
    folded = _fold_case(text)
    places = [m.start() for word in words if (m := _word_pattern(word).search(folded))]
    place = min(places, default=0)
    if len(folded) != len(text):  # case folding turned some letters into two
        place = _unfold_position(text, place)
    start = max(0, place - _SNIPPET_LEAD)
    cut = one_line(text[start : place + 4 * SNIPPET_LENGTH])
    shown = f"…{cut}" if text[:start].strip() else cut
    return shown if len(shown) <= SNIPPET_LENGTH else shown[: SNIPPET_LENGTH - 1] + "…"


_Match = tuple[float, int, int, TurnLabel, str, Message]


def _iter_matches(
    sessions: Iterable[tuple[str, Iterable[Message]]], words: Sequence[str]
) -> Iterator[_Match]:
    """Yield a tuple for every message that contains all words.

    The first elements of a tuple are the sort key. The smallest tuple is the best match.
    """
    patterns = [(word, _word_pattern(word)) for word in words]
    for number, (id, messages) in enumerate(sessions):
        counter = TurnCounter()
        for position, message in enumerate(messages):
            label = counter.add(message)
            folded = _fold_case(message_text(message))
            if not all(word in folded for word in words):
                continue  # test for substrings first, which is much faster than the patterns
            counts = [len(pattern.findall(folded)) for _, pattern in patterns]
            if all(counts):
                long = 0.5 + len(folded) / _TYPICAL_LENGTH
                score = sum(count / (count + long) for count in counts) / len(counts)
                yield -round(score, 6), number, -position, label, id, message


@lru_cache(maxsize=256)
def _word_pattern(word: str) -> re.Pattern[str]:
    spaced = rf"(?:[^\W_{_UNSPACED_RANGES}]|[{_marks(_UNSPACED_RANGES)}])"
    plain = re.escape(word)
    # The regular expression begins with the word, because Python searches for a fixed prefix quickly.
    before = "" if _UNSPACED.match(word[0]) else f"(?<!{spaced}{plain})"
    behind = "" if _UNSPACED.match(word[-1]) else f"(?!{spaced})"
    return re.compile(plain + before + behind)


@lru_cache(maxsize=1)
def _non_ascii_words() -> re.Pattern[str]:
    marks = _marks()
    return re.compile(rf"[{marks}]*[^\W_]+(?:[{marks}]+[^\W_]*)*")


@lru_cache(maxsize=2)
def _marks(without: str = "") -> str:
    r"""Return the marks of living scripts except some ranges. They are not matched by ``[^\W_]``."""
    left_out = re.compile(f"[{without}]") if without else None
    return "".join(
        character
        for character in map(chr, range(0x300, 0x10000))  # Python is slow with sets of larger ones
        if unicodedata.category(character) in ("Mn", "Mc")
        and not "\ufe00" <= character <= "\ufe0f"  # choose the style of an emoji
        and not (left_out and left_out.match(character))
    )


def _fold_case(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Without the dot that is left of the Turkish capital letter İ.
    return _compose(text).casefold().replace("i\u0307", "i")


def _compose(text: str) -> str:
    """Normalize a string to NFC, so that a letter with accents is a single character."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _unfold_position(text: str, place: int) -> int:
    """Convert a position in the case-folded form of ``text`` to a position in ``text``."""
    seen = 0
    for index, character in enumerate(text):
        if seen >= place:
            return index
        seen += len(_fold_case(character))
    return len(text)

"""Messages are found by their words, without an index: whatever can be read can be searched."""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ctxlab.context.turns import TurnCounter
from ctxlab.messages.types import Message, message_text
from ctxlab.sessions.base import SearchHit

__all__ = [
    "SNIPPET_LENGTH",
    "contains_words",
    "make_snippet",
    "query_words",
    "search_messages",
    "split_for_index",
    "split_words",
]

SNIPPET_LENGTH = 200
"""Characters of a snippet at most."""

_WORD = re.compile(r"[^\W_]+")
_SNIPPET_LEAD = 60  # characters of a snippet that stand before what was found
_TYPICAL_LENGTH = 2_000  # characters of a message of usual length
# Scripts that put no space between words: a letter of theirs is a word, and a word is found anywhere.
_UNSPACED_RANGES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_UNSPACED = re.compile(f"([{_UNSPACED_RANGES}])")
_SPACED = rf"[^\W_{_UNSPACED_RANGES}]"


def query_words(query: str) -> tuple[str, ...]:
    """The words of a query, each once; all else in it is no more than a space between them.

    Letters and digits make a word, an underscore does not; case does not matter.

    >>> query_words('content:"read_file" OR Straße*')
    ('content', 'read', 'file', 'or', 'strasse')
    """
    return tuple(dict.fromkeys(split_words(query)))


def split_words(text: str) -> list[str]:
    """The words of a text, each as often as it stands there."""
    return _WORD.findall(_fold_case(text))


def split_for_index(word: str) -> list[str]:
    """A word as an index takes it: letters that need no space between them are words of their own."""
    return [word] if word.isascii() else _UNSPACED.sub(r" \1 ", word).split()


def contains_words(text: str, words: Iterable[str]) -> bool:
    """Whether all of some words of ``query_words`` stand in a text."""
    folded = _fold_case(text)
    return all(_word_pattern(word).search(folded) for word in words)


def search_messages(
    sessions: Iterable[tuple[str, Iterable[Message]]],
    query: str,
    limit: int = 20,
    offset: int = 0,
) -> list[SearchHit]:
    """The messages that hold all words of a query, as ``SessionLibrary.search`` gives them.

    ``sessions`` are ids with all messages from the first; they are gone through once, and no more than
    ``offset + limit`` messages are held at a time. Tool names and arguments are searched as well. A
    word is found whole: ``test`` is not found in ``tests``. The score, between 0 and 1, grows with how
    often the words stand there and shrinks with the length of the message; of equal ones the earlier
    of ``sessions`` comes first, and in it the newer message. No word, no hit.

    >>> said = [Message("user", "Fix the parser"), Message("assistant", "The parser is fixed.")]
    >>> [(hit.turn, hit.position, hit.role) for hit in search_messages([("a", said)], "PARSER fix")]
    [(1, 0, 'user')]
    """
    words, wanted = query_words(query), max(0, offset) + max(0, limit)
    if not words or not wanted:
        return []
    best = heapq.nsmallest(wanted, _iter_matches(sessions, words))
    return [
        SearchHit(
            id,
            turn,
            -back,
            message.role,
            make_snippet(message_text(message), words),
            -score,
            message.time,
        )
        for score, _, back, turn, id, message in best[max(0, offset) :]
    ]


def make_snippet(text: str, words: Sequence[str]) -> str:
    """What stands around the first of some words, on one line of ``SNIPPET_LENGTH`` characters.

    ``words`` are those of ``query_words``.

    >>> make_snippet("one\\ntwo " * 30 + "three", ["three"])[-17:]
    'two one two three'
    """
    text = _compose(text)
    folded = text.casefold()
    places = [m.start() for word in words if (m := _word_pattern(word).search(folded))]
    place = min(places, default=0)
    if len(folded) != len(text):  # some letters fold to two
        place = _unfold_position(text, place)
    start = max(0, place - _SNIPPET_LEAD)
    cut = " ".join(text[start : place + 4 * SNIPPET_LENGTH].split())
    cut = "".join(c if c.isprintable() else "�" for c in cut)
    shown = f"…{cut}" if text[:start].strip() else cut
    return shown if len(shown) <= SNIPPET_LENGTH else shown[: SNIPPET_LENGTH - 1] + "…"


_Match = tuple[float, int, int, int, str, Message]


def _iter_matches(
    sessions: Iterable[tuple[str, Iterable[Message]]], words: Sequence[str]
) -> Iterator[_Match]:
    """Every message that holds the words, in an order of its own: the better ones are smaller."""
    patterns = [(word, _word_pattern(word)) for word in words]
    for number, (id, messages) in enumerate(sessions):
        turns = TurnCounter()
        for position, message in enumerate(messages):
            turn = turns.add(message)
            folded = _fold_case(message_text(message))
            if not all(word in folded for word in words):
                continue  # which is far quicker than the patterns
            counts = [len(pattern.findall(folded)) for _, pattern in patterns]
            if all(counts):
                long = 0.5 + len(folded) / _TYPICAL_LENGTH
                score = sum(count / (count + long) for count in counts) / len(counts)
                yield -round(score, 6), number, -position, turn, id, message


@lru_cache(maxsize=256)
def _word_pattern(word: str) -> re.Pattern[str]:
    before = "" if _UNSPACED.match(word[0]) else f"(?<!{_SPACED})"
    behind = "" if _UNSPACED.match(word[-1]) else f"(?!{_SPACED})"
    return re.compile(before + re.escape(word) + behind)


def _fold_case(text: str) -> str:
    return text.lower() if text.isascii() else _compose(text).casefold()


def _compose(text: str) -> str:
    """One letter is one character, however it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _unfold_position(text: str, place: int) -> int:
    """Where the character stands whose folded form is at ``place``."""
    seen = 0
    for index, character in enumerate(text):
        if seen >= place:
            return index
        seen += len(character.casefold())
    return len(text)

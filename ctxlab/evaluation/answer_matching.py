"""Compare replies with reference answers: exact match, token F1 and containment.

Strings are normalized as in SQuAD's script: they are lowercased, punctuation and articles (a, an,
the) are removed, and words are separated by single spaces. Cases that SQuAD does not define are
handled as follows:

- Unicode: strings are compared after NFKC normalization and case folding. Punctuation of
  every writing system is removed. Dashes between clauses, and runs of periods or hyphens, separate
  words. Other punctuation is removed without a space, as in SQuAD (``well-known`` becomes
  ``wellknown``).
- Numbers: ``1,000`` is ``1000`` and ``$5`` is ``5``, as in SQuAD. The decimal point in ``3.5`` is
  kept, and any other punctuation between digits is replaced by a space: ``10:30`` becomes
  ``10 30``.
- The articles are kept in a string that has no other words. The grade ``A`` is such an answer.
- Writing systems without spaces between words are compared by character, as in MLQA's script.

The script of LoCoMo, a data set of long conversations, scores replies differently. It stems words
(Porter) and also removes ``and``. For multi-hop questions it splits reply and answer at commas,
finds the highest F1 of each piece of the answer with any piece of the reply, and averages these. The
F1 computed in this module is therefore somewhat lower than that of LoCoMo's script, and it cannot be
compared with published figures.

References
----------
- SQuAD: rajpurkar.github.io/SQuAD-explorer, ``evaluate-v2.0.py``
- LoCoMo: github.com/snap-research/locomo, ``task_eval/evaluation.py``
- MLQA: github.com/facebookresearch/MLQA, ``mlqa_evaluation_v1.py``
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

_ARTICLES = frozenset(("a", "an", "the"))
_WORD_SEPARATORS = re.compile(r"\.{2,}|-{2,}|[—―⸺⸻]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MARKS_BETWEEN_DIGITS = re.compile(r"(?<=\d)(?!\.\d)(?:[^\w\s]|_)+(?=\d)")
_NON_DECIMAL_POINT = re.compile(r"\.(?!(?<=\d\.)\d)")
# Thai, Lao, Burmese, Khmer, kana and Han; also Hangul, because particles are attached to words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


class _PunctuationTable(dict[int, int | None]):
    """Table for ``str.translate`` that removes punctuation and currency signs, but not periods."""

    def __missing__(self, code: int) -> int | None:
        sign = chr(code)
        kind = unicodedata.category(sign)
        gone = sign in string.punctuation or kind[0] == "P" or kind == "Sc"
        self[code] = None if gone and sign != "." else code
        return self[code]


_PUNCTUATION = _PunctuationTable()


def normalize_answer(text: str) -> str:
    """Normalize a string: lowercase, without punctuation and articles, with single spaces.

    Parameters
    ----------
    text : str
        The string to normalize.

    Returns
    -------
    str
        Normalized words, separated by single spaces.

    Examples
    --------
    >>> normalize_answer("The  Eiffel-Tower, in Paris!"), normalize_answer("A")
    ('eiffeltower in paris', 'a')
    >>> normalize_answer("$1,250.50 at 10:30")
    '1250.50 at 10 30'
    """
    text = unicodedata.normalize("NFKC", text.replace("…", " ")).casefold()
    text = unicodedata.normalize("NFKC", text)
    text = _MARKS_BETWEEN_DIGITS.sub(" ", _THOUSANDS.sub("", _WORD_SEPARATORS.sub(" ", text)))
    words = _NON_DECIMAL_POINT.sub("", text.translate(_PUNCTUATION)).split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def contains_answer(text: str, answer: str) -> bool:
    """Check if a string contains an answer as whole words, after both are normalized.

    Parameters
    ----------
    text : str
        The string to search.
    answer : str
        The answer to find. An empty answer is never found.

    Returns
    -------
    bool
        True if the words of the answer occur in the string, adjacent and in order.

    Examples
    --------
    >>> contains_answer("They went to Paris, France in 2019.", "paris france")
    True
    >>> contains_answer("a parish", "Paris")
    False
    """
    wanted = padded_words(answer)
    return bool(wanted) and wanted in padded_words(text)


def padded_words(text: str) -> str:
    """Normalize a string and pad it with spaces, so that ``in`` matches whole words only.

    Parameters
    ----------
    text : str
        The string to normalize.

    Returns
    -------
    str
        Normalized words with a space before and after each; an empty string if there are no words.

    Examples
    --------
    >>> padded_words("Paris, France"), padded_words("...")
    (' paris france ', '')
    """
    words = _words(text)
    return f" {' '.join(words)} " if words else ""


def exact_match(reply: str, answers: Sequence[str]) -> bool:
    """Check if the normalized reply equals one of the normalized answers.

    Parameters
    ----------
    reply : str
        Reply of the model.
    answers : sequence of str
        Acceptable answers.

    Returns
    -------
    bool
        True if the reply equals an acceptable answer after normalization.

    Examples
    --------
    >>> exact_match("The Eiffel Tower.", ["Big Ben", "eiffel tower"])
    True
    >>> exact_match("", [""]), exact_match("x", [])
    (True, False)
    """
    said = normalize_answer(reply)
    return any(normalize_answer(answer) == said for answer in answers)


def token_f1(reply: str, answers: Sequence[str]) -> float:
    """Compute the token F1 of a reply: the highest F1 over all acceptable answers.

    F1 is the harmonic mean of the precision and recall of the shared words. As in SQuAD, F1 is 1 if
    both the reply and the answer have no words, and 0 if only one of them has none.

    Parameters
    ----------
    reply : str
        Reply of the model.
    answers : sequence of str
        Acceptable answers.

    Returns
    -------
    float
        F1 from 0 to 1; 0 if there are no acceptable answers.

    Examples
    --------
    >>> token_f1("a tall red tower", ["the red tower", "a bridge"]), token_f1("no idea", ["a bridge"])
    (0.8, 0.0)
    """
    said = _words(reply)
    return max((_shared_words_f1(said, _words(answer)) for answer in answers), default=0.0)


def _words(text: str) -> list[str]:
    return _WORD.findall(normalize_answer(text))


def _shared_words_f1(reply_words: list[str], answer_words: list[str]) -> float:
    if not reply_words or not answer_words:
        return float(reply_words == answer_words)
    same = (Counter(reply_words) & Counter(answer_words)).total()
    return 2 * same / (len(reply_words) + len(answer_words))

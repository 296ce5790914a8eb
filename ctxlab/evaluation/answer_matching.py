"""Compare replies with reference answers: exact match, token F1 and containment.

Texts are normalized as in SQuAD's script: lower case, no punctuation, no articles (a, an, the),
single spaces. Cases that SQuAD does not define are handled as follows:

- Unicode: compatible forms are equal (NFKC, case folded), and punctuation of every script is
  removed. Dashes between clauses, and runs of points or hyphens, separate words. Other marks are
  removed, as in SQuAD (``well-known`` becomes ``wellknown``).
- Numbers: ``1,000`` is ``1000`` and ``$5`` is ``5``, as in SQuAD. The point in ``3.5`` is kept, and
  any other mark between digits separates them: ``3.5`` is not ``35``, and ``10:30`` is not
  ``1030``.
- An answer that consists only of articles keeps them: the grade ``A`` is an answer.
- Scripts without spaces are compared by character, as in MLQA.

LoCoMo's own scoring differs: it stems words (Porter), also removes ``and``, and for multi-hop
questions splits reply and answer at commas and averages the best F1 of each part. F1 is therefore
somewhat lower here than in its script and cannot be compared with published figures.

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
# Thai, Lao, Burmese, Khmer, kana, Han; and Hangul, whose particles are attached to words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


class _PunctuationTable(dict[int, int | None]):
    """For ``str.translate``: remove punctuation and currency signs, keep the point for a later rule."""

    def __missing__(self, code: int) -> int | None:
        sign = chr(code)
        kind = unicodedata.category(sign)
        gone = sign in string.punctuation or kind[0] == "P" or kind == "Sc"
        self[code] = None if gone and sign != "." else code
        return self[code]


_PUNCTUATION = _PunctuationTable()


def normalize_answer(text: str) -> str:
    """Return a text in lower case without punctuation and articles, with single spaces.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    str
        The normalized text.

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
    """Check if a text contains an answer as whole words, both normalized.

    Parameters
    ----------
    text : str
        The text.
    answer : str
        The answer; an empty one is never contained.

    Returns
    -------
    bool
        True if the text contains the answer.

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
    """Return the normalized words of a text, padded with spaces so that ``in`` finds whole words.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    str
        The words between spaces; empty if there are none.

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
        The reply.
    answers : sequence of str
        Acceptable answers.

    Returns
    -------
    bool
        True if it does.

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
    """Compute the F1 of the words shared by reply and answer, for the best answer.

    As in SQuAD, if reply or answer has no words, F1 is 1 if both have none, else 0.

    Parameters
    ----------
    reply : str
        The reply.
    answers : sequence of str
        Acceptable answers.

    Returns
    -------
    float
        From 0 to 1; 0 without answers.

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

"""Entities are the typed tokens that an agent must get exactly right: paths, ids, numbers, dates.

They are what a language model cannot make up: a word like "file" needs no context, ``src/io.py`` does.
The patterns are deliberately plain; whatever they miss, they miss for every strategy alike.
"""

from __future__ import annotations

import math
import re
import string
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["KINDS", "Entity", "entities_in", "entities_of_leaf", "holds", "place_of", "words_of"]

KINDS: dict[str, str] = {
    "url": "a web address",
    "email": "an e-mail address",
    "date": "a date or a time stamp, written in digits",
    "path": "a file or folder: it has a slash or a file name's ending",
    "hash": "a hexadecimal number of seven digits or more, or a UUID",
    "id": "letters and digits in one token, such as HAT136 or mia_li_3668",
    "identifier": "a name of code: snake_case, camelCase, dotted.name, SCREAMING_CASE",
    "number": "a number of four digits or more, or with decimals",
    "value": "a whole argument of a few words that is none of these, such as a name",
}


class Entity(NamedTuple):
    """A typed token: its kind, one of ``KINDS``, and its text as it stands."""

    kind: str
    text: str


_URL = re.compile(r"https?://[^\s\"'<>()\[\]{}`\\,;]+")
_CHUNK = re.compile(r"[\w./@~+#:-]*[\w/]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?\S*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")
_HASH = re.compile(
    r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_ID = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?=.{4})[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
# Three digits in a row make mia_li_3668 an id; read_utf8 is a name of code.
_SNAKE = re.compile(r"(?!.*\d{3})(_*[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)+_*|__\w+__)")
_CAMEL = re.compile(r"[A-Za-z]*[a-z0-9][A-Z][A-Za-z0-9]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FILE = re.compile(r"[\w.@+-]*[A-Za-z_][\w@+-]*\.[a-z][a-z0-9]{0,4}")
_PATH = re.compile(r"(~|\.{1,2})?/?([\w.@+-]+/)*[\w.@+-]+/?")
_HIDDEN = re.compile(r"\.{1,2}/|\.\w")
_NUMBER = re.compile(r"\d+\.\d+|\d{4,}|\d{1,3}(,\d{3})+(\.\d+)?")
_PARTS = re.compile(r"::|[:#]")
_ENDINGS = frozenset(
    [
        "c",
        "cc",
        "cfg",
        "cpp",
        "cs",
        "css",
        "csv",
        "env",
        "go",
        "h",
        "hpp",
        "html",
        "ini",
        "ipynb",
        "java",
        "js",
        "json",
        "jsonl",
        "jsx",
        "kt",
        "lock",
        "log",
        "lua",
        "md",
        "mjs",
        "patch",
        "php",
        "pl",
        "proto",
        "py",
        "pyi",
        "rb",
        "rs",
        "rst",
        "sh",
        "sql",
        "svg",
        "swift",
        "tex",
        "toml",
        "ts",
        "tsv",
        "tsx",
        "txt",
        "vue",
        "xml",
        "yaml",
        "yml",
    ]
)
_SHORTEST = 3
_LONGEST = 200


def entities_in(text: str, most: int | None = None) -> tuple[Entity, ...]:
    """The distinct typed tokens of a text, in order; the first ``most`` where that is given.

    >>> [tuple(e) for e in entities_in("run pytest tests/test_io.py::test_read at 1a2b3c4d")]
    [('path', 'tests/test_io.py'), ('identifier', 'test_read'), ('hash', '1a2b3c4d')]
    """
    found: dict[Entity, None] = {}
    if "://" in text:
        found = {Entity("url", match[0].rstrip(".:")): None for match in _URL.finditer(text)}
        text = _URL.sub(" ", text)
    for chunk in dict.fromkeys(_CHUNK.findall(text)):
        if len(chunk) >= _SHORTEST and (entities := _classify(chunk)):
            found.update(dict.fromkeys(entities))
            if most is not None and len(found) >= most:
                break
    return tuple(found)[:most]


def entities_of_leaf(leaf: Any) -> tuple[Entity, ...]:
    """The entities of one argument: its typed tokens, or the whole value where it is short.

    >>> entities_of_leaf("Mia Li"), entities_of_leaf(250), entities_of_leaf("economy")
    ((Entity(kind='value', text='Mia Li'),), (Entity(kind='number', text='250'),), ())
    """
    if isinstance(leaf, bool) or leaf is None:
        return ()
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return ()
    if isinstance(leaf, (int, float)):
        text = str(leaf)
        return (Entity("number", text),) if len(text) >= _SHORTEST else ()
    text = leaf.strip()
    found = entities_in(text)
    if found or not _SHORTEST <= len(text) <= 60 or "\n" in text or text.count(" ") > 5:
        return found
    # One lower-case word is the vocabulary of a schema ("economy", "completed"), not a fact.
    plain = text.isalpha() and text.islower()
    return () if plain or not any(map(str.isalnum, text)) else (Entity("value", text),)


@lru_cache(maxsize=65536)
def _classify(chunk: str) -> tuple[Entity, ...]:
    if chunk.isalpha() and (chunk.islower() or chunk.istitle() or len(chunk) < _SHORTEST):
        return ()  # a plain word, as most are
    if _HIDDEN.match(chunk):  # ./run.sh and .github/ci.yml keep their dot, .read_all does not
        path = chunk.rstrip(".:#+-").removesuffix("/")
        if _SHORTEST <= len(path) <= _LONGEST and _kind(path) == "path":
            return (Entity("path", path),)
    chunk = chunk.strip(".:#+-").removesuffix("/") or chunk
    if not _SHORTEST <= len(chunk) <= _LONGEST:
        return ()
    if "@" in chunk and _EMAIL.fullmatch(chunk):
        return (Entity("email", chunk),)
    if chunk[0].isdigit() and _DATE.fullmatch(chunk):
        return (Entity("date", chunk),)
    if ":" in chunk or "#" in chunk:
        parts = [part for part in _PARTS.split(chunk) if part]
        if len(parts) > 1:
            return tuple(entity for part in parts for entity in _classify(part))
    found = _kind(chunk)
    return (Entity(found, chunk),) if found else ()


def _kind(token: str) -> str | None:
    if "/" in token and _PATH.fullmatch(token):
        # "and/or" is no path: it takes a root, a second slash, or a file name at the end.
        rooted = token[0] in "/~."
        return "path" if rooted or token.count("/") > 1 or "." in token or "_" in token else None
    if _FILE.fullmatch(token) and token.rsplit(".", 1)[1] in _ENDINGS:
        return "path"
    for kind, pattern in _TOKENS:
        if pattern.fullmatch(token):
            return kind
    return None


_TOKENS = (
    ("hash", _HASH),
    ("number", _NUMBER),
    ("identifier", _SNAKE),
    ("id", _ID),
    ("identifier", _CAMEL),
    ("identifier", _DOTTED),
)


_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACED = bytes(c if chr(c) in _WORD else 32 for c in range(256))


def words_of(text: str) -> set[bytes]:
    """The distinct ASCII words of a text: runs of letters, digits and ``_``; all else parts them.

    A text that holds an entity has all of the entity's words, so this is a quick sieve for ``holds``.

    >>> sorted(words_of("12→a.b c_d, a"))
    [b'12', b'a', b'b', b'c_d']
    """
    return set(text.encode("ascii", "replace").translate(_SPACED).split())


def holds(text: str, entity: str) -> bool:
    """Whether a text contains the entity as a whole: ``12`` is not in ``512``.

    >>> holds("see src/io.py:12", "src/io.py"), holds("5120", "512"), holds("x_512", "512")
    (True, False, False)
    """
    return place_of(text, entity) >= 0


def place_of(text: str, entity: str) -> int:
    """Where a text first contains the entity as a whole, as an offset in characters; -1: nowhere.

    Only ASCII letters, digits and ``_`` run on: what stands between other scripts is found.
    """
    start = text.find(entity)
    while start >= 0:
        stop = start + len(entity)
        if not (
            (start and text[start - 1] in _WORD and entity[0] in _WORD)
            or (stop < len(text) and text[stop] in _WORD and entity[-1] in _WORD)
        ):
            return start
        start = text.find(entity, start + 1)
    return -1

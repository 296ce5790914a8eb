"""Find entities: strings that an agent must reproduce exactly, such as paths, ids and dates.

A language model can guess a word like "file" without any context, but not a path like ``src/io.py``.
The entities in an action therefore show which information the model needs from its context. The
patterns are deliberately simple and miss some entities. This affects all strategies equally, so
comparisons of strategies stay fair.
"""

from __future__ import annotations

import math
import re
import string
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

EntityKind: TypeAlias = Literal[
    "url", "email", "date", "path", "hash", "id", "identifier", "number", "value"
]
"""Kinds of entities.

- ``url``: a web address that starts with ``http://`` or ``https://``
- ``email``: an email address
- ``date``: a date or time stamp in digits
- ``path``: a file or folder: a token with a slash or a file extension
- ``hash``: a hexadecimal number of seven digits or more, or a UUID
- ``id``: a token of letters and digits, such as HAT136 or mia_li_3668, or a quoted number of two or
  three digits, such as "250"
- ``identifier``: a name in code: snake_case, camelCase, dotted.name, SCREAMING_CASE
- ``number``: a number of four digits or more, or with decimals
- ``value``: a short argument of a tool call that contains none of the other kinds, such as a person's
  name
"""


class Entity(NamedTuple):
    """A path, id, date or similar string that an agent must reproduce exactly, with its kind."""

    kind: EntityKind
    "kind of the entity, such as ``path``"
    text: str
    "the entity as it is written in the searched text"


_URL = re.compile(r"https?://[^\s\"'<>()\[\]{}`\\,;]+")
_CHUNK = re.compile(r"[\w./@~+#:-]*[\w/]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?\S*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")
_HASH = re.compile(
    r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_ID = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?=.{4})[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
# A snake_case token with three consecutive digits, such as mia_li_3668, is an id; read_utf8 is not.
_SNAKE = re.compile(r"(?!.*\d{3})(_*[A-Za-z][A-Za-z0-9]*(_+[A-Za-z0-9]+)+_*|__\w+__)")
_CAMEL = re.compile(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FILE = re.compile(r"[\w.@+-]*\w[\w.@+-]*\.[a-z][a-z0-9]{0,4}")
_PATH = re.compile(r"(~|\.{1,2})?/?([\w.@+-]+/)*[\w.@+-]+")
_DOT_PATH = re.compile(r"\.{1,2}/|\.\w")
_NUMBER = re.compile(r"\d+\.\d+|\d{4,}")
_TOKEN_PATTERNS: tuple[tuple[EntityKind, re.Pattern[str]], ...] = (
    *(("hash", _HASH), ("number", _NUMBER), ("identifier", _SNAKE)),
    *(("id", _ID), ("identifier", _CAMEL), ("identifier", _DOTTED)),
)
_PART_SEPARATOR = re.compile(r"::|[:#]")
_SHORT_NUMBER = re.compile(r"\d{2,3}")
_FILE_EXTENSIONS = (
    "c cc cfg cpp cs css csv env go h hpp html ini ipynb java js json jsonl jsx kt lock log lua md mjs "
    "patch php pl proto py pyi rb rs rst sh sql svg swift tex toml ts tsv tsx txt vue xml yaml yml"
)
_KNOWN_EXTENSIONS = frozenset(_FILE_EXTENSIONS.split())
_MIN_CHARS = 3
_MAX_CHARS = 200
_MIN_INTEGER = 1000


def find_entities(text: str, limit: int | None = None) -> tuple[Entity, ...]:
    """Find the distinct entities of a string: paths, ids, dates and similar tokens.

    Parameters
    ----------
    text : str
        String to search.
    limit : int, optional
        Maximum number of entities to return. By default, all are returned.

    Returns
    -------
    tuple of Entity
        The URLs, followed by the other entities, both in order of appearance.

    Examples
    --------
    >>> [tuple(e) for e in find_entities("run pytest tests/test_io.py::test_read at 1a2b3c4d")]
    [('path', 'tests/test_io.py'), ('identifier', 'test_read'), ('hash', '1a2b3c4d')]
    """
    found: dict[Entity, None] = {}
    if "://" in text:
        found = {Entity("url", match[0].rstrip(".:")): None for match in _URL.finditer(text)}
        text = _URL.sub(" ", text)
    for entities in filter(None, map(_find_in_run, dict.fromkeys(_split_runs(text)))):
        found.update(dict.fromkeys(entities))
        if limit is not None and len(found) >= limit:
            break
    return tuple(found)[:limit]


@lru_cache(maxsize=2048, typed=True)  # typed, because True and 1.0 equal 1
def find_entities_in_value(value: Any) -> tuple[Entity, ...]:
    """Find the entities of one argument value of a tool call.

    A short string that contains no entity of another kind, such as a person's name, is an entity of
    the kind ``value``. A single lower-case word is not an entity, because it is usually an option of
    the tool. An integer of fewer than four digits is not an entity, because it stands in many texts
    by chance. A string of two or three digits is usually an identifier. It is an entity together
    with its double quotes, so that only a quoted number in JSON or code mentions it.

    Parameters
    ----------
    value : Any
        A leaf of the arguments: a string, a number, a bool or None.

    Returns
    -------
    tuple of Entity
        The distinct entities; empty for a bool or None.

    Examples
    --------
    >>> find_entities_in_value("Mia Li"), find_entities_in_value("economy")
    ((Entity(kind='value', text='Mia Li'),), ())
    >>> find_entities_in_value(250), find_entities_in_value("250")
    ((), (Entity(kind='id', text='"250"'),))
    """
    if isinstance(value, bool) or value is None:
        return ()
    if isinstance(value, (int, float)):
        chance = value == int(value) and abs(value) < _MIN_INTEGER if math.isfinite(value) else True
        return () if chance else (Entity("number", str(value)),)
    text = value.strip()
    if _SHORT_NUMBER.fullmatch(text):
        return (Entity("id", f'"{text}"'),)
    found = find_entities(text)
    if found or not _MIN_CHARS <= len(text) <= 60 or "\n" in text or text.count(" ") > 5:
        return found
    # One lower-case word is usually an enum value of a schema ("economy", "completed"), not a fact.
    plain = text.isalpha() and text.islower()
    means = any(map(str.isalpha, text)) or sum(map(str.isdigit, text)) > 4
    return (Entity("value", text),) if means and not plain else ()


def normalize_path(path: str, workspace: str = "") -> str:
    """Remove a leading ``./`` and the folder of the workspace from a path.

    Parameters
    ----------
    path : str
        Path as an agent wrote it.
    workspace : str, optional
        Absolute path of the folder in which the agent works.

    Returns
    -------
    str
        Path relative to the workspace if it lies in the workspace, otherwise the path.

    Examples
    --------
    >>> normalize_path("./src/io.py"), normalize_path("/repo/src/io.py", "/repo")
    ('src/io.py', 'src/io.py')
    """
    if workspace:
        path = path.removeprefix(f"{workspace}/")
    while path.startswith("./"):
        path = path[2:]
    return path


def folder_and_name(path: str) -> str | None:
    """Return the last two parts of a path, or None if it has only one.

    Parameters
    ----------
    path : str
        Path of a file or folder.

    Returns
    -------
    str or None
        Name of the folder and name of the file, joined by a slash.

    Examples
    --------
    >>> folder_and_name("/repo/src/io.py"), folder_and_name("io.py")
    ('src/io.py', None)
    """
    folder, slash, name = path.rpartition("/")
    folder = folder.rpartition("/")[2]
    return f"{folder}/{name}" if slash and any(map(str.isalnum, folder)) else None


def has_plain_characters(text: str, number: int) -> bool:
    """Return whether a string has enough letters and digits that belong to no entity.

    A word counts only if no part of it is an entity. A list of names therefore contains none.

    Parameters
    ----------
    text : str
        String to search, such as a line.
    number : int
        Number of letters and digits that are enough.

    Returns
    -------
    bool
        True if there are at least ``number`` of them.

    Examples
    --------
    >>> has_plain_characters("open src/io.py", 4), has_plain_characters("a_b.py, HAT136", 1)
    (True, False)
    """
    for word in text.split():  # one by one, because the first few are often enough
        number -= _count_plain_characters(word)
        if number <= 0:
            return True
    return number <= 0


@lru_cache(maxsize=65536)
def _count_plain_characters(word: str) -> int:
    """Count the letters and digits of a string without white space that belong to no entity."""
    if "://" in word:
        word = _URL.sub(" ", word)
    plain = (chunk for chunk in _CHUNK.findall(word) if not _classify_chunk(chunk))
    return sum([sum(map(str.isalnum, chunk)) for chunk in plain])


def _split_runs(text: str) -> list[str]:
    """Split a string at all ASCII characters that cannot be part of a chunk.

    A chunk lies within one of these runs. Splitting bytes is several times faster than the pattern of
    a chunk, and most runs are words that occur again and again.
    """
    encoded = text.encode("utf-8", "surrogatepass").translate(_RUN_TRANSLATION)
    return encoded.decode("utf-8", "surrogatepass").split()


@lru_cache(maxsize=65536)
def _find_in_run(run: str) -> tuple[Entity, ...]:
    if run.rstrip(".:").isalpha() and run.islower():
        return ()  # fast path, because most runs are plain words
    return tuple(each for chunk in _CHUNK.findall(run) for each in _classify_chunk(chunk))


@lru_cache(maxsize=65536)
def _classify_chunk(chunk: str) -> tuple[Entity, ...]:
    if chunk.isalpha() and (chunk.islower() or chunk.istitle() or len(chunk) < _MIN_CHARS):
        return ()  # fast path, because most chunks are plain words
    # ./run.sh and .github/ci.yml keep their dot, .read_all does not.
    if chunk[0] == "." and _DOT_PATH.match(chunk):
        path = chunk.rstrip(".:#+-").removesuffix("/")
        if _MIN_CHARS <= len(path) <= _MAX_CHARS and _classify_token(path) == "path":
            return (Entity("path", path),)
    chunk = chunk.strip(".:#+-").removesuffix("/") or chunk
    if not _MIN_CHARS <= len(chunk) <= _MAX_CHARS:
        return ()
    if "@" in chunk and _EMAIL.fullmatch(chunk):
        return (Entity("email", chunk),)
    if chunk[0].isdigit() and _DATE.fullmatch(chunk):
        return (Entity("date", chunk),)
    if ":" in chunk or "#" in chunk:
        parts = [part for part in _PART_SEPARATOR.split(chunk) if part]
        if len(parts) > 1:
            return tuple(entity for part in parts for entity in _classify_chunk(part))
    found = _classify_token(chunk)
    return (Entity(found, chunk),) if found else ()


def _classify_token(token: str) -> EntityKind | None:
    if token.isalpha():  # fast path: the other patterns need a digit or a punctuation mark
        return "identifier" if _CAMEL.fullmatch(token) else None
    if "/" in token and _PATH.fullmatch(token):
        if not any(map(str.isalnum, token)):
            return None  # "../.." names no folder
        # "and/or" is not a path. A path has a root, a second slash, a dot or an underscore.
        rooted = token[0] in "/~."
        return "path" if rooted or token.count("/") > 1 or "." in token or "_" in token else None
    if token.rpartition(".")[2] in _KNOWN_EXTENSIONS and _FILE.fullmatch(token):
        return "path"
    for kind, pattern in _TOKEN_PATTERNS:
        if pattern.fullmatch(token):
            return kind
    return None


_WORD_CHARS = frozenset(string.ascii_letters + string.digits + "_")
_WORD_TRANSLATION = bytes(c if chr(c) in _WORD_CHARS else 32 for c in range(256))
_RUN_CHARS = _WORD_CHARS | frozenset("./@~+#:-")  # those of _CHUNK
_RUN_TRANSLATION = bytes(c if c > 127 or chr(c) in _RUN_CHARS else 32 for c in range(256))


def ascii_words(text: str) -> set[bytes]:
    """Return the distinct ASCII words of a string, that is, sequences of letters, digits and ``_``.

    A string that contains an entity also contains all words of the entity. Comparing the words first
    is faster than calling ``contains_entity`` for every string.

    Parameters
    ----------
    text : str
        String to split.

    Returns
    -------
    set of bytes
        The words, encoded as ASCII.

    Examples
    --------
    >>> sorted(ascii_words("12→a.b c_d, a"))
    [b'12', b'a', b'b', b'c_d']
    """
    return set(text.encode("ascii", "replace").translate(_WORD_TRANSLATION).split())


def contains_entity(text: str, entity: str) -> bool:
    """Return whether a string contains an entity, such as a path, as a whole token.

    Parameters
    ----------
    text : str
        String to search.
    entity : str
        Text of the entity.

    Returns
    -------
    bool
        True if the entity occurs and is not part of a longer token, as ``find_entity_offset``
        defines it. For example, the string ``512`` does not contain the entity ``12``.

    Examples
    --------
    >>> contains_entity("see src/io.py:12", "src/io.py")
    True
    >>> contains_entity("5120", "512"), contains_entity("x_512", "512")
    (False, False)
    """
    return find_entity_offset(text, entity) >= 0


def find_entity_offset(text: str, entity: str, start: int = 0) -> int:
    """Return the offset of the first occurrence of an entity as a whole token in a string.

    An occurrence is part of a longer token if an ASCII letter, a digit or ``_`` precedes or follows
    it. Letters of other scripts do not count, so an entity within Chinese text is found.

    Parameters
    ----------
    text : str
        String to search.
    entity : str
        Text of the entity.
    start : int, default 0
        Offset at which the search starts.

    Returns
    -------
    int
        Offset in characters, or -1 if the string does not contain the entity.

    Examples
    --------
    >>> find_entity_offset("512 and 12", "12"), find_entity_offset("512", "12")
    (8, -1)
    """
    start = text.find(entity, start)
    while start >= 0:
        stop = start + len(entity)
        if not (
            (start and text[start - 1] in _WORD_CHARS and entity[0] in _WORD_CHARS)
            or (stop < len(text) and text[stop] in _WORD_CHARS and entity[-1] in _WORD_CHARS)
        ):
            return start
        start = text.find(entity, start + 1)
    return -1


_PATH_CHARS = _WORD_CHARS | frozenset(".~@")
_DIFF_PREFIX = re.compile(r"(?:^|[\s\"'])[ab]/\Z")


def find_path_offset(text: str, path: str, workspace: str = "", start: int = 0) -> int:
    """Return the offset of the first occurrence of a path that is not part of a longer path.

    A longer path that ends with ``path`` names another file, unless it only adds ``./``, the folder
    of the workspace, or the ``a/`` and ``b/`` of a diff.

    Parameters
    ----------
    text : str
        String to search.
    path : str
        Path, without a leading ``./`` and without the folder of the workspace.
    workspace : str, optional
        Absolute path of the folder in which the agent works.
    start : int, default 0
        Offset at which the search starts.

    Returns
    -------
    int
        Offset in characters, or -1 if the string does not contain the path.

    Examples
    --------
    >>> find_path_offset("see ./io.py", "io.py"), find_path_offset("see src/io.py", "io.py")
    (6, -1)
    >>> find_path_offset("see /repo/io.py", "io.py", workspace="/repo")
    10
    >>> find_path_offset("in build/tmp", "/tmp"), find_path_offset("--to=/tmp", "/tmp")
    (-1, 5)
    """
    start = find_entity_offset(text, path, start)
    while start >= 0:
        before = text[max(start - len(workspace) - 3, 0) : start]
        if not before.endswith("/"):
            # Other paths begin with a letter or digit, and find_entity_offset has checked them.
            if path[0] not in "/.~" or before[-1:] not in _PATH_CHARS:
                return start
        elif (
            (before.endswith("./") and not before.endswith("../"))
            or (workspace and before.endswith(f"{workspace}/"))
            or _DIFF_PREFIX.search(before[-3:])
        ):
            return start
        start = find_entity_offset(text, path, start + 1)
    return -1

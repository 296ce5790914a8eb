"""Mutate log files: each function changes a file in a way that damaged or hostile logs may have.

Files are dicts of content by name, as returned by ``samples.files_of``. ``mutated`` applies randomly
chosen mutations.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from samples import packed

Files: TypeAlias = dict[str, bytes]

JUNK: list[Any] = [None, True, -1, 10**30, 1e308, "", "\ud800", "x" * 300, [], {}, [[]], {"a": {}}]
NOISE = [b"", b"\x00", b"\xff\xfe", b'"', b"{", b"]", b"\n", b",", b"[" * 2000, b"NaN", b"\\u12"]
MARK = "\ue000mark\ue000"
DEEP = (900, 5_000, 100_000)
HUGE = 1_000_000


def mutated(files: Files, chance: random.Random) -> bytes:
    """Apply one or two random mutations and return the content of the resulting file."""
    if chance.random() < 0.2:
        return MUTATIONS[chance.choice(OF_BYTES)](packed(files), chance)
    name = chance.choice(list(files))
    content = MUTATIONS[chance.choice(list(MUTATIONS))](files[name], chance)
    if chance.random() < 0.3:
        content = MUTATIONS[chance.choice(OF_BYTES)](content, chance)
    return packed(files | {name: content})


def odd_values(content: bytes, chance: random.Random) -> bytes:
    """Replace values by junk, or delete them."""
    rows = _parsed(content)
    for _ in range(chance.randint(1, 3)):
        _spoil(rows, chance, copy.deepcopy(chance.choice(JUNK)))
    return _written(rows)


def same_ids(content: bytes, chance: random.Random) -> bytes:
    """Set all values whose key contains "id" to the same string, or some of them to 0 or 1."""
    rows = _parsed(content)
    for container, key in list(_places(rows)):
        if "id" in str(key).lower() and isinstance(container[key], (str, int)):
            container[key] = "same" if chance.random() < 0.8 else chance.randint(0, 1)
    return _written(rows)


def rows_again(content: bytes, chance: random.Random) -> bytes:
    """Repeat and shuffle the rows, or the elements of a list."""
    rows = _parsed(content)
    lists = [rows, *(c[k] for c, k in _places(rows) if isinstance(c[k], list) and len(c[k]) > 1)]
    chosen = chance.choice(lists)
    if chosen is rows or chance.random() < 0.5:
        chosen += copy.deepcopy(chance.choices(chosen, k=chance.randint(1, 4)))
    chance.shuffle(chosen)
    return _written(rows)


def deep(content: bytes, chance: random.Random) -> bytes:
    """Replace a value by a deeply nested one, at or beyond the depth that parsers accept."""
    depth = chance.choice(DEEP)
    opening, closing = chance.choice([("[", "]"), ('{"a":', "}")])
    return _with_text(content, chance, f"{opening * depth}0{closing * depth}")


def huge(content: bytes, chance: random.Random) -> bytes:
    """Replace a value by a string of about a million characters."""
    unit = chance.choice(["x", " ", "\\n", "é", "\\u0000", "line of text\\n"])
    return _with_text(content, chance, f'"{unit * (HUGE // len(unit))}"')


def odd_bytes(content: bytes, chance: random.Random) -> bytes:
    """Insert noise at random positions, or replace bytes by noise."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(content) + 1)
        stop = start + chance.choice([0, 0, 1, 5, len(content)])
        content = content[:start] + chance.choice(NOISE) + content[stop:]
    return content


def cut(content: bytes, chance: random.Random) -> bytes:
    """Remove the end or the beginning."""
    at = chance.randrange(len(content) + 1)
    return content[:at] if chance.random() < 0.8 else content[at:]


def binary(content: bytes, chance: random.Random) -> bytes:
    """Insert random bytes at the start or in the middle, or replace the content by them."""
    noise = chance.randbytes(chance.choice([1, 16, 4096]))
    at = chance.randrange(len(content) + 1)
    return chance.choice([noise, content[:at] + noise + content[at:], noise + content])


def encodings(content: bytes, chance: random.Random) -> bytes:
    """Change the encoding of the content or of its end, or add two byte order marks."""
    text = content.decode("utf-8", "replace")
    other = text.encode(
        chance.choice(["utf-16", "utf-16-le", "latin-1", "utf-32", "cp037"]), "replace"
    )
    at = chance.randrange(len(content) + 1)
    return chance.choice([other, content[:at] + other, b"\xef\xbb\xbf" * 2 + content])


def nul(content: bytes, chance: random.Random) -> bytes:
    """Insert NUL characters or their JSON escape."""
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.choice([b"\x00", b"\\u0000", b"\x00" * 4096]) + content[at:]


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    made.__name__: made
    for made in (
        odd_values,
        same_ids,
        rows_again,
        deep,
        huge,
        odd_bytes,
        cut,
        binary,
        encodings,
        nul,
    )
}
OF_BYTES = ("odd_bytes", "cut", "binary", "encodings", "nul")


def _parsed(content: bytes) -> list[Any]:
    """Parse a file with one JSON value, one value per line, or indented objects and other lines."""
    try:
        return [json.loads(content)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except ValueError:
        decoder, text = json.JSONDecoder(), content.decode()
        starts = (found.start() for found in re.finditer(r"^\{$", text, re.MULTILINE))
        return [decoder.raw_decode(text, start)[0] for start in starts]


def _written(rows: list[Any]) -> bytes:
    ends = "" if len(rows) == 1 else "\n"
    return "".join(json.dumps(row) + ends for row in rows).encode()


def _with_text(content: bytes, chance: random.Random, text: str) -> bytes:
    """Replace a random value by the given JSON text."""
    rows = _parsed(content)
    _spoil(rows, chance, MARK)
    return _written(rows).replace(json.dumps(MARK).encode(), text.encode(), 1)


def _spoil(value: Any, chance: random.Random, junk: Any) -> None:
    """Replace a random nested value by junk, or delete it."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = chance.choice(list(keys))
        inner = value[key]
        if isinstance(inner, (dict, list)) and chance.random() < 0.85:
            value = inner
            continue
        if junk != MARK and chance.random() < 0.2:
            del value[key]
        else:
            value[key] = junk
        return


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each nested container together with each of its keys or indexes."""
    stack = [value]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], (dict, list)):
                stack.append(container[key])

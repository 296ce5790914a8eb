"""JSON text is read fast where it is clean and still read where it is odd.

Logs hold what strict parsers refuse: lone surrogates, ``NaN``, very long integers. ``msgspec``
reads the ordinary line; the standard library gets a second try at what it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["dump_json", "iter_leaves", "parse_json", "repair_surrogates"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text stands for.

    Raises ``ValueError`` (``json.JSONDecodeError``, ``UnicodeDecodeError``) where it is not JSON, and
    for nesting deeper than the interpreter can follow.

    >>> parse_json('{"a": [1, NaN]}')
    {'a': [1, nan]}
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def dump_json(value: Any) -> str:
    """One line of JSON, UTF-8 where it can be and escaped where a lone surrogate forbids it.

    >>> dump_json({"a": "é"}), dump_json("\\ud800")
    ('{"a":"é"}', '"\\\\ud800"')
    """
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def iter_leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Every leaf of a JSON value with its path, in order, without recursion.

    >>> list(iter_leaves({"a": [1, {"b": "x"}], "c": None}))
    [('a[0]', 1), ('a[1].b', 'x'), ('c', None)]
    """
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, dict):
            stack.extend((f"{path}.{k}" if path else str(k), v) for k, v in reversed(node.items()))
        elif isinstance(node, list):
            stack.extend((f"{path}[{i}]", node[i]) for i in range(len(node) - 1, -1, -1))
        else:
            yield path, node


def repair_surrogates(text: str) -> str:
    """The text as UTF-8 can hold it: two halves of a character are joined, a single one is replaced.

    Logs and models write characters outside of the basic plane as two ``\\u`` escapes, and cut between
    them.

    >>> repair_surrogates("\\ud83d\\ude00 \\ud83d")
    '😀 \ufffd'
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

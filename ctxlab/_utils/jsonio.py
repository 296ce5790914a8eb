"""Read and write JSON quickly, including the irregular JSON of log files.

Log files contain values that strict parsers reject: lone surrogates, ``NaN`` and very long integers.
Each value is parsed with ``msgspec``. If ``msgspec`` rejects it, the slower parser of the standard
library is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON document.

    Raise ``ValueError`` (``json.JSONDecodeError`` or ``UnicodeDecodeError``) if the document is not
    valid JSON, or if it is nested too deeply for the Python interpreter.

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
        raise ValueError("the JSON is nested too deeply to be parsed") from None


def dump_json(value: Any) -> str:
    """Encode a value as compact JSON on a single line.

    Non-ASCII characters are kept as they are. If the value contains a lone surrogate, which UTF-8
    cannot encode, all non-ASCII characters are written as ``\\u`` escapes.

    >>> dump_json({"a": "é"}), dump_json("\\ud800")
    ('{"a":"é"}', '"\\\\ud800"')
    """  # noqa: D301 - mypy cannot parse it raw
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def iter_leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf of a JSON value, in document order.

    A leaf is a value that is neither an object nor a list. The function does not use recursion, so the
    depth of the value is not limited.

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
    """Make a string encodable as UTF-8: join surrogate pairs and replace lone surrogates.

    Logs and models write characters outside of the Basic Multilingual Plane as two ``\\u`` escapes. A
    string that was truncated between the two escapes ends with a lone surrogate.

    >>> repair_surrogates("\\ud83d\\ude00 \\ud83d")
    '😀 �'
    """  # noqa: D301 - mypy cannot parse it raw
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

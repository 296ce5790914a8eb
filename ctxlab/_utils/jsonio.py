"""Read and write JSON quickly, and tolerate the irregular JSON that logs contain.

Logs contain values that strict parsers reject: lone surrogates, ``NaN``, very long integers.
``msgspec`` parses first; the standard library parses what ``msgspec`` rejects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raise ``ValueError`` (``json.JSONDecodeError`` or ``UnicodeDecodeError``) if the text is not
    JSON, or if it is nested too deeply for the interpreter.

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
    """Return a value as one line of JSON, as UTF-8 text, or escaped if it contains a lone surrogate.

    >>> dump_json({"a": "é"}), dump_json("\\ud800")
    ('{"a":"é"}', '"\\\\ud800"')
    """  # noqa: D301 - mypy cannot parse it raw
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def iter_leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf of a JSON value, in order, without recursion.

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
    """Make a text encodable as UTF-8: join surrogate pairs and replace lone surrogates.

    Logs and models write characters outside of the Basic Multilingual Plane as two ``\\u`` escapes,
    and sometimes truncate between the two.

    >>> repair_surrogates("\\ud83d\\ude00 \\ud83d")
    '😀 �'
    """  # noqa: D301 - mypy cannot parse it raw
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

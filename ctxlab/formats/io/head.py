"""What a file begins with is read once, so that asking every format costs one read.

A format recognises a file by its content. ``FileHead`` gives it the JSON values that the file begins
with, also where the first value is longer than what was read: it is cut at the last place where it
can be closed. Every ``sniff`` is asked with one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ctxlab.formats.fields import parse_json_or_none
from ctxlab.formats.io.files import BOM, PathOrUrl, open_file

__all__ = ["FileHead", "close_truncated_json"]

_MAX_BYTES = 1 << 18
_MAX_ROWS = 50
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file, parsed when a format asks for it.

    >>> FileHead(b'{"a": 1}\\n{"b": 2}\\n').rows
    ({'a': 1}, {'b': 2})
    >>> FileHead(b'[{"a": 1,\\n "b": "cut he').rows
    ([{'a': 1}],)
    """

    first_bytes: bytes
    "the first 256 KiB at most"
    is_complete: bool = False
    "whether that is the whole file"

    @classmethod
    def from_file(cls, path: PathOrUrl) -> FileHead:
        """The head of a file; ``ReadError`` where it cannot be opened."""
        with open_file(path) as file:
            start = file.read(_MAX_BYTES + 1)
        return cls(start[:_MAX_BYTES].removeprefix(BOM), is_complete=len(start) <= _MAX_BYTES)

    @cached_property
    def rows(self) -> tuple[Any, ...]:
        """The first lines that are JSON (50 at most), or the one value that the file holds.

        Of a value that does not end within the head, the part that does.
        """
        lines = [line for line in self.first_bytes.splitlines() if line.strip()]
        if self.is_complete and (value := parse_json_or_none(self.first_bytes)) is not None:
            return (value,)
        complete = lines if self.is_complete or self.first_bytes.endswith(b"\n") else lines[:-1]
        # A line of a pretty-printed value is no row: it is indented or ends in a comma.
        flush = (line for line in complete[:_MAX_ROWS] if line[:1] in (b"{", b"["))
        rows = tuple(row for line in flush if (row := parse_json_or_none(line)) is not None)
        if rows:
            return rows
        value = parse_json_or_none(
            close_truncated_json(self.first_bytes.decode("utf-8", "replace"))
        )
        return () if value is None else (value,)

    @property
    def value(self) -> Any:
        """The first of the rows; None where there is none."""
        return self.rows[0] if self.rows else None


def close_truncated_json(text: str) -> str:
    """The longest beginning of a cut-off JSON text that is JSON once its brackets are closed.

    >>> close_truncated_json('{"a": [1, {"b": 2, "c": "thr')
    '{"a": [1, {"b": 2}]}'
    """
    closers: list[str] = []
    cut = 0
    for token in _TOKEN.finditer(text):
        kind = text[token.start()]
        if kind == '"':
            continue
        if kind in "[{":
            closers.append("]" if kind == "[" else "}")
        elif kind in "]}" and closers:
            closers.pop()
        cut = token.start() if kind == "," else token.end()
        if not closers:
            break
    return text[:cut] + "".join(reversed(closers))

"""The beginning of a file, read once and shared by all formats that try to recognise it.

``FileHead`` gives the JSON values at the beginning of a file. If the first value is longer than the
head, it is cut at the last place where its brackets can be closed. Each ``sniff`` function takes a
``FileHead``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ctxlab.formats.fields import parse_json_or_none
from ctxlab.formats.io.files import BOM, PathOrUrl, open_file

_MAX_BYTES = 1 << 18
_MAX_ROWS = 50
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)


@dataclass(frozen=True)
class FileHead:
    r"""The beginning of a file, parsed when a format asks for it.

    Examples
    --------
    >>> FileHead(b'{"a": 1}\n{"b": 2}\n').rows
    ({'a': 1}, {'b': 2})
    >>> FileHead(b'[{"a": 1,\n "b": "cut he').rows
    ([{'a': 1}],)
    """

    first_bytes: bytes
    "at most the first 256 KiB"
    is_complete: bool = False
    "True if that is the whole file"

    @classmethod
    def from_file(cls, path: PathOrUrl) -> FileHead:
        """Read the beginning of a file.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        FileHead
            The beginning.

        Raises
        ------
        ReadError
            If the file cannot be opened.
        """
        with open_file(path) as file:
            start = file.read(_MAX_BYTES + 1)
        return cls(start[:_MAX_BYTES].removeprefix(BOM), is_complete=len(start) <= _MAX_BYTES)

    @cached_property
    def rows(self) -> tuple[Any, ...]:
        """The first lines that are JSON (at most 50), or the one value of the file.

        A value that does not end within the head is truncated.
        """
        lines = [line for line in self.first_bytes.splitlines() if line.strip()]
        if self.is_complete and (value := parse_json_or_none(self.first_bytes)) is not None:
            return (value,)
        complete = lines if self.is_complete or self.first_bytes.endswith(b"\n") else lines[:-1]
        # Lines of a pretty-printed value are not rows: they are indented or end with a comma.
        flush = (line for line in complete[:_MAX_ROWS] if line[:1] in (b"{", b"["))
        rows = tuple(row for line in flush if (row := parse_json_or_none(line)) is not None)
        if rows:
            return rows
        text = self.first_bytes.decode("utf-8", "replace")
        value = parse_json_or_none(close_truncated_json(text))
        return () if value is None else (value,)

    @property
    def value(self) -> Any:
        """The first of the rows; None if there are none."""
        return self.rows[0] if self.rows else None


def close_truncated_json(text: str) -> str:
    """Return the longest prefix of a truncated JSON text that can be closed, with brackets closed.

    Parameters
    ----------
    text : str
        A JSON text that was cut off.

    Returns
    -------
    str
        The prefix and the missing closing brackets.

    Examples
    --------
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

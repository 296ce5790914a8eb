"""Read the beginning of a file, so that the formats can recognise the file.

The beginning is read once, as a ``FileHead``, and passed to the ``sniff`` function of each format.
``FileHead.rows`` contains the JSON values at the beginning of the file. If the first value is longer
than the part that was read, it is cut off after its last complete element.
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
    r"""The beginning of a file. It is parsed when ``rows`` or ``value`` is first accessed.

    Examples
    --------
    >>> FileHead(b'{"a": 1}\n{"b": 2}\n').rows
    ({'a': 1}, {'b': 2})
    >>> FileHead(b'[{"a": 1,\n "b": "cut he').rows
    ([{'a': 1}],)
    """

    first_bytes: bytes
    "the first 256 KiB of the file, or the whole file if it is shorter"
    is_complete: bool = False
    "True if ``first_bytes`` contains the whole file"

    @classmethod
    def from_file(cls, path: PathOrUrl) -> FileHead:
        """Read the beginning of a file.

        Parameters
        ----------
        path : str or Path
            Path or URL of the file.

        Returns
        -------
        FileHead
            The first 256 KiB of the decompressed file, without a byte order mark.

        Raises
        ------
        ReadError
            If the file cannot be opened or decompressed.
        """
        with open_file(path) as file:
            start = file.read(_MAX_BYTES + 1)
        return cls(start[:_MAX_BYTES].removeprefix(BOM), is_complete=len(start) <= _MAX_BYTES)

    @cached_property
    def rows(self) -> tuple[Any, ...]:
        """JSON values at the beginning of the file.

        For a JSONL file, the tuple contains the values of the first lines, at most 50. For a file
        with a single JSON value, the tuple contains this value. A value that is longer than
        ``first_bytes`` is cut off after its last complete element.
        """
        lines = [line for line in self.first_bytes.splitlines() if line.strip()]
        if self.is_complete and (value := parse_json_or_none(self.first_bytes)) is not None:
            return (value,)
        complete = lines if self.is_complete or self.first_bytes.endswith(b"\n") else lines[:-1]
        # The lines of a pretty-printed value are not rows. They are indented or end with a comma.
        flush = (line for line in complete[:_MAX_ROWS] if line[:1] in (b"{", b"["))
        rows = tuple(row for line in flush if (row := parse_json_or_none(line)) is not None)
        if rows:
            return rows
        text = self.first_bytes.decode("utf-8", "replace")
        value = parse_json_or_none(close_truncated_json(text))
        return () if value is None else (value,)

    @property
    def value(self) -> Any:
        """First element of ``rows``, or None if there are no rows."""
        return self.rows[0] if self.rows else None


def close_truncated_json(text: str) -> str:
    """Make truncated JSON text valid: remove its incomplete end and close the open brackets.

    Parameters
    ----------
    text : str
        JSON text of a list or an object that was cut off.

    Returns
    -------
    str
        The text up to its last complete element, and the missing closing brackets.

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

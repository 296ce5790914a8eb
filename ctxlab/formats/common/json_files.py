"""Reading of JSON values from a file that is JSONL, a JSON list or one JSON object.

Readers of exports and of logs that users write themselves accept all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ctxlab.formats.base import Source
from ctxlab.formats.fields import parse_json_or_none
from ctxlab.formats.io.head import FileHead

Location: TypeAlias = tuple[int, str]
"""The number and the unit of a value in a file, as ``Source.handle_errors`` takes them."""

_MAX_SNIFFED_LINES = 50


def read_json_values(source: Source) -> Iterator[tuple[Location | None, Any]]:
    """Read the values of a file that is JSONL, a JSON list or one JSON object.

    Parameters
    ----------
    source : Source
        The file.

    Yields
    ------
    tuple of int and str, or None
        The number and unit (``"line"`` or ``"element"``) of the value. None if the value is the
        whole file.
    Any
        The value.

    Raises
    ------
    ReadError
        If the file is not JSON, or a value is broken and ``on_error`` is ``"raise"``.
    """
    head = FileHead.from_file(source.path)
    value = parse_json_or_none(head.first_bytes) if head.is_complete else None
    if value is None and _is_jsonl(head):
        yield from (((line, "line"), row) for line, row in source.read_jsonl())
    elif isinstance(head.value, list):
        yield from (((index, "element"), each) for index, each in source.read_json_array())
    else:
        yield None, source.read_json()


def _is_jsonl(head: FileHead) -> bool:
    """Check whether a line is a complete value, which is not the case for a pretty-printed value.

    In a list with one element per line, each line ends with a comma.
    """
    *lines, last = head.first_bytes.split(b"\n")
    if not lines:
        return last[:1] == b"{"
    flush = (line for line in lines[:_MAX_SNIFFED_LINES] if line[:1] in (b"{", b"["))
    return any(parse_json_or_none(line) is not None for line in flush)

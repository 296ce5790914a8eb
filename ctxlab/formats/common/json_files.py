"""JSON is read alike whether a file holds it in lines, as a list or as one object.

Readers of what people export or log themselves need it: of request bodies, traces, LangChain's messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ctxlab.formats.base import Source
from ctxlab.formats.fields import parse_json_or_none
from ctxlab.formats.io.head import FileHead

__all__ = ["Location", "read_json_values"]

Location: TypeAlias = tuple[int, str]
"""The number and the unit of what is read, as ``Source.guard`` takes them."""

_MAX_SNIFFED_LINES = 50


def read_json_values(source: Source) -> Iterator[tuple[Location | None, Any]]:
    """What a file holds, whether it is JSONL, a JSON list or one JSON object.

    Each element comes with its place; None for what is the whole file.
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
    """Whether a line is a value by itself; in a value that is spread over lines none is.

    In a list of one element a line, a comma stands behind each.
    """
    *lines, last = head.first_bytes.split(b"\n")
    if not lines:
        return last[:1] == b"{"
    flush = (line for line in lines[:_MAX_SNIFFED_LINES] if line[:1] in (b"{", b"["))
    return any(parse_json_or_none(line) is not None for line in flush)

"""JSON is read alike whether a file holds it in lines, as a list or as one object.

Readers of what people export or log themselves need it: of request bodies, traces, LangChain's messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ctxlab.formats.base import Source
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import parsed

__all__ = ["Where", "values"]

Where: TypeAlias = tuple[int, str]
"""The number and the unit of what is read, as ``Source.guard`` takes them."""

_FIRST = 50


def values(source: Source) -> Iterator[tuple[Where | None, Any]]:
    """What a file holds, whether it is JSONL, a JSON list or one JSON object.

    Each element comes with its place; None for what is the whole file.
    """
    head = Head.of(source.path)
    value = parsed(head.start) if head.whole else None
    if value is None and _is_lines(head):
        yield from (((line, "line"), row) for line, row in source.rows())
    elif isinstance(head.value, list):
        yield from (((index, "element"), each) for index, each in source.items())
    else:
        yield None, source.value()


def _is_lines(head: Head) -> bool:
    """Whether a line is a value by itself; in a value that is spread over lines none is.

    In a list of one element a line, a comma stands behind each.
    """
    *lines, last = head.start.split(b"\n")
    if not lines:
        return last[:1] == b"{"
    flush = (line for line in lines[:_FIRST] if line[:1] in (b"{", b"["))
    return any(parsed(line) is not None for line in flush)

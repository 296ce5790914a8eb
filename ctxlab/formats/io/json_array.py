"""The elements of a JSON list are found one by one, so that a list of any length takes little memory.

Only brackets, commas and strings are looked at; each element is parsed by whoever takes it. So one that
is broken costs itself alone, and of a list that is cut off what is whole can be read. (A streaming
parser that keeps the path of every value takes memory with the square of the nesting: ijson takes
25 GB for 200 kB of brackets.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["iter_array_elements"]

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},]', re.DOTALL)
_CHUNK = 1 << 20


def iter_array_elements(file: BinaryIO, chunk_size: int = _CHUNK) -> Iterator[bytes]:
    r"""The JSON text of each element of the list that a file holds, in order.

    Raises ``ValueError`` where there is no list, and after the last whole element where the list
    does not end.

    >>> import io
    >>> list(iter_array_elements(io.BytesIO(b'[1, "a, b", {"c": [2, 3]}]')))
    [b'1', b'"a, b"', b'{"c": [2, 3]}']
    """
    buffer = b""
    # buffer[start:] is the element that is being read, of which buffer[:done] was looked at.
    start = depth = done = 0
    while more := file.read(
        max(chunk_size, len(buffer))
    ):  # twice as much, where an element is large
        buffer = buffer[start:] + more
        done -= start
        start = 0
        for token in _TOKEN.finditer(buffer, done):
            kind = buffer[token.start()]
            if kind == 0x22:  # "
                if not token[1]:
                    done = token.start()  # cut off: the next chunk holds the rest of it
                    break
            elif depth == 0:
                if kind != 0x5B or buffer[: token.start()].strip():  # [
                    raise ValueError("the file is no list")
                depth, start = 1, token.end()
            elif kind in b"[{":
                depth += 1
            elif kind in b"]}":
                depth -= 1
                if depth == 0:
                    if last := buffer[start : token.start()].strip():
                        yield last
                    return
            elif depth == 1:
                yield buffer[start : token.start()].strip()
                start = token.end()
            done = token.end()
        else:
            done = len(buffer)
    raise ValueError("the list does not end" if depth else "the file is no list")

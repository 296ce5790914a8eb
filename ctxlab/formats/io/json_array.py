"""Stream the elements of a JSON list with little memory.

Only brackets, commas and strings are scanned; the caller parses each element. A broken element
therefore affects only itself, and the complete elements of a truncated list can be read. (A
streaming parser that tracks the path of every value uses memory quadratic in the nesting depth:
ijson takes 25 GB for 200 kB of brackets.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},]', re.DOTALL)
_CHUNK = 1 << 20


def iter_array_elements(file: BinaryIO, chunk_size: int = _CHUNK) -> Iterator[bytes]:
    r"""Yield the JSON text of each element of the list in a file.

    Parameters
    ----------
    file : BinaryIO
        The file.
    chunk_size : int
        Number of bytes to read at once.

    Yields
    ------
    bytes
        The text of an element, without surrounding white space.

    Raises
    ------
    ValueError
        If the file is not a list, or, after the last complete element, if the list does not end.

    Examples
    --------
    >>> import io
    >>> list(iter_array_elements(io.BytesIO(b'[1, "a, b", {"c": [2, 3]}]')))
    [b'1', b'"a, b"', b'{"c": [2, 3]}']
    """
    buffer = b""
    # buffer[start:] is the current element; buffer[:done] has been scanned.
    start = depth = done = 0
    # The chunks grow with large elements, to keep scanning linear.
    while more := file.read(max(chunk_size, len(buffer))):
        buffer = buffer[start:] + more
        done -= start
        start = 0
        for token in _TOKEN.finditer(buffer, done):
            kind = buffer[token.start()]
            if kind == 0x22:  # "
                if not token[1]:
                    done = token.start()  # truncated: the rest is in the next chunk
                    break
            elif depth == 0:
                if kind != 0x5B or buffer[: token.start()].strip():  # [
                    raise ValueError("expected a JSON list")
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
    raise ValueError("the JSON list does not end" if depth else "expected a JSON list")

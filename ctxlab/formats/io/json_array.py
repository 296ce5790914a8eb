"""Read the elements of a JSON list one after another, with little memory.

This module only searches for brackets, commas and strings. The caller parses each element. If an
element is malformed or the list is cut off, the other elements can therefore still be read.

The streaming parser ijson is not used, because it tracks the path of every value. Its memory use is
quadratic in the nesting depth: it takes 25 GB for 200 kB of nested brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from ctxlab.formats.io.limits import MAX_VALUE_BYTES, too_long

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},]', re.DOTALL)
_CHUNK = 1 << 20


def iter_array_elements(
    file: BinaryIO, chunk_size: int = _CHUNK, limit: int = MAX_VALUE_BYTES
) -> Iterator[bytes]:
    r"""Yield the elements of a JSON list in a file, as unparsed JSON text.

    Parameters
    ----------
    file : BinaryIO
        A file that contains one JSON list.
    chunk_size : int
        Minimum number of bytes to read at once.
    limit : int
        Maximum size of an element in bytes.

    Yields
    ------
    bytes
        The JSON text of one element, without surrounding white space.

    Raises
    ------
    ValueError
        If the file does not contain a JSON list. If the list is cut off, or an element is too long,
        the error is raised after all complete elements before have been yielded.

    Examples
    --------
    >>> import io
    >>> list(iter_array_elements(io.BytesIO(b'[1, "a, b", {"c": [2, 3]}]')))
    [b'1', b'"a, b"', b'{"c": [2, 3]}']
    """
    buffer = b""
    # buffer[start:] is the current element; buffer[:done] has been scanned.
    start = depth = done = 0
    # The chunks grow with the buffer, so that the run time stays linear for large elements.
    while more := file.read(max(chunk_size, len(buffer))):
        buffer = buffer[start:] + more
        done -= start
        start = 0
        for token in _TOKEN.finditer(buffer, done):
            kind = buffer[token.start()]
            if kind == 0x22:  # "
                if not token[1]:
                    done = token.start()  # the string continues in the next chunk
                    break
            elif depth == 0:
                if kind != 0x5B or buffer[: token.start()].strip():  # [
                    raise ValueError(f"expected a JSON list, got {buffer.strip()[:20]!r}")
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
        if len(buffer) - start > limit:
            raise too_long("an element", limit=limit)
    raise ValueError("expected ] at the end of the JSON list" if depth else "expected a JSON list")

"""Limits on the memory that a file can occupy, and functions that read within them.

A log may come from somebody else. It may be damaged, or made to fill the memory: a compressed file
of a few kilobytes can contain gigabytes, and so can a line. Files are therefore read piece by piece,
no piece may be longer than ``MAX_VALUE_BYTES``, and no compressed file may expand without end.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

from typing_extensions import Buffer, override

MAX_VALUE_BYTES = 1 << 28
"""Largest piece of a file that is held in memory, in bytes (256 MiB): a line, an element of a JSON
list, a file that is one JSON value, a member of an archive, or a value in a database. The longest
lines of real logs contain screenshots and have some tens of megabytes. Parsed objects take several times
this size."""

MAX_EXPANSION = 1000
"""Largest ratio of the decompressed to the compressed size of a file whose content is larger than
``MAX_VALUE_BYTES``. Logs that repeat the whole conversation with each request reach some hundreds."""

_REMEDY = "split the file, or remove the long value"
_CHUNK = 1 << 20


class TooLongError(ValueError):
    """A piece of a file is too long to be held in memory."""


class ExpansionError(ValueError):
    """The content of a compressed file is too large for its compressed size."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Read at most ``size`` bytes."""


def limit_text(size: int = MAX_VALUE_BYTES) -> str:
    """Return a limit as text.

    Parameters
    ----------
    size : int
        The limit in bytes.

    Returns
    -------
    str
        The limit in MiB.

    Examples
    --------
    >>> limit_text()
    '256 MiB'
    """
    return f"{size / (1 << 20):,.4g} MiB"


def too_long(what: str, remedy: str = _REMEDY, limit: int = MAX_VALUE_BYTES) -> TooLongError:
    """Create the error about a piece of a file that is too long to be held in memory.

    Parameters
    ----------
    what : str
        The piece, such as ``"a line"``.
    remedy : str
        What the user can do, as an imperative.
    limit : int
        Maximum size in bytes.

    Returns
    -------
    TooLongError
        The error, whose message states the limit and the remedy.

    Examples
    --------
    >>> too_long("a line", remedy="split it")
    TooLongError('expected a line of at most 256 MiB, got more; split it')
    """
    return TooLongError(f"expected {what} of at most {limit_text(limit)}, got more; {remedy}")


def read_whole(file: _Readable, what: str = "a JSON value", limit: int = MAX_VALUE_BYTES) -> bytes:
    """Read the rest of a file into memory.

    Parameters
    ----------
    file : BinaryIO
        The file.
    what : str
        The content, for the error message.
    limit : int
        Maximum size in bytes.

    Returns
    -------
    bytes
        The content.

    Raises
    ------
    TooLongError
        If there are more bytes than the limit.

    Examples
    --------
    >>> read_whole(io.BytesIO(b"{}"))
    b'{}'
    """
    content = file.read(limit + 1)
    if len(content) > limit:
        raise too_long(what, limit=limit)
    return content


def iter_lines(
    file: BinaryIO, limit: int = MAX_VALUE_BYTES
) -> Iterator[tuple[int, bytes | TooLongError]]:
    r"""Read the lines of a file. A line that is too long is skipped without holding it in memory.

    Parameters
    ----------
    file : BinaryIO
        The file.
    limit : int
        Maximum size of a line in bytes.

    Yields
    ------
    int
        Number of the line, counted from 1.
    bytes or TooLongError
        The line with its line break, or the error that it is too long.

    Examples
    --------
    >>> [line if isinstance(line, bytes) else "long" for _, line in iter_lines(io.BytesIO(b"abc\nd"), 2)]
    ['long', b'd']
    """
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line
            continue
        del line
        while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
            pass
        yield number, too_long("a line", limit=limit)


class ExpansionGuard(io.RawIOBase):
    """A decompressed file that raises an error when it has become too large for its compressed size.

    Parameters
    ----------
    content : BinaryIO
        The decompressed file.
    packed : BinaryIO
        The compressed file that ``content`` reads.
    limit : int
        Size in bytes up to which any expansion is accepted.
    """

    def __init__(self, content: Any, packed: Any, limit: int = MAX_VALUE_BYTES) -> None:
        self._content, self._packed, self._limit = content, packed, limit

    @override
    def readable(self) -> bool:
        """Return True."""
        return True

    @override
    def seekable(self) -> bool:
        """Return True; a compressed file is decompressed again to seek backwards."""
        return True

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        """Read into a buffer, and check the expansion."""
        view = memoryview(buffer)
        chunk = self._content.read(len(view))
        view[: len(chunk)] = chunk
        self._check()
        return len(chunk)

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position in the decompressed content."""
        place: int = self._content.seek(offset, whence)
        self._check()
        return place

    @override
    def tell(self) -> int:
        """Return the position in the decompressed content."""
        place: int = self._content.tell()
        return place

    @override
    def close(self) -> None:
        """Close the decompressed file, but not the compressed one."""
        if not self.closed:
            self._content.close()
        super().close()

    def _check(self) -> None:
        size = self._content.tell()
        if size > self._limit and size > MAX_EXPANSION * self._packed.tell():
            raise ExpansionError(
                f"expected content of at most {MAX_EXPANSION:,} times the compressed size, got more "
                f"than {limit_text(size)} from {self._packed.tell():,} bytes, as in a decompression "
                "bomb; decompress the file yourself if you trust it"
            )

"""Read members of a zip archive in memory, without writing to disk.

A member that claims to expand to more than 256 MiB and to more than 200 times its compressed size
is refused, and no member is decompressed beyond its claimed size. Zstandard (method 93), which
``zipfile`` supports from Python 3.14 on, is handled here, because such a member may consist of
several frames and ``zipfile`` reads only the first. Inspect compresses its logs in this way.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from ctxlab.errors import ReadError
from ctxlab.formats.io.files import PathOrUrl, open_file, open_zstd

_MAGIC = b"PK\x03\x04"
_NAME_LENGTH_OFFSET = 26
_NAME_OFFSET = 30
_ZSTD_METHOD = 93
_MAX_MEMBER_BYTES = 1 << 28
_MAX_COMPRESSION_RATIO = 200


def first_member_name(start: bytes) -> str | None:
    r"""Return the name of the first member of a zip archive.

    Parameters
    ----------
    start : bytes
        The beginning of the file.

    Returns
    -------
    str or None
        The name, or None if the file is not a zip archive.

    Examples
    --------
    >>> first_member_name(b"PK\x03\x04" + bytes(22) + b"\x05\x00\x00\x00a.txtwhat it holds")
    'a.txt'
    """
    if not start.startswith(_MAGIC):
        return None
    length = int.from_bytes(start[_NAME_LENGTH_OFFSET : _NAME_LENGTH_OFFSET + 2], "little")
    return start[_NAME_OFFSET : _NAME_OFFSET + length].decode("utf-8", "replace")


@contextmanager
def open_zip(path: PathOrUrl) -> Iterator[ZipFile]:
    """Open a zip archive.

    Parameters
    ----------
    path : str or Path
        The file.

    Yields
    ------
    ZipFile
        The archive.

    Raises
    ------
    ReadError
        If the file cannot be read or is not a zip archive.
    """
    with open_file(path) as file:
        try:
            archive = ZipFile(file)
        except Exception as error:  # a broken table of contents raises many types
            raise ReadError(path, None, f"not a readable zip archive: {error}") from None
        with archive:
            yield archive


def read_member(archive: ZipFile, name: str) -> bytes:
    """Read a member of an archive.

    Parameters
    ----------
    archive : ZipFile
        The archive.
    name : str
        The name of the member.

    Returns
    -------
    bytes
        The content.

    Raises
    ------
    ValueError
        If the member is missing, broken, encrypted or refused.
    """
    try:
        info = archive.getinfo(name)
        if info.file_size > max(_MAX_MEMBER_BYTES, _MAX_COMPRESSION_RATIO * info.compress_size):
            said = f"{info.compress_size} compressed bytes would expand to {info.file_size}"
            raise ValueError(f"refused: {said}")
        if info.compress_type == _ZSTD_METHOD:
            return _read_zstd_member(archive, info)
        with archive.open(info) as file:
            # Read at most the claimed size, because a member may hold more.
            return file.read(info.file_size)
    except Exception as error:  # the type depends on the compression method
        raise ValueError(f"member {name}: {error or type(error).__name__}") from None


def _read_zstd_member(archive: ZipFile, info: ZipInfo) -> bytes:
    packed = copy.copy(info)
    packed.compress_type, packed.file_size = ZIP_STORED, info.compress_size
    del packed.CRC  # the checksum is of the uncompressed content
    with archive.open(packed) as file, open_zstd(cast(BinaryIO, file)) as content:
        value = content.read(info.file_size)
    if len(value) != info.file_size or zlib.crc32(value) != info.CRC:
        raise ValueError("the content does not match its size and checksum")
    return value

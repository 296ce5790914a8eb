"""A zip archive is read member by member, in memory, and nothing of it is ever written to disk.

A member that claims to unpack to more than 256 MiB and more than 200 times its packed size is
refused, and none is unpacked further than it claims. Zstandard (method 93), which ``zipfile`` reads
from Python 3.14 on, is read here: the writer of such members may have put it in several frames, of
which ``zipfile`` reads the first alone. Inspect packs its logs so.
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

__all__ = ["first_member_name", "open_zip", "read_member"]

_MAGIC = b"PK\x03\x04"
_NAME_LENGTH_OFFSET = 26
_NAME_OFFSET = 30
_ZSTD_METHOD = 93
_MAX_MEMBER_BYTES = 1 << 28
_MAX_COMPRESSION_RATIO = 200


def first_member_name(start: bytes) -> str | None:
    """The name of the first member of a zip archive that begins so; None where it is none.

    >>> first_member_name(b"PK\\x03\\x04" + bytes(22) + b"\\x05\\x00\\x00\\x00a.txtwhat it holds")
    'a.txt'
    """
    if not start.startswith(_MAGIC):
        return None
    length = int.from_bytes(start[_NAME_LENGTH_OFFSET : _NAME_LENGTH_OFFSET + 2], "little")
    return start[_NAME_OFFSET : _NAME_OFFSET + length].decode("utf-8", "replace")


@contextmanager
def open_zip(path: PathOrUrl) -> Iterator[ZipFile]:
    """The archive in a file; ``ReadError`` where it is none that can be read."""
    with open_file(path) as file:
        try:
            archive = ZipFile(file)
        except Exception as error:  # a broken table of contents raises many types
            raise ReadError(path, None, f"not a zip archive that can be read: {error}") from None
        with archive:
            yield archive


def read_member(archive: ZipFile, name: str) -> bytes:
    """What a member holds; ``ValueError`` where it is missing, broken, locked or refused."""
    try:
        info = archive.getinfo(name)
        if info.file_size > max(_MAX_MEMBER_BYTES, _MAX_COMPRESSION_RATIO * info.compress_size):
            said = f"{info.compress_size} bytes are to become {info.file_size}"
            raise ValueError(f"refused: {said}")
        if info.compress_type == _ZSTD_METHOD:
            return _read_zstd_member(archive, info)
        with archive.open(info) as file:
            # With a limit, since a member may hold more than its entry says.
            return file.read(info.file_size)
    except Exception as error:  # what a broken member raises depends on how it was packed
        raise ValueError(f"member {name}: {error or type(error).__name__}") from None


def _read_zstd_member(archive: ZipFile, info: ZipInfo) -> bytes:
    packed = copy.copy(info)
    packed.compress_type, packed.file_size = ZIP_STORED, info.compress_size
    del packed.CRC  # it is that of the content
    with archive.open(packed) as file, open_zstd(cast(BinaryIO, file)) as content:
        value = content.read(info.file_size)
    if len(value) != info.file_size or zlib.crc32(value) != info.CRC:
        raise ValueError("its content is not what was packed")
    return value

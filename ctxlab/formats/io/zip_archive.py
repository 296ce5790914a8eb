"""Read members of a zip archive into memory, without writing files to disk.

As a protection against zip bombs, an archive is refused if its members overlap, or if it declares a
content of more than ``MAX_EXPANSION`` times its own size. A member is refused if it declares more than
``MAX_VALUE_BYTES``. No member is decompressed beyond its declared size, and archives in archives are
not opened.

The logs of the evaluation framework Inspect AI are zip archives whose members may be compressed
with Zstandard (method 93). This module decompresses such members itself, for two reasons:
``zipfile`` supports Zstandard only since Python 3.14, and even then decompresses only the first
frame of a member that consists of several frames.
"""

from __future__ import annotations

import copy
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from ctxlab.errors import ReadError
from ctxlab.formats.io.files import PathOrUrl, open_file, open_zstd
from ctxlab.formats.io.limits import MAX_EXPANSION, MAX_VALUE_BYTES, limit_text, too_long

_MAGIC = b"PK\x03\x04"
_NAME_LENGTH_OFFSET = 26
_NAME_OFFSET = 30
_ZSTD_METHOD = 93


def first_member_name(start: bytes) -> str | None:
    r"""Return the name of the first member of a zip archive.

    Parameters
    ----------
    start : bytes
        The first bytes of the file, including the whole name.

    Returns
    -------
    str or None
        The name, or None if the file is not a zip archive.

    Examples
    --------
    >>> first_member_name(b"PK\x03\x04" + bytes(22) + b"\x05\x00\x00\x00a.txtcontent")
    'a.txt'
    """
    if not start.startswith(_MAGIC):
        return None
    length = int.from_bytes(start[_NAME_LENGTH_OFFSET : _NAME_LENGTH_OFFSET + 2], "little")
    return start[_NAME_OFFSET : _NAME_OFFSET + length].decode("utf-8", "replace")


@contextmanager
def open_zip(path: PathOrUrl) -> Iterator[ZipFile]:
    """Open a zip archive for reading.

    Parameters
    ----------
    path : str or Path
        Path or URL of the archive.

    Yields
    ------
    ZipFile
        The open archive.

    Raises
    ------
    ReadError
        If the file cannot be read, is not a zip archive, or has the signs of a zip bomb.
    """
    with open_file(path) as file:
        try:
            archive = ZipFile(file)
        except Exception as error:  # zipfile raises many types for a malformed archive
            raise ReadError(path, None, f"not a readable zip archive: {error}") from None
        with archive:
            _check_sizes(archive, file.seek(0, io.SEEK_END), path)
            yield archive


def _check_sizes(archive: ZipFile, size: int, path: PathOrUrl) -> None:
    """Raise an error if the members of an archive cannot be the content of a file of this size."""
    members = archive.infolist()
    packed, content = (sum(getattr(m, n) for m in members) for n in ("compress_size", "file_size"))
    remedy = "unpack it yourself if you trust it, and name the folder"
    if packed > size:
        reason = f"expected members of at most {size:,} bytes, got {packed:,}: they overlap"
        raise ReadError(path, None, f"{reason}, as in a zip bomb; {remedy}")
    if content > max(MAX_VALUE_BYTES, MAX_EXPANSION * size):
        allowed = f"at most {MAX_EXPANSION:,} times the size of the archive"
        reason = f"expected content of {allowed}, got {limit_text(content)}"
        raise ReadError(path, None, f"{reason}, as in a zip bomb; {remedy}")


def read_member(archive: ZipFile, name: str) -> bytes:
    """Read and decompress a member of a zip archive.

    Parameters
    ----------
    archive : ZipFile
        The open archive.
    name : str
        Name of the member.

    Returns
    -------
    bytes
        The decompressed content of the member.

    Raises
    ------
    ValueError
        If the member is missing, damaged or encrypted, or if its declared size is too large.
    """
    try:
        info = archive.getinfo(name)
        if info.file_size > MAX_VALUE_BYTES:
            raise too_long(f"a member (this one has {info.file_size:,} bytes)")
        if info.compress_type == _ZSTD_METHOD:
            return _read_zstd_member(archive, info)
        with archive.open(info) as file:
            # Read at most the declared size, because the actual content may be longer.
            return file.read(info.file_size)
    except Exception as error:  # the type depends on the compression method
        raise ValueError(f"member {name}: {error or type(error).__name__}") from None


def _read_zstd_member(archive: ZipFile, info: ZipInfo) -> bytes:
    packed = copy.copy(info)
    packed.compress_type, packed.file_size = ZIP_STORED, info.compress_size
    del packed.CRC  # this checksum belongs to the decompressed content
    with archive.open(packed) as file, open_zstd(cast(BinaryIO, file)) as content:
        value = content.read(info.file_size)
    if len(value) != info.file_size or zlib.crc32(value) != info.CRC:
        raise ValueError("the content does not match the size and checksum in the archive")
    return value

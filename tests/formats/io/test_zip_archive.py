"""Tests of zip archives, which are read in memory, and of their errors."""

from __future__ import annotations

import random
import struct
import sys
import tempfile
import zipfile
import zlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import ReadError
from ctxlab.formats.io.limits import MAX_VALUE_BYTES
from ctxlab.formats.io.zip_archive import first_member_name, open_zip, read_member

CONTENT = b'{"a": "' + b"some text " * 500 + b'"}'


def pack(path: Path, content: bytes = CONTENT, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("a.json", content)
    return path


def claim(path: Path, **fields: int) -> None:
    """Change fields of the only member in both headers of the archive."""
    data = bytearray(path.read_bytes())
    places = {"method": ("<H", 8, 10), "crc": ("<I", 14, 16), "size": ("<I", 22, 24)}
    for name, value in fields.items():
        code, local, central = places[name]
        struct.pack_into(code, data, data.find(b"PK\x03\x04") + local, value)
        struct.pack_into(code, data, data.find(b"PK\x01\x02") + central, value)
    path.write_bytes(data)


def zstd(path: Path, *frames: bytes) -> Path:
    """Write an archive of one member compressed with Zstandard, which ``zipfile`` cannot write."""
    library = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    compress = import_module(library).compress
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", b"".join(map(compress, frames)))
    whole = b"".join(frames)
    claim(path, method=93, crc=zlib.crc32(whole), size=len(whole))
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_member_is_read_as_it_was_packed(tmp_path: Path, method: int) -> None:
    with open_zip(pack(tmp_path / "a.zip", method=method)) as archive:
        assert read_member(archive, "a.json") == CONTENT
    assert first_member_name((tmp_path / "a.zip").read_bytes()) == "header.json"
    assert first_member_name(CONTENT) is None


def test_zstandard_is_read_in_one_frame_and_in_several(tmp_path: Path) -> None:
    for frames in ([CONTENT], [CONTENT, b"more", CONTENT]):
        with open_zip(zstd(tmp_path / "a.zip", *frames)) as archive:
            assert read_member(archive, "a.json") == b"".join(frames)


def test_a_member_that_unpacks_to_something_absurd_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", bytes(1000))
    claim(path, size=MAX_VALUE_BYTES)
    with open_zip(path) as archive:
        archive.getinfo("a.json").file_size += 1
        with pytest.raises(ValueError, match=r"a\.json: expected a member .* at most 256 MiB"):
            read_member(archive, "a.json")


def test_an_archive_that_claims_absurdly_much_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", bytes(1000))
    claim(path, size=MAX_VALUE_BYTES + 1)
    with pytest.raises(ReadError, match="1,000 times the size of the archive"), open_zip(path):
        pass


def test_an_archive_whose_members_overlap_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip", random.Random(0).randbytes(5000))
    content = path.read_bytes()
    start, end = content.find(b"PK\x01\x02"), content.rfind(b"PK\x05\x06")
    entries = content[start:end] * 3  # three names for the same bytes
    tail = bytearray(content[end:])
    struct.pack_into("<HHI", tail, 8, 6, 6, len(entries))
    path.write_bytes(content[:start] + entries + tail)
    with pytest.raises(ReadError, match="they overlap, as in a zip bomb"), open_zip(path):
        pass


def test_no_member_is_unpacked_further_than_it_claims(tmp_path: Path) -> None:
    deflated = tmp_path / "b.zip"
    with zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", bytes(10**6))
    for path in (deflated, zstd(tmp_path / "c.zip", bytes(10**6))):
        claim(path, size=100)
        with open_zip(path) as archive, pytest.raises(ValueError, match=r"member a\.json"):
            read_member(archive, "a.json")


def test_a_member_that_is_missing_locked_or_of_another_method_is_told(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip")
    with open_zip(path) as archive:
        with pytest.raises(ValueError, match="no item named"):
            read_member(archive, "b.json")
        archive.getinfo("a.json").flag_bits |= 1
        with pytest.raises(ValueError, match="encrypted"):
            read_member(archive, "a.json")
        archive.getinfo("header.json").compress_type = 97
        with pytest.raises(ValueError, match=r"member header\.json: "):
            read_member(archive, "header.json")


def test_what_is_no_archive_is_told_with_its_path(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ReadError, match="not a readable zip archive"), open_zip(path):
        pass


@given(seed=st.integers(min_value=0, max_value=2**32))
def test_odd_bytes_raise_nothing_but_what_is_said(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = pack(Path(folder, "a.zip"), method=chance.choice([0, 8, 12, 14]))
        content = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.choice([0, 1, 80, 127, 255])
        path.write_bytes(content)
        with suppress(ReadError, ValueError), open_zip(path) as archive:
            for name in archive.namelist():
                read_member(archive, name)

"""Tests of finding and opening files: plain or compressed, local or at a URL."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from backports import zstd

from ctxlab.errors import DataMissing, ReadError, SpecError, UnknownName
from ctxlab.formats import load
from ctxlab.formats.io.datasets import bundled_path
from ctxlab.formats.io.files import find_files, open_file

CHAT = b'{"role":"user","content":"hi"}\n{"role":"assistant","content":"ho"}\n'
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("runs/b.jsonl", CHAT)
        made.writestr("runs/a.jsonl.gz", gzip.compress(CHAT))
        made.writestr("LICENSE", "You may.")
    return path


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_file_is_read_as_what_it_holds(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(PACKERS[suffix](CHAT))
    (recording,) = load(path)
    assert (recording.id, len(recording.messages)) == ("a", 2)


def test_how_a_file_is_packed_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(CHAT))
    (tmp_path / "b.gz").write_bytes(CHAT)
    assert [len(recording.messages) for recording in load(tmp_path)] == [2, 2]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_packed_file_names_itself(tmp_path: Path, suffix: str, damage: str) -> None:
    packed = PACKERS[suffix](CHAT * 5000)
    path = tmp_path / f"a.jsonl.{suffix}"
    middle = len(packed) // 2
    path.write_bytes(packed[:middle] + (b"\x00" * 40 if damage == "changed" else b""))
    with pytest.raises(ReadError, match=rf"a\.jsonl\.{suffix}"):
        list(load(path))


def test_an_archive_is_a_folder_by_its_address(archive: Path) -> None:
    told: list[str] = []
    recordings = list(load(f"zip://::{archive}", on_skip=lambda path, why: told.append(str(path))))
    assert [recording.id for recording in recordings] == ["runs/a", "runs/b"]
    assert recordings[1].source == f"zip://runs/b.jsonl::{archive}"
    assert told == [f"zip://LICENSE::{archive}"]
    assert [r.id for r in load(f"zip://runs::{archive}")] == ["a", "b"]


def test_a_glob_and_a_file_of_an_archive_are_addresses_too(archive: Path) -> None:
    assert [r.id for r in load(f"zip://runs/*.jsonl::{archive}")] == ["b"]
    assert [r.id for r in load(f"zip://runs/a.jsonl.gz::{archive}")] == ["a"]


def test_any_file_system_of_fsspec_will_do() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/bucket/deep/a.jsonl", CHAT)
    fs.pipe("/bucket/b.jsonl", CHAT)
    try:
        assert [r.id for r in load("memory://bucket")] == ["b", "deep/a"]
        assert [r.source for r in load("memory://bucket/*.jsonl")] == ["memory:///bucket/b.jsonl"]
    finally:
        fs.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("memory://nothing/here", "no file"),
        ("nosuch://bucket/a", "nosuch"),
        ("zip://a::missing.zip", "missing.zip"),
        ("zip://nothing/*.jsonl::{archive}", "no file"),
    ],
)
def test_an_address_that_leads_nowhere_is_said_at_once(
    archive: Path, address: str, reason: str
) -> None:
    with pytest.raises(ReadError, match=reason):
        load(address.format(archive=archive))


def test_a_broken_line_names_the_address(archive: Path) -> None:
    with zipfile.ZipFile(archive, "a") as made:
        made.writestr("runs/c.jsonl", CHAT + b"{broken\n")
    with pytest.raises(ReadError, match=r"zip://runs/c\.jsonl::.*logs\.zip:3: not JSON"):
        list(load(f"zip://runs/c.jsonl::{archive}"))


def test_files_of_one_folder_stand_together(tmp_path: Path) -> None:
    for name in ("a/b/1", "a/2", "a/c/3", "a/z"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CHAT)
    assert [found.name for found in find_files(tmp_path)] == ["a/2", "a/z", "a/b/1", "a/c/3"]


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="gone: No such file"), open_file(tmp_path / "gone"):
        pass


def test_an_empty_path_is_refused_and_not_the_current_folder() -> None:
    with pytest.raises(SpecError, match="got an empty string"):
        load("")


def test_a_bundled_data_set_is_loaded_by_its_name() -> None:
    try:
        folder = bundled_path("datasets/coding-agent")
    except DataMissing:
        pytest.skip("the bundled recordings are not there")
    assert list(load("bundled:coding-agent")) == list(load(folder))
    first = min(folder.glob("*.jsonl")).name
    assert list(load(f"bundled:coding-agent/{first}")) == list(load(folder / first))
    with pytest.raises(UnknownName, match="did you mean coding-agent"):
        load("bundled:coding-agents")


def test_a_folder_that_cannot_be_listed_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(CHAT)
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0)
    try:
        if os.access(locked, os.R_OK):
            pytest.skip("who may read everything is refused nothing")
        with pytest.raises(ReadError, match=r"locked: Permission denied"):
            load(tmp_path)
    finally:
        locked.chmod(0o700)

"""Tests of ``LoadReport``: ``load`` accounts for each file that it found."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from samples import HERE

from ctxlab.errors import ReadError
from ctxlab.formats import LoadReport, load

CHAT = '{"role":"user","content":"hi"}\n'


def accounted(report: LoadReport) -> dict[str, str]:
    """Return the format or the kind of each file by name."""
    return {Path(each.path).name: each.format or each.kind for each in report.files}


def test_files_count_as_they_are_read(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(CHAT)
    seen: list[tuple[int, int]] = []
    report = LoadReport(lambda report: seen.append((len(report.files), report.found)))
    stream = load(tmp_path, report=report)
    assert (report.found, report.files) == (3, [])
    list(stream)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_files_that_are_read_together_are_reported_one_by_one(tmp_path: Path) -> None:
    for name in ("1.json", "2.json"):
        shutil.copy(HERE / "openhands-completions.json", tmp_path / name)
    report = LoadReport()
    assert len(list(load(tmp_path, report=report))) == 1
    assert accounted(report) == dict.fromkeys(("1.json", "2.json"), "openhands-completions")
    assert report.count_files() == {"openhands-completions": 2}


def test_empty_lock_files_and_the_table_of_clusters_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(CHAT)
    (tmp_path / "a.lock").touch()
    (tmp_path / "clusters.tsv").write_text("file\tcluster\na.jsonl\tone\ngone.jsonl\ttwo\n")
    report, told = LoadReport(), list[str]()
    table = tmp_path / "clusters.tsv"
    found = load(
        tmp_path, clusters=table, report=report, on_skip=lambda path, why: told.append(why)
    )
    assert len(list(found)) == 1
    assert accounted(report) == {
        "a.jsonl": "native",
        "a.lock": "an empty file",
        "clusters.tsv": "the table of clusters",
    }
    assert report.remarks == [(table, "lines without a recording: gone.jsonl (3)")]
    assert told == ["lines without a recording: gone.jsonl (3)"]


@pytest.mark.skipif(os.name == "nt", reason="pipes have no names on Windows")
@pytest.mark.parametrize("pattern", ["", "*"])
def test_links_and_pipes_are_reported_and_never_an_error(tmp_path: Path, pattern: str) -> None:
    folder, beside = tmp_path / "folder", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    (beside / "b.jsonl").write_text(CHAT)
    (folder / "a.jsonl").write_text(CHAT)
    (folder / "to_file").symlink_to("a.jsonl")
    (folder / "gone").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "deep").mkdir()
    (folder / "deep" / "to_folder").symlink_to(beside)
    report = LoadReport()
    list(load(f"{folder}/{pattern}", report=report))
    assert accounted(report) == {
        "a.jsonl": "native",
        "to_file": "native",
        "gone": "a link to a file that does not exist",
        "loop": "a link to a file that does not exist",
        "pipe": "a pipe, a socket or a device",
        "to_folder": "a link to a folder, which is not followed",
    }
    assert report.found == 6


def test_files_that_cannot_be_read_are_reported_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(CHAT)
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08\x00\x00")
    (tmp_path / "cut.json").write_text('[{"task_id": 1, "traj": [{"role": "user", ')
    report = LoadReport()
    list(load(tmp_path, on_error="skip", report=report))
    kinds = {Path(each.path).name: (each.kind, each.advice) for each in report.unread}
    opened = "a file that cannot be opened: Compressed file ended before the end-of-stream marker"
    assert kinds == {
        "cut.gz": (
            f"{opened} was reached",
            "check its permissions, and that it was copied whole",
        ),
        "cut.json": (
            "a log in the tau-bench format that cannot be read: not JSON",
            "check that the file was copied whole",
        ),
    }
    with pytest.raises(ReadError):
        list(load(tmp_path, report=LoadReport()))

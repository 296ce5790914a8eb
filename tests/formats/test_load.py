"""Tests of ``load``: paths, skipped input, warnings, and unique ids."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from ctxlab.errors import ReadError, SpecError, UnknownFormat, UnknownName
from ctxlab.formats import load

CHAT = '{"role":"user","content":"hi"}\n'
CLAUDE = json.dumps({"type": "user", "uuid": "u", "message": {"role": "user", "content": "hi"}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "deep").mkdir(parents=True)
    (tmp_path / "runs" / "b.jsonl").write_text(CHAT)
    (tmp_path / "runs" / "a.json").write_text(CLAUDE + "\n")
    (tmp_path / "runs" / "deep" / "b.txt").write_text(CHAT)
    (tmp_path / "runs" / "LICENSE").write_text("You may.\n")
    return tmp_path / "runs"


def test_a_folder_is_read_in_order_with_ids_below_it(folder: Path) -> None:
    assert [recording.id for recording in load(folder)] == ["a", "b", "deep/b"]
    assert [recording.id for recording in load(folder.parent)][-1] == "runs/deep/b"


def test_what_no_reader_knows_in_a_folder_is_told(folder: Path) -> None:
    told: list[tuple[str, str]] = []
    list(load(folder, on_skip=lambda path, reason: told.append((path.name, reason))))
    assert told == [("LICENSE", "unknown format")]


def test_content_decides_and_not_the_name(folder: Path) -> None:
    assert [recording.format for recording in load(folder)] == ["claude-code", "native", "native"]


def test_a_byte_order_mark_and_other_line_ends_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + CHAT.encode().replace(b"\n", b"\r\n") * 2)
    (recording,) = load(path)
    assert len(recording.messages) == 2


def test_a_glob_gives_ids_below_its_plain_part(folder: Path) -> None:
    assert [each.id for each in load(f"{folder}/*.json*")] == ["a", "b"]
    assert [each.id for each in load(f"{folder}/**/b.*")] == ["b", "deep/b"]


def test_several_paths_are_one_stream_and_ids_stay_apart(folder: Path) -> None:
    paths: list[str | Path] = [
        folder / "b.jsonl",
        str(folder / "deep" / "b.txt"),
        folder / "a.json",
    ]
    assert [recording.id for recording in load(paths)] == ["b", "b#2", "a"]


def test_ids_are_the_same_each_time(folder: Path) -> None:
    assert [each.id for each in load(folder)] == [each.id for each in load(folder)]


def test_files_are_read_only_as_they_are_asked_for(folder: Path) -> None:
    (folder / "z.jsonl").write_text(CHAT + "broken\n")
    stream = load(folder)
    assert next(stream).id == "a"


def test_a_named_format_is_used_as_it_is_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text('{"type":"progress"}\n' * 60 + CLAUDE + "\n")
    with pytest.raises(UnknownFormat, match=r"the keys type\); known formats: native, .* --format"):
        list(load(path))
    (recording,) = load(path, format="claude-code")
    assert recording.skipped == {"row of type progress": 60}


def test_a_named_format_leaves_out_what_does_not_look_like_it_in_a_folder(folder: Path) -> None:
    told: list[str] = []
    only = list(load(folder, format="native", on_skip=lambda path, reason: told.append(reason)))
    assert [recording.id for recording in only] == ["b", "deep/b"]
    assert told == ["the content is not in the native format"] * 2


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.jsonl", "", "the file is empty"),
        ("blank.jsonl", " \n\n", "the file is empty"),
        ("prose.md", "# Title\n", "unknown format"),
        ("list.json", "[]", "unknown format"),
        ("quiet.jsonl", '{"type":"summary","leafUuid":"x"}\n', "the file contains no claude-code"),
    ],
)
def test_a_file_that_gives_nothing_is_an_error_alone_and_is_told_in_a_folder(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ReadError, match=reason):
        list(load(tmp_path / name))
    with pytest.raises(ReadError, match=r"found no recording \(files read: 1\)"):
        list(load(tmp_path))
    (tmp_path / "z.jsonl").write_text(CHAT)
    told: list[str] = []
    (recording,) = load(tmp_path, on_skip=lambda path, why: told.append(why))
    assert recording.id == "z"
    assert told[0].startswith(reason)


def test_a_broken_file_stops_a_folder_unless_skipping_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"task_id": 1, "traj": [{"role": "user", ')
    (tmp_path / "z.jsonl").write_text(CHAT)
    with pytest.raises(ReadError, match=r"a\.json:1: not JSON"):
        list(load(tmp_path))
    told: list[str] = []
    (recording,) = load(tmp_path, on_error="skip", on_skip=lambda path, why: told.append(why))
    assert recording.id == "z"
    assert told[0].startswith("not JSON")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("notes.txt", b"You may.", "unknown format"),
        ("empty.jsonl", b"", "the file is empty"),
        ("broken.json", b'[{"task_id": 1, "traj": [{"role": "user", ', "not JSON"),
        ("quiet.jsonl", b'{"type":"summary","leafUuid":"x"}\n', "the file contains no claude-code"),
        ("damaged.gz", b"\x1f\x8b\x08\x00\x00", "Compressed file ended"),
        ("damaged.db", b"SQLite format 3\0 and no more", "unknown format"),
    ],
)
def test_a_named_file_that_gives_nothing_is_skipped_beside_others_if_asked_for(
    folder: Path, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    bad, good = tmp_path / name, folder / "b.jsonl"
    bad.write_bytes(content)
    told: list[tuple[str, str]] = []
    paths = [good, bad, folder / "a.json"]
    found = load(
        paths, on_error="skip", on_skip=lambda path, why: told.append((Path(path).name, why))
    )
    assert [recording.id for recording in found] == ["b", "a"]
    ((skipped, why),) = told
    assert skipped == name
    assert why.startswith(reason)
    with pytest.raises(ReadError, match=name):
        list(load(paths))
    with pytest.raises(ReadError, match=name):
        list(load(bad, on_error="skip"))


def test_if_no_named_path_gives_a_recording_that_is_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_text("You may.")
    with pytest.raises(ReadError, match=r"a\.txt: found no recording \(paths read: 2\)"):
        list(load(paths, on_error="skip"))


def test_a_named_folder_without_recordings_is_skipped_beside_others_if_asked_for(
    folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text('{"spec": [')
    told: list[str] = []
    found = load(
        [run, folder], on_error="skip", on_skip=lambda path, why: told.append(Path(path).name)
    )
    assert len(list(found)) == 3
    assert told == ["manifest.json", "run", "LICENSE"]


def test_a_folder_that_cannot_be_listed_stops_unless_skipping_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def scandir(path: str) -> object:  # permissions do not stop a test that runs as root
        if str(path).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ReadError, match="deep: Permission denied"):
        load(folder)
    told: list[tuple[str, str]] = []
    found = load(
        folder, on_error="skip", on_skip=lambda path, why: told.append((Path(path).name, why))
    )
    assert [recording.id for recording in found] == ["a", "b"]
    assert told == [("deep", "Permission denied"), ("LICENSE", "unknown format")]


def test_a_path_that_is_not_there_is_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no such file or folder"):
        load(tmp_path / "absent")
    with pytest.raises(ReadError, match="no file matches"):
        load(f"{tmp_path}/*.absent")


def test_unknown_words_are_said_before_anything_is_read(folder: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean native"):
        load(folder, format="nativ")
    with pytest.raises(SpecError, match="raise or skip"):
        load(folder, on_error="ignore")  # type: ignore[arg-type]

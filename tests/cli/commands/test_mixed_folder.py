"""Tests of ``ctxlab describe`` on a folder of logs and other files: each file is accounted for once."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from running import PROGRAM, Run, a_recording
from samples import SAMPLES, files_of, packed

from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording

CHAT = b'{"role":"user","content":"hi"}\n{"role":"assistant","content":"ho"}\n'


def database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE orders (id INT)")
        return connection.serialize()


NO_LOGS: dict[str, bytes] = {
    "app.py": b"print(1)\n",
    "picture.png": b"\x89PNG\r\n\x1a\n\0\0",
    "prices.csv": b"id,price\n1,2\n3,4\n",
    "places.json": b'{"type": "FeatureCollection", "features": [{"type": "Feature"}]}',
    "empty.jsonl": b"",
    "cut.json": b'{"a": [1, 2], "b": [3',
    "cut.jsonl.gz": gzip.compress(CHAT)[:20],
    "cut.traj.json": b'[{"task_id": 1, "traj": [{"role": "user", ',
    "library.so": b"\x7fELF\x02\x01\0\0",
    "shop.db": database(),
    ".aider.chat.history.md": b"# aider chat started at 2026-01-02 03:04:05\n\n#### hi\n",
    "odd\x1b[31m\nname.txt": b"hello\n",
}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Return a folder of samples of many formats, other files, a broken link and a pipe."""
    folder = tmp_path / "mixed"
    contents = {f"logs/{each.name}": packed(files_of(each)) for each in SAMPLES[::5]}
    contents |= {f"other/{name}": content for name, content in NO_LOGS.items()}
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "gone.jsonl").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.jsonl")
    return folder


def test_each_file_of_a_mixed_folder_is_read_or_has_a_kind(run: Run, mixed: Path) -> None:
    said = run("describe", mixed, "--json")
    assert (said.code, said.err) == (0, "")
    files = json.loads(said.out)["files"]
    there = [os.path.join(at, name) for at, _, names in os.walk(mixed) for name in names]
    assert sorted(each["file"] for each in files) == sorted(there)
    assert all((each["format"] is None) != (each["kind"] is None) for each in files)
    read = {each["file"] for each in files if each["format"]}
    assert read == {path for path in there if f"{os.sep}logs{os.sep}" in path}


def test_the_output_for_a_mixed_folder_fits_80_columns(
    run: Run, mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = run("describe", mixed).out
    unread = len(NO_LOGS) + 2
    assert f"Not read: {unread} of {len(SAMPLES[::5]) + unread} files; --all lists them." in said
    assert max(map(len, said.split("\n"))) <= 80
    assert "\x1b" not in said


def test_many_recordings_of_several_formats_are_summed_up_by_format(
    run: Run, tmp_path: Path
) -> None:
    write([a_recording(n, turns=1) for n in range(20)], tmp_path / "a.jsonl")
    write([a_recording(n, turns=1) for n in range(10)], tmp_path / "b.jsonl")
    chats = [Recording(f"c{n}", (Message("user", "hi"),)) for n in range(5)]
    write(chats, tmp_path / "c.jsonl", "openai")
    rows = [line.split()[:4] for line in run("describe", tmp_path).out.split("\n")[2:5]]
    assert rows == [
        ["native", "2", "30", "150"],
        ["openai", "1", "5", "5"],
        ["all", "3", "35", "155"],
    ]
    few = run("describe", tmp_path, "--where", "messages<=4", "--all").out
    assert "Format: openai (1 file, 5 recordings, 5 messages)." in " ".join(few.split())


def test_if_no_file_of_a_folder_is_read_the_kinds_are_listed_before_the_error(
    run: Run, tmp_path: Path
) -> None:
    for name in ("app.py", "shop.db"):
        (tmp_path / name).write_bytes(NO_LOGS[name])
    said = run("describe", tmp_path)
    assert (said.code, said.out) == (2, "")
    assert "1 SQLite database of another program shop.db" in said.err
    assert "1 plain text                         app.py" in said.err
    assert "found no recording (files read: 2)" in said.err.split("\n")[-2]


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="a signal is sent as POSIX has it")
def test_a_cancelled_description_prints_nothing_else_and_leaves_no_process(tmp_path: Path) -> None:
    write([a_recording(n) for n in range(600)], tmp_path / "many.jsonl")
    command = [*PROGRAM, "describe", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        while not (workers := psutil.Process(started.pid).children()) and started.poll() is None:
            pass
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
    assert (started.returncode, out, err) == (130, b"", b"Cancelled\n")
    assert not any(worker.is_running() for worker in workers)


def test_the_kind_of_a_file_does_not_depend_on_its_names_and_tables(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "chat.jsonl").write_bytes(CHAT)
    for number in range(3):
        connection = sqlite3.connect(tmp_path / f"{number}.db")
        connection.execute(f"CREATE TABLE orders_{number} (id INT)")
        connection.close()
        (tmp_path / f"{number}.json").write_text(f'{{"key_{number}": [{{"a": 1}}]}}')
    files = json.loads(run("describe", tmp_path, "--json").out)["files"]
    assert Counter(each["kind"] for each in files if each["kind"]) == {
        "an SQLite database of another program": 3,
        "JSON in an unknown format": 3,
    }
    assert {each["detail"] for each in files if each["kind"]} == {
        *(f", with orders_{number}" for number in range(3)),
        *(f", with the keys key_{number}" for number in range(3)),
    }

"""Tests of logs that are made to do harm: reading one stays in its folder and in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.formats.io.files import open_file
from ctxlab.formats.io.json_array import iter_array_elements
from ctxlab.formats.io.limits import MAX_VALUE_BYTES, TooLongError, iter_lines, read_whole
from ctxlab.formats.io.sqlite_file import open_sqlite

CHAT = '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}\n'
SECRET = CHAT.replace("hi", "secret")


def texts(path: Path | str) -> list[str]:
    return [recording.messages[0].text for recording in load(path, on_error="skip")]


# --- what is read --------------------------------------------------------------------------------


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "a.jsonl").write_text(CHAT)
    (tmp_path / "secret.jsonl").write_text(SECRET)
    (folder / "b.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "c").symlink_to(tmp_path)
    skipped: dict[str, str] = {}
    for path in (folder, f"{folder}/*", f"{folder}/**/*.jsonl", folder.as_uri()):
        found = load(path, on_skip=lambda path, reason: skipped.update({Path(path).name: reason}))
        assert [recording.messages[0].text for recording in found] == ["hi"]
    assert "outside of the folder" in skipped["b.jsonl"]
    assert texts(folder / "b.jsonl") == ["secret"]  # the user named the link


@pytest.mark.skipif(os.name == "nt", reason="pipes have no names on Windows")
def test_a_pipe_in_a_folder_is_not_opened_at_a_file_url_either(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(CHAT)
    os.mkfifo(tmp_path / "b.jsonl")
    assert texts(tmp_path.as_uri()) == ["hi"]


def test_the_name_of_a_member_names_no_other_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "secret.zip", "w") as archive:
        archive.writestr("a.jsonl", SECRET)
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("a.jsonl", CHAT)
        archive.writestr(f"a.jsonl::{(tmp_path / 'secret.zip').as_uri()}", CHAT)
        archive.writestr("../b.jsonl", CHAT)
    skipped: list[str] = []
    address = f"zip://*::{tmp_path}/logs.zip"
    found = load(address, on_skip=lambda path, reason: skipped.append(reason))
    assert [recording.messages[0].text for recording in found] == ["hi"]
    assert [reason.rpartition(": ")[2] for reason in skipped] == [
        "a name that leads out of the archive or folder"
    ] * 2


# --- how much memory it takes --------------------------------------------------------------------


@pytest.mark.simulations(smoke=True)  # the other two take seconds to compress so much
@pytest.mark.parametrize("pack", [zstd.compress, bz2.compress, lzma.compress])
def test_a_decompression_bomb_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(pack(bytes(MAX_VALUE_BYTES + (1 << 21))))
    reason = r"a\.jsonl: expected content of at most 1,000 times the compressed size"
    with pytest.raises(ReadError, match=reason), open_file(path) as file:
        file.seek(0, io.SEEK_END)


def test_a_line_that_is_too_long_is_an_error_and_the_next_line_is_read() -> None:
    lines = list(iter_lines(io.BytesIO(b"a\n" + b"x" * 99 + b"\nb\n" + b"y" * 99), 10))
    assert [number for number, _ in lines] == [1, 2, 3, 4]
    assert [line for _, line in lines if isinstance(line, bytes)] == [b"a\n", b"b\n"]
    assert isinstance(lines[1][1], TooLongError)


def test_a_value_or_an_element_that_is_too_long_is_an_error() -> None:
    with pytest.raises(TooLongError, match="expected a JSON value of at most"):
        read_whole(io.BytesIO(b"x" * 11), limit=10)
    elements = iter_array_elements(io.BytesIO(b'[1, "' + b"x" * 100 + b'", 2]'), 8, 20)
    assert next(elements) == b"1"
    with pytest.raises(TooLongError, match="expected an element of at most"):
        next(elements)


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["long.jsonl", "long.csv", "inspect.json", "array.json"])
def test_a_file_with_one_value_of_two_gigabytes_is_refused_in_bounded_memory(
    tmp_path: Path, name: str
) -> None:
    start = {
        "long.jsonl": CHAT + CHAT.partition("hi")[0],
        "long.csv": "thread_id,role,content\n" + "1,user,hi\n" * 3 + "1,assistant,",
        "inspect.json": '{"eval": {"run_id": "a", "task": "t"}, "x": "',
        "array.json": '[{"task_id": 1, "traj": [{"role": "user", "content": "',
    }
    path = tmp_path / f"{name}.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(start[name].encode())
        for _ in range(2048):
            file.write(b"x" * (1 << 20))
    script = f"""
import resource
from ctxlab.errors import ReadError
from ctxlab.formats import load
try:
    list(load({str(path)!r}))
except ReadError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *said, peak = ran.stdout.splitlines()
    assert "of at most 256 MiB, got more; split the file" in said[0]
    assert int(peak) << 10 < 5 * MAX_VALUE_BYTES


# --- databases -----------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS a FROM n"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (f"CREATE VIEW t AS {ENDLESS}", "expected an ordinary table, got a view"),
        ("CREATE VIRTUAL TABLE t USING fts5(a)", "expected an ordinary table, got a view"),
        (
            "CREATE TABLE t (b, a AS (zeroblob(900000000))); INSERT INTO t VALUES (1)",
            "a value in the database of at most 256 MiB",
        ),
    ],
    ids=["view", "virtual", "computed"],
)
def test_only_ordinary_tables_of_a_database_are_read(
    tmp_path: Path, schema: str, reason: str
) -> None:
    path = tmp_path / "a.db"
    made = sqlite3.connect(path)
    made.executescript(schema)
    made.close()
    with pytest.raises(ReadError, match=reason), open_sqlite(path) as database:
        database.execute("SELECT a FROM t").fetchone()


@pytest.mark.parametrize("asked", ["ATTACH 'b.db' AS b", "SELECT load_extension('x')", "VACUUM"])
def test_a_database_is_only_queried(tmp_path: Path, asked: str) -> None:
    path = tmp_path / "a.db"
    sqlite3.connect(path).executescript("CREATE TABLE t (a)").connection.close()
    with pytest.raises(ReadError, match=r"a\.db: "), open_sqlite(path) as database:
        database.execute(asked)
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]


# --- odd numbers and texts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["1e999999", "-1e999999", "9" * 4000, "9" * 10_000_000, '"\\ud800\\u0000"', "[" * 100_000],
    ids=["huge", "negative", "long", "longer", "surrogate", "deep"],
)
def test_an_odd_value_costs_at_most_its_line(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.jsonl"
    odd = CHAT.replace('"hi"', f'"odd", "time": {value}, "usage": {{"prompt_tokens": {value}}}')
    path.write_text(CHAT + odd + CHAT)
    found = texts(path)
    assert (found[0], found[-1]) == ("hi", "hi")

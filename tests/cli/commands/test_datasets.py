"""Tests of ``ctxlab datasets``: it asks before a download, and resumes interrupted downloads."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from running import PROGRAM, Run, a_recording
from serving import Server

from ctxlab.formats import write
from ctxlab.formats.io.datasets import Dataset, DatasetFile, datasets, find_dataset

POSIX = pytest.mark.skipif(os.name == "nt", reason="terminals and signals as POSIX has them")


@pytest.fixture(autouse=True)
def alone(home: Path) -> None:
    """Use a separate folder of data sets for each test."""


@pytest.fixture
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Register a data set of one recording on the server for the duration of the test."""
    write([a_recording(0)], tmp_path / "published.jsonl")
    body = (tmp_path / "published.jsonl").read_bytes()
    server.files["/owner/tiny.jsonl"] = body
    file = DatasetFile(
        name="tiny.jsonl",
        address="https://published.example/owner/tiny.jsonl",
        bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
    )
    dataset = Dataset(
        name="tiny",
        meaning="one repair order",
        conversations=1,
        licence=find_dataset("locomo").licence,
        notice="Copyright (c) Nobody",
        homepage="https://published.example",
        glob="*.jsonl",
        files=(file,),
    )
    monkeypatch.setitem(datasets(), "tiny", dataset)
    return dataset


def test_the_list_names_every_set_its_size_its_licence_and_whether_it_is_here(
    run: Run, home: Path
) -> None:
    (home / "locomo").mkdir(parents=True)
    (home / "locomo" / "locomo10.json").write_text("[]")
    said = run("datasets", "list")
    assert said.code == 0
    lines = {line.split()[0]: " ".join(line.split()) for line in said.out.splitlines() if line}
    for name, dataset in datasets().items():
        assert dataset.licence.name in lines[name]
        assert lines[name].endswith(" not downloaded") == (name != "locomo")
    assert "10 2.81MB CC-BY-NC-4.0" in lines["locomo"]
    assert run("datasets", "list", "--data-dir", home.parent).out.count("/locomo") == 0


def test_a_narrow_list_breaks_no_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = run("datasets", "list").out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("datasets", "list").out
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.splitlines()[0].split() == wide.splitlines()[0].split()
    table, _, _ = narrow.partition("\n\n")
    assert set(table.split()) - {"CC-BY-", "NC-4.0", "Apache-", "2.0"} <= set(wide.split())


def test_info_says_everything(run: Run) -> None:
    said = run("datasets", "info", "locomo")
    dataset = find_dataset("locomo")
    assert said.code == 0
    for part in (
        dataset.citation,
        dataset.homepage,
        dataset.licence.means,
        dataset.files[0].address,
        dataset.files[0].sha256,
        "ctxlab datasets fetch locomo",
        "ctxlab describe dataset:locomo",
    ):
        assert str(part) in said.out


def test_info_says_where_no_hash_is_known(run: Run) -> None:
    assert "sha256 unknown" in run("datasets", "info", "pi-mono").out


def test_an_unknown_name_offers_similar_ones(run: Run) -> None:
    for command in ("info", "fetch"):
        said = run("datasets", command, "tau-bensh")
        assert said.code == 2
        assert "did you mean tau-bench" in said.err


def test_without_consent_nothing_is_asked_of_a_server(
    run: Run, server: Server, tiny: Dataset, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        said = run("datasets", "fetch", "tiny")
    assert (said.code, said.out) == (2, "")
    shown, last = said.err.rstrip("\n").rsplit("\n", 1)
    assert tiny.licence.means in shown
    assert "kB" in shown
    assert last == (
        "ctxlab: nothing was downloaded; to agree to the license, run: ctxlab datasets fetch tiny "
        "--yes"
    )
    assert server.asked == []
    assert not home.exists()


def test_what_was_agreed_to_is_fetched_and_can_be_used_by_name(
    run: Run, server: Server, tiny: Dataset, home: Path
) -> None:
    said = run("datasets", "fetch", "tiny", "--yes")
    assert (said.code, said.out) == (0, f"{home / 'tiny'}\n")
    assert tiny.licence.means in said.err
    assert "ctxlab describe dataset:tiny" in said.err
    assert "order-0" in run("describe", "dataset:tiny").out
    again = run("datasets", "fetch", "tiny")
    assert (again.code, again.out) == (0, said.out)
    assert "was already downloaded" in again.err
    assert len(server.asked) == 1


def test_a_folder_that_is_not_searched_is_named_by_its_path(
    run: Run, tiny: Dataset, tmp_path: Path
) -> None:
    said = run("datasets", "fetch", "tiny", "--yes", "--data-dir", tmp_path / "mine")
    assert f"ctxlab describe {tmp_path / 'mine' / 'tiny'}" in said.err
    assert "order-0" in run("describe", tmp_path / "mine" / "tiny").out


def test_what_is_not_here_names_the_command_that_fetches_it(run: Run) -> None:
    for command in ("describe", "eval"):
        said = run(command, "dataset:locomo")
        assert (said.code, said.out) == (2, "")
        assert "ctxlab datasets fetch locomo" in said.err


def test_a_file_without_a_known_hash_is_left_out_and_named(
    run: Run, server: Server, tiny: Dataset, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = server.files["/owner/tiny.jsonl"]
    server.files["/owner/odd.jsonl"] = body
    odd = DatasetFile(
        name="odd.jsonl", address="https://published.example/owner/odd.jsonl", bytes=len(body)
    )
    changed = type(tiny)(
        **{f: getattr(tiny, f) for f in tiny.__struct_fields__} | {"files": (*tiny.files, odd)}
    )
    monkeypatch.setitem(datasets(), "tiny", changed)
    assert "odd.jsonl was not downloaded" in run("datasets", "fetch", "tiny", "--yes").err
    assert not (home / "tiny" / "odd.jsonl").exists()
    said = run("datasets", "fetch", "tiny", "-y", "--sha256", hashlib.sha256(body).hexdigest())
    assert "not downloaded" not in said.err
    assert (home / "tiny" / "odd.jsonl").is_file()


def test_a_failure_is_one_sentence(run: Run, server: Server, tiny: Dataset, home: Path) -> None:
    server.files.clear()
    said = run("datasets", "fetch", "tiny", "--yes")
    assert (said.code, said.out) == (2, "")
    assert said.err.rstrip("\n").split("\n")[-1].endswith("returned status 404 Not Found")
    assert "Traceback" not in said.err


@pytest.mark.e2e
@POSIX
def test_on_a_terminal_the_person_is_asked(server: Server, home: Path) -> None:
    answers = {"n": [], "y": [urlsplit(find_dataset("locomo").files[0].address).path]}
    for answer, asked in answers.items():
        person, terminal = os.openpty()
        os.write(person, f"{answer}\n".encode())
        done = subprocess.run(
            [*PROGRAM, "datasets", "fetch", "locomo"],
            stdin=terminal, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        os.close(person)
        os.close(terminal)
        assert done.returncode == (130 if answer == "n" else 2)  # it has not what was asked for
        assert "non-commercial" in done.stderr.partition("Agree and download?")[0]
        assert [each.path for each in server.asked] == asked


@pytest.mark.e2e
@POSIX
def test_cancelling_keeps_what_has_arrived(server: Server, home: Path) -> None:
    file = find_dataset("tau-bench").files[0]
    server.files[urlsplit(file.address).path] = bytes(file.bytes)
    server.cut = 1 << 20
    server.hold.clear()
    part = home / "tau-bench" / f"{file.name}.part"
    command = [*PROGRAM, "datasets", "fetch", "tau-bench", "--yes"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 50
        while not (part.is_file() and part.stat().st_size >= 1 << 20):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "to continue, run: ctxlab datasets fetch tau-bench" in err
    assert err.rstrip().endswith("Cancelled")
    assert part.stat().st_size == 1 << 20
    assert [p.name for p in part.parent.iterdir()] == [part.name]

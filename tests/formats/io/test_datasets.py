"""Tests of named data sets: checksums, complete downloads, and the folders in which they are found."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import socket
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from msgspec.structs import replace
from running import a_recording
from serving import Asked, Server

from ctxlab.errors import DataMissing, SpecError, UnknownName
from ctxlab.evaluation.spec import Spec, read_spec, run_experiment
from ctxlab.formats import load, write
from ctxlab.formats.io.datasets import (
    Dataset,
    DatasetFile,
    data_dirs,
    dataset_path,
    datasets,
    find_dataset,
    local_dataset_dir,
)
from ctxlab.formats.io.download import fetch_dataset, files_to_fetch
from ctxlab.formats.io.files import find_files

CHAT = b'{"role":"user","content":"hi"}\n'
BODY = bytes(range(256)) * 2000
"more than the server and the client pass on at once"
PLAIN = re.compile(r"Traceback|HTTPConnectionPool|Errno|object at 0x")


@pytest.fixture(autouse=True)
def alone(home: Path) -> None:
    """Use a separate folder of data sets for each test."""


def a_dataset(*bodies: bytes, sha256: str | None = "") -> Dataset:
    """Return a data set of files ``0.jsonl``, …; ``sha256`` replaces the correct hashes."""
    files = tuple(
        DatasetFile(
            name=f"{number}.jsonl",
            address=f"https://published.example/owner/set/commit/{number}.jsonl",
            bytes=len(body),
            sha256=hashlib.sha256(body).hexdigest() if sha256 == "" else sha256,
        )
        for number, body in enumerate(bodies)
    )
    return Dataset(
        name="tiny",
        meaning="a few bytes",
        conversations=1,
        licence=find_dataset("tau-bench").licence,
        notice="Copyright (c) Nobody",
        homepage="https://published.example",
        glob="*.jsonl",
        files=files,
    )


def serve(server: Server, dataset: Dataset, *bodies: bytes) -> None:
    for file, body in zip(dataset.files, bodies, strict=True):
        server.files[urlsplit(file.address).path] = body


def left(home: Path) -> list[str]:
    return sorted(p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file())


# the table


def test_every_session_of_a_repository_has_a_cluster_and_a_place_in_its_repository() -> None:
    sessions = [each for each in datasets().values() if each.files[0].cluster]
    assert sum(len(each.files) for each in sessions) == 322
    for dataset in sessions:
        repository = dataset.homepage.removeprefix("https://github.com/")
        for file in dataset.files:
            assert file.cluster
            assert f"/{repository}/" in file.address
        assert repository in dataset.notice


def test_the_catalog_agrees_with_the_index_of_the_real_sessions(recorded: Path) -> None:
    tables = sorted(recorded.parent.glob("corpus/*/INDEX.tsv"))
    if not tables:
        pytest.skip("no folder corpus with INDEX.tsv files beside the recordings")
    known = {
        file.address: file for each in datasets().values() for file in each.files if file.cluster
    }
    for path in tables:
        with path.open(newline="") as opened:
            for row in csv.DictReader(opened, delimiter="\t"):
                place = quote(f"{row['repository']}/{row['commit']}/{row['path']}")
                file = known.pop(f"https://raw.githubusercontent.com/{place}")
                # A replaced name changes the hash of the copy, so that of the source is unknown.
                same = row["registry_names_replaced"] == "0"
                assert file.sha256 == (row["sha256_uncompressed"] if same else None)
                assert (file.bytes, file.cluster) == (int(row["bytes_source"]), row["cluster"])
    assert not known


def test_a_download_writes_the_clusters_of_its_files(server: Server, home: Path) -> None:
    dataset = a_dataset(CHAT, CHAT)
    files = tuple(replace(file, cluster=f"task {file.name[0]}") for file in dataset.files)
    dataset = replace(dataset, files=files)
    serve(server, dataset, CHAT, CHAT)
    folder = fetch_dataset(dataset, home)
    found = load(f"{folder}/*.jsonl", clusters=folder / "clusters.tsv")
    assert [each.cluster for each in found] == ["task 0", "task 1"]


def test_every_address_is_pinned_to_a_commit_and_every_hash_is_one() -> None:
    for dataset in datasets().values():
        for file in dataset.files:
            assert re.search(r"/[0-9a-f]{40}/", file.address), file
            assert file.address.startswith("https://")
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert file.bytes > 0


def test_every_data_set_says_what_its_licence_asks() -> None:
    known = {"MIT", "Apache-2.0", "CC-BY-NC-4.0"}
    assert {dataset.licence.name for dataset in datasets().values()} == known
    assert "non-commercial" in find_dataset("locomo").licence.means
    assert "attribution" in find_dataset("locomo").licence.means
    assert all(dataset.notice and dataset.licence.text for dataset in datasets().values())


@pytest.mark.parametrize("name", datasets())
def test_a_local_copy_is_what_the_table_says(name: str, recorded: Path) -> None:
    dataset = find_dataset(name)
    here = [file for file in dataset.pinned_files if (recorded / name / file.name).is_file()]
    if not here:
        pytest.skip(f"no published file of {name} beside the others")
    for file in here:
        body = (recorded / name / file.name).read_bytes()
        assert (len(body), hashlib.sha256(body).hexdigest()) == (file.bytes, file.sha256)


def test_an_unknown_name_offers_similar_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean locomo"):
        find_dataset("lokomo")


# fetching


def test_what_is_fetched_is_what_was_published_with_its_licence_and_source(
    server: Server, home: Path
) -> None:
    dataset = a_dataset(b"one\n", BODY)
    serve(server, dataset, b"one\n", BODY)
    folder = fetch_dataset(dataset, home)
    assert folder == home / "tiny"
    assert left(folder) == ["0.jsonl", "1.jsonl", "LICENSE.txt", "SOURCE.md"]
    assert (folder / "1.jsonl").read_bytes() == BODY
    licence = (folder / "LICENSE.txt").read_text(encoding="utf-8")
    assert "Copyright (c) Nobody" in licence
    assert "Permission is hereby granted" in licence
    assert dataset.files[1].address in (folder / "SOURCE.md").read_text(encoding="utf-8")


def test_the_bar_goes_to_standard_error(
    server: Server,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then draws as on a terminal
    dataset = a_dataset(b"one\n", BODY)
    serve(server, dataset, b"one\n", BODY)
    fetch_dataset(dataset, home, progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert "2/2 1.jsonl" in said.err


def test_what_is_there_is_not_fetched_again(server: Server, home: Path) -> None:
    dataset = a_dataset(b"one\n", b"two\n")
    serve(server, dataset, b"one\n", b"two\n")
    fetch_dataset(dataset, home)
    (home / "tiny" / "1.jsonl").unlink()
    fetch_dataset(dataset, home)
    fetch_dataset(dataset, home)
    assert [asked.path[-7:] for asked in server.asked] == ["0.jsonl", "1.jsonl", "1.jsonl"]


def test_a_file_of_ones_own_is_not_written_over(server: Server, home: Path) -> None:
    dataset = a_dataset(b"one\n")
    serve(server, dataset, b"one\n")
    (home / "tiny").mkdir(parents=True)
    (home / "tiny" / "0.jsonl").write_bytes(b"mine\n")
    with pytest.raises(DataMissing, match="delete or move the file"):
        fetch_dataset(dataset, home)
    assert server.asked == []
    assert (home / "tiny" / "0.jsonl").read_bytes() == b"mine\n"


def test_a_wrong_hash_is_refused_and_nothing_is_kept(server: Server, home: Path) -> None:
    dataset = a_dataset(b"as published")
    serve(server, dataset, b"as tampered!")
    with pytest.raises(DataMissing) as error:
        fetch_dataset(dataset, home)
    for body in (b"as published", b"as tampered!"):
        assert hashlib.sha256(body).hexdigest() in str(error.value)
    assert "Run the same command again" in str(error.value)
    assert left(home) == []


def test_a_broken_transfer_goes_on_where_it_stopped(server: Server, home: Path) -> None:
    dataset = a_dataset(BODY)
    serve(server, dataset, BODY)
    server.cut = 300_000
    with pytest.raises(DataMissing, match="run the same command again to resume") as error:
        fetch_dataset(dataset, home)
    assert not PLAIN.search(str(error.value))
    kept = (home / "tiny" / "0.jsonl.part").stat().st_size
    assert 0 < kept <= 300_000
    assert left(home) == ["tiny/0.jsonl.part"]
    server.cut = None
    fetch_dataset(dataset, home)
    assert server.asked[1] == Asked(server.asked[0].path, f"bytes={kept}-", len(BODY) - kept)
    assert (home / "tiny" / "0.jsonl").read_bytes() == BODY
    assert not (home / "tiny" / "0.jsonl.part").exists()


def test_a_server_that_knows_no_ranges_begins_anew(server: Server, home: Path) -> None:
    dataset = a_dataset(BODY)
    serve(server, dataset, BODY)
    server.ranges, server.cut = False, 300_000
    with pytest.raises(DataMissing):
        fetch_dataset(dataset, home)
    server.cut = None
    fetch_dataset(dataset, home)
    assert server.asked[1].sent == len(BODY)
    assert (home / "tiny" / "0.jsonl").read_bytes() == BODY


def test_a_part_that_is_whole_is_only_checked(server: Server, home: Path) -> None:
    dataset = a_dataset(BODY)
    (home / "tiny").mkdir(parents=True)
    (home / "tiny" / "0.jsonl.part").write_bytes(BODY)
    fetch_dataset(dataset, home)
    assert server.asked == []
    assert (home / "tiny" / "0.jsonl").read_bytes() == BODY


def test_a_part_that_belongs_to_nothing_does_not_stand_in_the_way(
    server: Server, home: Path
) -> None:
    dataset = a_dataset(BODY)
    serve(server, dataset, BODY)
    (home / "tiny").mkdir(parents=True)
    (home / "tiny" / "0.jsonl.part").write_bytes(BODY + b"and more")
    with pytest.raises(DataMissing, match="416"):
        fetch_dataset(dataset, home)
    fetch_dataset(dataset, home)
    assert (home / "tiny" / "0.jsonl").read_bytes() == BODY


def test_what_is_not_there_is_said_plainly(server: Server, home: Path) -> None:
    with pytest.raises(DataMissing, match=r"0\.jsonl: the server returned status 404 Not Found$"):
        fetch_dataset(a_dataset(BODY), home)
    assert left(home) == []


def test_a_server_that_cannot_be_reached_is_said_plainly(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening, so that nobody else answers there
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("CTXLAB_MIRROR", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(DataMissing, match=r"(?i)0\.jsonl: .*refused") as error:
            fetch_dataset(a_dataset(BODY), home)
    assert not PLAIN.search(str(error.value))


def test_what_has_no_known_hash_is_fetched_only_for_who_brings_one(
    server: Server, home: Path
) -> None:
    dataset = a_dataset(BODY, sha256=None)
    serve(server, dataset, BODY)
    with pytest.raises(DataMissing, match="--sha256"):
        fetch_dataset(dataset, home)
    with pytest.raises(SpecError, match="64"):
        fetch_dataset(dataset, home, sha256="abc")
    with pytest.raises(DataMissing, match="expected 0000"):
        fetch_dataset(dataset, home, sha256="0" * 64)
    assert left(home) == []
    fetch_dataset(dataset, home, sha256=hashlib.sha256(BODY).hexdigest().upper())
    assert (home / "tiny" / "0.jsonl").read_bytes() == BODY


def test_a_hash_for_a_file_that_needs_none_is_refused() -> None:
    with pytest.raises(SpecError, match="tiny has 0"):
        files_to_fetch(a_dataset(BODY), "0" * 64)


# finding


def test_it_is_looked_for_in_ctxlab_data_and_then_in_the_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = find_dataset("locomo")
    named, cache = data_dirs()
    assert named == home
    assert local_dataset_dir(dataset) is None
    (cache / "locomo").mkdir(parents=True)
    (cache / "locomo" / "locomo10.json").write_text("[]")
    assert local_dataset_dir(dataset) == cache / "locomo"
    assert local_dataset_dir(dataset, home) is None
    monkeypatch.delenv("CTXLAB_DATA")
    assert data_dirs() == (cache,)


def test_what_is_half_fetched_is_not_here(home: Path) -> None:
    dataset = find_dataset("tau2-bench")
    (home / "tau2-bench").mkdir(parents=True)
    (home / "tau2-bench" / f"{dataset.files[0].name}").write_text("{}")
    assert local_dataset_dir(dataset) is None
    (home / "locomo").mkdir()
    (home / "locomo" / "locomo10.json.part").write_text("[")
    assert local_dataset_dir(find_dataset("locomo")) is None


def test_a_part_of_it_is_taken_as_it_is_and_never_counts_beside_the_whole(home: Path) -> None:
    (home / "locomo").mkdir(parents=True)
    (home / "locomo" / "locomo10.first7.json").write_text("[]")
    assert list(home.glob(str(dataset_path("locomo").relative_to(home)))) == [
        home / "locomo" / "locomo10.first7.json"
    ]
    (home / "locomo" / "locomo10.json").write_text("[]")
    assert dataset_path("locomo") == home / "locomo" / "locomo10.json"


def test_what_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(DataMissing, match=r"ctxlab datasets fetch locomo .*non-commercial"):
        dataset_path("locomo")


@pytest.mark.parametrize("name", datasets())
def test_its_recordings_are_read_and_its_papers_are_not(name: str, home: Path) -> None:
    names = [file.name for file in find_dataset(name).files]
    for each in (*names, "LICENSE.txt", "SOURCE.md"):
        (home / name / each).parent.mkdir(parents=True, exist_ok=True)
        (home / name / each).write_text("{}")
    found = find_files(dataset_path(name))
    assert {each.path for each in found} == {home / name / each for each in names}


def test_a_named_data_set_is_data_of_an_experiment_and_a_saved_run_names_it(
    home: Path, tmp_path: Path
) -> None:
    folder = home / "codex-format-samples"
    folder.mkdir(parents=True)
    write([a_recording(0), a_recording(1)], folder / "mine.jsonl")
    spec = Spec(data=("dataset:codex-format-samples",), strategies=("full",), limits=(4000,))
    results = run_experiment(spec, progress=False)
    assert {r["source"] for r in results.recordings} == {"dataset:codex-format-samples/mine.jsonl"}
    results.save(tmp_path / "run")
    assert read_spec(tmp_path / "run").data == spec.data
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["spec"]["folder"] == ""
    one = Spec(data=("dataset:codex-format-samples/mine.jsonl",)).paths
    assert len(list(load(one))) == 2


def test_an_address_stays_the_text_that_it_is() -> None:
    assert Spec(data=("s3://bucket/logs", "zip://*.json::logs.zip")).paths == (
        "s3://bucket/logs",
        "zip://*.json::logs.zip",
    )

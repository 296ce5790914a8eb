"""Tests of tables that assign clusters to files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load

CHAT = '{"role":"user","content":"hi"}\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("a.jsonl", "b.jsonl", "deep/a.jsonl"):
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CHAT)
    return tmp_path / "logs"


def table(logs: Path, *lines: str, header: str = "file\tcluster") -> Path:
    path = logs.parent / "clusters.tsv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_recording_gets_the_cluster_of_its_file(logs: Path) -> None:
    path = table(logs, "logs/a.jsonl\tone", "b.jsonl\ttwo", "deep/a.jsonl\tone")
    found = {each.id: each.cluster for each in load(logs, clusters=path)}
    assert found == {"a": "one", "b": "two", "deep/a": "one"}


def test_every_recording_of_a_file_gets_its_cluster(logs: Path) -> None:
    rows = '{"messages":[{"role":"user","content":"hi"}]}\n' * 3
    (logs / "b.jsonl").write_text(rows)
    path = table(logs, "b.jsonl\ttwo")
    assert [each.cluster for each in load(logs / "b.jsonl", clusters=path)] == ["two"] * 3


def test_the_table_may_be_beside_the_recordings_and_have_other_columns(logs: Path) -> None:
    header = "cluster,messages,file"
    path = table(logs, "one,9,a.jsonl", "two,9,b.jsonl", "three,9,deep/a.jsonl", header=header)
    path = path.rename(logs / "INDEX.csv")
    told: list[str] = []
    found = load(logs, clusters=path, on_skip=lambda path, _: told.append(str(path)))
    assert [each.cluster for each in found] == ["one", "two", "three"]
    assert told == []


def test_clusters_are_assigned_before_conditions(logs: Path) -> None:
    path = table(logs, "logs/a.jsonl\tone", "b.jsonl\ttwo", "deep/a.jsonl\tone")
    found = load(logs, clusters=path, where=lambda recording: recording.cluster == "one")
    assert [each.id for each in found] == ["a", "deep/a"]


def test_a_recording_without_a_line_is_named_with_the_lines_without_a_file(logs: Path) -> None:
    path = table(logs, "logs/a.jsonl\tone", "c.jsonl\ttwo", "deep/a.jsonl\tone")
    with pytest.raises(ReadError, match=r"the recording b .*b\.jsonl. has no line.* c\.jsonl .3."):
        list(load(logs, clusters=path))


def test_lines_without_a_recording_are_reported_for_folders_only(logs: Path) -> None:
    path = table(logs, "logs/a.jsonl\t1", "b.jsonl\t2", "deep/a.jsonl\t1", "c.jsonl\t3", "d\t4")
    told: list[tuple[str, str]] = []

    def tell(path: Path | str, reason: str) -> None:
        told.append((Path(path).name, reason))

    list(load(logs / "a.jsonl", clusters=path, on_skip=tell))
    assert told == []
    list(load(logs, clusters=path, on_skip=tell))
    assert told == [("clusters.tsv", "lines without a recording: c.jsonl (5), d (6)")]


def test_a_line_for_two_files_is_an_error(logs: Path) -> None:
    path = table(logs, "a.jsonl\tone", "b.jsonl\ttwo")
    with pytest.raises(ReadError, match="write a longer path") as caught:
        list(load(logs, clusters=path))
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        (("a.jsonl\tone", "a.jsonl\ttwo"), 3, "also in line 2"),
        (("a.jsonl\t",), 2, "the column cluster is empty"),
        (("\tone",), 2, "the column file is empty"),
        (("a.jsonl",), 2, "expected 2 columns, got 1"),
        ((), None, "got none"),
    ],
)
def test_a_malformed_line_is_named(
    logs: Path, lines: tuple[str, ...], line: int | None, reason: str
) -> None:
    with pytest.raises(ReadError, match=reason) as caught:
        load(logs, clusters=table(logs, *lines))
    assert caught.value.line == line


def test_a_missing_column_is_named(logs: Path) -> None:
    path = table(logs, "a.jsonl\tone", header="file\tgroup")
    with pytest.raises(ReadError, match="got file, group; add cluster"):
        load(logs, clusters=path)


def test_every_recording_of_the_real_sessions_gets_the_cluster_of_its_file(recorded: Path) -> None:
    tables = sorted(recorded.parent.glob("corpus/*/INDEX.tsv"))
    if not tables:
        pytest.skip("no folder corpus with INDEX.tsv files beside the recordings")
    for path in tables:
        with path.open(newline="") as file:
            known = {row["file"]: row["cluster"] for row in csv.DictReader(file, delimiter="\t")}
        met = set()
        for recording in load(path.parent, clusters=path, on_error="skip"):
            name = Path(recording.source or "").name
            assert recording.cluster == known[name]
            met.add(name)
        assert met == known.keys(), path

"""Tests of ``ctxlab convert``: it writes another format and names the data that is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Run, a_recording

from ctxlab.formats import FORMATS, load, write
from ctxlab.messages.types import Compaction, Message


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Write a recording with a time in each message and a compaction."""
    recording = a_recording(0, turns=2)
    messages = tuple(m.replace(time=float(i)) for i, m in enumerate(recording.messages))
    changed = type(recording)("one", messages, compactions=(Compaction(3), Compaction(5)))
    write([changed], tmp_path / "session.jsonl")
    return tmp_path / "session.jsonl"


def test_native_to_native_is_stable_to_the_byte(run: Run, session: Path, tmp_path: Path) -> None:
    said = run("convert", session, tmp_path / "again.jsonl")
    assert (said.code, said.out) == (0, "")
    assert said.err == "ctxlab: 1 recording converted from native to native\n"
    assert (tmp_path / "again.jsonl").read_bytes() == session.read_bytes()


def test_what_the_target_has_no_place_for_is_said_with_counts(
    run: Run, session: Path, tmp_path: Path
) -> None:
    said = run("convert", session, tmp_path / "chats.jsonl", "--to", "openai")
    assert said.err == (
        "ctxlab: 1 recording converted from native to openai; lost: time of 7 messages, 2 compactions\n"
    )
    (recording,) = load(tmp_path / "chats.jsonl")
    assert [m.replace(time=None) for m in next(load(session)).messages] == list(recording.messages)


def test_a_folder_gets_a_file_each(run: Run, logs: Path, tmp_path: Path) -> None:
    assert run("convert", logs, f"{tmp_path}/new/", "--to", "anthropic").code == 0
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        f"order-{n}.jsonl" for n in range(6)
    ]
    assert {r.format for r in load(tmp_path / "new")} == {"anthropic"}


def test_standard_output_gets_the_recordings_and_nothing_else(run: Run, logs: Path) -> None:
    said = run("convert", logs, "-", "--to", "openai")
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [len(row["messages"]) for row in rows] == [31] * 6
    assert said.err.startswith("ctxlab: 6 recordings converted from native to openai")


@pytest.mark.e2e
def test_odd_characters_reach_a_pipe_as_they_are(
    program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    write([type(a_recording(0))("r", (Message("user", "語 \ud800"),))], tmp_path / "odd.jsonl")
    said = program("convert", tmp_path / "odd.jsonl", "-")
    assert said.out.encode() == (tmp_path / "odd.jsonl").read_bytes()


def test_what_was_left_out_while_reading_is_said(run: Run, logs: Path, tmp_path: Path) -> None:
    (logs / "notes.txt").write_text("not a recording")
    with (logs / "0.jsonl").open("a") as file:
        file.write("{broken\n")
    said = run("convert", logs, tmp_path / "all.jsonl", "--on-error", "skip")
    assert said.err.splitlines()[1].startswith(
        "ctxlab: skipped 1 file (notes.txt: unknown format), 1 row (broken line: not JSON"
    )
    said = run("convert", logs, tmp_path / "stopped.jsonl")
    assert said.code == 2
    assert "0.jsonl:33: not JSON" in said.err
    assert "--on-error skip" in said.err
    assert not (tmp_path / "stopped.jsonl").exists()


def test_what_is_there_or_read_stays(run: Run, session: Path, tmp_path: Path) -> None:
    before = session.read_bytes()
    (tmp_path / "mine.jsonl").write_text("mine")
    for out, words in (("mine.jsonl", "--force"), ("session.jsonl", "--force")):
        said = run("convert", session, tmp_path / out)
        assert said.code == 2
        assert words in said.err
        assert "force=True" not in said.err
    assert "is being read" in run("convert", session, session, "--force").err
    assert (session.read_bytes(), (tmp_path / "mine.jsonl").read_text()) == (before, "mine")
    assert run("convert", session, tmp_path / "mine.jsonl", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["session.jsonl", "out.jsonl", "--to", "opena"], "did you mean openai"),
        (["session.jsonl", "out.jsonl", "--to", "tau-bench"], "choose from native, "),
        (["nowhere", "out.jsonl"], "nowhere: no such file or folder"),
        (["session.jsonl"], "Missing argument"),
        (["session.jsonl", "out.jsonl", "--on-error", "ignore"], "raise or skip"),
        (["session.jsonl", "out.jsonl", "--format", "nativ"], "did you mean native"),
        (["session.jsonl", "s3://bucket/out.jsonl"], "expected a local path"),
    ],
)
def test_bad_input_ends_with_a_sentence(
    run: Run, session: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(session.parent)
    said = run("convert", *arguments)
    assert said.code == 2
    assert words in said.err
    assert not Path("out.jsonl").exists()


def test_help_teaches_by_examples_and_names_every_target(run: Run) -> None:
    said = run("convert", "--help").out
    assert said.count("  ctxlab convert") >= 3
    assert all(format.name in said for format in FORMATS.values() if format.dump)

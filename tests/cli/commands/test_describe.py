"""Tests of ``ctxlab describe``: it summarises recordings and counts what readers left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from compacting import summarised
from running import Run, a_recording, on_a_terminal

from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording, Usage


def unread(text: str) -> list[str]:
    """Return the rows of the table of files that were not read."""
    _, _, table = text.partition("\nNot read: ")
    return table.rstrip("\n").split("\n")[3:]


def test_each_recording_has_a_line_and_a_total(run: Run, logs: Path) -> None:
    said = run("describe", logs)
    lines = said.out.split("\n")
    assert said.code == 0
    assert [line.split()[0] for line in lines[2:8]] == [f"order-{n}" for n in range(6)]
    assert lines[8].startswith("all 6 ")
    assert max(map(len, lines)) <= 100


def described(run: Run, *arguments: object) -> dict[str, list[dict[str, Any]]]:
    """Return the JSON that ``ctxlab describe`` prints."""
    found: dict[str, list[dict[str, Any]]] = json.loads(run("describe", *arguments, "--json").out)
    return found


def test_json_has_a_row_a_recording_and_a_row_a_file(run: Run, logs: Path) -> None:
    (logs / "notes.txt").write_text("not a recording")
    said = described(run, logs)
    assert said["files"][0] == {
        "file": str(logs / "0.jsonl"),
        "format": "native",
        **dict.fromkeys(("kind", "detail", "advice")),
    }
    assert (said["files"][6]["format"], said["files"][6]["kind"]) == (None, "plain text")
    rows = said["recordings"]
    assert [row["recording"] for row in rows] == [f"order-{n}" for n in range(6)]
    first = rows[0]
    assert (first["messages"], first["requests"], first["valid"]) == (31, 15, True)
    assert first["far_needs"] > 0
    assert first["tool_tokens"] < first["tokens"]


def test_the_hints_name_the_limits_that_bite(run: Run, logs: Path) -> None:
    said = " ".join(run("describe", logs).out.split())
    assert "Recordings (of 6) with a request above 4,000 tokens: 6" in said


def test_many_recordings_are_summed_up_unless_all_are_asked_for(run: Run, tmp_path: Path) -> None:
    write([a_recording(n, turns=1) for n in range(40)], tmp_path / "many.jsonl")
    assert run("describe", tmp_path).out.count("group-") == 3
    assert run("describe", tmp_path, "--all").out.count("\norder-") == 40


def test_named_files_that_no_reader_knows_are_skipped_beside_others(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    notes, har = tmp_path / "notes.txt", tmp_path / "a.har"
    notes.write_text("not a recording")
    har.write_text('{"log": {"version": "1.2", "creator": {}, "entries": []}}')
    said = run("describe", notes, logs, har)
    assert (said.code, said.err) == (0, "")
    assert unread(said.out) == [
        "    1 HAR file (recorded web traffic) a.har",
        "      Write the body of each request to the model API as one line of a JSONL file.",
        "    1 plain text                      notes.txt",
    ]
    alone = run("describe", notes)
    assert alone.code == 2
    assert "notes.txt: unknown format: the file looks like plain text; name a log" in alone.err
    none = run("describe", notes, har)
    assert none.code == 2
    assert "notes.txt: found no recording (paths read: 2)" in none.err


def test_what_was_left_out_is_listed_with_its_reason(run: Run, logs: Path) -> None:
    (logs / "notes.txt").write_text("not a recording")
    with (logs / "0.jsonl").open("a") as file:
        file.write("{broken\n")
    said = run("describe", logs)
    assert unread(said.out) == ["    1 plain text notes.txt"]
    assert "Rows skipped inside files: 1 × broken line: not JSON" in said.out


def test_names_from_the_data_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    odd = a_recording(0, turns=1)
    text = (tmp_path / "odd.jsonl", type(odd)("\x1b[31m[bold]a", odd.messages))
    write([text[1]], text[0])
    out = run("describe", tmp_path).out
    assert "\x1b" not in out
    assert "[bold]a" in out


def billed_log(folder: Path, **meta: str) -> Path:
    """Write a session with usage data of the provider and a compaction to a file."""
    messages = [Message("user", "Repair it.")]
    for turn in range(40):
        bill = 20_000 + 2 * sum(len(message.text) for message in messages)
        usage = Usage(input=bill if turn < 30 else bill // 3)
        said = "Reading on. " * (turn % 5 + 1)
        messages.append(Message("assistant", said, usage=usage, reasoning="Let me see."))
    compaction = summarised(
        messages, 21, "So far all is well.", trigger="auto", tokens_before=20_500
    )
    path = folder / "billed.jsonl"
    write(
        [
            Recording(
                "billed",
                tuple(messages),
                model="claude-opus-4-5",
                compactions=(compaction,),
                meta=meta,
            )
        ],
        path,
    )
    return path


def test_bills_stand_beside_counts_and_what_was_not_said_is_told(run: Run, tmp_path: Path) -> None:
    said = " ".join(run("describe", billed_log(tmp_path)).out.split())
    assert "billed" in said
    assert "The recorded product summarised 1 time, at 20.5k tokens" in said
    assert "-s recorded" in said
    assert "with billed token counts: ctxlab's counts differ from the bills by" in said
    assert "Context was probably cleared without an entry in the log: the bill falls by" in said
    assert "before message 31 of billed" in said
    assert "Directly after recorded compactions, the counts of the recorded requests differ" in said


def test_the_bills_of_a_session_that_a_strategy_managed_are_not_held_against_its_counts(
    run: Run, tmp_path: Path
) -> None:
    said = " ".join(run("describe", billed_log(tmp_path, strategy="panic()")).out.split())
    assert "1 recording ran with a context strategy: the bills are for the tokens that were" in said
    assert "cleared without an entry" not in said
    assert "counts differ" not in said


def test_only_what_was_asked_for_is_described(run: Run, logs: Path) -> None:
    rows = described(run, logs, "--where", "cluster=group-1")["recordings"]
    assert [row["recording"] for row in rows] == ["order-1", "order-4"]
    drawn = [
        [row["recording"] for row in described(run, logs, *options)["recordings"]]
        for options in (["--sample", 2], ["--sample", 2], ["--sample", 2, "--seed", 5])
    ]
    assert drawn[0] == drawn[1]
    assert len(drawn[2]) == 2


def test_files_left_out_are_counted_by_reason_unless_all_are_asked_for(
    run: Run, logs: Path
) -> None:
    for number in range(5):
        (logs / f"notes-{number}.txt").write_text("not a recording")
    (logs / "empty.txt").write_text("")
    said = run("describe", logs).out
    assert "Not read: 6 of 12 files; --all lists them.\n" in said
    assert unread(said) == ["    5 plain text notes-0.txt", "    1 empty file empty.txt"]
    every = run("describe", logs, "--all").out
    assert [f"{logs}/notes-{n}.txt: plain text\n" in every for n in range(5)] == [True] * 5


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="a terminal is opened as POSIX has it")
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_figure_is_cut_on_a_narrow_terminal(logs: Path, columns: int) -> None:
    write([a_recording(9, turns=700)], logs / "long.jsonl")
    (logs / "a-chat-with-a-long-name.jsonl").write_text(
        '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}\n'
    )
    lines = on_a_terminal(columns, "describe", str(logs))
    assert max(map(len, lines)) <= max(columns, 60)
    (long,) = [line for line in lines if line.startswith("order-9 ")]
    assert "1,403" in long
    (heads,) = [line for line in lines if line.startswith("recording ")]
    assert {"msgs", "tokens"} <= set(heads.split())
    told = " ".join(lines)
    assert ("Hidden at this width: format" in told) == ("format" not in heads) == (columns <= 60)


@pytest.mark.e2e
def test_a_recording_whose_calls_were_probably_not_read_is_warned_of(
    run: Run, tmp_path: Path
) -> None:
    parts = [{"type": "text", "text": "I look."}, {"type": "hologram", "data": "?"}]
    rows = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": parts}] * 10
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    warning = "10 answers, no tool call, and 10 content parts of unknown type: hologram (10)"
    said = run("describe", path)
    assert f"Warning: odd was probably not read in full: {warning};" in " ".join(said.out.split())
    assert described(run, path)["recordings"][0]["warning"] == warning
    assert warning in run("eval", path, "-l", "1k", "-s", "full").err


def test_columns_and_clusters_are_options(run: Run, tmp_path: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}])
    cell = chat.replace('"', '""')
    (tmp_path / "runs.csv").write_text(f'log,key\n"{cell}",a\n"{cell}",b\n')
    (tmp_path / "clusters.tsv").write_text("file\tcluster\nruns.csv\tone\n")
    options = ("--input-columns", "messages=log,id=key", "--clusters", tmp_path / "clusters.tsv")
    rows = described(run, tmp_path / "runs.csv", *options)["recordings"]
    named = [(row["recording"], row["cluster"], row["format"]) for row in rows]
    assert named == [("runs/a", "one", "table"), ("runs/b", "one", "table")]

"""Tests of the table of recordings: entries are what was written, wherever they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import a_recording

from ctxlab.errors import ReadError
from ctxlab.evaluation import parts, tables
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.recording_table import RecordingWriter, StoredRecordings
from ctxlab.evaluation.results import Results


def entry(number: int) -> dict[str, Any]:
    """Return an entry whose values have all types; some texts are missing."""
    return {
        "recording": f"é {number}",
        "source": None if number % 2 else "a.jsonl",
        "tokens": number,
        "unlogged": None if number < 3 else -number,
        "valid": number != 2,
        "skipped": {"empty": number} if number else {},
        "tool_tokens": number,
    }


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a row group for each piece."""
    monkeypatch.setattr(tables, "_GROUP_BYTES", 1)


@pytest.mark.usefixtures("small_groups")
def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    entries = [entry(number) for number in range(7)]
    with RecordingWriter(tmp_path / "table") as writer:
        for start in (0, 2, 3):
            writer.write(entries[start : {0: 2, 2: 3, 3: 7}[start]])
    stored = StoredRecordings(tmp_path / "table")
    assert list(stored) == entries
    assert stored == entries
    assert stored != entries[1:]
    assert [stored[place] for place in (0, 2, -1)] == [entries[0], entries[2], entries[-1]]
    assert stored[4:6] == entries[4:6]
    with pytest.raises(IndexError):
        stored[7]


def test_a_lone_surrogate_is_escaped(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "table") as writer:
        writer.write([{"source": "\udc80.jsonl", "skipped": {"\udc80": 1}}])
    (found,) = StoredRecordings(tmp_path / "table")
    assert found == {"source": "\\udc80.jsonl", "skipped": {"\udc80": 1}}


def test_the_size_of_a_manifest_does_not_depend_on_the_number_of_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "BUCKET_CHARS", 1)
    for count in (1, 6):
        given = [a_recording(number) for number in range(count)]
        evaluate(given, "full", 2000, folder=tmp_path / str(count), workers=1)
    one, six = (tmp_path / name / "manifest.json" for name in ("1", "6"))
    assert len(one.read_bytes()) == len(six.read_bytes())
    assert len(Results.load(tmp_path / "6").recordings) == 6


def test_a_run_with_its_recordings_in_the_manifest_can_be_loaded(tmp_path: Path) -> None:
    saved = evaluate([a_recording(0), a_recording(1)], "full", 2000, workers=1)
    saved.save(tmp_path)
    (tmp_path / "recordings.parquet").unlink()
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    manifest["recordings"] = saved.recordings
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert Results.load(tmp_path).equals(saved)


def test_a_table_that_was_replaced_is_not_read(tmp_path: Path) -> None:
    evaluate([a_recording(0)], "full", 2000, workers=1).save(tmp_path)
    recordings = Results.load(tmp_path).recordings
    evaluate([a_recording(1)], "full", 2000, workers=1).save(tmp_path)
    with pytest.raises(ReadError, match="another run was saved here"):
        list(recordings)

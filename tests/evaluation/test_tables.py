"""Tests of stored tables: written in pieces, read by column, and equal to tables in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import a_recording

from ctxlab.errors import ReadError
from ctxlab.evaluation import parts
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tables import StoredTable, TableWriter, make_categorical

NAMES = ("a", "b", "c", "a")  # two recordings may have the same cluster


@given(pieces=st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=6))
def test_a_table_in_pieces_equals_the_table_at_once(
    pieces: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def build(rows: list[int]) -> pd.DataFrame:
        which = np.array(rows, dtype=np.intp)
        values = np.where(which == 1, np.nan, which / 3)
        return pd.DataFrame({"label": make_categorical(NAMES, which), "value": values, "n": which})

    path = tmp_path_factory.mktemp("tables") / "table.parquet"
    with TableWriter(path) as writer:
        for piece in pieces:
            writer.write(build(piece))
    stored, whole = StoredTable(path), build([row for piece in pieces for row in piece])
    pd.testing.assert_frame_equal(stored.read(), whole)
    pd.testing.assert_frame_equal(stored.read(["n"]), whole[["n"]])
    assert (stored.rows, stored.columns) == (len(whole), list(whole))


def test_a_leaderboard_is_computed_without_reading_the_table_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "BUCKET_CHARS", 1)
    expected = evaluate([a_recording(n) for n in range(6)], ("full", "panic()"), 0.5)
    expected.save(tmp_path)
    loaded = Results.load(tmp_path)
    (tmp_path / "requests.parquet").unlink()
    pd.testing.assert_frame_equal(loaded.leaderboard(), expected.leaderboard())
    assert loaded.verdict() == expected.verdict()
    assert repr(loaded) == "<Results of 6 recordings, 2 configurations>"
    with pytest.raises(ReadError, match=r"requests\.parquet.*damaged"):
        _ = loaded.requests


def test_a_run_in_a_folder_is_saved_and_other_programs_read_it(tmp_path: Path) -> None:
    found = evaluate([a_recording(n) for n in range(3)], "panic()", 0.5, folder=tmp_path)
    assert Results.load(tmp_path).equals(found)
    table = ds.dataset(tmp_path / "requests.parquet").to_table(filter=ds.field("request") == 0)
    assert table["recording"].to_pylist() == [r["recording"] for r in found.recordings]
    found.save(tmp_path)
    assert found.save(tmp_path / "copy") == tmp_path / "copy"
    assert Results.load(tmp_path / "copy").equals(found)


def test_a_loaded_run_is_read_from_its_own_file_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = evaluate([a_recording(0)], "panic()", 0.5, folder="run")
    loaded = Results.load("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert loaded.equals(first)
    loaded = Results.load(tmp_path / "run")
    evaluate([a_recording(1)], "panic()", 0.5).save(tmp_path / "run")
    with pytest.raises(ReadError, match="another run was saved here"):
        _ = loaded.requests

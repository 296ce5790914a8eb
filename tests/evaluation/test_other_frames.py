"""Tests that polars and DuckDB read the tables of results as they are."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import ctxlab
from ctxlab.evaluation.results import Results
from ctxlab.messages.types import Message, Recording

SUMS = ["tokens", "requests", "messages"]


@pytest.fixture(scope="module")
def results() -> Results:
    said = [Message("user", "one"), Message("assistant", "two"), Message("user", "three" * 40)]
    recordings = [Recording(name, (*said, Message("assistant", "é"))) for name in ("a", "b")]
    return ctxlab.evaluate(recordings, ["full", "sliding_window(messages=1)"], [100], workers=1)


def expected(results: Results) -> dict[str, list[int]]:
    sums: pd.DataFrame = results.runs.groupby("strategy", observed=True, sort=False)[SUMS].sum()
    return {str(name): row.tolist() for name, row in sums.iterrows()}


def test_polars_reads_frames_and_files(results: Results, tmp_path: Path) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed: nox -s ecosystem")
    folder = results.save(tmp_path)
    for frame in (pl.from_pandas(results.runs), pl.read_parquet(folder / "runs.parquet")):
        rows = frame.group_by(pl.col("strategy").cast(pl.String)).agg(pl.col(SUMS).sum()).rows()
        assert {name: sums for name, *sums in rows} == expected(results)
    for name in ("requests", "compactions"):
        table = getattr(results, name)
        assert pl.read_parquet(folder / f"{name}.parquet").shape == table.shape
        assert pl.from_pandas(table).columns == list(table.columns)
    assert pl.from_pandas(results.leaderboard()).height == 2


def test_duckdb_reads_frames_and_files(results: Results, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: nox -s ecosystem")
    folder = results.save(tmp_path)
    runs, requests = results.runs, results.requests
    with duckdb.connect() as database:
        database.register("runs", runs).register("requests", requests)
        columns = ", ".join(f"sum({name})::bigint" for name in SUMS)
        for source in ("runs", f"'{folder}/runs.parquet'"):
            rows = database.sql(f"select strategy, {columns} from {source} group by 1").fetchall()
            assert {str(name): sums for name, *sums in rows} == expected(results)
        for source in ("requests", f"'{folder}/requests.parquet'"):
            ((total,),) = database.sql(f"select sum(tokens)::bigint from {source}").fetchall()
            assert total == requests["tokens"].sum()

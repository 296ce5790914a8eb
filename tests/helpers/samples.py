"""Small hand-written sample files of all formats; ``NAME.anything`` is a sample of the format NAME.

A folder is packed as a zip archive of its files. A folder with a file ``tables.jsonl`` is converted to
a SQLite database. Each line of the file is a row of a session store, or creates a table with the
statement in its key ``sql``; if there is such a line, the tables of a session store are not created. A
folder with a file ``rows.jsonl`` is converted to a Parquet file with these rows, and a folder with a
file ``cells.jsonl`` to a CSV file.

The folders in ``sample_folders`` show what is only read if a folder is loaded. Together, the samples of
a format contain everything that its reader can read, because the page of formats is made from them.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ctxlab.formats import load
from ctxlab.messages.types import Recording
from ctxlab.sessions.sqlite.schema import migrate_schema

HERE = Path(__file__).parents[1] / "formats" / "samples"
SAMPLES = sorted(HERE.iterdir())
SAMPLE_FOLDERS = sorted((HERE.parent / "sample_folders").iterdir())


_TOO_DEEP = re.compile(rb'(?:\[|\{"a":){200,}0[\]}]+')


def format_of(sample: Path) -> str:
    """Return the name of a sample's format."""
    return sample.name.partition(".")[0]


def files_of(sample: Path) -> dict[str, bytes]:
    """Return the contents of a sample's files by name; a single file has the name ``""``."""
    if sample.is_file():
        return {"": sample.read_bytes()}
    inside = sorted(p for p in sample.rglob("*") if p.is_file())
    return {p.relative_to(sample).as_posix(): p.read_bytes() for p in inside}


def packed(files: dict[str, bytes]) -> bytes:
    """Pack a sample's files as one file: itself, a database, a table or a zip archive."""
    if "" in files:
        return files[""]
    if "tables.jsonl" in files:
        return _database(files["tables.jsonl"])
    if "rows.jsonl" in files:
        return _parquet(files["rows.jsonl"])
    if "cells.jsonl" in files:
        return _csv(files["cells.jsonl"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def recordings_of(format: str) -> Iterator[Recording]:
    """Read all samples of a format, also the sample folders."""
    for sample in SAMPLES:
        if format_of(sample) == format:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "sample")
                path.write_bytes(packed(files_of(sample)))
                yield from load(path, format=format, on_error="skip")
    for sample in SAMPLE_FOLDERS:
        if format_of(sample) == format:
            yield from load(sample, on_error="skip")


def _parquet(rows: bytes) -> bytes:
    """Return a Parquet file with the given rows, or nothing if they have no common columns.

    Values that are nested hundreds of levels deep are left out, because pyarrow needs gigabytes to write
    them.
    """
    rows = _TOO_DEEP.sub(b"0", rows)
    buffer = io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist(_objects(rows)), buffer)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError):
        return b""
    return buffer.getvalue()


def _csv(rows: bytes) -> bytes:
    """Return a CSV file with the given rows; lists and objects become JSON."""
    buffer, objects = io.StringIO(newline=""), _objects(rows)
    names = list(dict.fromkeys(key for row in objects for key in row))
    writer = csv.writer(buffer)
    writer.writerow(names)
    for row in objects:
        cells = (row.get(name, "") for name in names)
        writer.writerow([json.dumps(c) if isinstance(c, (dict, list)) else c for c in cells])
    return buffer.getvalue().encode("utf-8", "surrogatepass")


def _objects(rows: bytes) -> list[dict[str, Any]]:
    """Return the objects of JSON lines. Other lines are skipped."""
    objects = []
    for line in rows.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        objects += [row] if isinstance(row, dict) else []
    return objects


def _database(rows: bytes) -> bytes:
    """Return a database with the given rows. Invalid rows are skipped; lists and objects become JSON."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA page_size = 512")
    if b'"sql"' not in rows:
        migrate_schema(connection, Path("sample"))
    for line in rows.splitlines():
        try:
            row = json.loads(line)
            if "sql" in row:
                connection.execute(row["sql"])
                continue
            table = row.pop("table")
            values = [json.dumps(v) if isinstance(v, (dict, list)) else v for v in row.values()]
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", values)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            continue
        except sqlite3.Error:
            continue
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    content = connection.serialize() if tables else b""
    connection.close()
    return content

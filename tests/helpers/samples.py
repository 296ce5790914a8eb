"""One small hand-written file or more of every format; ``name.anything`` holds the format ``name``.

A folder stands for a zip archive of what is in it; one that holds ``tables.jsonl``, for a database of
SQLite, a row a line. A line with ``sql`` makes a table; without it they are those of a session store.
"""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from pathlib import Path

from ctxlab.sessions.sqlite.schema import migrate_schema

HERE = Path(__file__).parents[1] / "formats" / "samples"
SAMPLES = sorted(HERE.iterdir())


def format_of(sample: Path) -> str:
    """The name of the format that a sample holds."""
    return sample.name.partition(".")[0]


def files_of(sample: Path) -> dict[str, bytes]:
    """What a sample holds, by name; a single file has the name ``""``."""
    if sample.is_file():
        return {"": sample.read_bytes()}
    inside = sorted(p for p in sample.rglob("*") if p.is_file())
    return {p.relative_to(sample).as_posix(): p.read_bytes() for p in inside}


def packed(files: dict[str, bytes]) -> bytes:
    """The file that holds them: itself, a database, or a zip archive."""
    if "" in files:
        return files[""]
    if "tables.jsonl" in files:
        return _database(files["tables.jsonl"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _database(rows: bytes) -> bytes:
    """The tables with the rows that they can hold; lists and objects as JSON."""
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

"""The database of a workspace's sessions is data: each session in it is a recording.

It is ``.ctxlab/sessions.db``, SQLite, as ``SqliteStore`` writes it: ``chat_sessions`` with a row a
session, ``messages`` with the whole transcript (``session_id``, ``position``, ``row`` as the native
format writes a message) and ``lines``. Version 1 knows no transcript: there it is ``recent_messages``.
It is opened to be read only, also while a chat goes on in it; nothing is left beside it.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.ctxlab_sessions.chunks import SESSION_META_KEYS
from ctxlab.formats.io.files import is_url, open_file
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import Message, Recording

__all__ = ["FORMAT", "MAX_SCHEMA_VERSION", "read", "read_only_uri", "sniff"]

_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID = b"CTXL"  # PRAGMA application_id, at byte 68 of the file
_SESSIONS_TABLE = b"CREATE TABLE chat_sessions"
MAX_SCHEMA_VERSION = 2
"""Of the tables, the newest that is read."""


def sniff(head: FileHead) -> bool:
    """Whether a file is SQLite that says it is ours, or holds a table ``chat_sessions``."""
    start = head.first_bytes
    return start.startswith(_MAGIC) and (
        start[68:72] == _APPLICATION_ID or _SESSIONS_TABLE in start
    )


def read(source: Source) -> Iterator[Recording]:
    """The sessions of a database, the oldest first."""
    with _local_file(source) as path:
        try:
            with closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=60)) as connection:
                connection.row_factory = sqlite3.Row
                connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version > MAX_SCHEMA_VERSION:
                    reason = (
                        f"version {version} of the sessions; this ctxlab reads {MAX_SCHEMA_VERSION}"
                    )
                    raise ReadError(source.path, None, reason)
                asked = "SELECT * FROM chat_sessions ORDER BY created_at, rowid"
                for number, row in enumerate(connection.execute(asked).fetchall()):
                    recording = None
                    with source.handle_errors(number, "session"):
                        recording = _read_session(connection, dict(row), source)
                    if recording is not None:
                        yield recording
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a name of a column may be broken too
            raise ReadError(source.path, None, str(error)) from None


FORMAT = Format("session-db", "ctxlab: sessions of a workspace (SqliteStore)", sniff, read)


@contextmanager
def _local_file(source: Source) -> Iterator[Path]:
    """The database as a file of this machine; one that lies elsewhere or is packed is copied."""
    place = source.path
    if not is_url(place) and (path := Path(place)).is_file():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                yield path
                return
    with TemporaryDirectory() as folder:
        copy = Path(folder, "sessions.db")
        with open_file(place) as packed, copy.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield copy


def read_only_uri(path: Path) -> str:
    """The address by which SQLite opens a database to read it alone.

    Where nobody has the log open, nothing need be written beside the database.
    """
    quiet = not any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    return f"{path.absolute().as_uri()}?{'immutable=1' if quiet else 'mode=ro'}"


def _read_session(connection: sqlite3.Connection, row: dict[str, Any], source: Source) -> Recording:
    id = str(row["session_id"])
    said = _parse_column(row.get("meta"), dict, f"meta of session {id}", source)
    said |= {
        key: row[key] for key in SESSION_META_KEYS if isinstance(row.get(key), str) and row[key]
    }
    if row.get("system"):
        said["system"] = True
    if isinstance(created := row["created_at"], (int, float)):
        said["created"] = created / 1000
    if "meta" not in row:  # version 1
        rows = _parse_column(row["recent_messages"], list, f"recent messages of {id}", source)
        messages = list(_parse_messages(enumerate(rows), source))
    else:
        asked = "SELECT position, row FROM messages WHERE session_id = ? ORDER BY position"
        messages = list(_parse_messages(map(tuple, connection.execute(asked, (id,))), source))
        asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
        if lines := {str(turn): line for turn, line in connection.execute(asked, (id,))}:
            said["lines"] = lines
    tools = _parse_column(row.get("tools"), list, f"tools of session {id}", source)
    model = row["model"] if isinstance(row["model"], str) else None
    return Recording(id, tuple(messages), tuple(tools), model, meta=said)


def _parse_messages(rows: Iterator[tuple[Any, ...]], source: Source) -> Iterator[Message]:
    for position, row in rows:
        message = None
        with source.handle_errors(position, "message"):
            message = message_from_row(parse_json(row) if isinstance(row, (str, bytes)) else row)
        if message is not None:
            yield message


def _parse_column(text: Any, kind: type, label: str, source: Source) -> Any:
    """A column of JSON; an empty one where there is none, or where it is broken, which is told."""
    try:
        value = kind() if text is None else parse_json(text)
        if isinstance(value, kind):
            return value
        reason = f"no {kind.__name__}"
    except (TypeError, ValueError) as error:
        reason = str(error)
    source.report_error(f"{label}: {reason}", 1, "column")
    return kind()

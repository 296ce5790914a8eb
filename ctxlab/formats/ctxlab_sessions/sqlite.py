"""The database of a workspace's sessions is data: each session in it is a recording.

It is ``.ctxlab/sessions.db``, SQLite, as ``WorkspaceStore`` writes it: ``chat_sessions`` with a row a
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
from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.ctxlab_sessions.chunks import SAID
from ctxlab.formats.io.files import (
    is_address,
    opened,
)
from ctxlab.formats.io.head import Head
from ctxlab.messages.openai_format import message_from_row
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "VERSION", "read", "read_only", "sniff"]

_MAGIC = b"SQLite format 3\0"
_APPLICATION = b"CTXL"  # PRAGMA application_id, at byte 68 of the file
_TABLE = b"CREATE TABLE chat_sessions"
VERSION = 2
"""Of the tables, the newest that is read."""


def sniff(head: Head) -> bool:
    """Whether a file is SQLite that says it is ours, or holds a table ``chat_sessions``."""
    start = head.start
    return start.startswith(_MAGIC) and (start[68:72] == _APPLICATION or _TABLE in start)


def read(source: Source) -> Iterator[Recording]:
    """The sessions of a database, the oldest first."""
    with _here(source) as path:
        try:
            with closing(sqlite3.connect(read_only(path), uri=True, timeout=60)) as connection:
                connection.row_factory = sqlite3.Row
                connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version > VERSION:
                    reason = f"version {version} of the sessions; this ctxlab reads {VERSION}"
                    raise ReadError(source.path, None, reason)
                asked = "SELECT * FROM chat_sessions ORDER BY created_at, rowid"
                for number, row in enumerate(connection.execute(asked).fetchall()):
                    recording = None
                    with source.guard(number, "session"):
                        recording = _recording(connection, dict(row), source)
                    if recording is not None:
                        yield recording
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a name of a column may be broken too
            raise ReadError(source.path, None, str(error)) from None


FORMAT = Format("session-db", "ctxlab: sessions of a workspace (WorkspaceStore)", sniff, read)


@contextmanager
def _here(source: Source) -> Iterator[Path]:
    """The database as a file of this machine; one that lies elsewhere or is packed is copied."""
    place = source.path
    if not is_address(place) and (path := Path(place)).is_file():
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                yield path
                return
    with TemporaryDirectory() as folder:
        copy = Path(folder, "sessions.db")
        with opened(place) as packed, copy.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield copy


def read_only(path: Path) -> str:
    """The address by which SQLite opens a database to read it alone.

    Where nobody has the log open, nothing need be written beside the database.
    """
    quiet = not any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    return f"{path.absolute().as_uri()}?{'immutable=1' if quiet else 'mode=ro'}"


def _recording(connection: sqlite3.Connection, row: dict[str, Any], source: Source) -> Recording:
    id = str(row["session_id"])
    said = _json(row.get("meta"), dict, f"meta of session {id}", source)
    said |= {key: row[key] for key in SAID if isinstance(row.get(key), str) and row[key]}
    if row.get("system"):
        said["system"] = True
    if isinstance(created := row["created_at"], (int, float)):
        said["created"] = created / 1000
    if "meta" not in row:  # version 1
        rows = _json(row["recent_messages"], list, f"recent messages of {id}", source)
        messages = list(_messages(enumerate(rows), source))
    else:
        asked = "SELECT position, row FROM messages WHERE session_id = ? ORDER BY position"
        messages = list(_messages(map(tuple, connection.execute(asked, (id,))), source))
        asked = "SELECT turn, line FROM lines WHERE session_id = ? ORDER BY turn"
        if lines := {str(turn): line for turn, line in connection.execute(asked, (id,))}:
            said["lines"] = lines
    tools = _json(row.get("tools"), list, f"tools of session {id}", source)
    model = row["model"] if isinstance(row["model"], str) else None
    return Recording(id, tuple(messages), tuple(tools), model, meta=said)


def _messages(rows: Iterator[tuple[Any, ...]], source: Source) -> Iterator[Message]:
    for position, row in rows:
        message = None
        with source.guard(position, "message"):
            message = message_from_row(parse_json(row) if isinstance(row, (str, bytes)) else row)
        if message is not None:
            yield message


def _json(text: Any, kind: type, what: str, source: Source) -> Any:
    """A column of JSON; an empty one where there is none, or where it is broken, which is told."""
    try:
        value = kind() if text is None else parse_json(text)
        if isinstance(value, kind):
            return value
        reason = f"no {kind.__name__}"
    except (TypeError, ValueError) as error:
        reason = str(error)
    source.broken(f"{what}: {reason}", 1, "column")
    return kind()

"""Sessions are opened by where they lie: a workspace, a folder of chunks, or any logs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ctxlab.errors import SessionError
from ctxlab.sessions.base import SessionLibrary, SessionStore

__all__ = ["find_store", "open_library", "open_store"]

_DATABASE = Path(".ctxlab", "sessions.db")
_CHUNK_FILE = re.compile(r"session-.+\.([1-9][0-9]*\.jsonl|meta\.json)")


def open_library(path: str | Path, *, allow_empty: bool = False) -> SessionLibrary:
    """The sessions of a path, to be read.

    A workspace (a folder with ``.ctxlab/sessions.db``, or that file itself) and a folder of chunks
    (``session-ID.N.jsonl``) are opened as the stores that they are. Whatever else ``ctxlab.load`` takes
    is read as logs: files, folders, globs, addresses, ``bundled:NAME``. ``allow_empty``: a folder
    that holds no session yet is the workspace that its first chat makes it.

    Raises ``SessionError`` where no session is, ``ReadError`` for a path that is missing, and
    ``UnknownFormat`` for a file that is neither.
    """
    store = find_store(path)
    if store is not None:
        return store
    from ctxlab.sessions.log_library import LogLibrary  # loads every format

    logs = LogLibrary(path)
    if not logs.sessions():
        if allow_empty and "://" not in str(path) and Path(path).expanduser().is_dir():
            return open_store(path)
        count = len(logs.skipped_files)
        raise SessionError(
            f"{path}: no session is stored there, and none of its {count:,} files is a log that ctxlab "
            "reads; ctxlab chat begins a session"
        )
    return logs


def open_store(path: str | Path) -> SessionStore:
    """The store of a path, to be written; a folder that has none becomes a workspace.

    Raises ``SessionError`` for a path that is missing, and for a file that is no store: logs can be read
    (``open_library``), but not written.
    """
    if not str(path):
        raise SessionError("a path is empty; the current folder is written as .")
    store = find_store(path)
    if store is not None:
        return store
    folder = Path(path).expanduser()
    if folder.is_dir():
        from ctxlab.sessions.sqlite.store import SqliteStore

        return SqliteStore(folder)
    if folder.exists():
        raise SessionError(
            f"{path}: is no store of sessions; give the folder of a workspace, or one of chunks"
        )
    raise SessionError(f"{path}: no such folder; make it first")


def find_store(path: str | Path) -> SessionStore | None:
    """The store that a path holds already; None where it holds none, as an address does.

    Nothing is made. Raises ``SessionError`` for a path that cannot be looked at.
    """
    if isinstance(path, str) and (not path or "://" in path):
        return None
    try:
        here = Path(path).expanduser().absolute()
        workspace = here
        if here.parts[-2:] == _DATABASE.parts:
            workspace = here.parent.parent
        elif here.name == _DATABASE.parts[0]:
            workspace = here.parent
        stored = (workspace / _DATABASE).is_file()
        chunked = not stored and here.is_dir() and _has_chunks(here)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a home that nobody has
        said = getattr(error, "strerror", None) or error
        raise SessionError(f"{str(path)[:200]!r} cannot be opened: {said}") from None
    if stored:
        from ctxlab.sessions.sqlite.store import SqliteStore

        return SqliteStore(workspace)
    if chunked:
        from ctxlab.sessions.jsonl.store import JsonlStore

        return JsonlStore(here)
    return None


def _has_chunks(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(_CHUNK_FILE.fullmatch(entry.name) for entry in entries)

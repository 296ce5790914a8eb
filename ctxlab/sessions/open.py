"""Open the sessions at a path: a workspace, a folder of chunks, or log files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ctxlab.errors import SessionError
from ctxlab.sessions.base import SessionLibrary, SessionStore
from ctxlab.sessions.common import LOCKS_FOLDER

_DATABASE = Path(".ctxlab", "sessions.db")
_CHUNK_FILE = re.compile(r"session-.+\.([1-9][0-9]*\.jsonl|meta\.json)")


def open_library(path: str | Path, *, allow_empty: bool = False) -> SessionLibrary:
    """Open the sessions at a path for reading.

    The class of the result depends on the path:

    - ``SqliteStore`` for a workspace, which is a folder with the file ``.ctxlab/sessions.db``, or for
      this file itself
    - ``JsonlStore`` for a folder of chunks (``session-ID.N.jsonl``)
    - ``LogLibrary`` for any other path that ``ctxlab.load`` accepts (files, folders, globs, URLs,
      ``bundled:NAME``)

    Parameters
    ----------
    path : str or Path
        Path to open.
    allow_empty : bool, default False
        Open a folder without sessions as a new workspace instead of raising an error.

    Returns
    -------
    SessionLibrary
        Library of the sessions at the path.

    Raises
    ------
    SessionError
        If there is no session at the path.
    ReadError
        If the path does not exist.
    UnknownFormat
        If the path is a file of an unknown format.
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
            f"{path}: expected stored sessions or logs, found neither in {count:,} files; "
            "start a session with ctxlab chat"
        )
    return logs


def open_store(path: str | Path) -> SessionStore:
    """Open the session store at a path for writing.

    A folder without a store is opened as a workspace with an empty store.

    Parameters
    ----------
    path : str or Path
        Folder or database file of the store.

    Returns
    -------
    SessionStore
        Session store at the path.

    Raises
    ------
    SessionError
        If the path does not exist, or if it is a file that is not a session store. To read log
        files, use ``open_library``.
    """
    if not str(path):
        raise SessionError("expected a path, got an empty string; use . for the current folder")
    store = find_store(path)
    if store is not None:
        return store
    folder = Path(path).expanduser()
    if folder.is_dir():
        from ctxlab.sessions.sqlite.store import SqliteStore

        return SqliteStore(folder)
    if folder.exists():
        raise SessionError(f"{path}: not a session store; pass a workspace or a folder of chunks")
    raise SessionError(f"{path}: no such folder; create it first")


def find_store(path: str | Path) -> SessionStore | None:
    """Find the session store at a path, without creating anything.

    Parameters
    ----------
    path : str or Path
        Path to check.

    Returns
    -------
    SessionStore or None
        The store; None if there is no store at the path, or if the path is a URL.

    Raises
    ------
    SessionError
        If the path cannot be accessed.
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
        names = [] if stored or not here.is_dir() else os.listdir(here)
        # If all sessions are deleted, only the folder of the locks is left.
        chunked = names == [LOCKS_FOLDER] or any(map(_CHUNK_FILE.fullmatch, names))
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: unknown user in "~user"
        said = getattr(error, "strerror", None) or error
        raise SessionError(f"cannot open {str(path)[:200]!r}: {said}") from None
    if stored:
        from ctxlab.sessions.sqlite.store import SqliteStore

        return SqliteStore(workspace)
    if chunked:
        from ctxlab.sessions.jsonl.store import JsonlStore

        return JsonlStore(here)
    return None

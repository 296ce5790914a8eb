"""Choose where a chat stores its sessions, or that it stores nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ctxlab._utils.private_files import make_folder
from ctxlab.errors import SessionError

if TYPE_CHECKING:
    from ctxlab.llm.base import Client
    from ctxlab.sessions.base import SessionStore

_FOLDER, _DATABASE = ".ctxlab", "sessions.db"


def make_store_folder(path: Path) -> Path:
    """Return the folder that ``--store`` names, and create it if it does not exist.

    Parameters
    ----------
    path : Path
        Value of the option.

    Returns
    -------
    Path
        Absolute path of the folder.

    Raises
    ------
    SessionError
        If there is a file at the path, or if its folder cannot be created.
    """
    folder = path.expanduser().absolute()
    try:
        make_folder(folder)
    except OSError as error:
        said = error.strerror or error
        raise SessionError(f"--store: cannot use {str(path)!r}: {said}; name a folder") from None
    return folder


def is_writable(folder: Path) -> bool:
    """Return True if sessions can be stored in a folder. Nothing is created.

    Parameters
    ----------
    folder : Path
        Folder of the sessions.

    Returns
    -------
    bool
        True if the folder or the database in it can be written.
    """
    inside = folder / _FOLDER
    if not inside.exists():
        return os.access(folder, os.W_OK)
    database = inside / _DATABASE
    paths = [inside, database] if database.exists() else [inside]
    return inside.is_dir() and all(os.access(path, os.W_OK) for path in paths)


@contextmanager
def unsaved_copy(folder: Path) -> Iterator[Path]:
    """Copy the database of a folder to a temporary folder, which is removed after the ``with`` block.

    The chat can thus resume and search earlier sessions.

    Parameters
    ----------
    folder : Path
        Folder of the sessions.

    Yields
    ------
    Path
        Temporary folder.
    """
    with TemporaryDirectory(prefix="ctxlab-", ignore_cleanup_errors=True) as made:
        inside = Path(made, _FOLDER)
        make_folder(inside)
        for name in (_DATABASE, f"{_DATABASE}-wal"):
            with suppress(OSError):  # there are no earlier sessions
                shutil.copyfile(folder / _FOLDER / name, inside / name)
        yield Path(made)


def open_chat_store(folder: Path, client: Client, model: str | None) -> SessionStore:
    """Open the session store in a folder for a chat.

    Parameters
    ----------
    folder : Path
        Workspace, or folder of session files.
    client : Client
        Client that calls the summary model.
    model : str or None
        Summary model.

    Returns
    -------
    SessionStore
        Store of the chat's sessions.
    """
    from ctxlab.sessions.jsonl.store import JsonlStore
    from ctxlab.sessions.open import find_store
    from ctxlab.sessions.sqlite.store import SqliteStore

    found = find_store(folder)
    if isinstance(found, JsonlStore):
        return found
    return SqliteStore(folder, client=client, model=model)

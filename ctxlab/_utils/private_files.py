"""Create files and folders that only their owner can read, regardless of the umask.

Session stores, reply caches and input histories contain conversations, so other users of the machine
must not be able to read them. The mode is set when a file is created, so other users cannot read the
file even for a moment. The umask is not changed, because it applies to the whole process and other
threads create files too. Existing folders keep their mode.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, each with access for its owner only.

    Parameters
    ----------
    path : Path
        The folder to create. An existing folder is left unchanged.

    Raises
    ------
    OSError
        If the folder cannot be created, or if the path is a file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as above:
    ...     make_folder(Path(above, "a", "b"))
    ...     [oct(folder.stat().st_mode & 0o777) for folder in Path(above).rglob("*")]
    ['0o700', '0o700']
    """
    try:
        path.mkdir(FOLDER_MODE)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folder(path.parent)  # Path.mkdir(parents=True) would give parents the default mode
        path.mkdir(FOLDER_MODE, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise


def create_file(path: Path) -> None:
    """Create an empty file that only its owner can read. An existing file is left unchanged.

    Call this function before a library opens the file without setting a mode, as SQLite does. SQLite
    gives its journal and its write-ahead log the mode of the database file.

    Parameters
    ----------
    path : Path
        The file to create. Its folder must exist.

    Raises
    ------
    OSError
        If the file cannot be created.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def open_for_writing(path: Path) -> BinaryIO:
    """Open a file for overwriting and restrict its access to its owner.

    The mode of an existing file is changed, too.

    Parameters
    ----------
    path : Path
        The file to open. Its folder must exist.

    Returns
    -------
    BinaryIO
        The open file. It is empty.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    file = open(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))  # noqa: SIM115
    if hasattr(os, "fchmod"):  # Windows has no fchmod
        os.fchmod(file.fileno(), FILE_MODE)
    return file

"""Create files and folders that only their owner can read, regardless of the umask.

Stores, reply caches and input histories contain conversations, so other users of the machine must not
be able to read them. The mode is set when a file is created: the file is never readable by others, not
even briefly. The umask is not changed, because it applies to the whole process and other threads create
files too. Existing folders keep their mode.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, each readable by its owner only.

    Parameters
    ----------
    path : Path
        The folder. Nothing is done if it exists.

    Raises
    ------
    OSError
        If the folder cannot be made, or if the path is a file.

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
    """Make an empty file that only its owner can read; leave an existing file unchanged.

    Call this before code that opens the file itself and does not set a mode. SQLite uses the mode of a
    database for its journal and its write-ahead log.

    Parameters
    ----------
    path : Path
        The file. Its folder must exist.

    Raises
    ------
    OSError
        If the file cannot be made.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def open_for_writing(path: Path) -> BinaryIO:
    """Open a file for overwriting, readable by its owner only, even if it existed with another mode.

    Parameters
    ----------
    path : Path
        The file. Its folder must exist.

    Returns
    -------
    BinaryIO
        The open file, empty.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    file = open(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))  # noqa: SIM115
    if hasattr(os, "fchmod"):  # Windows has no fchmod
        os.fchmod(file.fileno(), FILE_MODE)
    return file

"""Files and folders that only their owner can read, whatever the umask of the process is.

Stores, answer caches and histories hold what was said, so other accounts of the machine must not read
them. The mode is given when a file is made: there is no moment at which it is readable. The umask is
never changed, since it belongs to the whole process and other threads make files too. A folder that was
there already keeps its mode.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["FILE_MODE", "FOLDER_MODE", "create_file", "make_folder", "open_for_writing"]

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, each readable by its owner only.

    Parameters
    ----------
    path : Path
        The folder. It may be there already; then nothing is done.

    Raises
    ------
    OSError
        If it cannot be made, or is a file.

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
        make_folder(path.parent)  # Path.mkdir(parents=True) would give these the usual mode
        path.mkdir(FOLDER_MODE, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise


def create_file(path: Path) -> None:
    """Make an empty file that only its owner can read; leave one that is there as it is.

    What opens files by itself is given one that is there. SQLite gives the mode of a database to its
    journal and its log.

    Parameters
    ----------
    path : Path
        The file. Its folder must be there.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def open_for_writing(path: Path) -> BinaryIO:
    """Open a file to write it anew, readable by its owner only, also where it was there before.

    Parameters
    ----------
    path : Path
        The file. Its folder must be there.

    Returns
    -------
    BinaryIO
        The open file, empty.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    file = open(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))  # noqa: SIM115
    if hasattr(os, "fchmod"):  # not on Windows
        os.fchmod(file.fileno(), FILE_MODE)
    return file

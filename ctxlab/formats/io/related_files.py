"""Find files that belong to the file that is being read, such as the log of a parent conversation.

Only files on a local disk are found. Their names come from recorded data, so the names are checked, and
no file outside of the folder that the user requested is read, not even through a link.
"""

from __future__ import annotations

import re
from pathlib import Path

from ctxlab.formats.io.files import PathOrUrl, is_inside, is_url, strip_suffixes


def local_path(path: PathOrUrl) -> Path | None:
    """Return the path of a file on a local disk.

    Parameters
    ----------
    path : str or Path
        Path or URL of a file.

    Returns
    -------
    Path or None
        The path. None if ``path`` is a URL.
    """
    return None if is_url(path) else Path(path)


def is_file_name(name: str) -> bool:
    """Check that a recorded name is the name of a file, and not a path or a pattern.

    Parameters
    ----------
    name : str
        A name without suffix.

    Returns
    -------
    bool
        True if the name has only letters, digits, ``_`` and ``-``.

    Examples
    --------
    >>> is_file_name("ses_1"), is_file_name("../ses_1"), is_file_name("*")
    (True, False, False)
    """
    return re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name) is not None


def is_related_file(path: Path, other: Path, root: Path | None) -> bool:
    """Check whether another file exists and may be read together with the file that is being read.

    Parameters
    ----------
    path : Path
        The file that is being read.
    other : Path
        The other file.
    root : Path or None
        The folder that the user requested (``Source.root``). None: the folder of ``path``.

    Returns
    -------
    bool
        True if the other file exists in this folder or its subfolders. False if it is elsewhere, or a
        link that leads elsewhere, or if its folder cannot be read.
    """
    try:
        return other.is_file() and is_inside(other, path.parent if root is None else root)
    except OSError:
        return False


def recording_prefix(path: Path, name: str, other: Path) -> str:
    """Return the prefix of the ids of the recordings in another file.

    Parameters
    ----------
    path : Path
        The file that is being read.
    name : str
        Prefix of the recording ids of this file: its path relative to the requested folder, without
        suffix.
    other : Path
        The other file.

    Returns
    -------
    str
        The path of the other file relative to the requested folder, without suffix. The name of the
        file without suffix if it is not in this folder.

    Examples
    --------
    >>> recording_prefix(Path("/logs/2/b.jsonl"), "2/b", Path("/logs/1/a.jsonl.gz"))
    '1/a'
    >>> recording_prefix(Path("/logs/2/b.jsonl"), "b", Path("/logs/1/a.jsonl.gz"))
    'a'
    """
    root, other = path.absolute(), other.absolute()
    for _ in name.split("/"):
        root = root.parent
    inside = other.is_relative_to(root)
    return strip_suffixes(other.relative_to(root).as_posix() if inside else other.name)

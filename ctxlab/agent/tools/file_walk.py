"""List all files and folders below a folder, without following links, within a time limit."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from ctxlab._utils.humanize import pluralize
from ctxlab.agent.tools.safe_paths import MAX_DEPTH, DirectoryEntry, list_entries, open_folder_at


@dataclass
class FileWalker:
    """Lists the files and folders below a folder, and counts hidden ones and folders not opened.

    Files and folders with names that start with a dot, such as ``.git`` and ``.ctxlab``, are
    hidden and left out. Symbolic links are listed but not followed. A folder that cannot be opened
    is listed without its contents.
    """

    max_depth: int = MAX_DEPTH
    "number of levels to list, limited to ``MAX_DEPTH``; 1 lists only the folder's own contents"
    deadline: float = float("inf")
    "time at which the walk stops and sets ``timed_out``, as a value of ``time.monotonic``"
    hidden_count: int = 0
    "number of hidden files and folders that were left out"
    unreadable_count: int = 0
    "number of folders that could not be opened"
    too_deep_count: int = 0
    "number of folders that were not opened because they are at level ``max_depth``"
    timed_out: bool = False
    "True if the walk stopped at the deadline"

    def __post_init__(self) -> None:
        """Limit ``max_depth`` to ``MAX_DEPTH``."""
        self.max_depth = min(self.max_depth, MAX_DEPTH)

    def walk(
        self, folder_fd: int, prefix: str = "", level: int = 1
    ) -> Generator[tuple[str, int, DirectoryEntry], None, None]:
        """Yield all files and folders below a folder, sorted by name, each folder before its contents.

        Parameters
        ----------
        folder_fd : int
            File descriptor of the open folder.
        prefix : str, optional
            String that is put before each yielded path, such as ``"src/"``.
        level : int, optional
            Depth of the folder's contents, which is compared with ``max_depth``. Pass 1 for the
            folder at which the walk starts.

        Yields
        ------
        tuple of str, int and DirectoryEntry
            Path of a file or folder, file descriptor of its parent folder, and name and kind of the
            file or folder.
        """
        for entry in list_entries(folder_fd):
            if time.monotonic() > self.deadline:
                self.timed_out = True
            if self.timed_out:
                return
            if entry.name.startswith("."):
                self.hidden_count += 1
                continue
            path = f"{prefix}{entry.name}"
            yield path, folder_fd, entry
            if entry.kind != "folder":
                continue
            if level >= self.max_depth:
                self.too_deep_count += 1
                continue
            try:
                number = open_folder_at(folder_fd, entry.name, path)
            except OSError:
                self.unreadable_count += 1
                continue
            try:
                with suppress(FileNotFoundError):
                    yield from self.walk(number, f"{path}/", level + 1)
            finally:
                os.close(number)

    def omission_notes(self) -> list[str]:
        """Return notes that tell an agent how many files and folders were left out, and why.

        Returns
        -------
        list of str
            One note for each reason; empty if nothing was left out.
        """
        hidden = pluralize(self.hidden_count, "hidden name")
        too_deep = pluralize(self.too_deep_count, "folder")
        unreadable = pluralize(self.unreadable_count, "folder")
        notes = {
            f"{hidden} (starting with a dot) left out": self.hidden_count,
            f"{too_deep} not entered: deeper than {self.max_depth} levels": self.too_deep_count,
            f"{unreadable} could not be opened": self.unreadable_count,
            "stopped at the time limit; there may be more": self.timed_out,
        }
        return [note for note, applies in notes.items() if applies]


def matches_glob(path: str, glob: str) -> bool:
    """Return True if a path matches a glob pattern.

    A pattern without ``/`` is compared with the last part of the path only. ``**`` matches any
    number of folders.

    Parameters
    ----------
    path : str
        Relative path with ``/`` between its parts.
    glob : str
        Glob pattern, such as ``"*.py"`` or ``"src/**/*.py"``.

    Returns
    -------
    bool
        True if the path matches the pattern.

    Examples
    --------
    >>> [matches_glob("src/sub/a.py", glob) for glob in ("*.py", "src/*.py", "src/**/*.py", "**")]
    [True, False, True, True]
    """
    parts = tuple(path.split("/"))
    if "/" not in glob:
        return glob == "**" or fnmatchcase(parts[-1], glob)
    return _match_parts(parts, tuple(part for part in glob.split("/") if part not in ("", ".")))


@lru_cache(maxsize=4096)
def _match_parts(parts: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        return _match_parts(parts, globs[1:]) or (bool(parts) and _match_parts(parts[1:], globs))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _match_parts(parts[1:], globs[1:])

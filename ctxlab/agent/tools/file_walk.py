"""Walk through all files below a folder, in order, without following links, within a time limit."""

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
    """Walks through a folder and everything below it, and counts what it leaves out.

    Hidden entries (names that start with a dot, such as ``.git`` and ``.ctxlab``) are left out.
    Links are not followed. Folders that cannot be opened are counted.
    """

    max_depth: int = MAX_DEPTH
    "levels below the folder, at most ``MAX_DEPTH``; 1 covers the folder's own entries"
    deadline: float = float("inf")
    "value of ``time.monotonic`` at which the walk stops and sets ``timed_out``"
    hidden_count: int = 0
    "number of hidden entries"
    unreadable_count: int = 0
    "number of folders that could not be opened"
    too_deep_count: int = 0
    "number of folders below ``max_depth``"
    timed_out: bool = False
    "True if the walk stopped at the deadline"

    def __post_init__(self) -> None:
        """Keep ``max_depth`` within ``MAX_DEPTH``."""
        self.max_depth = min(self.max_depth, MAX_DEPTH)

    def walk(
        self, folder_fd: int, prefix: str = "", level: int = 1
    ) -> Generator[tuple[str, int, DirectoryEntry], None, None]:
        """Yield all entries, each folder before its contents.

        Parameters
        ----------
        folder_fd : int
            File descriptor of the folder.
        prefix : str, optional
            Prefix of the paths.
        level : int, optional
            Level of the folder's entries.

        Yields
        ------
        tuple of str, int and DirectoryEntry
            Path of the entry, file descriptor of its folder, and the entry.
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
        """Return notes for the reader on what was left out.

        Returns
        -------
        list of str
            The notes.
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

    A pattern without ``/`` matches names at any depth. ``**`` matches any number of folders.

    Parameters
    ----------
    path : str
        The path.
    glob : str
        The pattern.

    Returns
    -------
    bool
        True if it matches.

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

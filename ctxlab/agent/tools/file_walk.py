"""All files below a folder, in order, without links and within a time."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from ctxlab._utils.humanize import many
from ctxlab.agent.tools.safe_paths import (
    DEEPEST,
    Entry,
    entries,
    opened_folder,
)

__all__ = ["Walk", "matches"]


@dataclass
class Walk:
    """Goes through a folder and what is below it, and counts what it leaves out.

    Hidden entries (``.git`` and ``.ctxlab`` are) are left out, links are not followed, and folders that
    may not be opened are counted.
    """

    depth: int = DEEPEST
    "levels below the folder, ``DEEPEST`` of them at most; 1: what lies in it"
    until: float = float("inf")
    "``time.monotonic`` after which it ends, which it says in ``late``"
    hidden: int = 0
    closed: int = 0
    "folders that could not be opened"
    deeper: int = 0
    "folders that lie below ``depth``"
    late: bool = field(default=False)

    def __post_init__(self) -> None:
        self.depth = min(self.depth, DEEPEST)

    def through(
        self, folder: int, at: str = "", level: int = 1
    ) -> Generator[tuple[str, int, Entry], None, None]:
        """Path, open folder and entry of each; a folder before what is in it."""
        for entry in entries(folder):
            if time.monotonic() > self.until:
                self.late = True
            if self.late:
                return
            if entry.name.startswith("."):
                self.hidden += 1
                continue
            path = f"{at}{entry.name}"
            yield path, folder, entry
            if entry.kind != "folder":
                continue
            if level >= self.depth:
                self.deeper += 1
                continue
            try:
                number = opened_folder(folder, entry.name, path)
            except OSError:
                self.closed += 1
                continue
            try:
                with suppress(FileNotFoundError):
                    yield from self.through(number, f"{path}/", level + 1)
            finally:
                os.close(number)

    def said(self) -> list[str]:
        """What was left out, as a reader is told."""
        notes = []
        if self.hidden:
            notes.append(f"{many(self.hidden, 'hidden name')} (beginning with a dot) left out")
        if self.deeper:
            notes.append(
                f"{many(self.deeper, 'folder')} not entered: deeper than {self.depth} levels"
            )
        if self.closed:
            notes.append(f"{many(self.closed, 'folder')} could not be opened")
        if self.late:
            notes.append("stopped because the time was up: there may be more")
        return notes


def matches(path: str, glob: str) -> bool:
    """Whether a path is meant by a pattern; one without ``/`` means names at any depth.

    ``**`` stands for any number of folders.

    >>> [matches("src/sub/a.py", glob) for glob in ("*.py", "src/*.py", "src/**/*.py", "**")]
    [True, False, True, True]
    """
    parts = tuple(path.split("/"))
    if "/" not in glob:
        return glob == "**" or fnmatchcase(parts[-1], glob)
    return _fits(parts, tuple(part for part in glob.split("/") if part not in ("", ".")))


@lru_cache(maxsize=4096)
def _fits(parts: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        return _fits(parts, globs[1:]) or (bool(parts) and _fits(parts[1:], globs))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _fits(parts[1:], globs[1:])

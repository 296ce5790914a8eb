"""Account for each file that ``load`` found: the format in which it was read, or why it was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ctxlab.formats.io.files import PathOrUrl


class FileReport(NamedTuple):
    """Result of ``load`` for one file, or for a folder that cannot be listed."""

    path: PathOrUrl
    "path or URL of the file, or the name of a data set of the hub"
    format: str | None
    "name of the format in which the file was read; None if no recording was found in it"
    kind: str = ""
    """kind of the file or problem with it, such as ``a Jupyter notebook``; files that were skipped for
    the same reason have the same kind. Empty if the file was read"""
    detail: str = ""
    "continuation of ``kind`` that is specific to this file; may be empty"
    advice: str = ""
    "what to do to read the file, as an imperative; empty if it is probably no log"


@dataclass
class LoadReport:
    """Results of ``load``, by file. ``load`` fills it while the recordings are read.

    Each file is in ``files`` once: when it has been read, or when it is skipped. Recordings that do not
    meet the conditions of ``load`` also count as read.

    Examples
    --------
    >>> from ctxlab.formats import load
    >>> report = LoadReport()
    >>> recordings = list(load("bundled:coding-agent", report=report))
    >>> report.found == len(report.files), {each.format for each in report.files}
    (True, {'native'})
    """

    on_change: Callable[[LoadReport], None] | None = None
    "called after each change, for example to show the progress"
    found: int = 0
    "number of files at all paths, including those that are not read yet"
    files: list[FileReport] = field(default_factory=list)
    "the files that have been read or skipped so far"
    remarks: list[tuple[PathOrUrl, str]] = field(default_factory=list)
    """paths with problems that are not about one file, such as a folder without recordings, and
    descriptions of the problems"""

    @property
    def unread(self) -> list[FileReport]:
        """The files in which no recording was found."""
        return [each for each in self.files if each.format is None]

    def count_files(self) -> Counter[str]:
        """Count the files that have been read by format.

        Returns
        -------
        Counter of str
            Name of the format → number of files.
        """
        return Counter(each.format for each in self.files if each.format is not None)

    def add(self, *files: FileReport) -> None:
        """Add files that have been read or skipped.

        Parameters
        ----------
        *files : FileReport
            The files. Each must be counted in ``found``.
        """
        self.files += files
        if self.on_change is not None:
            self.on_change(self)

"""Read a table that says to which cluster each file of recordings belongs.

The table is a TSV or CSV file with the columns ``file`` and ``cluster``. Other columns are ignored. A
line applies to a file if the path of the file ends with the path in the line, compared by whole folder
names. All recordings of the file get the cluster.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from ctxlab.errors import ReadError
from ctxlab.formats.io.files import PathOrUrl, open_file
from ctxlab.formats.io.limits import read_whole
from ctxlab.messages.types import Recording

_NEEDED = ("file", "cluster")
_MAX_LISTED = 3


class ClusterLine(NamedTuple):
    """A line of the table."""

    number: int
    "line number, counted from 1"
    file: str
    "path of the file, with slashes"
    cluster: str
    "name of the cluster"


@dataclass
class ClusterTable:
    """The clusters of files, and the lines that were used."""

    path: PathOrUrl
    "path of the table"
    lines: dict[str, ClusterLine]
    "path in a line → line"
    used: dict[str, str] = field(default_factory=dict)
    "path in a line → path of the file to which it was applied"

    def assign(self, recording: Recording) -> Recording:
        """Return a recording with the cluster of its file.

        Parameters
        ----------
        recording : Recording
            The recording, with the path of its file as ``source``.

        Returns
        -------
        Recording
            The same recording in the cluster of its file.

        Raises
        ------
        ReadError
            If no line applies to the file, or if its line already applies to a file in another
            folder. The message names the recording and the lines.
        """
        source = Path(recording.source or "").as_posix()
        line = self._find(source)
        if line is None:
            reason = f"the recording {recording.id} ({source}) has no line; add or correct one"
            unused = f" ({self.unused})" if self.unused else ""
            raise ReadError(self.path, None, reason + unused)
        other = self.used.setdefault(line.file, source)
        if other != source:
            reason = f"the file {line.file!r} could be {other} or {source}; write a longer path"
            raise ReadError(self.path, line.number, reason)
        return msgspec.structs.replace(recording, cluster=line.cluster)

    @property
    def unused(self) -> str:
        """Text that names the lines that have not been applied to a file; empty if there are none."""
        lines = [line for line in self.lines.values() if line.file not in self.used]
        if not lines:
            return ""
        named = ", ".join(f"{line.file} ({line.number})" for line in lines[:_MAX_LISTED])
        more = len(lines) - _MAX_LISTED
        return f"lines without a recording: {named}{f' and {more} more' if more > 0 else ''}"

    def _find(self, source: str) -> ClusterLine | None:
        """Return the line whose path is the longest end of the path of a file."""
        rest = source
        while rest:
            if rest in self.lines:
                return self.lines[rest]
            rest = rest.partition("/")[2]
        return None


def read_clusters(path: PathOrUrl) -> ClusterTable:
    """Read the table of clusters.

    Parameters
    ----------
    path : str or Path
        Path or URL of a TSV or CSV file with the columns ``file`` and ``cluster``.

    Returns
    -------
    ClusterTable
        The clusters by file.

    Raises
    ------
    ReadError
        If the file cannot be read, a column or value is missing, or a file has two lines.
    """
    lines: dict[str, ClusterLine] = {}
    with open_file(path) as raw:
        try:
            text = read_whole(raw, "a table").decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ReadError(path, None, "the text is not UTF-8") from None
        except ValueError as error:
            raise ReadError(path, None, str(error)) from None
    for line in _parse_lines(path, text):
        if line.file in lines:
            first = lines[line.file].number
            raise ReadError(path, line.number, f"the file {line.file!r} is also in line {first}")
        lines[line.file] = line
    if not lines:
        raise ReadError(path, None, "expected lines with a file and a cluster, got none")
    return ClusterTable(path, lines)


def _parse_lines(path: PathOrUrl, text: str) -> Iterator[ClusterLine]:
    header = text.partition("\n")[0]
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter="\t" if "\t" in header else max(",;", key=header.count),
    )
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        if missing := [name for name in _NEEDED if name not in names]:
            got = ", ".join(names) or "no columns"
            raise ReadError(
                path, 1, f"expected the columns file and cluster, got {got}; add {missing[0]}"
            )
        file_at, cluster_at = (names.index(name) for name in _NEEDED)
        end = reader.line_num
        for fields in reader:
            number, end = end + 1, reader.line_num
            if not any(fields):
                continue
            if len(fields) <= max(file_at, cluster_at):
                reason = f"expected {len(names)} columns, got {len(fields)}"
                raise ReadError(path, number, reason)
            file, cluster = fields[file_at].strip(), fields[cluster_at].strip()
            if not file or not cluster:
                empty = "file" if not file else "cluster"
                raise ReadError(path, number, f"the column {empty} is empty; write a value")
            yield ClusterLine(number, file.replace("\\", "/").removeprefix("./"), cluster)
    except csv.Error as error:
        raise ReadError(path, reader.line_num, f"not CSV: {error}") from None
